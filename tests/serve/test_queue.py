"""The queue by itself: who goes with whom, who comes first, what is refused."""

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


def jobs_of(kinds, pending=None):
    return [TextJob(pending, i, kind, None, None, tokens) for i, (kind, tokens) in enumerate(kinds)]


@given(KINDS, st.integers(1, 8), st.integers(30, 120))
def test_batches_keep_the_order_and_the_bounds(kinds, size, tokens):
    limits = Limits(batch_size=size, batch_tokens=tokens)
    waiting = JobQueue(limits)
    waiting.put(jobs_of(kinds))
    served = []
    while len(waiting):
        batch = waiting.take()
        assert len(batch) <= size
        assert max(job.tokens for job in batch) * len(batch) <= tokens
        assert {job.kind for job in batch} == {batch[0].kind}
        left = sorted(set(range(len(kinds))) - set(served))
        assert batch[0].index == left[0]  # the oldest is always among the next
        served += [job.index for job in batch]
    assert sorted(served) == list(range(len(kinds)))
    for kind in "ab":
        of_kind = [i for i in served if kinds[i][0] == kind]
        assert of_kind == sorted(of_kind)


@pytest.mark.parametrize(
    ("width", "new_tokens", "count"), [(1, 0, 10), (1, 10, 5), (4, 0, 2), (4, 10, 1), (16, 1_000, 1)]
)
def test_what_is_yet_to_be_written_counts_as_often_as_a_beam_holds_it(width, new_tokens, count):
    jobs = [replace(job, new_tokens=new_tokens, width=width) for job in jobs_of([("a", 10)] * 20)]
    assert len(first_batch(jobs, Limits(batch_tokens=100))) == count


def test_the_longest_source_may_belong_to_another_text_than_the_longest_answer():
    jobs = [replace(job, new_tokens=new) for job, new in zip(jobs_of([("a", 50), ("a", 1)]), (1, 50), strict=True)]
    assert len(first_batch(jobs, Limits(batch_tokens=199))) == 1
    assert len(first_batch(jobs, Limits(batch_tokens=200))) == 2


def test_what_comes_too_late_is_no_result():
    """A search that was ended by its time has found only a part: nobody may take that for an answer."""

    async def check():
        late, stream = PendingRequest(1, seconds=-1), PendingRequest(1, seconds=-1, is_stream=True)
        for pending in (late, stream):
            assert not pending.is_active()
            pending.set_outcome(0, "a part of it")
            assert (pending.future.done(), pending.remaining) == (False, 0)
        assert stream.events.empty()

    asyncio.run(check())


def test_a_text_that_is_too_large_for_any_batch_goes_alone():
    batch = first_batch(jobs_of([("a", 1000), ("a", 1)]), Limits(batch_tokens=100))
    assert [job.index for job in batch] == [0]


def test_all_of_a_request_or_nothing():
    waiting = JobQueue(Limits(waiting=5, texts=5))
    waiting.put(jobs_of([("a", 1)] * 4))
    with pytest.raises(ApiError, match="4 texts are waiting, and 5 may: there is no room for 2 more") as caught:
        waiting.put(jobs_of([("a", 1)] * 2))
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "1"})
    assert len(waiting) == 4


def test_it_wakes_up_and_it_closes():
    waiting, taken = JobQueue(Limits()), []
    thread = threading.Thread(target=lambda: taken.extend([waiting.take(), waiting.take()]))
    thread.start()
    waiting.put(jobs_of([("a", 1)]))
    while len(waiting):
        pass
    assert waiting.close() == []
    thread.join(5)
    assert [len(batch) for batch in taken] == [1, 0]
    with pytest.raises(ApiError, match="has ended"):
        waiting.put(jobs_of([("a", 1)]))


def test_what_is_given_up_is_forgotten():
    async def check():
        one, other = PendingRequest(2), PendingRequest(1)
        waiting = JobQueue(Limits())
        waiting.put(jobs_of([("a", 1)] * 2, one) + jobs_of([("a", 1)], other))
        assert waiting.remove(one) == 2
        assert [job.pending for job in waiting.jobs] == [other]
        one.set_outcome(1, "second")
        assert not one.future.done()
        one.set_outcome(0, "first")
        assert one.future.result() == ["first", "second"]
        other.set_outcome(0, ApiError(400, "no"))
        with pytest.raises(ApiError):
            other.future.result()

    asyncio.run(check())


@pytest.mark.parametrize("limit", ["body", "texts", "batch_size", "seconds"])
def test_limits_are_limits(limit):
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


def test_answers_are_not_held_back():
    """asyncio switches off Nagle's algorithm for what is TCP by name, and connections have the name of their socket."""
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        assert connection.proto == socket.IPPROTO_TCP
        connection.close()
