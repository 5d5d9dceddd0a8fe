"""Export a trained model for CTranslate2, a C++ engine that runs Transformers fast on CPUs and GPUs.

    run folder ──NumPy twin──▶ modules ──ct2_model.py──▶ CTranslate2's names and arrays ──▶ folder

The export needs neither torch nor CTranslate2. If CTranslate2 is installed, it loads the exported model, and its
results are compared with the twin.
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
from cutaway.inference.engines.ct2_model import KINDS, check_supported, model_file, model_settings, model_variables
from cutaway.inference.engines.numpy_engine import load_model
from cutaway.runs import RunFolder
from cutaway.runs.files import replacing_folder, write_json, write_text
from cutaway.runs.folder import check_target
from cutaway.runs.merge import require_lora
from cutaway.twin.model import EncoderDecoder, Model
from cutaway.twin.ops import log_softmax

Floats = NDArray[np.floating]
DTYPES = ("float32", "int8")
TOLERANCE = 1e-3  # largest difference of a token's log-probability from the twin; rounding alone gives 1e-5
OUR_FILES = {"config.json", "model.bin", "cutaway.json", "tokenizer.json", "tokenizer_config.json"}
OUR_FILES |= {"shared_vocabulary.json", "vocabulary.json"}


@dataclass(frozen=True)
class Ct2Export:
    """Summary of an export."""

    folder: Path
    kind: str
    dtype: str
    parameters: int
    files: tuple[str, ...]
    difference: float | None  # largest difference of a token's log-probability from the twin; None: not checked
    notes: tuple[str, ...]

    def summary_lines(self) -> list[str]:
        lines = [f"{self.kind}: {self.parameters:,} parameters, in {self.dtype}"]
        if self.difference is not None and self.dtype == "float32":
            lines.append(
                f"CTranslate2 agrees with the NumPy twin: log-probabilities differ by at most {self.difference:.1e}"
            )
        elif self.difference is not None:
            lines.append(
                f"{self.dtype} rounds the weights: log-probabilities of tokens differ by at most {self.difference:.2f}"
            )
        return lines

    def usage(self) -> str:
        """A line of Python that runs the exported model."""
        if self.kind == "TransformerSpec":
            return f'ctranslate2.Translator("{self.folder}").translate_batch([["a", "text\'s", "tokens", "</s>"]])'
        return f'ctranslate2.Generator("{self.folder}").generate_batch([["<s>", "a", "text\'s", "tokens"]])'


def export_ct2(
    run: str | Path, folder: str | Path, dtype: str = "float32", check: bool = True, overwrite: bool = False
) -> Ct2Export:
    """Export a translation model or a language model for CTranslate2.

    `dtype` "int8" makes the matrices four times smaller. `check`: load the exported model, and compare its
    log-probabilities with the twin on random texts. If the export or the check fails, no folder is written. `overwrite`
    replaces an earlier export.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"CTranslate2 has no dtype {dtype!r}. {did_you_mean(dtype, DTYPES)}")
    source, folder = RunFolder(run).require(), Path(folder)
    config = source.read_config()
    check_supported(config.model)
    check_target(folder, overwrite, is_export, OUR_FILES.__contains__)
    tokenizer = Tokenizer.open(source.tokenizer)
    model = read_model(source, config, source.weights)
    notes, difference = [], None
    if check and find_spec("ctranslate2") is None:
        notes.append("not checked, because ctranslate2 is not installed. Install it with: pip install 'cutaway[ct2]'")
    with replacing_folder(folder) as new:
        write_folder(new, model, config, tokenizer, dtype)
        if check and not notes:
            difference = compare_with_twin(new, model, config, tokenizer, dtype)
        files = sorted(path.name for path in new.iterdir())
    parameters = sum(parameter.value.size for parameter in model.parameters().values())
    kind = KINDS[config.model.family][0]
    return Ct2Export(folder, kind, dtype, parameters, tuple(files), difference, tuple(notes))


