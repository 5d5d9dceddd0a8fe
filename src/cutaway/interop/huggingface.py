"""Import and export folders of Hugging Face: `import_folder`, `export_folder`.

    config.json   model.safetensors (or shards)   tokenizer.json   generation_config.json   ...

A setting that cannot be converted exactly raises an error that names it, before anything is written. A folder is
written completely or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from cutaway.config import Config, DataConfig, DecodeConfig, ModelConfig
from cutaway.config.obstacle import Obstacle
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, DataError
from cutaway.interop import names, sentence_encoders
from cutaway.interop.architecture import Architecture, HuggingFaceConfig
from cutaway.interop.bert import BERT
from cutaway.interop.generation import decode_export_notes, decode_from, generation_to
from cutaway.interop.gpt2 import GPT2
from cutaway.interop.llama import LLAMA
from cutaway.interop.marian import MARIAN, PEGASUS
from cutaway.interop.t5 import T5
from cutaway.interop.tensors import (
    INDEX,
    SHARD_BYTES,
    SINGLE,
    Array,
    TensorFiles,
    read_bytes,
    read_folder,
    read_json,
    write_folder,
)
from cutaway.interop.tokenizer_files import add_lowercase, read_tokenizer, write_tokenizer
from cutaway.interop.vit import VIT
from cutaway.runs import RunFolder
from cutaway.runs.files import replacing_folder, write_bytes, write_json, write_text
from cutaway.runs.folder import RUN_FILES, check_target
from cutaway.runs.recipe import is_run
from cutaway.runs.weights import seal_weights

# model_type of config.json -> architecture
ARCHITECTURES: dict[str, Architecture] = {a.model_type: a for a in (GPT2, LLAMA, BERT, T5, MARIAN, PEGASUS, VIT)}


@dataclass(frozen=True)
class HuggingFaceImport:
    """The result of an import."""

    run: Path
    architecture: str  # the class of transformers
    task: str
    parameters: int
    tensors: int  # number of tensors read
    left_out: dict[str, str]  # unread tensor -> reason
    notes: tuple[str, ...]


@dataclass(frozen=True)
class HuggingFaceExport:
    """The result of an export."""

    folder: Path
    architecture: str  # the class of transformers
    parameters: int
    tensors: int
    files: tuple[str, ...]
    notes: tuple[str, ...]


def import_folder(source: str | Path, run: str | Path, overwrite: bool = False) -> HuggingFaceImport:
    """Convert a folder of Hugging Face into a run folder."""
    source, run = Path(source), Path(run)
    check_target(run, overwrite, is_run, RUN_FILES.__contains__)
    hf_config = read_json(source / "config.json")
    architecture = find_architecture(hf_config, source)
    settings = HuggingFaceConfig(hf_config, f"the {architecture.title} in {source}", source)
    settings.require("quantization_config", None)
    weights = read_folder(source)
    with explain_errors(settings):
        model = architecture.config_from(settings, weights)
        decode = read_decoding(source, hf_config, model, settings.notes)
    where = str(source / (SINGLE if (source / SINGLE).is_file() else INDEX))
    ours, left_out = names.read(architecture.table(model), weights, where)
    with explain_errors(settings):
        ours = architecture.adjust(settings, model, ours)
    tokenizer = read_and_check_tokenizer(source, hf_config, model)
    with explain_errors(settings):
        data = data_config(model, settings, tokenizer)
    write_run(run, Config(model=model, data=data, decode=decode), ours, tokenizer, settings)
    return HuggingFaceImport(
        run=run,
        architecture=settings.architecture,
        task=model.task,
        parameters=count_numbers(ours),
        tensors=len(weights) - len(left_out),
        left_out=left_out,
        notes=tuple(settings.notes),
    )


def find_architecture(hf_config: Mapping[str, Any], source: Path) -> Architecture:
    model_type, classes = hf_config.get("model_type"), hf_config.get("architectures")
    classes = classes if isinstance(classes, list) else []
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        raise ConfigError(
            f"the model in {source} has model_type {model_type!r}, which Cutaway does not support. Supported: "
            f"{', '.join(ARCHITECTURES)}."
        )
    architecture = ARCHITECTURES[model_type]
    if not classes or classes[0] not in architecture.classes:
        given = f'"architectures": {classes[0]!r}' if classes else 'no "architectures"'
        raise ConfigError(
            f"the config.json in {source} has {given}. For model_type {model_type} Cutaway supports: "
            f"{', '.join(architecture.classes)}. Choose another model."
        )
    return architecture


@contextmanager
def explain_errors(settings: HuggingFaceConfig) -> Iterator[None]:
    """Turn errors that invalid files cause into messages about the files."""
    try:
        yield
    except DataError:
        raise
    except ConfigError as error:
        if str(error).startswith("model."):  # from our own checks, with our names of settings
            raise ConfigError(f"{settings.title} is not supported: {error}") from None
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ZeroDivisionError, RecursionError) as error:
        raise DataError(
            f"the settings of {settings.title} are invalid ({error!r}): a value has the wrong type. Download its .json "
            "files again."
        ) from None


def read_and_check_tokenizer(source: Path, hf_config: Mapping[str, Any], model: ModelConfig) -> Tokenizer | None:
    if model.family == "vision":
        return None
    if hf_config["model_type"] == PEGASUS.model_type and not (source / "tokenizer.json").is_file():
        raise DataError(  # its SentencePiece file does not contain the offset of the ids
            f"there is no tokenizer.json in {source}, and other tokenizer files of Pegasus are not supported. Convert "
            f'it with transformers: AutoTokenizer.from_pretrained("{source}").save_pretrained("{source}").'
        )
    tokenizer = read_tokenizer(source, hf_config)
    if tokenizer.vocab_size > model.vocab_size:
        raise DataError(
            f"the tokenizer in {source} has {tokenizer.vocab_size} tokens, but the model has {model.vocab_size} "
            "(vocab_size in config.json). Use the tokenizer of this model."
        )
    return tokenizer


def read_decoding(source: Path, hf_config: Mapping[str, Any], model: ModelConfig, notes: list[str]) -> DecodeConfig:
    if model.family not in ("decoder", "encoder_decoder"):
        return DecodeConfig()
    file = source / "generation_config.json"
    decode, more = decode_from(hf_config, read_json(file) if file.is_file() else {}, model)
    notes.extend(more)
    return decode


def data_config(model: ModelConfig, settings: HuggingFaceConfig, tokenizer: Tokenizer | None) -> DataConfig:
    """Data settings: text lengths that fit the model. A sentence encoder has its own."""
    if tokenizer is None:
        return DataConfig()
    text_settings: dict[str, Any] = {"max_tokens": min(256, model.max_length)}
    if model.head == "vectors":
        text_settings = sentence_encoders.read_data_settings(settings, model)
        if sentence_encoders.is_lower_case(settings):
            add_lowercase(tokenizer)
    batch = max(DataConfig().batch_tokens, text_settings["max_tokens"])
    return DataConfig(tokenizer="file", tokenizer_file="tokenizer.json", batch_tokens=batch, **text_settings)


def write_run(
    run: Path, config: Config, weights: Mapping[str, Array], tokenizer: Tokenizer | None, settings: HuggingFaceConfig
) -> None:
    with replacing_folder(run) as folder:
        new = RunFolder(folder)
        if tokenizer is not None:
            write_text(new.tokenizer, tokenizer.to_json())
            write_json(new.tokenizer_roles, tokenizer.settings())
        if config.model.head in ("classes", "tags"):
            write_json(new.labels, settings.labels())
        whole = {name: np.ascontiguousarray(array) for name, array in weights.items()}
        write_bytes(new.model, seal_weights(safetensors.numpy.save(whole)))
        new.write_config(config)


def export_folder(
    run: str | Path, folder: str | Path, overwrite: bool = False, shard_bytes: int = SHARD_BYTES
) -> HuggingFaceExport:
    """Write a run in the format of Hugging Face, for `AutoModel...from_pretrained(folder)`."""
    source, folder = RunFolder(run).require(), Path(folder)
    config = source.read_config()
    if config.finetune.is_adapter:
        raise ConfigError(
            f"the run {str(run)!r} is an adapter (finetune.method = {config.finetune.method!r}) on "
            f"{config.finetune.base!r}, not a complete model. Merge it first (--to run), then export the merged run."
        )
    check_target(folder, overwrite, is_hf_folder, is_hf_file)
    architecture = choose_architecture(config.model)
    ours = read_run_weights(source)
    theirs = names.write(architecture.table(config.model), ours, str(source.model))
    with replacing_folder(folder) as new:
        write_folder(new, theirs, shard_bytes)
        ids = write_run_tokenizer(new, source, config)
        settings = make_config_json(architecture, config, ids, theirs, source.read_labels())
        json_files = {"config.json": settings, **architecture.files(config.model)}
        if config.model.head == "vectors":
            json_files |= sentence_encoders.files(config)
        if config.model.family in ("decoder", "encoder_decoder"):
            json_files["generation_config.json"] = generation_to(config.model, config.decode, ids)
        for name, value in json_files.items():
            write_json(new / name, value)
        files = sorted(str(path.relative_to(new)) for path in new.rglob("*") if path.is_file())
    return HuggingFaceExport(
        folder=folder,
        architecture=settings["architectures"][0],
        parameters=count_numbers(ours),
        tensors=len(theirs),
        files=tuple(files),
        notes=tuple(export_notes(architecture, config, source)),
    )


def choose_architecture(model: ModelConfig) -> Architecture:
    """The architecture that can express this model. If there is none, raise an error with the obstacles."""
    nearest, found = nearest_architecture(model), obstacles(model)
    if found:
        reasons = "; ".join(f"model.{setting} = {value!r} ({why})" for setting, value, why in found)
        raise ConfigError(
            f"no supported Hugging Face architecture can express this model. {nearest.title} is nearest, except for: "
            f"{reasons}. Train a model with other settings."
        )
    return nearest


def obstacles(model: ModelConfig) -> list[Obstacle]:
    """The settings that the nearest architecture cannot express."""
    return nearest_architecture(model).obstacles(model)


def nearest_architecture(model: ModelConfig) -> Architecture:
    """The architecture with the fewest obstacles, of the same family if possible."""
    return min(
        ARCHITECTURES.values(), key=lambda a: (not a.requirements["family"].is_met(model), len(a.obstacles(model)))
    )


def read_run_weights(run: RunFolder) -> TensorFiles:
    return TensorFiles(read_bytes(np.frombuffer(run.read_weights(run.model), np.uint8), str(run.model)))


def write_run_tokenizer(folder: Path, run: RunFolder, config: Config) -> dict[str, int]:
    """Write the tokenizer. Return the ids of its special tokens, for config.json."""
    if config.model.family == "vision":
        return {}
    return write_tokenizer(Tokenizer.open(run.tokenizer), folder, config.model.family, config.model.max_length)


def make_config_json(
    architecture: Architecture,
    config: Config,
    ids: Mapping[str, int],
    theirs: Mapping[str, Array],
    labels: list[str],
) -> dict[str, Any]:
    settings = {"model_type": architecture.model_type, **architecture.config_to(config.model), **ids}
    if config.model.head in ("classes", "tags"):
        settings["id2label"] = {str(id): label for id, label in enumerate(labels)}
        settings["label2id"] = {label: id for id, label in enumerate(labels)}
    is_double = any(array.dtype == np.float64 for array in theirs.values())
    return settings | {"dtype": "float64" if is_double else "float32"}


def export_notes(architecture: Architecture, config: Config, run: RunFolder) -> list[str]:
    """Notes for the user of the exported folder."""
    found = []
    if architecture in (GPT2, LLAMA) and config.model.embedding_scale == "sqrt_d":
        found.append(
            f"embeddings are scaled by sqrt(d_model), and {architecture.title} has no such factor: it is now part of "
            "the embedding matrix, and the output matrix is separate."
        )
    if config.model.family == "encoder_decoder" and (both := Tokenizer.open(run.tokenizer)).for_target is not both:
        found.append("only the source tokenizer is written; this run has another tokenizer for the target.")
    if config.model.head == "vectors":
        found.append("this model has no pooler, so transformers will report that BERT's pooler is newly initialized.")
    if config.model.family in ("decoder", "encoder_decoder"):
        found += decode_export_notes(config.decode)
    return found


def count_numbers(weights: Mapping[str, Array]) -> int:
    return sum(math.prod(array.shape) for array in weights.values())


# the files of an exported folder; nothing else is ever removed
HF_FILES = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "preprocessor_config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
    "1_Pooling", "model.safetensors", "model.safetensors.index.json",
}  # fmt: skip


def is_hf_file(name: str) -> bool:
    return name in HF_FILES or (name.startswith("model-") and name.endswith(".safetensors"))


def is_hf_folder(folder: Path) -> bool:
    try:
        return "model_type" in read_json(folder / "config.json")
    except DataError:
        return False
