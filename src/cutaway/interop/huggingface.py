"""Hugging Face's folders, both ways: `import_folder` makes a run of one, `export_folder` makes one of a run.

    config.json   model.safetensors (or shards)   tokenizer.json   generation_config.json   ...

Whatever cannot be had exactly is refused by name, before anything is written. A folder appears whole, or not at all.
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
from cutaway.interop.architecture import Architecture, ForeignConfig
from cutaway.interop.bert import BERT
from cutaway.interop.generation import decode_from, generation_to, not_written
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
from cutaway.interop.tokenizer_files import lower_case, read_tokenizer, write_tokenizer
from cutaway.interop.vit import VIT
from cutaway.runs import RunFolder
from cutaway.runs.files import replacing_folder, write_bytes, write_json, write_text
from cutaway.runs.folder import RUN_FILES, check_target
from cutaway.runs.recipe import is_run
from cutaway.runs.weights import sealed

# model_type, as their config.json has it -> what we know of it
ARCHITECTURES: dict[str, Architecture] = {a.model_type: a for a in (GPT2, LLAMA, BERT, T5, MARIAN, PEGASUS, VIT)}


@dataclass(frozen=True)
class HuggingFaceImport:
    """What came of a folder of theirs."""

    run: Path
    architecture: str  # their name of it
    task: str
    parameters: int
    tensors: int  # that were read
    left_out: dict[str, str]  # a tensor that was not -> why nobody misses it
    notes: tuple[str, ...]


@dataclass(frozen=True)
class HuggingFaceExport:
    """What came of a run."""

    folder: Path
    architecture: str  # their name of it
    parameters: int
    tensors: int
    files: tuple[str, ...]
    notes: tuple[str, ...]


def import_folder(source: str | Path, run: str | Path, overwrite: bool = False) -> HuggingFaceImport:
    """Make a run folder of a model in Hugging Face's format. -> what was read, and what was left out"""
    source, run = Path(source), Path(run)
    check_target(run, overwrite, is_run, RUN_FILES.__contains__)
    their_config = read_json(source / "config.json")
    architecture = find_architecture(their_config, source)
    settings = ForeignConfig(their_config, f"the {architecture.title} in {source}", source)
    settings.only("quantization_config", None)
    weights = read_folder(source)
    with making_sense_of(settings):
        model = architecture.config_from(settings, weights)
        decode = decoding(source, their_config, model, settings.notes)
    where = str(source / (SINGLE if (source / SINGLE).is_file() else INDEX))
    ours, left_out = names.read(architecture.table(model), weights, where)
    with making_sense_of(settings):
        ours = architecture.adjust(settings, model, ours)
    tokenizer = tokenizer_of(source, their_config, model)
    with making_sense_of(settings):
        data = data_for(model, settings, tokenizer)
    write_run(run, Config(model=model, data=data, decode=decode), ours, tokenizer, settings)
    return HuggingFaceImport(
        run=run,
        architecture=settings.architecture,
        task=model.task,
        parameters=count(ours),
        tensors=len(weights) - len(left_out),
        left_out=left_out,
        notes=tuple(settings.notes),
    )


def find_architecture(their_config: Mapping[str, Any], source: Path) -> Architecture:
    model_type, said = their_config.get("model_type"), their_config.get("architectures")
    classes = said if isinstance(said, list) else []
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        raise ConfigError(
            f"the model in {source} is of model_type {model_type!r}, which Cutaway does not know. It knows: "
            f"{', '.join(ARCHITECTURES)}. Choose a model of one of these."
        )
    architecture = ARCHITECTURES[model_type]
    if not classes or classes[0] not in architecture.classes:
        given = f"names {classes[0]!r}" if classes else "names none"
        raise ConfigError(
            f'the config.json in {source} says in "architectures" what the weights are for, and {given}. For '
            f"{model_type} Cutaway reads: {', '.join(architecture.classes)}. Choose such a model."
        )
    return architecture


