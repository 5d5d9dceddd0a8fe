"""A trained model as a folder for CTranslate2, the engine in C++ that runs Transformers fast on CPUs and GPUs.

    run folder ──the twin reads it──▶ its parts ──ct2_model.py──▶ names and arrays of theirs ──▶ a folder

Neither torch nor CTranslate2 is needed to write it. If CTranslate2 is installed, what was written is run, and compared
with the twin.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cutaway import __version__
from cutaway.config import Config
from cutaway.data.tokenizer import ROLES, Tokenizer
from cutaway.errors import ConfigError, RunError, did_you_mean
from cutaway.inference.engines.ct2_model import KINDS, model_file, refuse, settings, variables
from cutaway.inference.engines.numpy_engine import load_model
from cutaway.runs import RunFolder
from cutaway.runs.files import replacing_folder, write_json, write_text
from cutaway.runs.folder import check_target
from cutaway.runs.merge import require_lora
from cutaway.twin.model import EncoderDecoder, Model
from cutaway.twin.ops import log_softmax

Floats = NDArray[np.floating]
DTYPES = ("float32", "int8")
TOLERANCE = 1e-3  # how much a token's log-probability may differ from the twin's; rounding alone gives 1e-5
OUR_FILES = {"config.json", "model.bin", "cutaway.json", "tokenizer.json", "tokenizer_config.json"}
OUR_FILES |= {"shared_vocabulary.json", "vocabulary.json"}


@dataclass(frozen=True)
class Ct2Export:
    """What came of a run."""

    folder: Path
    kind: str
    dtype: str
    parameters: int
    files: tuple[str, ...]
    difference: float | None  # the largest of a token's log-probability from the twin's; None: nobody looked
    notes: tuple[str, ...]

    def told(self) -> list[str]:
        lines = [f"{self.kind}: {self.parameters:,} parameters, in {self.dtype}"]
        if self.difference is not None and self.dtype == "float32":
            lines.append(f"CTranslate2 says the same as the NumPy twin: log-probabilities to {self.difference:.1e}")
        elif self.difference is not None:
            lines.append(
                f"{self.dtype} is rounded: a token's log-probability differed by {self.difference:.2f} at most"
            )
        return lines

    def used(self) -> str:
        """How to put it to work by hand."""
        if self.kind == "TransformerSpec":
            return f'ctranslate2.Translator("{self.folder}").translate_batch([["a", "text\'s", "tokens", "</s>"]])'
        return f'ctranslate2.Generator("{self.folder}").generate_batch([["<s>", "a", "text\'s", "tokens"]])'


def export_ct2(
    run: str | Path, folder: str | Path, dtype: str = "float32", check: bool = True, overwrite: bool = False
) -> Ct2Export:
    """Write a translator or a text generator for CTranslate2. -> what was written

    `dtype` "int8" makes matrices a quarter as large. `check`: load what was written, and compare log-probabilities with
    the twin's on random texts. A folder appears whole and checked, or not at all; `overwrite` replaces an earlier one.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is not a choice for CTranslate2. {did_you_mean(dtype, DTYPES)}")
    source, folder = RunFolder(run).require(), Path(folder)
    config = source.read_config()
    refuse(config.model)
    check_target(folder, overwrite, is_export, OUR_FILES.__contains__)
    tokenizer = Tokenizer.open(source.tokenizer)
    model = read_model(source, config, source.weights)
    notes, difference = [], None
    if check and find_spec("ctranslate2") is None:
        notes.append("nobody has run it: ctranslate2 is not installed. Install it with: pip install 'cutaway[ct2]'")
    with replacing_folder(folder) as new:
        write_folder(new, model, config, tokenizer, dtype)
        if check and not notes:
            difference = compared(new, model, config, tokenizer, dtype)
        files = sorted(path.name for path in new.iterdir())
    parameters = sum(parameter.value.size for parameter in model.parameters().values())
    kind = KINDS[config.model.family][0]
    return Ct2Export(folder, kind, dtype, parameters, tuple(files), difference, tuple(notes))


def read_model(run: RunFolder, config: Config, weights: Path) -> Model:
    """The twin of a run that CTranslate2 can express; a LoRA adapter is merged into its base."""
    refuse(config.model)
    if config.finetune.is_adapter:
        require_lora(config.finetune, "CTranslate2", "Use engine 'torch'.")
    return load_model(run, config, weights)


def is_export(folder: Path) -> bool:
    try:
        return json.loads((folder / "cutaway.json").read_text(encoding="utf-8"))["format"] == "ctranslate2"
    except (OSError, ValueError, TypeError, KeyError):
        return False


