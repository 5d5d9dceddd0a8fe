"""The additional files of a sentence encoder (sentence-transformers), read and written.

    modules.json                        the processing steps, in order
    sentence_bert_config.json           do_lower_case, max_seq_length
    1_Pooling/config.json               how token vectors become one vector
    config_sentence_transformers.json   named prompts to put before a text, and the default one

A setting that changes vectors is either kept or raises an error that names it.
"""

from __future__ import annotations

import json
from typing import Any

from cutaway.config import Config, ModelConfig
from cutaway.errors import ConfigError, did_you_mean
from cutaway.interop.architecture import HuggingFaceConfig
from cutaway.interop.tensors import read_json

# their names of poolings, old and new -> ours
POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "mean": "mean",
    "cls": "cls",
    "max": "max",
}

# their modules -> folders. The last is optional.
MODULES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}

TRANSFORMER = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
# unsupported settings -> the values without effect, which are accepted
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


def read_extra_file(hf: HuggingFaceConfig, name: str) -> dict[str, Any]:
    """Read a JSON file of the model's folder. Empty if it is missing. An unsupported setting raises."""
    file = hf.folder / name if hf.folder else None
    settings = (
        {key: value for key, value in read_json(file).items() if value is not None} if file and file.is_file() else {}
    )
    for setting, neutral in NEUTRAL.get(name, {}).items():
        if setting in settings and settings[setting] not in neutral:
            supported = " or ".join(map(repr, neutral)) or "none"
            raise ConfigError(
                f"{hf.title} has {setting} = {settings[setting]!r} in its {name}, which Cutaway does not support. "
                f"Supported: {supported}. Choose another model."
            )
    return settings


def read_pooling(hf: HuggingFaceConfig) -> str:
    """The pooling. Default: mean."""
    check_modules(hf)
    settings = read_extra_file(hf, "1_Pooling/config.json")
    if not settings:
        hf.notes.append("there is no 1_Pooling/config.json: the vector of a text is the mean of its tokens.")
        return "mean"
    chosen = settings.get("pooling_mode") or [
        key for key, on in settings.items() if key.startswith("pooling_mode_") and on
    ]
    chosen = [chosen] if isinstance(chosen, str) else list(chosen)
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise ConfigError(
            f"{hf.title} has the pooling {', '.join(map(str, chosen)) or 'none'} in its 1_Pooling/config.json, which "
            f"Cutaway does not support. Supported: one of {', '.join(POOLINGS)}. Choose another model."
        )
    if not settings.get("include_prompt", True) and any(read_prompts(hf).values()):
        raise ConfigError(
            f"{hf.title} has include_prompt = False in its 1_Pooling/config.json (prompts are not pooled), which "
            "Cutaway does not support. Choose another model."
        )
    return POOLINGS[chosen[0]]


def check_modules(hf: HuggingFaceConfig) -> None:
    """Raise if modules.json has steps other than those in MODULES."""
    file = hf.folder / "modules.json" if hf.folder else None
    if file is None or not file.is_file():
        return
    modules = json.loads(file.read_text(encoding="utf-8"))
    kinds = []
    for package, _, kind in (str(module["type"]).rpartition(".") for module in modules):
        if kind not in MODULES or package.partition(".")[0] != "sentence_transformers":
            given = kind if package.startswith("sentence_transformers") else f"{package}.{kind}"
            raise ConfigError(hf.unsupported("a module in modules.json, type", given, ", ".join(MODULES)))
        kinds.append(kind)
    if kinds not in (list(MODULES), list(MODULES)[:2]):
        raise ConfigError(
            hf.unsupported("modules in modules.json", ", ".join(kinds), f"{', '.join(MODULES)}, in this order")
        )
    for module, (kind, path) in zip(modules, MODULES.items(), strict=False):
        if kind == "Pooling" and module.get("path", path) != path:
            raise ConfigError(hf.unsupported("the folder of Pooling in modules.json", module["path"], path))
    if "Normalize" not in kinds:
        hf.notes.append(
            "the original does not normalise vectors (modules.json has no Normalize); Cutaway scales them to length 1. "
            "To switch this off: --no-normalize, or normalize=False."
        )


def read_prompts(hf: HuggingFaceConfig) -> dict[str, str]:
    """The prompts: name -> text to put before an input."""
    found = read_extra_file(hf, PROMPTS).get("prompts", {})
    return {str(name): text or "" for name, text in found.items()}


def read_data_settings(hf: HuggingFaceConfig, model: ModelConfig) -> dict[str, Any]:
    """The settings of our [data] table: the longest text and the prompts."""
    settings, known = read_extra_file(hf, PROMPTS), read_prompts(hf)
    default = settings.get("default_prompt_name", "")
    if default and default not in known:
        raise ConfigError(
            f"{hf.title} has default_prompt_name = {default!r} in its {PROMPTS}. {did_you_mean(default, known)}"
        )
    if any(known.values()):
        used = f"{default!r} is put before every text" if default else "none is used"
        names = ", ".join(name for name, text in known.items() if text)
        hf.notes.append(f"the model has prompts: {names}. Without --prompt, {used}.")
    if (by := settings.get("similarity_fn_name", "cosine")) != "cosine":
        hf.notes.append(f"the original compares vectors by {by!r} (similarity_fn_name); --similar prints cosines.")
    # sentence_bert_config.json has priority over tokenizer_config.json
    lengths = (
        read_extra_file(hf, TRANSFORMER).get("max_seq_length"),
        read_extra_file(hf, "tokenizer_config.json").get("model_max_length"),
    )
    longest = min(int(next((length for length in lengths if length), model.max_length)), model.max_length)
    if longest < model.max_length:
        hf.notes.append(
            f"a text may have at most {longest} tokens (max_seq_length); the model has {model.max_length} positions."
        )
    return {"max_tokens": longest, "prompts": known, "prompt": default}


def is_lower_case(hf: HuggingFaceConfig) -> bool:
    return bool(read_extra_file(hf, TRANSFORMER).get("do_lower_case"))


def files(config: Config) -> dict[str, Any]:
    """The additional files to write: name -> JSON. Lower-casing is part of our tokenizer."""
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
