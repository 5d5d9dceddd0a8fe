"""The job queue: batches, order, limits. Also the limits, metrics and sockets of the server."""

import asyncio
import socket
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import ConfigError
from cutaway.serve.errors import ApiError
from cutaway.serve.limits import Limits
from cutaway.serve.metrics import Metrics
from cutaway.serve.queue import JobQueue, PendingRequest, TextJob, first_batch
from cutaway.serve.sockets import listen

KINDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 30)), min_size=1, max_size=30)


def make_jobs(kinds, pending=None):
    return [TextJob(pending, i, kind, None, None, tokens) for i, (kind, tokens) in enumerate(kinds)]


@given(KINDS, st.integers(1, 8), st.integers(30, 120))
def test_batches_keep_the_order_and_the_limits(kinds, size, tokens):
    limits = Limits(batch_size=size, batch_tokens=tokens)
    queue = JobQueue(limits)
    queue.put(make_jobs(kinds))
    taken = []
    while len(queue):
        batch = queue.take()
        assert len(batch) <= size
        assert max(job.tokens for job in batch) * len(batch) <= tokens
        assert {job.kind for job in batch} == {batch[0].kind}
        left = sorted(set(range(len(kinds))) - set(taken))
        assert batch[0].index == left[0]  # the oldest job is in the next batch
        taken += [job.index for job in batch]
    assert sorted(taken) == list(range(len(kinds)))
    for kind in "ab":
        of_kind = [i for i in taken if kinds[i][0] == kind]
        assert of_kind == sorted(of_kind)


@pytest.mark.parametrize(
    ("width", "new_tokens", "count"), [(1, 0, 10), (1, 10, 5), (4, 0, 2), (4, 10, 1), (16, 1_000, 1)]
)
def test_new_tokens_and_beams_count_towards_the_batch_size(width, new_tokens, count):
    jobs = [replace(job, new_tokens=new_tokens, width=width) for job in make_jobs([("a", 10)] * 20)]
    assert len(first_batch(jobs, Limits(batch_tokens=100))) == count


def test_longest_input_and_longest_output_may_come_from_different_texts():
    jobs = [replace(job, new_tokens=new) for job, new in zip(make_jobs([("a", 50), ("a", 1)]), (1, 50), strict=True)]
    assert len(first_batch(jobs, Limits(batch_tokens=199))) == 1
    assert len(first_batch(jobs, Limits(batch_tokens=200))) == 2


def test_a_late_outcome_is_ignored():
    """A search that timed out has only a part of the text, which is not a result."""

    async def check():
        late, stream = PendingRequest(1, seconds=-1), PendingRequest(1, seconds=-1, is_stream=True)
        for pending in (late, stream):
            assert not pending.is_active()
            pending.set_outcome(0, "a part of it")
            assert (pending.future.done(), pending.remaining) == (False, 0)
        assert stream.events.empty()

    asyncio.run(check())


def test_a_text_larger_than_a_batch_is_processed_alone():
    batch = first_batch(make_jobs([("a", 1000), ("a", 1)]), Limits(batch_tokens=100))
    assert [job.index for job in batch] == [0]


def test_a_request_is_queued_whole_or_rejected():
    queue = JobQueue(Limits(waiting=5, texts=5))
    queue.put(make_jobs([("a", 1)] * 4))
    with pytest.raises(
        ApiError, match="the queue holds 4 of at most 5 texts, so 2 more do not fit. Retry later."
    ) as caught:
        queue.put(make_jobs([("a", 1)] * 2))
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "1"})
    assert len(queue) == 4


def test_take_waits_and_close_ends_it():
    queue, taken = JobQueue(Limits()), []
    thread = threading.Thread(target=lambda: taken.extend([queue.take(), queue.take()]))
    thread.start()
    queue.put(make_jobs([("a", 1)]))
    while len(queue):
        pass
    assert queue.close() == []
    thread.join(5)
    assert [len(batch) for batch in taken] == [1, 0]
    with pytest.raises(ApiError, match="worker has stopped"):
        queue.put(make_jobs([("a", 1)]))


def test_cancelled_requests_are_removed():
    async def check():
        one, other = PendingRequest(2), PendingRequest(1)
        queue = JobQueue(Limits())
        queue.put(make_jobs([("a", 1)] * 2, one) + make_jobs([("a", 1)], other))
        assert queue.remove(one) == 2
        assert [job.pending for job in queue.jobs] == [other]
        one.set_outcome(1, "second")
        assert not one.future.done()
        one.set_outcome(0, "first")
        assert one.future.result() == ["first", "second"]
        other.set_outcome(0, ApiError(400, "no"))
        with pytest.raises(ApiError):
            other.future.result()

    asyncio.run(check())


@pytest.mark.parametrize("limit", ["body", "texts", "batch_size", "seconds"])
def test_limits_are_positive(limit):
    with pytest.raises(ConfigError, match=f"the limit {limit} = 0 must be above 0"):
        Limits(**{limit: 0})


def test_the_text_format_of_the_metrics():
    metrics = Metrics()
    metrics.count("cutaway_requests_total", path='/"\\\n', status="200")
    for value in (0.01, 0.3, 99):
        metrics.observe("cutaway_request_seconds", value, (0.01, 0.5), path="/x")
    metrics.gauge("cutaway_requests_in_flight", lambda: 3)
    lines = metrics.text().splitlines()
    assert r'cutaway_requests_total{path="/\"\\\n",status="200"} 1' in lines
    start = lines.index('cutaway_request_seconds_bucket{path="/x",le="0.01"} 1')
    assert lines[start : start + 5] == [
        'cutaway_request_seconds_bucket{path="/x",le="0.01"} 1',
        'cutaway_request_seconds_bucket{path="/x",le="0.5"} 2',
        'cutaway_request_seconds_bucket{path="/x",le="+Inf"} 3',
        'cutaway_request_seconds_sum{path="/x"} 99.31',
        'cutaway_request_seconds_count{path="/x"} 3',
    ]
    assert "# TYPE cutaway_request_seconds histogram" in lines
    assert "cutaway_requests_in_flight 3" in lines


def test_nagles_algorithm_is_off():
    """asyncio switches it off for sockets whose protocol is TCP. Accepted connections inherit the protocol."""
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        assert connection.proto == socket.IPPROTO_TCP
        connection.close()
