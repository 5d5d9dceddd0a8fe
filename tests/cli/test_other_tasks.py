"""generate, classify, tag and evaluate from the command line, on runs that train in a second."""

import json
import subprocess
import sys

import numpy as np
import pytest
from helpers import run_cutaway as cutaway

from cutaway.cli.recipes import find_recipe
from cutaway.inference.training.setup import start_training
from cutaway.runs import RunFolder
from cutaway.runs.recipe import read_recipe

TINY = [
    "model.d_model=16",
    "model.d_ff=32",
    "model.n_heads=2",
    "train.steps=6",
    "train.warmup=4",
    "train.valid_every=6",
]
TINY += ["data.heldout_size=6", "train.save_every=6"]
RUNS = {
    "python-gpt": [
        "model.n_kv_heads=1",
        "data.size=2",
        "data.heldout_size=1",
        "data.vocab_size=300",
        "data.max_tokens=64",
    ],
    "python-bert": ["data.size=2", "data.heldout_size=1", "data.vocab_size=300", "data.max_tokens=64"],
    "python-tagger": ["data.size=200", "data.vocab_size=300"],
    "python-expressions": ["data.size=60", "data.vocab_size=300"],
    "digits-vit": ["data.size=600", "data.batch_tokens=16"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    for name, settings in RUNS.items():
        config = read_recipe(find_recipe(name), [*TINY, *settings])
        start_training(config, RunFolder(folder / "runs" / name)).trainer.run()
    return folder


def test_train_and_evaluate_in_one_command(tmp_path):
    words = [word for s in [*TINY, *RUNS["digits-vit"]] for word in ("--set", s)]
    result = subprocess.run(
        [sys.executable, "-m", "cutaway", "train", "digits-vit", *words, "--evaluate"],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, encoding="utf-8",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "accuracy" in result.stdout
    assert "small MLP" in result.stdout
    assert "examples/s" in result.stderr


def fails(result, *parts):
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    for part in parts:
        assert part in result.stderr, result.stderr
    return True


def test_generate(home):
    def sample(*options):
        return cutaway("generate", "runs/python-gpt", "def f(x):\n", "--max-length", 8, *options, cwd=home).stdout

    assert sample("--seed", 1) == sample("--seed", 1)
    assert sample("--seed", 1).startswith("def f(x):\n")
    assert sample("--seed", 1, "--temperature", 3) != sample("--seed", 2, "--temperature", 3)
    lines = cutaway("generate", "runs/python-gpt", "--max-length", 8, cwd=home, stdin="import\nclass A\n").stdout
    assert len(lines.splitlines()) == 2
    assert fails(cutaway("generate", "runs/python-tagger", "x", cwd=home), "was trained for tagging", "cutaway tag")


def test_classify(home):
    result = cutaway("classify", "runs/python-expressions", "f(x)[0]", "a + b", "--top", 3, cwd=home)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [len(row) for row in rows] == [6, 6]
    probabilities = [[float(p) for p in row[1::2]] for row in rows]
    assert all(p == sorted(p, reverse=True) for p in probabilities)
    piped = cutaway("classify", "runs/python-expressions", cwd=home, stdin="f(x)[0]\na + b\n").stdout
    assert [line.split("\t")[0] for line in piped.splitlines()] == [row[0] for row in rows]
    objects = cutaway("classify", "runs/python-expressions", "f(x)[0]", "a + b", "--top", 3, "--json", cwd=home).stdout
    for number, (line, row) in enumerate(zip(objects.splitlines(), rows, strict=True), 1):
        found = json.loads(line)
        assert (found["line"], found["label"], f"{found['probability']:.4f}") == (number, row[0], row[1])
        assert [label["label"] for label in found["labels"]] == row[::2]


def test_classify_images(home):
    np.save(home / "images.npy", np.random.default_rng(0).random((3, 16, 16), dtype=np.float32))
    result = cutaway("classify", "runs/digits-vit", "--file", "images.npy", cwd=home)
    assert len(result.stdout.splitlines()) == 3
    assert all(0 <= int(line.split("\t")[0]) <= 18 for line in result.stdout.splitlines())
    np.save(home / "flat.npy", np.zeros((3, 64)))
    assert fails(
        cutaway("classify", "runs/digits-vit", "--file", "flat.npy", cwd=home),
        "[3, 64], but this model reads [1, 16, 16]",
    )
    (home / "no.npy").write_text("hello")
    assert fails(cutaway("classify", "runs/digits-vit", "--file", "no.npy", cwd=home), "not a readable array")
    assert fails(cutaway("classify", "runs/digits-vit", "text", cwd=home), "no image file 'text'", "classifies images")
    assert fails(cutaway("classify", "runs/digits-vit", cwd=home), "this run reads images. Give image files")
    assert fails(cutaway("classify", "runs/digits-vit", "--file", "a.npz", cwd=home), "there is no file 'a.npz'")


def test_tag(home):
    code = "def f(x):\n    return 'a'  # b"
    table = cutaway("tag", "runs/python-tagger", code, cwd=home).stdout
    rows = [line.split("\t") for line in table.splitlines() if line]
    assert [row[0] for row in rows] == ["def", "f", "(", "x", ")", ":", "\\n", "return", "'", "a", "'", "#", "b"]
    (home / "script.py").write_text(code + "\n\n\nimport os\n")
    of_file = cutaway("tag", "runs/python-tagger", "--file", "script.py", "--out", "tags.tsv", cwd=home)
    assert of_file.stdout == ""
    words = [line.split("\t")[0] for line in (home / "tags.tsv").read_text().splitlines() if line]
    assert [w for w in words if w != "\\n"] == [*[r[0] for r in rows if r[0] != "\\n"], "import", "os"]
    found = json.loads(cutaway("tag", "runs/python-tagger", code, "--json", cwd=home).stdout)
    assert found["line"] == 1
    assert found["words"] == [row[0].replace("\\n", "\n") for row in rows]
    assert found["tags"] == [row[1] for row in rows]
    assert fails(cutaway("tag", "runs/python-tagger", code, "--json", "--colour", cwd=home), "--json is for programs")
    coloured = cutaway("tag", "runs/python-tagger", code, "--colour", cwd=home).stdout
    assert "return 'a'  # b" in coloured
    assert "keyword" in coloured.splitlines()[-1]


def test_evaluate_and_its_baseline(home):
    numbers = json.loads(cutaway("evaluate", "runs/python-tagger", "--json", cwd=home).stdout)
    assert {"accuracy", "span_f1", "examples", "baseline"} <= numbers.keys()
    assert numbers["baseline"]["name"] == "most frequent tag"
    without = json.loads(cutaway("evaluate", "runs/python-tagger", "--json", "--no-baseline", cwd=home).stdout)
    assert "baseline" not in without
    (home / "x.conll").write_text("def B-keyword\nf B-definition\n")
    files = json.loads(cutaway("evaluate", "runs/python-tagger", "--data", "x.conll", "--json", cwd=home).stdout)
    assert files["examples"] == 1
    assert fails(cutaway("evaluate", "runs/python-tagger", "--strategy", "beam", cwd=home), "has no effect")
    (home / "y.conll").write_text("def KEYWORD\n")
    text = cutaway("evaluate", "runs/python-gpt", "--data", "script.py", cwd=home).stdout
    assert "bits per character" in text
    assert "bigram model" in text
