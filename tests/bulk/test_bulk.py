"""Bulk jobs: order, restarts, failed lines, workers that die. With jobs that need no model."""

import errno
import gzip
import io
import itertools
import json
import os
import random
import signal

import numpy as np
import pytest
from bulk_jobs import Backwards, Lengths, Unloadable, Unskippable
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.bulk import runner
from cutaway.bulk.journal import FileSink, NpyHeader, describe_differences
from cutaway.bulk.runner import run_job
from cutaway.bulk.windows import (
    LARGEST,
    RESULTS,
    SMALLEST,
    LineBatch,
    LineWindow,
    WindowReader,
    make_batches,
    window_size,
)
from cutaway.bulk.workers import FailedLine, ProcessPool, defer_interrupts, process_batch
from cutaway.errors import BulkFailed, ConfigError, DataError, RunError

LINES = [f"{'x' * random.Random(i).randint(0, 30)}{i}" for i in range(1_500)]


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return file


def backwards(lines):
    return "".join(f"{number} {line[::-1]}\n" for number, line in enumerate(lines))


class Stopped(Exception):
    """Raised to interrupt a job."""


def stop_after(calls):
    count = itertools.count(1)

    def on_progress(done, total, before):
        if next(count) == calls:
            raise Stopped

    return on_progress


def file_names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("workers", "budget"),
    [
        *((0, budget) for budget in (1, 200, 100_000)),
        (2, 200),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1, 40), (1, 100_000), (2, 40), (2, 100_000))),
    ],
)
def test_results_are_in_order(source, tmp_path, workers, budget):
    report = run_job(Backwards(), source, tmp_path / "out", workers, budget)
    assert (report.lines, report.resumed_at, report.failed, report.workers) == (1_500, 0, [], workers)
    assert (tmp_path / "out").read_text() == backwards(LINES)
    assert file_names(tmp_path) == ["in.txt", "out"]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 100))
def test_batches_contain_every_line_once_within_the_budget(sizes, budget):
    window = LineWindow(7, [str(i) for i in range(len(sizes))], "")
    batches = make_batches(window, sizes, budget)
    assert sorted(number for batch in batches for number in batch.numbers) == [7 + i for i in range(len(sizes))]
    for batch in batches:
        assert batch.texts == [str(number - 7) for number in batch.numbers]
        widest = max(sizes[number - 7] for number in batch.numbers)
        assert len(batch.texts) == 1 or len(batch.texts) * widest <= budget
    lengths = [sizes[number - 7] for batch in batches for number in batch.numbers]
    assert lengths == sorted(lengths, reverse=True)


