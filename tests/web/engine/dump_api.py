"""Train a tiny run for each task, and write what Python's pipelines answer.

python dump_api.py FOLDER

FOLDER/NAME/        a run folder, with checksums.json
FOLDER/cases.json   for each run, calls of the JavaScript API: method, input, options, and the result or the error
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hostile import hostile_texts, well_formed

from cutaway.config import Config, DataConfig, DecodeConfig, ModelConfig, TrainConfig
from cutaway.data.builtin import load_builtin
from cutaway.data.images import unit_pixels
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import CutawayError
from cutaway.inference.pipelines import Embedder, load_pipeline
from cutaway.inference.training.setup import start_training
from cutaway.models.build import build_model
from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.weights import seal_weights
from cutaway.search.choices import config_for_choices
from cutaway.search.request import Request
from cutaway.search.streaming import cut_at_stop

SMALL = {"d_model": 32, "d_ff": 64, "n_heads": 2, "dropout": 0.0, "max_length": 64, "norm_placement": "pre"}
ENCODER = {**SMALL, "family": "encoder", "encoder_layers": 2}
TRAIN = {"steps": 80, "warmup": 10, "lr": 0.02, "schedule": "cosine", "optimizer": "adamw", "label_smoothing": 0.0,
         "valid_every": 80, "save_every": 80, "samples": 0, "snapshots": 0}  # fmt: skip
DATA = {"size": 600, "heldout_size": 40, "batch_tokens": 512, "vocab_size": 400}

# name -> tables
RUNS: dict[str, dict[str, dict[str, Any]]] = {
    "words": {
        "model": {**SMALL, "encoder_layers": 1, "decoder_layers": 1, "max_length": 96},
        "data": {**DATA, "corpus": "tinyworld:en-fr", "tokenizer": "word", "max_tokens": 40, "vocab_size": 900},
        "decode": {"strategy": "greedy"},
    },
    "subwords": {
        "model": {**SMALL, "encoder_layers": 1, "decoder_layers": 2, "position": "rope", "embeddings": "separate"},
        "data": {**DATA, "corpus": "tinyworld:en-de", "tokenizer": "bpe", "max_tokens": 60},
        "decode": {"beam_size": 3, "coverage_penalty": 0.1},
    },
    "generator": {
        "model": {**SMALL, "family": "decoder", "decoder_layers": 2, "position": "rope"},
        "data": {**DATA, "size": 60, "corpus": "python", "tokenizer": "bpe", "max_tokens": 64},
        "decode": {},
    },
    "bytes": {
        "model": {**SMALL, "family": "decoder", "decoder_layers": 1, "position": "learned", "feed_forward": "swiglu"},
        "data": {"size": 60, "heldout_size": 40, "corpus": "python", "tokenizer": "byte", "max_tokens": 64,
                 "batch_tokens": 512},
        "decode": {"strategy": "greedy", "max_length": 20},
    },
    "classifier": {
        "model": {**ENCODER, "head": "classes", "max_length": 24},
        "data": {**DATA, "corpus": "python:expressions", "tokenizer": "word", "max_tokens": 24},
    },
    "refusing": {
        "model": {**ENCODER, "head": "classes", "pooling": "mean", "max_length": 24},
        "data": {**DATA, "corpus": "python:expressions", "max_tokens": 24},
    },
    "tagger": {
        "model": {**ENCODER, "head": "tags", "max_length": 24},
        "data": {**DATA, "corpus": "python:tags", "tokenizer": "bpe", "max_tokens": 24},
    },
    "masked": {
        "model": {**ENCODER},
        "data": {**DATA, "size": 60, "corpus": "python", "tokenizer": "bpe", "max_tokens": 64},
    },
    "digits": {
        "model": {"family": "vision", "head": "classes", "d_model": 32, "d_ff": 64, "n_heads": 2, "encoder_layers": 1,
                  "dropout": 0.0, "position": "learned", "image_size": 16, "patch_size": 4, "channels": 1},
        "data": {"corpus": "digits:sums", "size": 600, "heldout_size": 40, "batch_tokens": 32},
    },
}  # fmt: skip


def train(folder: Path, tables: dict[str, dict[str, Any]]) -> None:
    config = Config(ModelConfig(**tables["model"]), DataConfig(**tables["data"]), TrainConfig(**TRAIN),
                    DecodeConfig(**tables.get("decode", {})))  # fmt: skip
    start_training(config, RunFolder(folder)).trainer.run()


def write_sentence_encoder(folder: Path, texts: list[str]) -> None:
    """Sentence encoders are imported, not trained here: random weights, and prompts."""
    tokenizer = Tokenizer.train(texts, "bpe", 400)
    model = ModelConfig(**{**ENCODER, "head": "vectors", "pooling": "mean", "vocab_size": tokenizer.vocab_size})
    data = DataConfig(corpus="python", max_tokens=20, prompts={"query": "search: ", "document": ""}, prompt="query")
    run = RunFolder(folder)
    folder.mkdir(parents=True)
    run.tokenizer.write_text(tokenizer.to_json(), encoding="utf-8")
    run.model.write_bytes(seal_weights(weights_to_bytes(build_model(model))))
    run.write_config(Config(model, data))


def answer(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"result": call()}
    except CutawayError as error:
        return {"error": type(error).__name__, "message": str(error)}


def to_camel_case(name: str) -> str:
    return re.sub("_.", lambda match: match[0][1].upper(), name)


def random_options(rng: random.Random, choices: list[str], words: list[str]) -> dict[str, Any]:
    """Settings of [decode], and n_best, prefix, choices and stop."""
    options: dict[str, Any] = {"strategy": rng.choice(["greedy", "beam", "beam", "sample", "sample", None])}
    maybe = {
        "beam_size": [1, 2, 5], "length_penalty": [0.0, 1.0], "temperature": [0.5, 1.0, 1.5], "top_k": [3, 10],
        "top_p": [0.5, 1.0], "min_p": [0.05], "seed": [1, 7, 2**33], "max_length": [1, 5, 12], "n_best": [2, 3],
        "repetition_penalty": [1.2], "no_repeat_ngram": [2], "min_length": [4], "prefix": words, "stop": [words, [" "]],
        "choices": [choices],
    }  # fmt: skip
    for name, values in maybe.items():
        if rng.random() < 0.2:
            options[name] = rng.choice(values)
    return {name: value for name, value in options.items() if value is not None}


def generated(pipeline: Any, text: str, options: dict[str, Any]) -> dict[str, Any]:
    given = {**options}
    n_best, prefix, choices, stop = (given.pop(n, d) for n, d in
                                     (("n_best", 1), ("prefix", ""), ("choices", None), ("stop", ())))  # fmt: skip
    decode = replace(pipeline.config.decode, **given)
    if "strategy" not in given:
        decode = config_for_choices(decode, choices)
    request = Request(text, prefix)
    if stop and decode.strategy != "beam":
        request = replace(request, on_token=pipeline.stop_callback(request, stop))
    [found] = pipeline.search([request], decode, n_best, choices=choices)
    before = text if pipeline.config.model.task == "language_model" else ""
    return {
        "texts": [before + cut_at_stop(pipeline.output_text(request, one), stop) for one in found],
        "hypotheses": [dataclasses.asdict(one) for one in found],
        "tokens": [pipeline.tokenizer.tokens(one.tokens) for one in found],
        "unknown": pipeline.tokenizer.unknown(text),
    }


def generation_cases(
    pipeline: Any, texts: list[str], rng: random.Random, outputs: list[str]
) -> Iterable[dict[str, Any]]:
    method = "translate" if pipeline.config.model.task == "translation" else "generate"
    for text in texts:
        words = [rng.choice(outputs).split()[0], *rng.choice(outputs).split()[1:2]]
        options = random_options(rng, rng.sample(outputs, 3), words or ["a"])
        yield {"method": method, "input": text, "options": {to_camel_case(n): v for n, v in options.items()},
               **answer(lambda text=text, options=options: generated(pipeline, text, options))}  # fmt: skip


def classified(pipeline: Any, text: str) -> dict[str, Any]:
    inputs, [is_cut] = pipeline.read([text])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        [best] = pipeline.classify([text])
    return {"label": best.label, "probability": best.probability, "probabilities": pipeline.score(inputs)[0],
            "isCut": is_cut, "unknown": pipeline.tokenizer.unknown(text)}  # fmt: skip


def tagged(pipeline: Any, text: str | list[str]) -> dict[str, Any]:
    words = pipeline.words(text) if isinstance(text, str) else text
    return {"words": words, "tags": pipeline.tag([words])[0], "parts": len(pipeline.parts([words]))}


def embed_cases(pipeline: Embedder, texts: list[str], rng: random.Random) -> Iterable[dict[str, Any]]:
    for text in texts:
        options = {"pooling": rng.choice(["auto", "mean", "max", "cls"]), "normalize": rng.random() < 0.5}
        options |= {"cut": rng.random() < 0.7}
        if rng.random() < 0.4 and pipeline.config.data.prompts:
            options["prompt"] = rng.choice(["query", "document", "", "none"])
        yield {"method": "embed", "input": text, "options": options,
               **answer(lambda text=text, options=options: pipeline.embed([text], **options)[0])}  # fmt: skip


def cases_of(folder: Path, texts: list[str], rng: random.Random) -> list[dict[str, Any]]:
    config = RunFolder(folder).read_config()
    task = config.model.task
    if task in ("masked_language_model", "embedding"):
        return list(embed_cases(Embedder.load(folder, dtype="float64"), texts, rng))
    kind = type(load_pipeline(folder, "cpu"))
    pipeline: Any = kind.load(folder, "cpu", engine="torch", dtype="float64")
    cases = []
    if task in ("translation", "language_model"):
        outputs = OUTPUTS if folder.name == "words" else ["def a", "return x", "die Katze", "import b"]
        cases += generation_cases(pipeline, texts, rng, outputs)
    elif task == "classification":
        cases += [{"method": "classify", "input": text, **answer(lambda text=text: classified(pipeline, text))}
                  for text in texts]  # fmt: skip
    elif task == "tagging":
        given = [*texts, *([*text.split(), "", " "] for text in texts[:8])]
        cases += [
            {"method": "tag", "input": text, **answer(lambda text=text: tagged(pipeline, text))} for text in given
        ]
    else:
        for example in load_builtin("digits:sums", "valid", 40)[:12]:
            image = unit_pixels(example.pixels)
            cases.append({"method": "classify", "pixels": image.ravel().tolist(), "size": image.shape[-1],
                          "result": {"probabilities": pipeline.probabilities(image[None])[0]}})  # fmt: skip
    if task != "image_classification":
        embedder = Embedder(pipeline.engine, pipeline.tokenizer, pipeline.config, pipeline.labels)
        cases += embed_cases(embedder, texts[:12], rng)
    return cases


OUTPUTS = [pair.target for pair in load_builtin("tinyworld:en-fr", "train", 300)]


def main(folder: Path) -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)  # the models are tiny
    rng = random.Random(0)
    code = [str(text) for text in load_builtin("python", "valid", 5)]
    snippets = [line.strip() for text in code for line in text.split("\n") if line.strip()][:25]
    sentences = [pair.source for pair in load_builtin("tinyworld:en-fr", "valid", 40)]
    hostile = [well_formed(text)[:200] for text in hostile_texts(90, ["<unk>", "</s>"])[70:]]
    long = [" ".join(snippets[:12]), "x" * 300, "a b " * 60]
    strange = ["", " ", "\n\t", "The zebra sleeps.", "</s> <s> <pad> <unk> x", "🙂 été 𝔘", *hostile, *long]
    found = {}
    torch.manual_seed(0)
    write_sentence_encoder(folder / "encoder", snippets)
    for name, tables in RUNS.items():
        train(folder / name, tables)
    refusing = RunFolder(folder / "refusing")
    config = refusing.read_config()
    refusing.write_config(replace(config, data=replace(config.data, too_long="refuse")))
    for run in sorted(path for path in folder.iterdir() if path.is_dir()):
        own = sentences if run.name in ("words", "subwords") else snippets
        found[run.name] = cases_of(run, [*own, *strange], rng)
        names = ["config.json", "tokenizer.json", "labels.json", "model.safetensors"]
        files = [run / name for name in names if (run / name).is_file()]
        sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
        (run / "checksums.json").write_text(json.dumps(sums))
    (folder / "cases.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
