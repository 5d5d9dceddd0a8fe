"""Embeddings, compared with the modules of the model called one by one, for every family that reads text."""

import json

import numpy as np
import pytest
import torch
from helpers import max_difference, run_cutaway
from untrained import TEXTS, untrained_pipeline

from cutaway.config import Config
from cutaway.data.tasks import TASKS
from cutaway.errors import ConfigError, DataError
from cutaway.explore.explorer import Explorer, ExplorerRequest
from cutaway.explore.trace import trace
from cutaway.inference.pipelines import Embedder
from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes, write_text
from cutaway.runs.weights import seal_weights

FAMILIES = {
    "vectors": ("encoder", {"head": "vectors", "pooling": "mean"}),
    "vectors-cls": ("encoder", {"head": "vectors"}),
    "vectors-tanh": ("encoder", {"head": "vectors", "pooling": "cls_tanh"}),
    "masked": ("encoder", {}),
    "classes": ("encoder", {"head": "classes", "pooling": "attention"}),
    "decoder": ("decoder", {"position": "rope"}),
    "encoder_decoder": ("encoder_decoder", {}),
}
every_family = pytest.mark.parametrize("kind", FAMILIES)


def embedder(kind="vectors"):
    family, changes = FAMILIES[kind]
    pipeline = untrained_pipeline(family, **changes)
    return Embedder(pipeline.engine, pipeline.tokenizer, pipeline.config, pipeline.labels)


def expected_vector(pipeline, text, pooling):
    """The vector [D] of one text, without padding."""
    tokenizer, model = pipeline.tokenizer, pipeline.model
    ids = tokenizer.encode(text)
    row = {
        "decoder": [tokenizer.bos, *ids],
        "encoder_decoder": [*ids, tokenizer.eos],
    }.get(pipeline.config.model.family, [tokenizer.bos, *ids, tokenizer.eos])
    row = torch.tensor([row])
    with torch.no_grad():
        x_TD = (model.decode(row) if pipeline.config.model.family == "decoder" else model.encode(row))[0]
        if pooling == "cls_tanh":
            return (x_TD[0] @ model.head.pool.dense.weight.T + model.head.pool.dense.bias).tanh()
        return {"mean": x_TD.mean(0), "cls": x_TD[0], "max": x_TD.max(0).values}[pooling]


@every_family
def test_vectors_are_the_pooled_input_of_the_head(kind):
    pipeline = embedder(kind)
    config = pipeline.config.model
    default = config.pooling if config.head == "vectors" else "mean"
    expected = {"auto": default, "mean": "mean", "max": "max"} | ({"cls": "cls"} if config.family == "encoder" else {})
    for pooling, resolved in expected.items():
        for text, found in zip(TEXTS, pipeline.embed(TEXTS, pooling, normalize=False), strict=True):
            assert max_difference(torch.tensor(found), expected_vector(pipeline, text, resolved)) < 1e-5
    unit = np.array(pipeline.embed(TEXTS))
    plain = np.array(pipeline.embed(TEXTS, normalize=False))
    assert np.abs(np.linalg.norm(unit, axis=1) - 1).max() < 1e-6
    assert np.abs(unit - plain / np.linalg.norm(plain, axis=1, keepdims=True)).max() < 1e-6


@every_family
def test_a_vector_does_not_depend_on_the_batch(kind):
    pipeline = embedder(kind)
    together = np.array(pipeline.embed(TEXTS))
    alone = np.array([pipeline.embed([text])[0] for text in TEXTS])
    shuffled = np.array(pipeline.embed(TEXTS[::-1], batch_size=2))[::-1]
    assert np.abs(together - alone).max() < 1e-5
    assert np.abs(together - shuffled).max() < 1e-5
    assert np.abs(together[0] - together[1]).max() > 1e-3


def test_an_empty_text_has_a_vector():
    assert len(embedder().embed(["", "a"])[0]) == 8


