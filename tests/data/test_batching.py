import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.data.batching import BatchStream, collate_pairs
from cutaway.data.prepare import filter_examples
from cutaway.data.sampler import batches_by_tokens
from cutaway.data.tasks import EncodedPair
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import DataError

TOKENIZER = Tokenizer.train(["a b c d e f g h"], "word", 20)
pairs_of_ids = st.lists(
    st.builds(EncodedPair, st.lists(st.integers(4, 11), min_size=1, max_size=9), st.lists(st.integers(4, 11), min_size=1, max_size=9)),
    min_size=1, max_size=60,
)  # fmt: skip


@given(pairs_of_ids)
def test_collate(pairs):
    batch = collate_pairs(pairs, TOKENIZER)
    assert batch.tokens == sum(len(p.target) + 1 for p in pairs) == batch.target_mask.sum()
    for i, pair in enumerate(pairs):
        s, t = len(pair.source) + 1, len(pair.target) + 1
        assert batch.source[i, :s].tolist() == [*pair.source, TOKENIZER.eos]
        assert batch.target_in[i, :t].tolist() == [TOKENIZER.bos, *pair.target]
        assert batch.target_out[i, :t].tolist() == [*pair.target, TOKENIZER.eos]
        assert batch.source_mask[i].tolist() == [True] * s + [False] * (batch.source.size(1) - s)
        assert batch.target_mask[i].tolist() == [True] * t + [False] * (batch.target_in.size(1) - t)
        assert (batch.source[i, s:] == TOKENIZER.pad).all()
        assert (batch.target_out[i, t:] == TOKENIZER.pad).all()


@given(pairs_of_ids, st.integers(10, 80), st.integers(0, 99), st.integers(0, 5))
def test_an_epoch_has_every_pair_once_within_the_budget(pairs, budget, seed, epoch):
    batches = batches_by_tokens(pairs, budget, seed, epoch)
    assert sorted(i for batch in batches for i in batch) == list(range(len(pairs)))
    for batch in batches:
        assert len(batch) * max(len(pairs[i].target) + 1 for i in batch) <= budget
    assert batches == batches_by_tokens(pairs, budget, seed, epoch)


def many_pairs(n=3000):
    draw = np.random.default_rng(0)
    return [EncodedPair([5] * int(draw.integers(1, 30)), [6] * int(draw.integers(1, 30))) for _ in range(n)]


def test_seed_and_epoch_change_the_order_and_sorting_saves_padding():
    pairs = many_pairs()
    first = batches_by_tokens(pairs, 500, 1, 0)
    assert first != batches_by_tokens(pairs, 500, 1, 1)
    assert first != batches_by_tokens(pairs, 500, 2, 0)
    padded = sum(len(b) * max(len(pairs[i].target) + 1 for i in b) for b in first)
    used = sum(len(p.target) + 1 for p in pairs)
    assert used / padded > 0.95


@given(st.integers(0, 40))
def test_a_stream_continues_from_its_position(n):
    def stream():
        return BatchStream(many_pairs(100), "translation", TOKENIZER, 200, seed=3)

    one, other = stream(), stream()
    for _ in range(n):
        next(one)
    other.set_position(one.position())
    for _ in range(25):
        assert (next(one).source == next(other).source).all()


def test_empty_and_long_examples_are_skipped_and_counted():
    pairs = [EncodedPair([1], [2]), EncodedPair([], [2]), EncodedPair([1] * 9, [2]), EncodedPair([1], [2] * 10)]
    kept, left_out, *_ = filter_examples(pairs, 10)
    assert kept == [pairs[0], pairs[2]]
    assert left_out == {"empty": 1, "too long": 1}
    with pytest.raises(DataError, match=r"of 4, 1 are empty \(on one side\) and 3 are longer than data.max_tokens = 1"):
        filter_examples(pairs, 1)
