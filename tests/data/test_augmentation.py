"""Augmentation: reproducible changes of training examples, never too long."""

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
    augment = augmentation_for(DataConfig(max_tokens=64, batch_tokens=64, bpe_dropout=0.3, **settings), tokenizer)
    ids = tokenizer.encode_batch(TEXTS)
    return BatchStream([EncodedPair(i, i[::-1]) for i in ids], "translation", tokenizer, 200, seed=1, augment=augment)


def test_every_epoch_has_other_segmentations_of_the_same_texts(tokenizer):
    batches = stream(tokenizer)
    first, second = next(batches), next(batches)
    assert len(first.source) == len(second.source) == 3
    assert first.source.tolist() != second.source.tolist()
    for batch in (first, second):
        texts = {
            tokenizer.decode(row[mask].tolist()) for row, mask in zip(batch.source, batch.source_mask, strict=True)
        }
        assert texts == set(TEXTS)


def test_a_resumed_stream_makes_the_same_changes(tokenizer):
    whole, resumed = stream(tokenizer), stream(tokenizer)
    batches = [next(whole) for _ in range(4)]
    resumed.set_position({"epoch": 2, "next_batch": 0})
    assert next(resumed).source.tolist() == batches[2].source.tolist()


def test_a_text_that_becomes_too_long_is_unchanged_or_truncated(tokenizer):
    ids = tokenizer.encode(TEXTS[0])
    example = EncodedLabelledText([*ids, tokenizer.eos], 1)
    settings = {"max_tokens": len(ids) + 1, "batch_tokens": 64, "bpe_dropout": 0.9}
    augment = augmentation_for(DataConfig(**settings, too_long="skip"), tokenizer)
    assert augment([example] * 5, np.random.default_rng(0)) == [example] * 5
    for changed in augmentation_for(DataConfig(**settings), tokenizer)([example] * 5, np.random.default_rng(0)):
        assert len(changed.ids) == len(example.ids)
        assert changed != example
        assert tokenizer.decode(ids).startswith(tokenizer.decode(changed.ids[:-1]))
        assert changed.ids[-1] == tokenizer.eos


def test_words_keep_their_tags(tokenizer):
    """In every segmentation of a word, its tag is at its first token only."""
    words, tags = TEXTS[0].split(), list(range(7))
    row = encode_words(tokenizer, [words])[0]
    example = EncodedTaggedText(row.ids, place_tags(row, tags))
    augment = augmentation_for(DataConfig(max_tokens=64, batch_tokens=64, bpe_dropout=0.5), tokenizer)
    changed = augment([example] * 20, np.random.default_rng(0))
    assert len({tuple(row.ids) for row in changed}) > 10
    for ids, token_tags in changed:
        assert (ids[0], ids[-1], token_tags[0], token_tags[-1]) == (tokenizer.bos, tokenizer.eos, NO_TAG, NO_TAG)
        starts = [position for position, tag in enumerate(token_tags) if tag != NO_TAG]
        assert [token_tags[position] for position in starts] == tags
        word_ids = [ids[a:b] for a, b in zip(starts, [*starts[1:], len(ids) - 1], strict=True)]
        assert [tokenizer.decode(word) for word in word_ids] == words


def test_the_default_has_no_augmentation(tokenizer):
    assert augmentation_for(DataConfig(), tokenizer) is None
