"""Means of numbers in shared memory. Threads take the place of processes here: the memory is the same."""

import os
import threading

import pytest
import torch

from cutaway.train import shared_memory
from cutaway.train.distributed import SharedMemoryGroup
from cutaway.train.shared_memory import SharedArray

COUNT = 3


class Threads:
    """Threads that call the same function at the same time, each with a rank."""

    def __init__(self):
        self.barrier, self.text, self.results = threading.Barrier(COUNT, timeout=20), "", [None] * COUNT

    def broadcast_as(self, rank):
        def broadcast(text):
            if rank == 0:
                self.text = text
            self.barrier.wait()
            return self.text

        return broadcast

    def run(self, function):
        def one(rank):
            try:
                self.results[rank] = function(rank, self.broadcast_as(rank), self.barrier.wait)
            except BaseException as error:
                self.results[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(COUNT)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.results


def test_mean_is_the_same_in_every_process():
    rows = torch.randn(5, COUNT, 1001, dtype=torch.float64)

    def compute_means(rank, broadcast, barrier):
        array = SharedArray(COUNT, 1001, torch.float64, rank, broadcast, barrier)
        means = []
        for turn in range(5):
            array.own_row.copy_(rows[turn, rank])
            means.append(array.mean().clone())
        return torch.stack(means)

    results = Threads().run(compute_means)
    assert all(torch.equal(result, results[0]) for result in results)
    torch.testing.assert_close(results[0], rows.mean(dim=1), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_each_process_fills_some_rows(length):
    def fill(rank, broadcast, barrier):
        array = SharedArray(COUNT, 100, torch.float32, rank, broadcast, barrier)
        return array.fill_rows(torch.Size([length, 4]), lambda own: torch.full((own.stop - own.start, 4), float(rank)))

    results = Threads().run(fill)
    assert all(torch.equal(result, results[0]) for result in results)
    assert results[0][:, 0].tolist() == sorted(results[0][:, 0].tolist())
    if length >= COUNT:
        assert set(results[0].flatten().tolist()) == {0.0, 1.0, 2.0}


def test_no_file_stays_and_too_little_memory_is_an_error(tmp_path, monkeypatch):
    def create(rank, broadcast, barrier):
        return SharedArray(COUNT, 10, torch.float32, rank, broadcast, barrier)

    monkeypatch.setattr(shared_memory, "SHARED_MEMORY", tmp_path)
    assert all(isinstance(result, SharedArray) for result in Threads().run(create))
    assert not list(tmp_path.iterdir())

    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_room, raising=False)
    for result in Threads().run(create):
        assert isinstance(result, OSError)
    assert not list(tmp_path.iterdir())


def test_gradients_are_averaged_and_an_unused_weight_has_none():
    def train(rank, broadcast, barrier):
        group = object.__new__(SharedMemoryGroup)
        group.rank, group.size, group.broadcast, group.barrier = rank, COUNT, broadcast, barrier
        model = torch.nn.ParameterList([torch.ones(2, 3), torch.ones(4), torch.ones(5)])
        group.wrap(model)
        with group.sync_gradients(model, is_last=False):
            (model[0].sum() * rank).backward()
        with group.sync_gradients(model, is_last=True):
            loss = model[0].sum() * rank
            (loss + model[1].sum() if rank == 1 else loss).backward()
        return [weight.grad for weight in model]

    for first, second, third in Threads().run(train):
        assert torch.equal(first, torch.full((2, 3), 2.0))
        assert first.is_contiguous()
        torch.testing.assert_close(second, torch.full((4,), 1 / 3))
        assert third is None
