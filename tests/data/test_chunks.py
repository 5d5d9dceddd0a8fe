"""Chunks of long texts: other positions in each training epoch, and no token is lost."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway.config import DataConfig
from cutaway.data.batching import BatchStream, EvaluationBatches, evaluation_batches
from cutaway.data.chunks import MaskedTextChunks, TextChunks, shift_for_epoch
from cutaway.data.prepare import prepare
from cutaway.data.tokenizer import Tokenizer
from cutaway.twin.batch import batches

TOKENIZER = Tokenizer.train(["a b c"], "word", 20)


@given(st.integers(0, 60), st.integers(1, 9), st.integers(0, 8))
def test_chunks_at_any_offset_predict_every_token_once(length, chunk_size, offset):
    row = np.arange(length)
    chunks = TextChunks(row, chunk_size, offset=min(offset, chunk_size - 1))
    assert [i for chunk in chunks for i in chunk.ids[1:]] == list(range(1, length))
    assert all(chunk.ids == list(range(chunk.ids[0], chunk.ids[-1] + 1)) for chunk in chunks)
    assert all(1 <= len(chunk.ids) - 1 <= chunk_size for chunk in chunks)
    assert chunks.all_lengths().tolist() == [list(chunk.lengths) for chunk in chunks]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=5), st.integers(1, 9), st.integers(0, 8))
def test_masked_chunks_stay_within_their_text(lengths, chunk_size, offset):
    starts = np.cumsum([0, *lengths])
    chunks = MaskedTextChunks(np.arange(starts[-1]), starts, chunk_size, (98, 99), offset=min(offset, chunk_size - 1))
    assert [i for chunk in chunks for i in chunk.ids[1:-1]] == list(range(starts[-1]))
    for chunk in chunks:
        assert (chunk.ids[0], chunk.ids[-1]) == (98, 99)
        assert 1 <= len(chunk.ids) - 2 <= chunk_size
        text = np.searchsorted(starts, chunk.ids[1:-1], "right")
        assert len(set(text.tolist())) == 1
    assert chunks.all_lengths().tolist() == [list(chunk.lengths) for chunk in chunks]


def test_only_shifting_chunks_get_an_offset_and_not_in_the_first_epoch():
    fixed = TextChunks(np.arange(1_000), 50)
    assert shift_for_epoch(fixed, 1, 7) is fixed
    assert shift_for_epoch([1, 2], 1, 7) == [1, 2]
    with_shifts = fixed.with_shifts()
    assert list(shift_for_epoch(with_shifts, 1, 0)) == list(fixed)
    offsets = [shift_for_epoch(with_shifts, seed, epoch).offset for seed in (1, 2) for epoch in range(1, 9)]
    assert len(set(offsets)) > 8
    assert max(offsets) < 50
    assert shift_for_epoch(with_shifts, 1, 3).offset == offsets[2]
    assert shift_for_epoch(with_shifts, 1, 3).row is with_shifts.row  # the ids are stored once


@pytest.mark.parametrize("task", ["language_model", "masked_language_model"])
def test_training_chunks_shift_and_validation_chunks_do_not(task, tmp_path):
    (tmp_path / "a.txt").write_text("the cat sleeps and the dog barks " * 40)
    data = {"root": str(tmp_path), "train": ("a.txt",), "valid_share": 0.3, "tokenizer": "word", "max_tokens": 20}
    prepared = prepare(DataConfig(**data), task)
    assert prepared.train.shifts
    assert not prepared.valid.shifts
    tokenizer = Tokenizer.from_json(prepared.tokenizer, prepared.roles)
    stream = BatchStream(prepared.train, task, tokenizer, 100, seed=3)
    sizes = {}
    while stream.epoch < 3:
        batch = next(stream)
        sizes.setdefault(stream.epoch, []).append(batch.mask.sum().item())
    assert len({tuple(sorted(counts)) for counts in sizes.values()}) > 1
    resumed = BatchStream(prepared.train, task, tokenizer, 100, seed=3)
    resumed.set_position(stream.position())
    for _ in range(12):
        assert torch.equal(next(stream).ids, next(resumed).ids)


def test_the_numpy_twin_has_the_same_chunks():
    chunks = TextChunks(np.arange(500) % 7 + 4, 16).with_shifts()
    stream = BatchStream(chunks, "language_model", TOKENIZER, 64, seed=5)
    for batch in batches(chunks, "language_model", TOKENIZER.bos, TOKENIZER.eos, 64, seed=5, epochs=3):
        other = next(stream)
        assert (batch.targets[batch.target_mask] == other.targets[other.target_mask].numpy()).all()
    assert stream.epoch == 2


def test_large_evaluation_data_is_batched_on_access(monkeypatch):
    chunks = TextChunks(np.arange(500) % 7 + 4, 16)
    kept = evaluation_batches(chunks, "language_model", TOKENIZER, 64)
    monkeypatch.setattr("cutaway.data.batching.MAX_CACHED_TOKENS", 10)
    made = evaluation_batches(chunks, "language_model", TOKENIZER, 64)
    assert isinstance(made, EvaluationBatches)
    assert len(made) == len(kept)
    for _ in range(2):
        assert all(torch.equal(one.ids, other.ids) for one, other in zip(made, kept, strict=True))
    assert torch.equal(made[-1].ids, kept[-1].ids)
    assert len(made[1:3]) == 2
    with pytest.raises(IndexError):
        made[len(made)]
    assert evaluation_batches([], "language_model", TOKENIZER, 64) == []
