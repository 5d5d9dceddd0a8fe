"""Every task on a file gives the same results as its pipeline, with and without workers."""

import dataclasses
import json
import random

import numpy as np
import pytest
from untrained import untrained_pipeline

from cutaway import process_file
from cutaway.bulk.jobs import ClassificationJob, EmbeddingJob, TranslationJob, make_job
from cutaway.errors import ConfigError, DataError, RunError
from cutaway.inference.pipelines import Embedder
from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes, write_json, write_text
from cutaway.runs.weights import seal_weights

DRAW = random.Random(3)
LINES = [" ".join(DRAW.choices("abcdefgh", k=DRAW.randint(1, 12))) for _ in range(60)]
MODELS = {
    "translation": {"family": "encoder_decoder"},
    "language_model": {"family": "decoder"},
    "classification": {"family": "encoder", "head": "classes"},
    "tagging": {"family": "encoder", "head": "tags"},
    "embedding": {"family": "encoder", "head": "classes"},  # works with any model
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    (folder / "in.txt").write_text("\n".join(LINES) + "\n")
    return folder


def write_run(task, home):
    """Write an untrained run. Return its path and its pipeline."""
    pipeline, run = untrained_pipeline(**MODELS[task]), RunFolder(home / task)
    sampling = dataclasses.replace(pipeline.config.decode, strategy="sample", seed=4, max_length=9)
    pipeline.config = dataclasses.replace(pipeline.config, decode=sampling)
    write_text(run.tokenizer, pipeline.tokenizer.to_json())
    if pipeline.labels:
        write_json(run.labels, list(pipeline.labels))
    write_bytes(run.model, seal_weights(weights_to_bytes(pipeline.model)))
    run.write_config(pipeline.config)
    return run.path, pipeline


def expected_output(task, pipeline):
    """The results of the pipeline; line by line where it samples."""
    if task == "translation":
        return "".join(f"{pipeline.translate([line], first=i)[0]}\n" for i, line in enumerate(LINES))
    if task == "language_model":
        return "".join(f"{pipeline.generate([line], first=i)[0]}\n" for i, line in enumerate(LINES))
    if task == "classification":
        return "".join(f"{label}\t{p:.4f}\n" for label, p in pipeline.classify(LINES))
    words = [pipeline.words(line) for line in LINES]
    rows = (zip(*row, strict=True) for row in zip(words, pipeline.tag(words), strict=True))
    return "".join("".join(f"{word}\t{tag}\n" for word, tag in row) + "\n" for row in rows)


SLOW = [(task, 0) for task in ("translation", "language_model")] + [(task, 2) for task in MODELS if task != "embedding"]


@pytest.mark.parametrize(
    ("task", "workers"),
    [("classification", 0), ("tagging", 0), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_a_file_gives_the_results_of_the_pipeline(home, task, workers):
    run, pipeline = write_run(task, home)
    report = process_file(run, home / "in.txt", home / "out", workers=workers, batch_tokens=60)
    assert (report.lines, report.workers) == (60, workers)
    assert (home / "out").read_text() == expected_output(task, pipeline)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_vectors_as_an_array_and_as_text(home, workers):
    run, pipeline = write_run("embedding", home)
    vectors = Embedder(pipeline.engine, pipeline.tokenizer, pipeline.config).embed(LINES, normalize=False)
    settings = {"task": "embedding", "normalize": False, "workers": workers, "batch_tokens": 60}
    process_file(run, home / "in.txt", home / "v.npy", **settings)
    array = np.load(home / "v.npy")
    assert array.dtype == np.float32
    assert np.abs(array - vectors).max() < 1e-5
    process_file(run, home / "in.txt", home / "v.jsonl", **settings)
    rows = [json.loads(line) for line in (home / "v.jsonl").read_text().splitlines()]
    assert np.array_equal(np.array(rows, np.float32), array)


def test_the_description_contains_what_the_results_depend_on(home):
    run, pipeline = write_run("translation", home)
    job = make_job(run, engine="torch")
    assert job.description() == make_job(run, engine="torch", device="cpu").description()
    assert job.description() == make_job(run, engine="auto").description()
    beam = dataclasses.replace(pipeline.config.decode, strategy="beam")
    others = [{"decode": beam}, {"engine": "numpy"}, {"dtype": "float64"}, {"prefix": "a"}, {"choices": ("a",)}]
    descriptions = [
        job.description(),
        *(make_job(run, **{"engine": "torch", **other}).description() for other in others),
    ]
    assert all(one != other for i, one in enumerate(descriptions) for other in descriptions[:i])
    other = untrained_pipeline(seed=1)
    write_bytes(RunFolder(run).model, seal_weights(weights_to_bytes(other.model)))
    assert job.description() != descriptions[0]


def test_no_workers_start_for_little_work(home, monkeypatch):
    run, _ = write_run("translation", home)
    monkeypatch.setattr("cutaway.bulk.jobs.shutil.which", lambda name: None)
    monkeypatch.setattr("cutaway.bulk.jobs.cores", lambda: 8)
    weights = RunFolder(run).model.stat().st_size
    job = TranslationJob(str(run))
    enough = int(job.parallel_threshold / weights) + 1
    assert job.default_workers(60, 1_000) == 0
    assert job.default_workers(1_000_000, enough) == 8
    assert ClassificationJob(str(run)).default_workers(1_000_000, enough) == 0  # ten times faster per text
    assert job.default_workers(20, enough) == 2
    assert dataclasses.replace(job, device="cuda").default_workers(1_000_000, enough) == 0
    assert dataclasses.replace(job, device="cuda", engine="numpy").default_workers(1_000_000, enough) == 8
    monkeypatch.setattr("cutaway.bulk.jobs.free_memory", lambda: 1_600_000_000)
    assert job.default_workers(1_000_000, enough) == 3
    monkeypatch.setattr("cutaway.bulk.jobs.free_memory", lambda: 0)
    assert job.default_workers(1_000_000, enough) == 1


def test_invalid_arguments(home):
    run, _ = write_run("classification", home)
    source, out = home / "in.txt", home / "none"
    with pytest.raises(ConfigError, match=r"unknown setting 'tpo'.*Did you mean 'top'"):
        process_file(run, source, out, tpo=3)
    with pytest.raises(ConfigError, match="task 'image' cannot process a text file"):
        process_file(run, source, out, task="image")
    with pytest.raises(RunError, match="was trained for classification"):
        process_file(run, source, out, task="translation")
    with pytest.raises(ConfigError, match="top = 0"):
        process_file(run, source, out, top=0)
    with pytest.raises(DataError, match=r"line 61: the text .* has 52 tokens"):
        (home / "long.txt").write_text("\n".join([*LINES, "a b " * 25]) + "\n")
        process_file(run, home / "long.txt", out, task="embedding")
    assert not list(home.glob("none*"))
    assert not EmbeddingJob(str(run)).can_skip