@contextmanager
def making_sense_of(settings: ForeignConfig) -> Iterator[None]:
    """What goes wrong because of what their files say, said so."""
    try:
        yield
    except DataError:
        raise
    except ConfigError as error:
        if str(error).startswith("model."):  # of our own checks, which speak of our names
            raise ConfigError(f"{settings.title} cannot be a model of Cutaway's: {error}") from None
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ZeroDivisionError, RecursionError) as error:
        raise DataError(
            f"the settings of {settings.title} make no sense ({error!r}): something stands where something else should "
            "be. Download its .json files again."
        ) from None


def tokenizer_of(source: Path, their_config: Mapping[str, Any], model: ModelConfig) -> Tokenizer | None:
    if model.family == "vision":
        return None
    if their_config["model_type"] == PEGASUS.model_type and not (source / "tokenizer.json").is_file():
        raise DataError(  # its SentencePiece file does not say by how much its ids are shifted
            f"there is no tokenizer.json in {source}, and Pegasus' other files are not read. Convert it where "
            f'transformers is installed: AutoTokenizer.from_pretrained("{source}").save_pretrained("{source}").'
        )
    tokenizer = read_tokenizer(source, their_config)
    if tokenizer.vocab_size > model.vocab_size:
        raise DataError(
            f"the tokenizer in {source} has {tokenizer.vocab_size} tokens, and the model has {model.vocab_size} "
            "(vocab_size in config.json): it is not the tokenizer of this model. Take the one that came with it."
        )
    return tokenizer


def decoding(source: Path, their_config: Mapping[str, Any], model: ModelConfig, notes: list[str]) -> DecodeConfig:
    if model.family not in ("decoder", "encoder_decoder"):
        return DecodeConfig()
    file = source / "generation_config.json"
    decode, more = decode_from(their_config, read_json(file) if file.is_file() else {}, model)
    notes.extend(more)
    return decode


def data_for(model: ModelConfig, settings: ForeignConfig, tokenizer: Tokenizer | None) -> DataConfig:
    """Texts that fit into the model, should it be trained on; of a sentence encoder, those that it was made for."""
    if tokenizer is None:
        return DataConfig()
    said: dict[str, Any] = {"max_tokens": min(256, model.max_length)}
    if model.head == "vectors":
        said = sentence_encoders.settings_of_data(settings, model)
        if sentence_encoders.is_lower_case(settings):
            lower_case(tokenizer)
    batch = max(DataConfig().batch_tokens, said["max_tokens"])
    return DataConfig(tokenizer="file", tokenizer_file="tokenizer.json", batch_tokens=batch, **said)


def write_run(
    run: Path, config: Config, weights: Mapping[str, Array], tokenizer: Tokenizer | None, settings: ForeignConfig
) -> None:
    with replacing_folder(run) as folder:
        new = RunFolder(folder)
        if tokenizer is not None:
            write_text(new.tokenizer, tokenizer.to_json())
            write_json(new.tokenizer_roles, tokenizer.settings())
        if config.model.head in ("classes", "tags"):
            write_json(new.labels, settings.labels())
        whole = {name: np.ascontiguousarray(array) for name, array in weights.items()}
        write_bytes(new.model, sealed(safetensors.numpy.save(whole)))
        new.write_config(config)