@settings(max_examples=6)
@given(st.integers(0, 3 * LARGEST), st.sampled_from([1, 8_000, 100_000]))
def test_windows_are_the_same_wherever_a_reader_starts(start, result_bytes):
    lines = [str(i) for i in range(3 * LARGEST)]
    edges = [0]
    while edges[-1] < len(lines):
        edges.append(edges[-1] + window_size(edges[-1], result_bytes))
    first = max(edge for edge in edges if edge <= start)
    whole, later = WindowReader(lines, result_bytes), WindowReader(lines, result_bytes)
    later.skip(first)
    expected = [window for window in whole.windows() if window.first >= first]
    assert list(later.windows()) == expected
    assert all(SMALLEST <= len(window.texts) <= min(LARGEST, RESULTS // result_bytes) for window in expected[:-1])


def test_a_window_of_long_lines_is_short(monkeypatch):
    monkeypatch.setattr("cutaway.bulk.windows.CHARACTERS", 100)
    assert [len(window.texts) for window in WindowReader(["x" * 40] * 7).windows()] == [3, 3, 1]


@pytest.mark.parametrize("moment", [3, 20, *(pytest.param(moment, marks=pytest.mark.slow) for moment in (2, 6, 9))])
@pytest.mark.parametrize("job", [Backwards, Lengths])
def test_an_interrupted_job_continues_and_no_batch_is_processed_twice(source, tmp_path, moment, job):
    out, log = tmp_path / "out", tmp_path / "log"
    run_job(job(), source, tmp_path / "whole", 0, 700)
    with pytest.raises(Stopped):
        run_job(job(log=str(log)), source, out, 0, 700, on_progress=stop_after(moment))
    assert not out.exists()
    records = len((tmp_path / "out.journal").read_text().splitlines()) - 1
    assert (records == len(log.read_text().splitlines())) == (moment < 9)  # records of written batches are dropped
    with (tmp_path / "out.part").open("ab") as part:
        part.write(b"written, but not in the journal yet")
    with (tmp_path / "out.journal").open("a") as journal:
        journal.write('{"batch": "half a li')
    report = run_job(job(log=str(log)), source, out, 0, 700)
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()
    batches = [line.split()[1] for line in log.read_text().splitlines()]
    assert len(batches) == len(set(batches))
    assert (report.resumed_at > 0) == (moment >= 9)
    assert file_names(tmp_path) == ["in.txt", "log", "out", "whole"]


def test_a_kill_after_the_last_rename_is_harmless(source, tmp_path):
    (tmp_path / "out.journal").write_text('{"lines": 5, "bytes": 10, "digest": "", "job": {"setting": ""}}\n')
    run_job(Backwards(), source, tmp_path / "out", 0)
    assert (tmp_path / "out").read_text() == backwards(LINES)


@pytest.fixture
def interrupted(source, tmp_path):
    with pytest.raises(Stopped):
        run_job(Backwards(), source, tmp_path / "out", 0, 700, on_progress=stop_after(20))
    return tmp_path / "out"


def test_other_settings_raise(source, interrupted):
    before = (interrupted.parent / "out.part").read_bytes(), (interrupted.parent / "out.journal").read_bytes()
    with pytest.raises(DataError, match=r"setting was '' and is 'other'.*--fresh"):
        run_job(Backwards(setting="other"), source, interrupted, 0, 700)
    assert before == ((interrupted.parent / "out.part").read_bytes(), (interrupted.parent / "out.journal").read_bytes())
    run_job(Backwards(setting="other"), source, interrupted, 0, 700, fresh=True)
    assert interrupted.read_text() == backwards(LINES)


def test_changed_lines_raise_unless_they_are_not_done_yet(source, interrupted):
    source.write_text("\n".join(["changed", *LINES[1:]]) + "\n")
    with pytest.raises(DataError, match=r"the first \d+ lines of .*in.txt have changed.*--fresh"):
        run_job(Backwards(), source, interrupted, 0, 700)
    source.write_text("\n".join(LINES[:300]) + "\n")
    with pytest.raises(DataError, match="have changed"):
        run_job(Backwards(), source, interrupted, 0, 700)
    changed = [*LINES[:-3], "changed", "and", "more", "lines"]
    source.write_text("\n".join(changed) + "\n")
    assert run_job(Backwards(), source, interrupted, 0, 700).resumed_at > 0
    assert interrupted.read_text() == backwards(changed)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"lines": 3}'])
def test_a_damaged_journal_raises(source, interrupted, content):
    (interrupted.parent / "out.journal").write_text(content)
    with pytest.raises(DataError, match="out.journal is damaged"):
        run_job(Backwards(), source, interrupted, 0)


def test_a_truncated_part_file_raises(source, interrupted):
    part = interrupted.parent / "out.part"
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(DataError, match="is shorter than"):
        run_job(Backwards(), source, interrupted, 0)


@pytest.mark.parametrize("name", ["out.part", "out.journal"])
def test_a_foreign_file_of_that_name_is_not_overwritten(source, tmp_path, name):
    (tmp_path / name).write_text("{}\nprecious")
    with pytest.raises(DataError, match=rf"{name} exists without.*--fresh"):
        run_job(Backwards(), source, tmp_path / "out", 0)
    assert (tmp_path / name).read_text() == "{}\nprecious"
    assert file_names(tmp_path) == sorted(["in.txt", name])
    run_job(Backwards(), source, tmp_path / "out", 0, fresh=True)
    assert (tmp_path / "out").read_text() == backwards(LINES)
    assert file_names(tmp_path) == ["in.txt", "out"]


@pytest.mark.parametrize("job", [Backwards, Lengths])
@pytest.mark.parametrize("moment", ["before its journal", "after its journal"])
def test_a_kill_at_the_very_start_is_harmless(source, tmp_path, job, moment):
    with FileSink(tmp_path / "out", {**job().description(), "skip_errors": False}, header=job().header):
        journal = (tmp_path / "out.journal").read_bytes()
    (tmp_path / "out.part").write_bytes(b"")
    if moment == "after its journal":
        (tmp_path / "out.journal").write_bytes(journal)
    run_job(job(), source, tmp_path / "out", 0)
    run_job(job(), source, tmp_path / "whole", 0)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


def test_two_processes_cannot_write_the_same_file(source, tmp_path):
    with FileSink(tmp_path / "out", {}), pytest.raises(DataError, match="another process is writing"):
        run_job(Backwards(), source, tmp_path / "out", 0)


def test_a_failed_line_is_named_or_skipped(source, tmp_path):
    lines = [*LINES[:700], "too long", *LINES[700:]]
    source.write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    with pytest.raises(DataError, match=r"in\.txt, line 701: the text is too long\..*--skip-errors"):
        run_job(Backwards(), source, out, 0, 700)
    report = run_job(Backwards(), source, out, 0, 700, skip_errors=True)
    assert report.resumed_at > 0
    assert report.failed == [FailedLine(700, "the text is too long.")]
    expected = backwards(lines).splitlines(keepends=True)
    expected[700] = "\n"
    assert out.read_text() == "".join(expected)
    with pytest.raises(ConfigError, match="no line can be skipped"):
        run_job(Lengths(), source, out, 0, skip_errors=True)


def test_the_error_does_not_suggest_skipping_where_it_is_impossible(tmp_path):
    (tmp_path / "in").write_text("a\ntoo long\n")
    with pytest.raises(DataError, match=r"line 2: the text is too long\. Fix the line, and run the same") as caught:
        run_job(Unskippable(), tmp_path / "in", tmp_path / "out", 0)
    assert "--skip-errors" not in str(caught.value)


@pytest.mark.parametrize("moment", [3, 9, 20])
def test_skipped_lines_are_known_after_a_restart(source, tmp_path, moment):
    lines, bad = LINES.copy(), [3, 150, 400, 1_200]
    for number in bad:
        lines[number] = "too long"
    source.write_text("\n".join(lines) + "\n")
    with pytest.raises(Stopped):
        run_job(Backwards(), source, tmp_path / "out", 0, 700, skip_errors=True, on_progress=stop_after(moment))
    with pytest.raises(DataError, match="skip_errors was True and is False"):
        run_job(Backwards(), source, tmp_path / "out", 0, 700)
    report = run_job(Backwards(), source, tmp_path / "out", 0, 700, skip_errors=True)
    assert report.failed == [FailedLine(number, "the text is too long.") for number in bad]


def test_progress_separates_the_lines_of_an_earlier_process(source, tmp_path):
    """Its finished batches are counted one by one as their windows open. They must not count as speed."""
    log, reports = tmp_path / "log", []
    with pytest.raises(Stopped):
        run_job(Backwards(), source, tmp_path / "out", 0, 700, on_progress=stop_after(12))
    run_job(Backwards(log=str(log)), source, tmp_path / "out", 0, 700, on_progress=lambda *now: reports.append(now))
    done, total, before = reports[-1]
    assert done == total == len(LINES)
    assert reports[0][2] < before  # batches in addition to whole windows
    steps = [(now - of_now) - (then - of_then) for (then, _, of_then), (now, _, of_now) in itertools.pairwise(reports)]
    assert [step > 0 for step in steps].count(True) == len(log.read_text().splitlines())


def test_nothing_is_left_if_nothing_was_done(tmp_path):
    (tmp_path / "in.txt").write_text("too long\n")
    with pytest.raises(DataError, match="line 1"):
        run_job(Backwards(), tmp_path / "in.txt", tmp_path / "out", 0)
    assert file_names(tmp_path) == ["in.txt"]


@pytest.mark.slow
def test_a_dead_worker_is_reported_and_finished_work_is_kept(source, tmp_path):
    source.write_text("\n".join([*LINES, "kill"]) + "\n")
    with pytest.raises(BulkFailed, match=r"with code -9.*memory ran out.*Finished work is saved"):
        run_job(Backwards(), source, tmp_path / "out", 2, 700)
    source.write_text("\n".join(LINES) + "\n")
    assert run_job(Backwards(), source, tmp_path / "out", 0, 700).resumed_at > 0
    assert (tmp_path / "out").read_text() == backwards(LINES)


class LimitedMemory:
    """Fails with more than three lines."""

    def __init__(self, error):
        self.error = error

    def __call__(self, texts, numbers):
        if len(texts) > 3 or "huge" in texts:
            raise self.error
        return [text.encode() for text in texts]


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("CUDA out of memory. Tried"), RuntimeError("x: can't allocate memory: y")]
)
def test_a_batch_that_does_not_fit_into_memory_is_halved(error):
    texts = [*"abcdefgh", "huge"]
    results = process_batch(LimitedMemory(error), LineBatch(list(range(9)), texts))
    assert results[:8] == [text.encode() for text in "abcdefgh"]
    assert results[8].number == 8
    with pytest.raises(RuntimeError, match="a bug"):
        process_batch(LimitedMemory(RuntimeError("a bug")), LineBatch(list(range(9)), texts))


