"""Filter encoded examples. Empty ones are skipped; long ones are truncated, split or skipped (data.too_long)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from cutaway.data.encoded import NO_TAG, Encoded, EncodedLabelledText, EncodedTaggedText
from cutaway.errors import DataError


class FilteredExamples(NamedTuple):
    """Examples that fit, and how many were skipped or truncated."""

    kept: Sequence[Encoded]
    left_out: Mapping[str, int]  # reason -> number of skipped examples
    cut: Mapping[str, int]  # reason -> number of truncated or split examples
    lengths: NDArray[np.int64]  # original lengths of all examples that are not empty

    @classmethod
    def keep_all(cls, examples: Sequence[Encoded]) -> FilteredExamples:
        return cls(examples, {}, {}, np.zeros(0, np.int64))


def filter_examples(examples: Sequence[Encoded], max_tokens: int, too_long: str = "skip") -> FilteredExamples:
    """Skip empty examples, and treat examples of more than `max_tokens` by `too_long`. At least one must be left."""
    filtered = drop_or_truncate(examples, max_tokens, too_long)
    if not filtered.kept:
        raise_no_examples(len(examples), filtered.left_out, max_tokens)
    return filtered


def drop_or_truncate(examples: Sequence[Encoded], max_tokens: int, too_long: str) -> FilteredExamples:
    """The same without the check. "refuse" also skips: `prepare` raises the error when all examples are counted."""
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
    """Whether one of its lists of ids is empty."""
    return any(isinstance(part, list) and not part for part in example)


def raise_no_examples(examples: int, left_out: Mapping[str, int], max_tokens: int) -> NoReturn:
    raise DataError(
        f"no example is left: of {examples}, {left_out.get('empty', 0)} are empty (on one side) and "
        f"{left_out.get('too long', 0)} are longer than data.max_tokens = {max_tokens}. Raise it, or check the files."
    )


# ---- Cutting -------------------------------------------------------------------------------------------------


def truncate_or_split(example: Encoded, max_tokens: int) -> list[Encoded]:
    """Make a long example fit: truncate a text, or split tagged words into parts."""
    if isinstance(example, EncodedLabelledText):
        return [example._replace(ids=cut_ids(example.ids, max_tokens))]
    assert isinstance(example, EncodedTaggedText), f"{type(example).__name__} cannot be truncated or split"
    bos, eos = example.ids[0], example.ids[-1]
    first = [position for position, tag in enumerate(example.tags) if tag != NO_TAG]
    spans = [slice(part.start, part.stop) for part in word_parts(first, len(example.ids) - 1, max_tokens)]
    return [EncodedTaggedText([bos, *example.ids[s], eos], [NO_TAG, *example.tags[s], NO_TAG]) for s in spans]


def cut_ids(ids: Sequence[int], max_tokens: int) -> list[int]:
    """Truncate <s> ids </s>, and keep </s>."""
    return list(ids) if len(ids) <= max_tokens else [*ids[: max_tokens - 1], ids[-1]]


class WordPart(NamedTuple):
    """Words of a sentence that the model reads together, and the positions of their tokens."""

    words: range
    start: int
    stop: int


def word_parts(first: Sequence[int], end: int, max_tokens: int, overlap: int = 0) -> list[WordPart]:
    """Split a sentence into parts of at most `max_tokens` tokens, including <s> and </s>. A part begins with a word.

    `first`: the first token of each word; `end`: the end of the last word; `overlap`: the maximum number of tokens that
    a part shares with the part before it. A word that is longer than a part is truncated.
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
        # go back by the shared words, if at least one new word still fits
        shared = min(overlap, room - (bounds[stop + 1] - bounds[stop]))
        while begin - 1 > last and bounds[stop] - bounds[begin - 1] <= shared:
            begin -= 1
    return parts