def read_model(run: RunFolder, config: Config, weights: Path) -> Model:
    """Load a run as a twin model, if CTranslate2 supports it. A LoRA adapter is merged into its base."""
    check_supported(config.model)
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
    # CTranslate2 needs an unknown token; if the tokenizer has none, add a name that no text contains
    roles |= {"unk": "<unk>" if tokenizer.unk is None else names[tokenizer.unk], "start": roles["bos"]}
    (folder / "model.bin").write_bytes(model_file(config.model, model_variables(model, config.model), dtype))
    write_json(folder / "config.json", model_settings(config.model, roles))
    vocabulary = "shared_vocabulary.json" if config.model.family == "encoder_decoder" else "vocabulary.json"
    write_text(folder / vocabulary, json.dumps(names, ensure_ascii=True, indent=0) + "\n")
    write_text(folder / "tokenizer.json", str(tokenizer.backend.to_str(pretty=True)) + "\n")
    write_json(folder / "tokenizer_config.json", tokenizer.settings())
    metadata = {
        "format": "ctranslate2",
        "cutaway": __version__,
        "task": config.model.task,
        "dtype": dtype,
        "max_length": config.longest_text,
        "special_ids": {role: getattr(tokenizer, role) for role in ROLES if role in tokenizer.roles},
        "reads": input_parts(config, tokenizer),
        "never_written": list(config.decode.suppress),
    }
    write_json(folder / "cutaway.json", metadata)


def input_parts(config: Config, tokenizer: Tokenizer) -> list[str]:
    """The parts of a model input, in order: the text, and <s> or </s>."""
    if config.model.family == "encoder_decoder":
        return ["text", "eos"]
    return ["bos", "text"] if tokenizer.adds_bos else ["text"]


def token_names(tokenizer: Tokenizer, size: int) -> list[str]:
    """The name of each token id. An id without a token gets an unused name."""
    names: list[str] = []
    for id in range(size):
        name = tokenizer.backend.id_to_token(id)
        names.append(f"<unused {id}>" if name is None else str(name))
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise RunError(
            f"the tokenizer has two tokens named {duplicate!r}. CTranslate2 identifies tokens by name, so it cannot "
            "use this tokenizer."
        )
    return names


def compare_with_twin(folder: Path, model: Model, config: Config, tokenizer: Tokenizer, dtype: str) -> float:
    """The largest difference of a log-probability between CTranslate2 and the twin, on random texts."""
    names = token_names(tokenizer, config.model.vocab_size)
    sources, targets = random_texts(config, tokenizer)
    source_names, target_names = ([[names[i] for i in row] for row in rows] for rows in (sources, targets))
    scores = score_with_ct2(folder, config.model.family, source_names, target_names)
    largest = 0.0
    for source, target, log_probs in zip(sources, targets, scores, strict=True):
        expected = log_probabilities(model, source, target, tokenizer)
        largest = max(largest, float(np.abs(np.array(log_probs) - expected).max()))
    if dtype == "float32" and not largest <= TOLERANCE:  # also True for NaN
        raise RunError(
            f"CTranslate2 disagrees with the model: log-probabilities of tokens differ by {largest:.1e}; at most "
            f"{TOLERANCE:.0e} is allowed. Nothing was written. Try another version of ctranslate2, or export without "
            "the check (--no-check)."
        )
    return largest


def random_texts(config: Config, tokenizer: Tokenizer) -> tuple[list[list[int]], list[list[int]]]:
    """Random sources of different lengths with </s>, and random targets; for a language model, targets have <s>."""
    generator = np.random.default_rng(0)
    length = min(24, config.longest_text - 2)
    ordinary = [i for i in range(tokenizer.vocab_size) if i not in tokenizer.special_ids]

    def random_ids(n: int) -> list[int]:
        return [int(i) for i in generator.choice(ordinary, n)]

    lengths = [max(1, length // (1 + i)) for i in range(3)]
    sources = [[*random_ids(n), tokenizer.eos] for n in lengths]
    first = [] if config.model.family == "encoder_decoder" else [tokenizer.bos]
    return sources, [[*first, *random_ids(n)] for n in reversed(lengths)]


def score_with_ct2(folder: Path, family: str, sources: list[list[str]], targets: list[list[str]]) -> list[list[float]]:
    import ctranslate2

    options = {"device": "cpu", "inter_threads": 1, "intra_threads": 1}
    if family == "encoder_decoder":
        results = ctranslate2.Translator(str(folder), **options).score_batch(sources, targets)
    else:
        results = ctranslate2.Generator(str(folder), **options).score_batch(targets)
    return [result.log_probs for result in results]


def log_probabilities(model: Model, source: Sequence[int], target: Sequence[int], tokenizer: Tokenizer) -> Floats:
    """The twin's log-probability of each target token; for a translation, of </s> too."""
    if isinstance(model, EncoderDecoder):
        predicted = [*target, tokenizer.eos]
        logits_TV = model(np.array([source]), np.array([[tokenizer.bos, *target]]))[0][0]
    else:
        predicted = list(target[1:])
        logits_TV = model(np.array([target[:-1]]))[0][0]
    found: Floats = log_softmax(logits_TV)[np.arange(len(predicted)), predicted]
    return found