def write_folder(folder: Path, model: Model, config: Config, tokenizer: Tokenizer, dtype: str) -> None:
    names = token_names(tokenizer, config.model.vocab_size)
    roles: dict[str, str | None] = {role: names[getattr(tokenizer, role)] for role in ("bos", "eos")}
    # a tokenizer that knows everything has no unknown token; then theirs is one more, which no text has
    roles |= {"unk": "<unk>" if tokenizer.unk is None else names[tokenizer.unk], "start": roles["bos"]}
    (folder / "model.bin").write_bytes(model_file(config.model, variables(model, config.model), dtype))
    write_json(folder / "config.json", settings(config.model, roles))
    vocabulary = "shared_vocabulary.json" if config.model.family == "encoder_decoder" else "vocabulary.json"
    write_text(folder / vocabulary, json.dumps(names, ensure_ascii=True, indent=0) + "\n")
    write_text(folder / "tokenizer.json", str(tokenizer.backend.to_str(pretty=True)) + "\n")
    write_json(folder / "tokenizer_config.json", tokenizer.settings())
    told = {
        "format": "ctranslate2",
        "cutaway": __version__,
        "task": config.model.task,
        "dtype": dtype,
        "max_length": config.longest_text,
        "special_ids": {role: getattr(tokenizer, role) for role in ROLES if role in tokenizer.roles},
        "reads": ["text", "eos"] if config.model.family == "encoder_decoder" else begun(tokenizer),
        "never_written": list(config.decode.suppress),
    }
    write_json(folder / "cutaway.json", told)


def begun(tokenizer: Tokenizer) -> list[str]:
    return ["bos", "text"] if tokenizer.adds_bos else ["text"]


def token_names(tokenizer: Tokenizer, size: int) -> list[str]:
    """The tokens by id. Ids that no token has get a name that no token has."""
    names: list[str] = []
    for id in range(size):
        name = tokenizer.backend.id_to_token(id)
        names.append(f"<unused {id}>" if name is None else str(name))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RunError(f"the tokenizer has two tokens called {twice!r}, and CTranslate2 knows tokens by their names.")
    return names


def compared(folder: Path, model: Model, config: Config, tokenizer: Tokenizer, dtype: str) -> float:
    """The largest difference of a log-probability between CTranslate2 and the twin, on random texts."""
    names = token_names(tokenizer, config.model.vocab_size)
    sources, targets = random_texts(config, tokenizer)
    found = scored(folder, config.model.family, [[names[i] for i in row] for row in sources],
                   [[names[i] for i in row] for row in targets])  # fmt: skip
    largest = 0.0
    for source, target, there in zip(sources, targets, found, strict=True):
        here = log_probabilities(model, source, target, tokenizer)
        largest = max(largest, float(np.abs(np.array(there) - here).max()))
    if dtype == "float32" and not largest <= TOLERANCE:  # neither is what is not a number
        raise RunError(
            f"CTranslate2 does not say what the model says: log-probabilities of tokens differ by {largest:.1e}, and "
            f"{TOLERANCE:.0e} is allowed. Nothing was written. Another version of ctranslate2 may do it right; without "
            "the check (--no-check) it is written all the same."
        )
    return largest


def random_texts(config: Config, tokenizer: Tokenizer) -> tuple[list[list[int]], list[list[int]]]:
    """Sources of different lengths, ended; and targets, begun where they are no translations."""
    draw = np.random.default_rng(0)
    length = min(24, config.longest_text - 2)
    known = [i for i in range(tokenizer.vocab_size) if i not in tokenizer.special_ids]

    def some(n: int) -> list[int]:
        return [int(i) for i in draw.choice(known, n)]

    lengths = [max(1, length // (1 + i)) for i in range(3)]
    sources = [[*some(n), tokenizer.eos] for n in lengths]
    first = [] if config.model.family == "encoder_decoder" else [tokenizer.bos]
    return sources, [[*first, *some(n)] for n in reversed(lengths)]


def scored(folder: Path, family: str, sources: list[list[str]], targets: list[list[str]]) -> list[list[float]]:
    import ctranslate2

    options = {"device": "cpu", "inter_threads": 1, "intra_threads": 1}
    if family == "encoder_decoder":
        found = ctranslate2.Translator(str(folder), **options).score_batch(sources, targets)
    else:
        found = ctranslate2.Generator(str(folder), **options).score_batch(targets)
    return [one.log_probs for one in found]


def log_probabilities(model: Model, source: Sequence[int], target: Sequence[int], tokenizer: Tokenizer) -> Floats:
    """Of each token of the target, and of a translation's </s>, by the twin."""
    if isinstance(model, EncoderDecoder):
        asked = [*target, tokenizer.eos]
        logits_TV = model(np.array([source]), np.array([[tokenizer.bos, *target]]))[0][0]
    else:
        asked = list(target[1:])
        logits_TV = model(np.array([target[:-1]]))[0][0]
    found: Floats = log_softmax(logits_TV)[np.arange(len(asked)), asked]
    return found