def export_folder(
    run: str | Path, folder: str | Path, overwrite: bool = False, shard_bytes: int = SHARD_BYTES
) -> HuggingFaceExport:
    """Write a run in Hugging Face's format, for `AutoModel...from_pretrained(folder)`. -> what was written"""
    source, folder = RunFolder(run).require(), Path(folder)
    config = source.read_config()
    if config.finetune.is_adapter:
        raise ConfigError(
            f"the run {str(run)!r} is an adapter (finetune.method = {config.finetune.method!r}) on "
            f"{config.finetune.base!r}, not a whole model. Merge it first, then export what comes of that."
        )
    check_target(folder, overwrite, is_theirs, is_their_file)
    architecture = choose_architecture(config.model)
    ours = read_run_weights(source)
    theirs = names.write(architecture.table(config.model), ours, str(source.model))
    with replacing_folder(folder) as new:
        write_folder(new, theirs, shard_bytes)
        ids = write_vocabulary(new, source, config)
        settings = their_settings(architecture, config, ids, theirs, source.read_labels())
        beside = {"config.json": settings, **architecture.files(config.model)}
        if config.model.head == "vectors":
            beside |= sentence_encoders.files(config)
        if config.model.family in ("decoder", "encoder_decoder"):
            beside["generation_config.json"] = generation_to(config.model, config.decode, ids)
        for name, value in beside.items():
            write_json(new / name, value)
        files = sorted(str(path.relative_to(new)) for path in new.rglob("*") if path.is_file())
    return HuggingFaceExport(
        folder=folder,
        architecture=settings["architectures"][0],
        parameters=count(ours),
        tensors=len(theirs),
        files=tuple(files),
        notes=tuple(remarks(architecture, config, source)),
    )


def choose_architecture(model: ModelConfig) -> Architecture:
    """The one that expresses this model; or the nearest, and what stands in its way."""
    nearest, in_the_way = nearest_architecture(model), obstacles(model)
    if in_the_way:
        told = "; ".join(f"model.{setting} = {value!r} ({why})" for setting, value, why in in_the_way)
        raise ConfigError(
            "no architecture of Hugging Face's that Cutaway knows can express this model. "
            f"{nearest.title} is nearest; in its way: {told}. Train a model without, to export it."
        )
    return nearest


def obstacles(model: ModelConfig) -> list[Obstacle]:
    """What none of their architectures can express, by the one that comes nearest."""
    return nearest_architecture(model).obstacles(model)


def nearest_architecture(model: ModelConfig) -> Architecture:
    # one of another family is never near, however few settings differ
    return min(ARCHITECTURES.values(), key=lambda a: (not a.demands["family"].holds(model), len(a.obstacles(model))))


def read_run_weights(run: RunFolder) -> TensorFiles:
    return TensorFiles(read_bytes(np.frombuffer(run.read_weights(run.model), np.uint8), str(run.model)))


def write_vocabulary(folder: Path, run: RunFolder, config: Config) -> dict[str, int]:
    """The tokenizer. -> the ids of its special tokens, for config.json"""
    if config.model.family == "vision":
        return {}
    return write_tokenizer(Tokenizer.open(run.tokenizer), folder, config.model.family, config.model.max_length)


def their_settings(
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


def remarks(architecture: Architecture, config: Config, run: RunFolder) -> list[str]:
    """What whoever loads an export should know."""
    found = []
    if architecture in (GPT2, LLAMA) and config.model.embedding_scale == "sqrt_d":
        found.append(
            f"embeddings are scaled by sqrt(d_model) here, and {architecture.title} has no such factor: it is in the "
            "embedding matrix there, and the output has a matrix of its own."
        )
    if config.model.family == "encoder_decoder" and (both := Tokenizer.open(run.tokenizer)).for_target is not both:
        found.append(
            "only the tokenizer of the texts that are read is written; those to be written are cut in another way here."
        )
    if config.model.head == "vectors":
        found.append("BERT's pooler is not written, since this model has none: transformers will say that it is new.")
    if config.model.family in ("decoder", "encoder_decoder"):
        found += not_written(config.decode)
    return found


def count(weights: Mapping[str, Array]) -> int:
    return sum(math.prod(array.shape) for array in weights.values())


# What a folder of theirs may hold: nothing else is ever removed.
THEIR_FILES = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "preprocessor_config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
    "1_Pooling", "model.safetensors", "model.safetensors.index.json",
}  # fmt: skip


def is_their_file(name: str) -> bool:
    return name in THEIR_FILES or (name.startswith("model-") and name.endswith(".safetensors"))


def is_theirs(folder: Path) -> bool:
    try:
        return "model_type" in read_json(folder / "config.json")
    except DataError:
        return False