ODD = "a\r\n\n\u2028b\u0085c\n\x00\n  \nno end".encode()


def test_lines_are_split_only_at_line_feeds(tmp_path):
    (tmp_path / "odd").write_bytes(ODD)
    with gzip.open(tmp_path / "odd.gz", "wb") as file:
        file.write(ODD)
    expected = ["a", "", "\u2028b\u0085c", "\x00", "  ", "no end"]
    for name in ("odd", "odd.gz"):
        run_job(Backwards(), tmp_path / name, tmp_path / "out", 0)
        assert (tmp_path / "out").read_bytes() == backwards(expected).encode()


def test_invalid_arguments(source, tmp_path):
    def fails(error, match, file=source, out=tmp_path / "out", **options):
        with pytest.raises(error, match=match):
            run_job(Backwards(), file, out, **options)
        assert not (tmp_path / "out").exists()

    source.write_bytes(b"a\nb\ncaf\xe9\n")
    fails(DataError, "line 3 is not UTF-8")
    (tmp_path / "empty").write_text("")
    run_job(Backwards(), tmp_path / "empty", tmp_path / "nothing", 0)
    assert (tmp_path / "nothing").read_bytes() == b""
    with pytest.raises(DataError, match="empty is empty, and an array needs at least one line"):
        run_job(Lengths(), tmp_path / "empty", tmp_path / "no", 0)
    fails(DataError, "there is no file", tmp_path / "none")
    fails(ConfigError, "workers = -1", workers=-1)
    fails(ConfigError, "batch_tokens = 0", batch_tokens=0)
    source.write_text("a\n")
    fails(DataError, "is a folder", out=tmp_path)
    fails(DataError, "not a regular file", out="/dev/null")
    fails(DataError, "would replace", out=source)
    fails(DataError, r"in.txt/out.part cannot be written|in.txt cannot|Not a directory", out=source / "out")
    assert source.read_text() == "a\n"


