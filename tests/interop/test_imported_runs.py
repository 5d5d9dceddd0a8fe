"""Every command works on an imported run, and it can be fine-tuned."""

import json
import re

import numpy as np
import pytest
from foreign import write_theirs
from helpers import run_cutaway, tiny_of

from cutaway.config import ModelConfig
from cutaway.config.presets import preset
from cutaway.errors import DataError
from cutaway.explore.explorer import Explorer, ExplorerRequest

pytestmark = pytest.mark.slow

SIZE = {"vocab_size": 40, "max_length": 64}
BERT = {"position": "learned", "norm_epsilon": 1e-12, "feed_forward": "gelu", "embedding_scale": "one", "embedding_norm": True,
        "segments": 2, **SIZE}  # fmt: skip


def tiny_bert(**changes) -> ModelConfig:
    return tiny_of("encoder", **BERT, **changes)


MODELS = {
    "gpt2": lambda: tiny_like("tiny-gpt2"),
    "llama": lambda: tiny_like("tiny-llama"),
    "t5": lambda: tiny_like("tiny-t5"),
    "marian": lambda: tiny_of(output_bias=True, feed_forward="silu", **SIZE),
    "bert": lambda: tiny_bert(),
    "bert-vectors": lambda: tiny_bert(head="vectors", pooling="mean"),
    "bert-classes": lambda: tiny_bert(head="classes", pooling="cls_tanh"),
    "bert-tags": lambda: tiny_bert(head="tags"),
    "vit": lambda: preset("tiny-vit"),
}
WRITES = {"gpt2": "generate", "llama": "generate", "t5": "translate", "marian": "translate"}
TEXT = "w5 w6 w7 w8"


def tiny_like(name: str) -> ModelConfig:
    from dataclasses import replace

    return replace(preset(name), **SIZE)


@pytest.fixture(params=MODELS)
def imported(request, tmp_path):
    """(name, folder that contains runs/it)"""
    write_theirs(tmp_path / "theirs", MODELS[request.param]())
    run_command(tmp_path, "import", "theirs", "runs/it")
    return request.param, tmp_path


