"""Numbers that several processes add up in memory that they share. Here they are threads: the memory is the same."""

import os
import threading

import pytest
import torch

from cutaway.train import shared_memory as table_module
from cutaway.train.distributed import Neighbours
from cutaway.train.shared_memory import Table

COUNT = 3


class Team:
    """Threads that call the same function at the same time, each with its rank."""

    def __init__(self):
        self.barrier, self.said, self.results = threading.Barrier(COUNT, timeout=20), "", [None] * COUNT

    def tell_as(self, rank):
        def tell(text):
            if rank == 0:
                self.said = text
            self.barrier.wait()
            return self.said

        return tell

    def all_do(self, function):
        def one(rank):
            try:
                self.results[rank] = function(rank, self.tell_as(rank), self.barrier.wait)
            except BaseException as error:
                self.results[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(COUNT)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.results


def test_the_mean_is_the_same_for_all_again_and_again():
    rows = torch.randn(5, COUNT, 1001, dtype=torch.float64)

    def add_up(rank, tell, wait):
        table = Table(COUNT, 1001, torch.float64, rank, tell, wait)
        means = []
        for turn in range(5):
            table.mine.copy_(rows[turn, rank])
            means.append(table.mean().clone())
        return torch.stack(means)

    results = Team().all_do(add_up)
    assert all(torch.equal(result, results[0]) for result in results)
    torch.testing.assert_close(results[0], rows.mean(dim=1), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_each_fills_in_a_stretch(length):
    def fill(rank, tell, wait):
        table = Table(COUNT, 100, torch.float32, rank, tell, wait)
        return table.filled(torch.Size([length, 4]), lambda mine: torch.full((mine.stop - mine.start, 4), float(rank)))

    results = Team().all_do(fill)
    assert all(torch.equal(result, results[0]) for result in results)
    assert results[0][:, 0].tolist() == sorted(results[0][:, 0].tolist())
    if length >= COUNT:
        assert set(results[0].flatten().tolist()) == {0.0, 1.0, 2.0}


def test_nothing_is_left_behind_and_too_little_room_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(table_module, "SHARED_MEMORY", tmp_path)
    Team().all_do(lambda rank, tell, wait: Table(COUNT, 10, torch.float32, rank, tell, wait))
    assert not list(tmp_path.iterdir())

    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_room, raising=False)
    for result in Team().all_do(lambda rank, tell, wait: Table(COUNT, 10, torch.float32, rank, tell, wait)):
        assert isinstance(result, OSError)
    assert not list(tmp_path.iterdir())


def test_gradients_meet_and_a_weight_that_nobody_used_has_none():
    def train(rank, tell, wait):
        team = object.__new__(Neighbours)
        team.rank, team.size, team.tell, team.wait = rank, COUNT, tell, wait
        model = torch.nn.ParameterList([torch.ones(2, 3), torch.ones(4), torch.ones(5)])
        team.together(model)
        with team.adding_up(model, is_last=False):
            (model[0].sum() * rank).backward()
        with team.adding_up(model, is_last=True):
            loss = model[0].sum() * rank
            (loss + model[1].sum() if rank == 1 else loss).backward()
        return [weight.grad for weight in model]

    for first, second, third in Team().all_do(train):
        assert torch.equal(first, torch.full((2, 3), 2.0))
        assert first.is_contiguous()
        torch.testing.assert_close(second, torch.full((4,), 1 / 3))
        assert third is None