def test_invalid_requests_are_errors():
    with pytest.raises(ConfigError, match=r"unknown pooling 'avg'.*Allowed: auto, mean, cls, max"):
        embedder().embed(["a"], pooling="avg")
    with pytest.raises(ConfigError, match=r"pooling 'cls'.*family = 'decoder'.*Use 'mean'"):
        embedder("decoder").embed(["a"], pooling="cls")
    long = " ".join("ab" * 25)
    with pytest.raises(DataError, match=r"the text 'a b a.*\.\.\.' has 52 tokens.*at most 30.*--cut"):
        embedder().embed([long])  # a sentence encoder reads data.max_tokens = 30 tokens, fewer than its 32 positions
    pipeline = embedder()
    tokenizer = pipeline.tokenizer
    ids = torch.tensor([[tokenizer.bos, *tokenizer.encode(long)[:28], tokenizer.eos]])
    with torch.no_grad():
        expected = pipeline.model(ids)[0]
    assert max_difference(torch.tensor(pipeline.embed([long], normalize=False, cut=True)[0]), expected) < 1e-5


def save_run(pipeline, path):
    folder = RunFolder(path)
    write_text(folder.tokenizer, pipeline.tokenizer.to_json())
    write_bytes(folder.path / "model.safetensors", seal_weights(weights_to_bytes(pipeline.model)))
    folder.write_config(pipeline.config)
    return folder


def test_the_command(tmp_path):
    pipeline = embedder()
    save_run(pipeline, tmp_path / "run")
    expected = pipeline.embed(TEXTS)
    result = run_cutaway("embed", "run", *TEXTS, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert np.abs(np.array([json.loads(line) for line in result.stdout.splitlines()]) - expected).max() < 1e-6
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    result = run_cutaway(
        "embed", "run", "--file", "texts.txt", "--out", "v.npy", "--no-normalize", "--pooling", "cls", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert np.abs(np.load(tmp_path / "v.npy") - pipeline.embed(TEXTS, "cls", False)).max() < 1e-6
    result = run_cutaway("embed", "run", *TEXTS, "--similar", cwd=tmp_path)
    cosine, one, other = result.stdout.splitlines()[0].split("\t")
    assert float(cosine) == pytest.approx(np.dot(expected[TEXTS.index(one)], expected[TEXTS.index(other)]), abs=1e-3)
    assert len(result.stdout.splitlines()) == 3
    result = run_cutaway("embed", "run", "a", "--similar", cwd=tmp_path)
    assert (result.returncode, "Give two or more" in result.stderr) == (1, True)
    for more, option in (
        (("--out", "x"), "--out"),
        (("--no-normalize",), "--no-normalize"),
        (("--file", "texts.txt"), "--file"),
    ):
        result = run_cutaway("embed", "run", "a", "b", "--similar", *more, cwd=tmp_path)
        assert (result.returncode, f"{option} has no effect with --similar" in result.stderr) == (1, True)
    result = run_cutaway("embed", "run", "--out", "none.npy", cwd=tmp_path, stdin="")
    assert (result.returncode, "standard input is empty" in result.stderr) == (1, True)
    assert not (tmp_path / "none.npy").exists()
    result = run_cutaway("evaluate", "run", cwd=tmp_path)
    assert (result.returncode, "cannot be trained or scored" in result.stderr) == (1, True)


def test_an_embedder_can_be_traced_and_explored(tmp_path):
    pipeline = embedder()
    found = trace(pipeline, "a b c")
    assert found.task == "embedding"
    assert (found.steps, found.lens, found.log_p) == ([], None, None)
    assert found.output.startswith("8 numbers: ")
    assert found.weights("encoder", 0).shape == (2, 5, 5)
    explorer = Explorer([save_run(pipeline, tmp_path / "run").path])
    assert explorer.info()["runs"][0]["task"] == "embedding"
    assert explorer.trace(ExplorerRequest(text="a b"))["source"] == ["<s>", "a", "b", "</s>"]
    assert explorer.part(ExplorerRequest(text="a b"), "head.pool")


def test_embedding_is_not_a_training_task():
    with pytest.raises(ConfigError, match="a model for embedding cannot be trained or scored"):
        TASKS["embedding"]
    assert "embedding" not in TASKS
    assert Config().model.task in TASKS
