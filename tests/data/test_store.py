"""A large corpus, prepared on disk, has the same examples, batches and fingerprint as in memory."""

import gzip
import json
import multiprocessing
import os
import pickle
import signal
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from cutaway.cli.data import app
from cutaway.cli.prefetch import prefetch_data
from cutaway.cli.preparing import PreparingProgress
from cutaway.config import DataConfig
from cutaway.data import cache, lines, parallel_encoding, store
from cutaway.data.batching import BatchStream
from cutaway.data.lazy import lengths_of
from cutaway.data.memmap import StoredExamples
from cutaway.data.prepare import prepare
from cutaway.data.sampler import batches_by_tokens
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import DataError

N = 120
WORDS = [
    "the",
    "a",
    "small",
    "big",
    "red",
    "old",
    "cat",
    "dog",
    "tree",
    "sleeps",
    "sees",
    "under",
    ",",
    "and",
    ".",
    "don't",
    "über",
    "猫",
    "é",
]


def sentences(n, seed=0):
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, draw.integers(0, 12))) for _ in range(n)]


@pytest.fixture(autouse=True)
def small_is_large(tmp_path, monkeypatch):
    """Prepare every corpus in the cache, in many groups, in this process."""
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "IN_MEMORY", 0)
    monkeypatch.setattr(parallel_encoding, "GROUP_BYTES", 4_000)
    monkeypatch.setattr(parallel_encoding, "cores", lambda: 1)
    monkeypatch.setattr(lines, "PART_CHARACTERS", 500)
    monkeypatch.setattr(lines, "MAX_LOOK_BACK", 100)


@pytest.fixture
def corpus(tmp_path):
    """A function that writes a corpus for a task and returns its settings."""

    def write(name, text):
        data = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return (name,)

    def config(task, **settings):
        texts = sentences(N)
        common = {"root": str(tmp_path), "max_tokens": 24, "batch_tokens": 200, "vocab_size": 290, **settings}
        if task == "translation":
            rows = "".join(f"{s}\t{t}\n" for s, t in zip(texts, sentences(N, seed=1), strict=True) if s or t)
            return DataConfig(
                train=write("train.tsv", rows), valid=write("valid.tsv", "the cat\ta dog\nsees\t\n" * 9), **common
            )
        if task == "classification":
            rows = "".join(json.dumps({"text": t, "label": len(t) % 3}) + "\n" for t in texts if t)
            return DataConfig(
                train=write("train.jsonl.gz", rows),
                valid=write("valid.jsonl", '{"text": "a cat", "label": 1}\n' * 5),
                **common,
            )
        if task == "tagging":
            rows = "\n\n".join("\n".join(f"{w} {w[0]}" for w in t.split()) for t in texts if t)
            return DataConfig(train=write("train.conll", rows), valid_share=0.1, **common)
        files = write("a.txt", "\n".join(texts)) + write("b.txt", "\n \n".join(texts)) + write("c.txt", "")
        return DataConfig(train=files, valid=write("valid.txt", "\n".join(texts[:9])), **common)

    return config


TASKS = ["translation", "language_model", "masked_language_model", "classification", "tagging"]