def run_command(folder, *arguments, **options):
    result = run_cutaway(*arguments, cwd=folder, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_every_command(imported):
    name, folder = imported
    assert "weights only" in run_command(folder, "runs", "runs/it")
    assert (folder / "runs/it/model.safetensors").is_file()
    if name == "vit":
        np.save(folder / "images.npy", np.random.default_rng(0).random((2, 4, 4), dtype=np.float32))
        assert "class" in run_command(folder, "classify", "runs/it", "--file", "images.npy")
        return
    trace = json.loads(run_command(folder, "trace", "runs/it", TEXT, "--json"))
    assert trace["attention"]
    assert "Nothing leaks" in run_command(folder, "mask", "runs/it", TEXT)
    vectors = [json.loads(line) for line in run_command(folder, "embed", "runs/it", TEXT, "w9").splitlines()]
    assert [len(vector) for vector in vectors] == [8, 8]
    run_command(folder, "explore", "runs/it", "--export", "page.html")
    assert (folder / "page.html").stat().st_size > 100_000
    if name in WRITES:
        engines = [
            run_command(folder, WRITES[name], "runs/it", TEXT, "--engine", engine) for engine in ("torch", "numpy")
        ]
        assert engines[0] == engines[1]
    if name == "bert-classes":
        assert run_command(folder, "classify", "runs/it", TEXT).startswith("class ")
    if name == "bert-tags":
        assert len(run_command(folder, "tag", "runs/it", TEXT).split()) >= 4


FOR_A_RECIPE = ("the recipe", "data.corpus", "data.train", "Train first")  # advice that does not apply to imported runs


def test_no_command_mentions_a_training(imported):
    name, folder = imported
    drawn = run_cutaway("figures", "runs/it", cwd=folder)
    assert drawn.returncode == 0, drawn.stderr
    figures = {path.stem for path in (folder / "runs/it/figures").iterdir()}
    assert not figures & {"loss", "schedule", "schedules", "smoothing"}
    assert "positions" in figures or name == "t5"
    if name != "vit":
        assert {"masks", "last_layer", "roles", "heads", "parameters", "time"} <= figures
        assert drawn.stderr.count("Note: no") == 0
    run_command(folder, "runs", "runs/it", "--report")
    page = (folder / "runs/it/report.html").read_text("utf-8")
    for untrue in ("Findings", "Training curves", "0 steps", "cutaway doctor", " on :"):
        assert untrue not in page
    commands = (
        ("mask", "runs/it"),
        ("doctor", "runs/it"),
        ("evaluate", "runs/it"),
        ("figures", "runs/it", "--only", "schedule"),
    )
    results = {" ".join(arguments[:2]): run_cutaway(*arguments, cwd=folder) for arguments in commands}
    for one in (drawn, *results.values()):
        assert not any(advice in one.stderr for advice in FOR_A_RECIPE), one.stderr
    assert "was not trained here" in results["doctor runs/it"].stderr
    if name != "vit":
        assert "Nothing leaks" in results["mask runs/it"].stdout
    if name != "bert-vectors":
        assert "--data FILE" in results["evaluate runs/it"].stderr
        files = re.findall(r'"([\w.]+)"', write_data(folder, name).splitlines()[0])
        scored = run_cutaway("evaluate", "runs/it", *(word for file in files for word in ("--data", file)), cwd=folder)
        assert (scored.returncode, scored.stderr) == (0, "")  # its training data is unknown, so there is no baseline


def test_the_explorer_of_an_imported_run(imported):
    name, folder = imported
    explorer = Explorer([folder / "runs/it"], "cpu")
    if name == "vit":
        with pytest.raises(DataError, match="has no images: it was imported"):
            explorer.heads(0)
    else:
        assert explorer.heads(0)["rows"]
    if name in ("gpt2", "llama", "bert"):
        assert list(explorer.score(ExplorerRequest(), 3))[-1]["before"]["perplexity"] > 1
    else:
        with pytest.raises(DataError, match="was imported and has no labelled data"):
            list(explorer.score(ExplorerRequest(), 3))


RECIPE = """
[finetune]
base = "runs/it"
method = "{method}"
{more}

[data]
{data}
max_tokens = 32
batch_tokens = 128

[train]
steps = 3
valid_every = 3
save_every = 3
schedule = "constant"
lr = 1e-3
warmup = 4_000
label_smoothing = 0.0
"""


def write_data(folder, name):
    """Write files that fit the model. Return their lines in a recipe."""
    texts = [" ".join(f"w{5 + (i * k) % 30}" for k in range(1, 6)) for i in range(1, 40)]
    if name in ("t5", "marian"):
        (folder / "a.txt").write_text("\n".join(texts), encoding="utf-8")
        (folder / "b.txt").write_text("\n".join(text[::-1] for text in texts), encoding="utf-8")
        return 'train = ["a.txt", "b.txt"]\nvalid = ["a.txt", "b.txt"]'
    if name in ("gpt2", "llama", "bert"):
        (folder / "a.txt").write_text("\n".join(texts), encoding="utf-8")
        return 'train = ["a.txt"]\nvalid = ["a.txt"]'
    if name == "bert-tags":
        lines = ["\n".join(f"{word} class_{i % 3}" for i, word in enumerate(text.split())) for text in texts]
        (folder / "a.conll").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
        return 'train = ["a.conll"]\nvalid = ["a.conll"]'
    if name == "vit":
        images = np.random.default_rng(0).random((24, 4, 4), dtype=np.float32)
        np.savez(folder / "a.npz", images=images, labels=np.array([f"class {i % 3}" for i in range(24)]))
        return 'train = ["a.npz"]\nvalid = ["a.npz"]'
    (folder / "a.tsv").write_text("\n".join(f"{text}\tclass {i % 3}" for i, text in enumerate(texts)), encoding="utf-8")
    return 'train = ["a.tsv"]\nvalid = ["a.tsv"]'


@pytest.mark.parametrize("method", ["full", "lora", "prefix", "prompt"])
def test_fine_tuning(imported, method):
    name, folder = imported
    more = '[model]\nhead = "classes"\n' if name == "bert-vectors" else ""
    recipe = RECIPE.format(method=method, more=more, data=write_data(folder, name))
    if name == "vit":
        recipe = recipe.replace("max_tokens = 32\n", "")
    (folder / "tune.toml").write_text(recipe, encoding="utf-8")
    run_command(folder, "train", "tune.toml")
    kept = folder / "runs/tune" / ("model.safetensors" if method == "full" else "adapter.safetensors")
    assert kept.is_file()
    if name in WRITES:
        run_command(folder, WRITES[name], "runs/tune", TEXT)
    elif name in ("bert-vectors", "bert-classes"):
        assert run_command(folder, "classify", "runs/tune", TEXT).startswith("class ")
    text = "0" if name == "vit" else TEXT
    run_command(folder, "trace", "runs/tune", text)
    if method == "lora":
        run_command(folder, "export", "runs/tune", "merged", "--to", "run")
        assert (folder / "merged/model.safetensors").is_file()
        if name != "vit":  # a merged run has no data, so there are no images to trace
            run_command(folder, "trace", "merged", text)