def test_a_full_disk_is_reported_and_the_job_continues_later(source, tmp_path, monkeypatch):
    synced = itertools.count()

    def full(handle):
        if next(synced) > 6:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("cutaway.bulk.journal.os.fsync", full)
        with pytest.raises(BulkFailed, match=r"out.part cannot be written: No space left.*work is saved"):
            run_job(Backwards(), source, tmp_path / "out", 0, 700)
    assert run_job(Backwards(), source, tmp_path / "out", 0, 700).resumed_at > 0
    assert (tmp_path / "out").read_text() == backwards(LINES)


class BrokenLibrary(Backwards):
    def load(self):
        raise OSError(errno.EIO, "a library is broken")


def test_only_errors_of_the_file_are_reported_as_such(source, tmp_path, monkeypatch):
    with pytest.raises(OSError, match="a library is broken"):
        run_job(BrokenLibrary(), source, tmp_path / "out", 0)

    def start_worker(self):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(ProcessPool, "start_worker", start_worker)
    with pytest.raises(BulkFailed, match="worker process 1 of 2 cannot start: Resource.*fewer workers"):
        run_job(Backwards(), source, tmp_path / "out", 2)
    assert file_names(tmp_path) == ["in.txt"]


def test_ctrl_c_waits_until_workers_are_started():
    received = []
    before = signal.signal(signal.SIGINT, lambda *_: received.append(1))
    try:
        with defer_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            assert not received
        assert received
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_a_load_error_of_a_worker_is_raised_unchanged(source, tmp_path):
    with pytest.raises(RunError, match="there is no such run"):
        run_job(Unloadable(), source, tmp_path / "out", 2)
    assert file_names(tmp_path) == ["in.txt"]