def in_memory(config, task, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(store, "IN_MEMORY", 10**9)
        return prepare(config, task)


@pytest.mark.parametrize(("task", "scheme"), [*((task, "bpe") for task in TASKS), ("language_model", "word")])
def test_the_result_is_the_same_as_in_memory(task, scheme, corpus, monkeypatch):
    config = corpus(task, tokenizer=scheme)
    stored, expected = prepare(config, task), in_memory(config, task, monkeypatch)
    for name in ("tokenizer", "roles", "labels", "examples", "left_out", "cut", "fingerprint"):
        assert getattr(stored, name) == getattr(expected, name), name
    for split in ("train", "valid"):
        ours, theirs = getattr(stored, split), getattr(expected, split)
        assert list(ours) == list(theirs)
        assert (lengths_of(ours) == [example.lengths for example in theirs]).all()
        assert ours[-1] == theirs[-1]
        assert ours[1:9:3] == list(theirs)[1:9:3]
        for epoch in (0, 3):
            assert batches_by_tokens(ours, 200, 1, epoch) == batches_by_tokens(list(theirs), 200, 1, epoch)
    with pytest.raises(IndexError):
        stored.train[len(stored.train)]


@pytest.mark.parametrize("task", TASKS)
def test_streams_are_equal_over_epochs(task, corpus, monkeypatch):
    config = corpus(task)
    prepared = [prepare(config, task), in_memory(config, task, monkeypatch)]
    tokenizer = Tokenizer.from_json(prepared[0].tokenizer, prepared[0].roles)
    one, other = (BatchStream(p.train, task, tokenizer, 200, seed=5) for p in prepared)
    while one.epoch < 2:
        left, right = next(one), next(other)
        assert left.tokens == right.tokens
        assert all((value == right.tensors()[name]).all() for name, value in left.tensors().items())


def test_the_second_preparation_reads_the_cache(corpus, tmp_path, monkeypatch):
    config, progress = corpus("translation"), []
    first = prepare(config, "translation", on_progress=lambda what, done: progress.append((what, done)))
    assert isinstance(first.train, StoredExamples)
    assert {what for what, _ in progress} == {
        "learning the vocabulary", "tokenising the train data", "tokenising the valid data"
    }  # fmt: skip
    assert all(0 <= done <= 1 for _, done in progress)
    monkeypatch.setattr(store, "build", None)  # it must not be called again
    second = prepare(config, "translation")
    assert list(second.train) == list(first.train)
    for name in ("train.tsv", "valid.tsv"):  # names and folders do not matter
        (tmp_path / name).rename(tmp_path / f"other-{name}")
    moved = DataConfig(**{**vars(config), "train": ("other-train.tsv",), "valid": ("other-valid.tsv",)})
    assert list(prepare(moved, "translation").train) == list(first.train)
    assert len(list((tmp_path / "cache" / "data").iterdir())) == 1
    assert first.train.rows["source"].values.itemsize == 2  # 290 tokens need two bytes


def test_entries_are_listed_and_deleted_when_unused(corpus):
    old, new = corpus("translation"), corpus("translation", vocab_size=280)
    for config in (old, new):
        prepare(config, "translation")
    assert [entry.task for entry in cache.list_entries()] == ["translation"] * 2
    for entry in cache.list_entries():
        assert entry.size == sum(file.stat().st_size for file in entry.path.iterdir())
        os.utime(entry.path, (0, 0))
    prepare(new, "translation")  # used today
    assert "1 prepared corpus, " in CliRunner().invoke(app, ["cache", "--unused-for", "30", "--remove"]).output
    (remaining,) = cache.list_entries()
    assert remaining.last_used > 0
    assert remaining.path.name[:8] in CliRunner().invoke(app, ["cache"]).output


@pytest.mark.parametrize(
    "change", [{"vocab_size": 280}, {"max_tokens": 12}, {"tokenizer": "word"}, {"columns": (1, 0)}]
)
def test_another_setting_makes_another_entry(change, corpus, tmp_path):
    prepare(corpus("translation"), "translation")
    prepare(corpus("translation", **change), "translation")
    assert len(list((tmp_path / "cache" / "data").iterdir())) == 2


def test_a_setting_without_effect_on_the_ids_makes_no_other_entry(corpus, tmp_path):
    prepare(corpus("language_model"), "language_model")
    prepare(corpus("language_model", batch_tokens=300, max_tokens=12), "language_model")
    assert len(list((tmp_path / "cache" / "data").iterdir())) == 1


def test_another_text_makes_another_entry(corpus, tmp_path):
    config = corpus("translation")
    before = prepare(config, "translation")
    with (tmp_path / "train.tsv").open("a", encoding="utf-8") as file:
        file.write("one\tmore\n")
    after = prepare(config, "translation")
    assert after.examples == before.examples + 1
    assert after.fingerprint != before.fingerprint


def test_a_resumed_run_finds_its_entry(corpus, tmp_path, monkeypatch):
    config = corpus("translation")
    first = prepare(config, "translation")
    (tmp_path / "tokenizer.json").write_text(first.tokenizer, encoding="utf-8", newline="\n")
    with monkeypatch.context() as patch:
        patch.setattr(store, "build", None)
        assert list(prepare(config, "translation", tmp_path / "tokenizer.json").train) == list(first.train)
    (tmp_path / "tokenizer.json").write_text(Tokenizer.train(WORDS, "word", 40).to_json(), encoding="utf-8")
    other = prepare(config, "translation", tmp_path / "tokenizer.json")
    assert other.tokenizer != first.tokenizer
    assert other.fingerprint == first.fingerprint


@pytest.mark.parametrize("damage", ["cut", "flip", "lose", "about"])
def test_a_damaged_entry_is_detected_and_built_again(damage, corpus, tmp_path):
    config = corpus("translation")
    whole = list(prepare(config, "translation").train)
    [entry] = (tmp_path / "cache" / "data").iterdir()
    file = entry / "train.source.bin"
    data = file.read_bytes()
    if damage == "cut":
        file.write_bytes(data[:-1])
    elif damage == "flip":
        file.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
    elif damage == "lose":
        file.unlink()
    else:
        (entry / "about.json").write_text('{"files": [')
    assert cache.read_entry(entry) is None
    assert list(prepare(config, "translation").train) == whole
    assert file.read_bytes() == data
    assert [p.name for p in entry.parent.iterdir()] == [entry.name]


def test_a_preparation_that_fails_leaves_nothing(corpus, tmp_path):
    config = corpus("translation")
    with (tmp_path / "valid.tsv").open("a", encoding="utf-8") as file:  # fails after the training data is written
        file.write("no tab\n")
    with pytest.raises(DataError, match="'no tab'. Expected a source, a tab and a target"):
        prepare(config, "translation")
    assert list((tmp_path / "cache" / "data").iterdir()) == []


def test_the_slower_of_two_processes_uses_the_entry_of_the_faster(corpus, tmp_path, monkeypatch):
    config = corpus("translation")
    whole, original = prepare(config, "translation"), store.build
    [entry] = (tmp_path / "cache" / "data").iterdir()
    entry.rename(tmp_path / "kept")

    def slow_build(*arguments):
        original(*arguments)
        (tmp_path / "kept").rename(entry)  # another process was faster

    monkeypatch.setattr(store, "build", slow_build)
    inode = (tmp_path / "kept" / "about.json").stat().st_ino
    assert list(prepare(config, "translation").train) == list(whole.train)
    assert (entry / "about.json").stat().st_ino == inode
    assert len(list(entry.parent.iterdir())) == 1


def test_an_error_names_a_cache_that_cannot_be_written(corpus, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot be written to .*file.data: .*set CUTAWAY_CACHE to a folder"):
        prepare(corpus("translation"), "translation")


def test_examples_are_pickled_as_file_names(corpus):
    for task in ("translation", "language_model", "masked_language_model"):
        prepared = prepare(corpus(task), task)
        pickled = pickle.dumps(prepared)
        assert len(pickled) < len(prepared.tokenizer) + 3_000
        assert list(pickle.loads(pickled).train) == list(prepared.train)


def test_the_tokenizer_of_a_huge_corpus_is_trained_on_every_nth_example(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "SAMPLE_BYTES", 2_000)
    rows = [f"word{number} \tx" for number in range(1_000)]
    (tmp_path / "train.tsv").write_text("\n".join(rows), encoding="utf-8")
    config = DataConfig(root=str(tmp_path), train=("train.tsv",), tokenizer="word", vocab_size=2_000)
    tokenizer, _ = store.learn_tokenizer(config, "translation")
    known = [number for number in range(1_000) if not tokenizer.unknown(f"word{number}")]
    step = known[1] - known[0]
    assert known == list(range(0, 1_000, step))
    assert 150 < len(known) < 250


def test_several_processes_give_the_same_result(corpus, monkeypatch):
    config = corpus("classification")
    one = prepare(config, "classification")
    monkeypatch.setattr(store, "FORMAT", -1)
    monkeypatch.setattr(parallel_encoding, "GROUP_BYTES", 2_000)
    monkeypatch.setattr(parallel_encoding, "cores", lambda: 2)
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    two = prepare(config, "classification")
    assert list(one.train) == list(two.train)
    assert "TOKENIZERS_PARALLELISM" not in os.environ


def test_an_error_in_a_worker_is_raised(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(parallel_encoding, "cores", lambda: 2)
    config = corpus("classification")
    (tmp_path / "valid.jsonl").write_text('{"text": "the cat", "label": "new"}')
    with pytest.raises(DataError, match="the label 'new' does not occur in the training data. Its labels are: 0, 1, 2"):
        prepare(config, "classification")


def prepare_slowly(config, started):
    original = parallel_encoding.Encoder.__call__

    def slow(self, examples):
        started.set()
        time.sleep(0.3)
        return original(self, examples)

    parallel_encoding.Encoder.__call__ = slow
    parallel_encoding.cores = lambda: 2
    prepare(config, "translation")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_preparation_leaves_no_finished_entry(corpus, tmp_path):
    config = corpus("translation")
    context = multiprocessing.get_context("fork")
    started = context.Event()
    process = context.Process(target=prepare_slowly, args=(config, started))
    process.start()
    assert started.wait(20)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert all(p.name.startswith(".") for p in (tmp_path / "cache" / "data").iterdir())
    assert len(prepare(config, "translation").train) > N // 2


def test_no_fitting_example_is_an_error(corpus):
    with pytest.raises(
        DataError, match=r"no example is left: of \d+, \d+ are empty \(on one side\) and \d+ are longer"
    ):
        prepare(corpus("translation", max_tokens=1), "translation")


def test_too_long_is_respected_with_the_cache(corpus):
    cut, skipped = (prepare(corpus("tagging", max_tokens=8, too_long=s), "tagging") for s in ("cut", "skip"))
    assert cut.cut["too long"] == skipped.left_out["too long"] > 0
    assert len(cut.train) > cut.examples * 0.8 > len(skipped.train)
    for _ in range(2):  # the second time, the counts come from the cache
        with pytest.raises(DataError, match="are too long: longer than data.max_tokens = 8"):
            prepare(corpus("tagging", max_tokens=8, too_long="refuse"), "tagging")


@pytest.mark.skipif(sys.platform != "linux", reason="monkeypatching works in a child process only with fork")
def test_progress_result_and_errors_come_from_another_process(corpus, tmp_path, monkeypatch):
    progress = []
    monkeypatch.setattr(PreparingProgress, "__call__", lambda self, *report: progress.append(report))
    config = corpus("translation")
    with prefetch_data(config, "translation") as prepared:
        result = prepared()
    assert progress[0][0] == "learning the vocabulary"
    assert list(result.train) == list(prepare(config, "translation").train)
    with (
        pytest.raises(DataError, match="there is no file"),
        prefetch_data(DataConfig(train=("none.tsv",)), "translation") as prepared,
    ):
        prepared()
    monkeypatch.setattr("cutaway.cli.prefetch.prepare", lambda *_: os._exit(3))
    with (
        pytest.raises(DataError, match=r"died \(exit code 3\)"),
        prefetch_data(config, "translation") as prepared,
    ):
        prepared()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="as above")
def test_an_interrupt_stops_the_preparation(corpus, tmp_path, monkeypatch):
    config, started = corpus("translation"), multiprocessing.get_context("fork").Event()
    monkeypatch.setattr("cutaway.cli.prefetch.prepare", lambda *_: prepare_slowly(config, started))
    with pytest.raises(KeyboardInterrupt), prefetch_data(config, "translation"):
        assert started.wait(20)
        raise KeyboardInterrupt
    assert list((tmp_path / "cache" / "data").iterdir()) == []
