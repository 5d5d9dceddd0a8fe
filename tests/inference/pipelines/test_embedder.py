"""Vectors of texts: against the model's own parts put together by hand, for every family that reads text."""

import json

import numpy as np
import pytest
import torch
from helpers import cutaway_here, max_difference
from looking import TEXTS, untrained

from cutaway.config import Config
from cutaway.data.tasks import TASKS
from cutaway.errors import ConfigError, DataError
from cutaway.explore.explorer import Explorer, ExplorerRequest
from cutaway.explore.trace import trace
from cutaway.inference.pipelines import Embedder
from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes, write_text
from cutaway.runs.weights import sealed

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
    made = untrained(family, **changes)
    return Embedder(made.engine, made.tokenizer, made.config, made.labels)


def by_hand(made, text, pooling):
    """One text alone, without padding, through the model's parts: [D]"""
    tokenizer, model = made.tokenizer, made.model
    ids = tokenizer.encode(text)
    row = {
        "decoder": [tokenizer.bos, *ids],
        "encoder_decoder": [*ids, tokenizer.eos],
    }.get(made.config.model.family, [tokenizer.bos, *ids, tokenizer.eos])
    row = torch.tensor([row])
    with torch.no_grad():
        x_TD = (model.decode(row) if made.config.model.family == "decoder" else model.encode(row))[0]
        if pooling == "cls_tanh":
            return (x_TD[0] @ model.head.pool.dense.weight.T + model.head.pool.dense.bias).tanh()
        return {"mean": x_TD.mean(0), "cls": x_TD[0], "max": x_TD.max(0).values}[pooling]


@every_family
def test_vectors_are_pooled_from_what_the_head_would_read(kind):
    made = embedder(kind)
    config = made.config.model
    own = config.pooling if config.head == "vectors" else "mean"
    asked = {"auto": own, "mean": "mean", "max": "max"} | ({"cls": "cls"} if config.family == "encoder" else {})
    for pooling, meant in asked.items():
        for text, found in zip(TEXTS, made.embed(TEXTS, pooling, normalize=False), strict=True):
            assert max_difference(torch.tensor(found), by_hand(made, text, meant)) < 1e-5
    unit = np.array(made.embed(TEXTS))
    plain = np.array(made.embed(TEXTS, normalize=False))
    assert np.abs(np.linalg.norm(unit, axis=1) - 1).max() < 1e-6
    assert np.abs(unit - plain / np.linalg.norm(plain, axis=1, keepdims=True)).max() < 1e-6


@every_family
def test_a_text_has_its_vector_whatever_the_company(kind):
    made = embedder(kind)
    together = np.array(made.embed(TEXTS))
    alone = np.array([made.embed([text])[0] for text in TEXTS])
    shuffled = np.array(made.embed(TEXTS[::-1], batch_size=2))[::-1]
    assert np.abs(together - alone).max() < 1e-5
    assert np.abs(together - shuffled).max() < 1e-5
    assert np.abs(together[0] - together[1]).max() > 1e-3


def test_an_empty_text_has_a_vector_too():
    assert len(embedder().embed(["", "a"])[0]) == 8


def test_what_cannot_be_done_is_said():
    with pytest.raises(ConfigError, match=r"no pooling 'avg'.*Allowed: auto, mean, cls, max"):
        embedder().embed(["a"], pooling="avg")
    with pytest.raises(ConfigError, match=r"pooling 'cls'.*family 'decoder'.*Use 'mean'"):
        embedder("decoder").embed(["a"], pooling="cls")
    long = " ".join("ab" * 25)
    with pytest.raises(DataError, match=r"the text 'a b a.*\.\.\.' has 52 tokens.*takes 30.*--cut"):
        embedder().embed([long])  # of 32 positions, a sentence encoder uses as many as its data.max_tokens
    made = embedder()
    tokenizer = made.tokenizer
    ids = torch.tensor([[tokenizer.bos, *tokenizer.encode(long)[:28], tokenizer.eos]])
    with torch.no_grad():
        wanted = made.model(ids)[0]
    assert max_difference(torch.tensor(made.embed([long], normalize=False, cut=True)[0]), wanted) < 1e-5


def saved(made, path):
    folder = RunFolder(path)
    write_text(folder.tokenizer, made.tokenizer.to_json())
    write_bytes(folder.path / "model.safetensors", sealed(weights_to_bytes(made.model)))
    folder.write_config(made.config)
    return folder


def test_the_command(tmp_path):
    made = embedder()
    saved(made, tmp_path / "run")
    wanted = made.embed(TEXTS)
    told = cutaway_here("embed", "run", *TEXTS, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert np.abs(np.array([json.loads(line) for line in told.stdout.splitlines()]) - wanted).max() < 1e-6
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    told = cutaway_here(
        "embed", "run", "--file", "texts.txt", "--out", "v.npy", "--no-normalize", "--pooling", "cls", cwd=tmp_path
    )
    assert told.returncode == 0, told.stderr
    assert np.abs(np.load(tmp_path / "v.npy") - made.embed(TEXTS, "cls", False)).max() < 1e-6
    told = cutaway_here("embed", "run", *TEXTS, "--similar", cwd=tmp_path)
    cosine, one, other = told.stdout.splitlines()[0].split("\t")
    assert float(cosine) == pytest.approx(np.dot(wanted[TEXTS.index(one)], wanted[TEXTS.index(other)]), abs=1e-3)
    assert len(told.stdout.splitlines()) == 3
    told = cutaway_here("embed", "run", "a", "--similar", cwd=tmp_path)
    assert (told.returncode, "Give two or more" in told.stderr) == (1, True)
    for more, option in (
        (("--out", "x"), "--out"),
        (("--no-normalize",), "--no-normalize"),
        (("--file", "texts.txt"), "--file"),
    ):
        told = cutaway_here("embed", "run", "a", "b", "--similar", *more, cwd=tmp_path)
        assert (told.returncode, f"{option} has no effect with --similar" in told.stderr) == (1, True)
    told = cutaway_here("embed", "run", "--out", "none.npy", cwd=tmp_path, stdin="")
    assert (told.returncode, "standard input is empty" in told.stderr) == (1, True)
    assert not (tmp_path / "none.npy").exists()
    told = cutaway_here("evaluate", "run", cwd=tmp_path)
    assert (told.returncode, "neither trained nor scored" in told.stderr) == (1, True)


def test_a_model_of_vectors_can_be_looked_into(tmp_path):
    made = embedder()
    found = trace(made, "a b c")
    assert found.task == "embedding"
    assert (found.steps, found.lens, found.log_p) == ([], None, None)
    assert found.output.startswith("8 numbers: ")
    assert found.weights("encoder", 0).shape == (2, 5, 5)
    explorer = Explorer([saved(made, tmp_path / "run").path])
    assert explorer.info()["runs"][0]["task"] == "embedding"
    assert explorer.trace(ExplorerRequest(text="a b"))["source"] == ["<s>", "a", "b", "</s>"]
    assert explorer.part(ExplorerRequest(text="a b"), "head.pool")


def test_it_has_no_data():
    with pytest.raises(ConfigError, match="a model for embedding has no data of its own"):
        TASKS["embedding"]
    assert "embedding" not in TASKS
    assert Config().model.task in TASKS
