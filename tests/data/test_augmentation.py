"""Examples that are changed each time that they are drawn: repeatable, and never too long."""

import numpy as np
import pytest

from cutaway.config import DataConfig
from cutaway.data.augmentation import augmentation_for
from cutaway.data.batching import BatchStream
from cutaway.data.encoded import NO_TAG, EncodedLabelledText, EncodedPair, EncodedTaggedText
from cutaway.data.tasks import encode_words, place_tags
from cutaway.data.tokenizer import Tokenizer

TEXTS = ["the small cat sleeps under the table", "a large dog runs behind the house", "outside the window it rains"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXTS * 5, "bpe", 330)


def stream(tokenizer, **settings):
    change = augmentation_for(DataConfig(max_tokens=64, batch_tokens=64, bpe_dropout=0.3, **settings), tokenizer)
    ids = tokenizer.encode_batch(TEXTS)
    return BatchStream([EncodedPair(i, i[::-1]) for i in ids], "translation", tokenizer, 200, seed=1, change=change)


def test_every_epoch_has_other_pieces_of_the_same_texts(tokenizer):
    batches = stream(tokenizer)
    first, second = next(batches), next(batches)
    assert len(first.source) == len(second.source) == 3
    assert first.source.tolist() != second.source.tolist()
    for batch in (first, second):
        texts = {
            tokenizer.decode(row[mask].tolist()) for row, mask in zip(batch.source, batch.source_mask, strict=True)
        }
        assert texts == set(TEXTS)


def test_a_resumed_stream_draws_the_same(tokenizer):
    whole, resumed = stream(tokenizer), stream(tokenizer)
    batches = [next(whole) for _ in range(4)]
    resumed.set_position({"epoch": 2, "next_batch": 0})
    assert next(resumed).source.tolist() == batches[2].source.tolist()


def test_what_would_be_too_long_stays_as_it_is_or_is_cut(tokenizer):
    ids = tokenizer.encode(TEXTS[0])
    example = EncodedLabelledText([*ids, tokenizer.eos], 1)
    settings = {"max_tokens": len(ids) + 1, "batch_tokens": 64, "bpe_dropout": 0.9}
    change = augmentation_for(DataConfig(**settings, too_long="skip"), tokenizer)
    assert change([example] * 5, np.random.default_rng(0)) == [example] * 5
    for changed in augmentation_for(DataConfig(**settings), tokenizer)([example] * 5, np.random.default_rng(0)):
        assert len(changed.ids) == len(example.ids)
        assert changed != example
        assert tokenizer.decode(ids).startswith(tokenizer.decode(changed.ids[:-1]))
        assert changed.ids[-1] == tokenizer.eos


def test_words_keep_their_tags(tokenizer):
    """However a word is cut, its tag stands at its first piece and nowhere else."""
    words, tags = TEXTS[0].split(), list(range(7))
    row = encode_words(tokenizer, [words])[0]
    example = EncodedTaggedText(row.ids, place_tags(row, tags))
    change = augmentation_for(DataConfig(max_tokens=64, batch_tokens=64, bpe_dropout=0.5), tokenizer)
    changed = change([example] * 20, np.random.default_rng(0))
    assert len({tuple(row.ids) for row in changed}) > 10
    for ids, placed in changed:
        assert (ids[0], ids[-1], placed[0], placed[-1]) == (tokenizer.bos, tokenizer.eos, NO_TAG, NO_TAG)
        starts = [place for place, tag in enumerate(placed) if tag != NO_TAG]
        assert [placed[place] for place in starts] == tags
        pieces = [ids[a:b] for a, b in zip(starts, [*starts[1:], len(ids) - 1], strict=True)]
        assert [tokenizer.decode(piece) for piece in pieces] == words


def test_a_recipe_that_asks_for_nothing_changes_nothing(tokenizer):
    assert augmentation_for(DataConfig(), tokenizer) is None
