"""Where long texts are cut: elsewhere in each epoch, in training alone, and without losing a token."""

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
def test_pieces_at_any_offset_ask_for_every_token_once(length, chunk_size, offset):
    row = np.arange(length)
    pieces = TextChunks(row, chunk_size, offset=min(offset, chunk_size - 1))
    assert [i for piece in pieces for i in piece.ids[1:]] == list(range(1, length))
    assert all(piece.ids == list(range(piece.ids[0], piece.ids[-1] + 1)) for piece in pieces)
    assert all(1 <= len(piece.ids) - 1 <= chunk_size for piece in pieces)
    assert pieces.all_lengths().tolist() == [list(piece.lengths) for piece in pieces]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=5), st.integers(1, 9), st.integers(0, 8))
def test_masked_pieces_stay_within_their_text(lengths, chunk_size, offset):
    starts = np.cumsum([0, *lengths])
    pieces = MaskedTextChunks(np.arange(starts[-1]), starts, chunk_size, (98, 99), offset=min(offset, chunk_size - 1))
    assert [i for piece in pieces for i in piece.ids[1:-1]] == list(range(starts[-1]))
    for piece in pieces:
        assert (piece.ids[0], piece.ids[-1]) == (98, 99)
        assert 1 <= len(piece.ids) - 2 <= chunk_size
        text = np.searchsorted(starts, piece.ids[1:-1], "right")
        assert len(set(text.tolist())) == 1
    assert pieces.all_lengths().tolist() == [list(piece.lengths) for piece in pieces]


def test_only_what_moves_is_cut_elsewhere_and_not_in_the_first_epoch():
    fixed = TextChunks(np.arange(1_000), 50)
    assert shift_for_epoch(fixed, 1, 7) is fixed
    assert shift_for_epoch([1, 2], 1, 7) == [1, 2]
    with_shifts = fixed.with_shifts()
    assert list(shift_for_epoch(with_shifts, 1, 0)) == list(fixed)
    places = [shift_for_epoch(with_shifts, seed, epoch).offset for seed in (1, 2) for epoch in range(1, 9)]
    assert len(set(places)) > 8
    assert max(places) < 50
    assert shift_for_epoch(with_shifts, 1, 3).offset == places[2]
    assert shift_for_epoch(with_shifts, 1, 3).row is with_shifts.row  # the ids are kept once


@pytest.mark.parametrize("task", ["language_model", "masked_language_model"])
def test_training_moves_and_validation_does_not(task, tmp_path):
    (tmp_path / "a.txt").write_text("the cat sleeps and the dog barks " * 40)
    data = {"root": str(tmp_path), "train": ("a.txt",), "valid_share": 0.3, "tokenizer": "word", "max_tokens": 20}
    prepared = prepare(DataConfig(**data), task)
    assert prepared.train.shifts
    assert not prepared.valid.shifts
    tokenizer = Tokenizer.from_json(prepared.tokenizer, prepared.roles)
    stream = BatchStream(prepared.train, task, tokenizer, 100, seed=3)
    seen = {}
    while stream.epoch < 3:
        batch = next(stream)
        seen.setdefault(stream.epoch, []).append(batch.mask.sum().item())
    assert len({tuple(sorted(counts)) for counts in seen.values()}) > 1
    resumed = BatchStream(prepared.train, task, tokenizer, 100, seed=3)
    resumed.set_position(stream.position())
    for _ in range(12):
        assert torch.equal(next(stream).ids, next(resumed).ids)


def test_the_twin_cuts_at_the_same_places():
    pieces = TextChunks(np.arange(500) % 7 + 4, 16).with_shifts()
    stream = BatchStream(pieces, "language_model", TOKENIZER, 64, seed=5)
    for batch in batches(pieces, "language_model", TOKENIZER.bos, TOKENIZER.eos, 64, seed=5, epochs=3):
        other = next(stream)
        assert (batch.right[batch.asked] == other.answers[other.asked].numpy()).all()
    assert stream.epoch == 2


def test_batches_for_measuring_may_be_made_when_they_are_asked_for(monkeypatch):
    pieces = TextChunks(np.arange(500) % 7 + 4, 16)
    kept = evaluation_batches(pieces, "language_model", TOKENIZER, 64)
    monkeypatch.setattr("cutaway.data.batching.KEPT", 10)
    made = evaluation_batches(pieces, "language_model", TOKENIZER, 64)
    assert isinstance(made, EvaluationBatches)
    assert len(made) == len(kept)
    for _ in range(2):
        assert all(torch.equal(one.ids, other.ids) for one, other in zip(made, kept, strict=True))
    assert torch.equal(made[-1].ids, kept[-1].ids)
    assert len(made[1:3]) == 2
    with pytest.raises(IndexError):
        made[len(made)]
    assert evaluation_batches([], "language_model", TOKENIZER, 64) == []
