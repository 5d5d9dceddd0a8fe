"""Encoded examples that cannot be used as they are: empty ones are left out, and those that are too long are left out,
cut or refused (data.too_long). All are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from cutaway.data.encoded import NO_TAG, Encoded, EncodedLabelledText, EncodedTaggedText
from cutaway.errors import DataError


class FilteredExamples(NamedTuple):
    """Examples that fit, and what was done for it."""

    kept: Sequence[Encoded]
    left_out: Mapping[str, int]  # why -> how many
    cut: Mapping[str, int]
    lengths: NDArray[np.int64]  # of all that are not empty, as they were

    @classmethod
    def whole(cls, examples: Sequence[Encoded]) -> FilteredExamples:
        return cls(examples, {}, {}, np.zeros(0, np.int64))


def filter_examples(examples: Sequence[Encoded], max_tokens: int, too_long: str = "skip") -> FilteredExamples:
    """Leave out empty examples, and do with those that are longer than `max_tokens` what `too_long` says."""
    fitted = drop_or_truncate(examples, max_tokens, too_long)
    if not fitted.kept:
        raise_no_examples(len(examples), fitted.left_out, max_tokens)
    return fitted


def drop_or_truncate(examples: Sequence[Encoded], max_tokens: int, too_long: str) -> FilteredExamples:
    """The same, also if nothing is left. "refuse" leaves out, too: whoever has seen all examples refuses them."""
    kept: list[Encoded] = []
    left_out: Counter[str] = Counter()
    cut: Counter[str] = Counter()
    lengths: list[int] = []
    for example in examples:
        if is_empty(example):
            left_out["empty"] += 1
            continue
        lengths.append(max(example.lengths))
        if lengths[-1] <= max_tokens:
            kept.append(example)
        elif too_long == "cut":
            cut["too long"] += 1
            kept.extend(truncate_or_split(example, max_tokens))
        else:
            left_out["too long"] += 1
    return FilteredExamples(kept, left_out, cut, np.array(lengths, np.int64))


def is_empty(example: Encoded) -> bool:
    """Any of its rows of ids has nothing in it."""
    return any(isinstance(part, list) and not part for part in example)


def raise_no_examples(examples: int, left_out: Mapping[str, int], max_tokens: int) -> NoReturn:
    raise DataError(
        f"no example is left: of {examples}, {left_out.get('empty', 0)} are empty (on one side) and "
        f"{left_out.get('too long', 0)} are longer than data.max_tokens = {max_tokens}. Raise it, or look at the files."
    )


# ---- Cutting -------------------------------------------------------------------------------------------------


def truncate_or_split(example: Encoded, max_tokens: int) -> list[Encoded]:
    """What of an example is trained on if it is too long: of a text its beginning, of words all, in parts."""
    if isinstance(example, EncodedLabelledText):
        return [example._replace(ids=cut_ids(example.ids, max_tokens))]
    assert isinstance(example, EncodedTaggedText), f"{type(example).__name__} is never cut"
    bos, eos = example.ids[0], example.ids[-1]
    first = [place for place, tag in enumerate(example.tags) if tag != NO_TAG]
    spans = [slice(part.start, part.stop) for part in word_parts(first, len(example.ids) - 1, max_tokens)]
    return [EncodedTaggedText([bos, *example.ids[s], eos], [NO_TAG, *example.tags[s], NO_TAG]) for s in spans]


def cut_ids(ids: Sequence[int], max_tokens: int) -> list[int]:
    """The beginning of <s> ids </s>, with its </s>."""
    return list(ids) if len(ids) <= max_tokens else [*ids[: max_tokens - 1], ids[-1]]


class WordPart(NamedTuple):
    """Words of a sentence that are read together, and their tokens."""

    words: range
    start: int
    stop: int


def word_parts(first: Sequence[int], end: int, max_tokens: int, overlap: int = 0) -> list[WordPart]:
    """A sentence in parts of at most `max_tokens` tokens, <s> and </s> counted, each beginning with a word.

    `first`: where each word begins; `end`: where the last one ends; `overlap`: tokens that a part has in common with
    the one before it, at most. Of a word that is longer than a part, its beginning is read.
    """
    room, bounds, parts = max_tokens - 2, [*first, end], list[WordPart]()
    begin = 0
    while begin < len(first):
        stop = begin + 1
        while stop < len(first) and bounds[stop + 1] - bounds[begin] <= room:
            stop += 1
        parts.append(WordPart(range(begin, stop), bounds[begin], min(bounds[stop], bounds[begin] + room)))
        if stop == len(first):
            break
        last, begin = begin, stop
        # back by words that are shared, if there is still room for one that is new
        shared = min(overlap, room - (bounds[stop + 1] - bounds[stop]))
        while begin - 1 > last and bounds[stop] - bounds[begin - 1] <= shared:
            begin -= 1
    return parts
