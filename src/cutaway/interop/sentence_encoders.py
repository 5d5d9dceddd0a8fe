"""What sentence-transformers puts beside a BERT to make a sentence encoder of it, both ways.

    modules.json                        what is done to a text, one after the other
    sentence_bert_config.json           do_lower_case, max_seq_length
    1_Pooling/config.json               what stands for the whole of a text
    config_sentence_transformers.json   prompts: what is put before a text, by name, and which of them if nobody says

Whatever changes a vector is kept, or refused by its name.
"""

from __future__ import annotations

import json
from typing import Any

from cutaway.config import Config, ModelConfig
from cutaway.errors import ConfigError, did_you_mean
from cutaway.interop.architecture import ForeignConfig
from cutaway.interop.tensors import read_json

# their names of poolings, the old and the new ones -> ours
POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "mean": "mean",
    "cls": "cls",
    "max": "max",
}

# their modules -> their folders. The last may be missing.
MODULES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}

TRANSFORMER = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
# What else these files may say without changing a vector: the values at which it does not.
NEUTRAL: dict[str, dict[str, tuple[Any, ...]]] = {
    TRANSFORMER: {
        "transformer_task": ("feature-extraction",),
        "processing_kwargs": ({},),
        "query_length": (),
        "document_length": (),
        "query_expansion": (),
        "tokenizer_name_or_path": (),
        **dict.fromkeys(("model_args", "tokenizer_args", "config_args"), ({},)),
        **dict.fromkeys(("model_kwargs", "processor_kwargs", "config_kwargs"), ({},)),
    },
    PROMPTS: {"truncate_dim": (), "model_type": ("SentenceTransformer",)},
}


def beside(s: ForeignConfig, name: str) -> dict[str, Any]:
    """What is said in a file beside the model; nothing, if it is not there. What we cannot do is refused."""
    file = s.folder / name if s.folder else None
    said = (
        {key: value for key, value in read_json(file).items() if value is not None} if file and file.is_file() else {}
    )
    for setting, neutral in NEUTRAL.get(name, {}).items():
        if setting in said and said[setting] not in neutral:
            supported = " or ".join(map(repr, neutral)) or "none"
            raise ConfigError(
                f"{s.title} has {setting} = {said[setting]!r} in its {name}, which Cutaway's sentence encoders do not "
                f"have; supported: {supported}. Choose a model without it."
            )
    return said


def pooling(s: ForeignConfig) -> str:
    """What stands for the whole of a text; if nobody says it, the mean."""
    check_modules(s)
    said = beside(s, "1_Pooling/config.json")
    if not said:
        s.notes.append("no 1_Pooling/config.json says what stands for a text: it is the mean of its tokens.")
        return "mean"
    chosen = said.get("pooling_mode") or [key for key, on in said.items() if key.startswith("pooling_mode_") and on]
    chosen = [chosen] if isinstance(chosen, str) else list(chosen)
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise ConfigError(
            f"{s.title} pools by {', '.join(map(str, chosen)) or 'nothing'} in its 1_Pooling/config.json, which "
            f"Cutaway's model cannot express; supported: one of {', '.join(POOLINGS)}. Choose a model without it."
        )
    if not said.get("include_prompt", True) and any(prompts(s).values()):
        raise ConfigError(
            f"{s.title} has include_prompt = False in its 1_Pooling/config.json: its prompts are read, but not pooled, "
            "which Cutaway's poolings cannot do. Choose a model without it."
        )
    return POOLINGS[chosen[0]]


def check_modules(s: ForeignConfig) -> None:
    """What is done to a text, one after the other. We do no more than these."""
    file = s.folder / "modules.json" if s.folder else None
    if file is None or not file.is_file():
        return
    modules = json.loads(file.read_text(encoding="utf-8"))
    kinds = []
    for package, _, kind in (str(module["type"]).rpartition(".") for module in modules):
        if kind not in MODULES or package.partition(".")[0] != "sentence_transformers":
            given = kind if package.startswith("sentence_transformers") else f"{package}.{kind}"
            raise ConfigError(s.refusal("a module in modules.json, type", given, ", ".join(MODULES)))
        kinds.append(kind)
    if kinds not in (list(MODULES), list(MODULES)[:2]):
        raise ConfigError(
            s.refusal("modules in modules.json", ", ".join(kinds), f"{', '.join(MODULES)}, in this order")
        )
    for module, (kind, path) in zip(modules, MODULES.items(), strict=False):
        if kind == "Pooling" and module.get("path", path) != path:
            raise ConfigError(s.refusal("the folder of Pooling in modules.json", module["path"], path))
    if "Normalize" not in kinds:
        s.notes.append(
            "the original leaves its vectors as long as they are (modules.json has no Normalize); here they have "
            "length 1, unless you ask for theirs: --no-normalize, or normalize=False."
        )


def prompts(s: ForeignConfig) -> dict[str, str]:
    """What may be put before a text -> by name."""
    said = beside(s, PROMPTS).get("prompts", {})
    return {str(name): text or "" for name, text in said.items()}


def settings_of_data(s: ForeignConfig, model: ModelConfig) -> dict[str, Any]:
    """How long a text may be, and what is put before it: for our [data] table."""
    said, known = beside(s, PROMPTS), prompts(s)
    default = said.get("default_prompt_name", "")
    if default and default not in known:
        raise ConfigError(
            f"{s.title} has default_prompt_name = {default!r} in its {PROMPTS}. {did_you_mean(default, known)}"
        )
    if any(known.values()):
        first = f"{default!r} is put before every text" if default else "none is put before a text"
        names = ", ".join(name for name, text in known.items() if text)
        s.notes.append(f"there are prompts: {names}. Unless you choose with --prompt, {first}.")
    if (by := said.get("similarity_fn_name", "cosine")) != "cosine":
        s.notes.append(f"its makers compare vectors by {by!r} (similarity_fn_name); --similar prints cosines.")
    # what is said in sentence_bert_config.json goes before what the tokenizer says
    lengths = beside(s, TRANSFORMER).get("max_seq_length"), beside(s, "tokenizer_config.json").get("model_max_length")
    longest = min(int(next((length for length in lengths if length), model.max_length)), model.max_length)
    if longest < model.max_length:
        s.notes.append(f"a text may have {longest} tokens (max_seq_length), though there are more positions.")
    return {"max_tokens": longest, "prompts": known, "prompt": default}


def is_lower_case(s: ForeignConfig) -> bool:
    return bool(beside(s, TRANSFORMER).get("do_lower_case"))


def files(config: Config) -> dict[str, Any]:
    """What to write beside a sentence encoder: name -> JSON. Small letters are the tokenizer's own matter here."""
    c, data = config.model, config.data
    written: dict[str, Any] = {
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
            for i, (name, path) in enumerate(MODULES.items())
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": c.d_model,
            "pooling_mode_mean_tokens": c.pooling == "mean",
            "pooling_mode_cls_token": c.pooling == "cls",
            "pooling_mode_max_tokens": c.pooling == "max",
        },
        TRANSFORMER: {"max_seq_length": data.max_tokens, "do_lower_case": False},
    }
    if data.prompts:
        written[PROMPTS] = {"prompts": data.prompts, "default_prompt_name": data.prompt or None}
    return written