def test_numpy_reads_the_array(source, tmp_path):
    run_job(Lengths(), source, tmp_path / "out.npy", 0)
    array = np.load(tmp_path / "out.npy")
    assert array.dtype == np.float32
    assert np.array_equal(array, [[number, len(line)] for number, line in enumerate(LINES)])
    assert np.load(io.BytesIO(NpyHeader().to_bytes(0, 0))).shape == (0, 0)


def test_a_stream_gets_windows_as_they_are_done(source):
    out, progress = io.BytesIO(), []
    run_job(
        Backwards(),
        source,
        out,
        0,
        700,
        on_progress=lambda done, total, before: progress.append((done, out.tell() > 0)),
    )
    assert out.getvalue().decode() == backwards(LINES)
    assert any(written for done, written in progress if done < len(LINES))


def test_no_more_windows_are_open_than_needed(tmp_path, monkeypatch):
    """The reader waits for slow first lines, however large the file is."""
    lines, opened = [f"{i}" for i in range(20 * SMALLEST)], []
    monkeypatch.setattr("cutaway.bulk.windows.LARGEST", SMALLEST)

    class LastInFirstOut:  # finishes the first batch last
        def __init__(self):
            self.batches = []

        has_room = property(lambda self: len(self.batches) < 4)
        is_busy = property(lambda self: bool(self.batches))

        def submit(self, batch):
            self.batches.append(batch)

        def next_result(self):
            opened.append(len(scheduler.open))
            batch = self.batches.pop()
            return batch, [text.encode() for text in batch.texts]

    sink = runner.StreamSink(io.BytesIO())
    scheduler = runner.BatchScheduler(LastInFirstOut(), sink, lambda texts: [1] * len(texts), 100, "", None)
    for _ in scheduler.run(WindowReader(lines).windows()):
        pass
    assert sink.stream.getvalue().decode() == "".join(lines)
    assert max(opened) == runner.MAX_OPEN_WINDOWS


def test_differences_are_short():
    text = describe_differences({"a": 1, "b": 2, "c": "x" * 200}, {"a": 1, "b": 3, "d": None, "c": "y"})
    assert text == "b was 2 and is 3; c was 'xxxxxxxxxxx...xxxxxxxxxxx' and is 'y'"
    assert json.loads(json.dumps(text)) == text
