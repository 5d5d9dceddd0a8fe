"""The patterns behind the statistics of `heads.py`: which keys match for each query.

A pattern is a bool tensor that broadcasts to [B, Q, K].
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.explore.alignment import TokenWords, has_alignments, words_of
from cutaway.explore.inputs import SIDES, Inputs, collate_examples, encode_examples, image_inputs
from cutaway.inference.pipelines import Pipeline

RARE = 0.1  # share of all tokens that count as rare

Patterns = dict[str, dict[str, Tensor]]  # kind of attention -> statistic -> matching keys


def batches(
    pipeline: Pipeline, examples: Sequence[Any], batch_size: int, longest: int
) -> Iterator[tuple[Inputs, Patterns]]:
    """Batches of the examples, with their patterns."""
    example_batches = [examples[start : start + batch_size] for start in range(0, len(examples), batch_size)]
    if pipeline.config.model.family == "vision":
        for batch in example_batches:
            inputs = image_inputs(pipeline, batch)
            yield inputs, position_patterns(inputs)
        return
    longest = min(longest, pipeline.config.longest_text)
    rows = encode_examples(pipeline, examples, longest)
    classes = {side: TokenClasses.of(pipeline, [getattr(row, side) for row in rows]) for side in ("encoder", "decoder")}
    for number, batch in enumerate(example_batches):
        inputs = collate_examples(pipeline, rows[number * batch_size :][:batch_size])
        patterns = position_patterns(inputs)
        add_token_patterns(patterns, inputs, classes)
        add_gold_patterns(patterns, inputs, pipeline, batch)
        yield inputs, patterns


def add_token_patterns(patterns: Patterns, inputs: Inputs, classes: dict[str, TokenClasses]) -> None:
    """Add the patterns that depend on the tokens."""
    for kind, by_statistic in patterns.items():
        side = SIDES[kind][1]
        ids_BK = inputs.ids[side]
        by_statistic |= classes[side].patterns(ids_BK)
        if side == "encoder":
            by_statistic["last"] = last_token(inputs.is_token[side])
        if kind != "cross":
            by_statistic["same"] = same_token(ids_BK)
            by_statistic["continuation"] = next_key(by_statistic["same"])


def same_token(ids_BT: Tensor) -> Tensor:
    """The key is the same token as the query, at another position."""
    is_other = ~torch.eye(ids_BT.size(1), dtype=torch.bool, device=ids_BT.device)
    return (ids_BT[:, :, None] == ids_BT[:, None, :]) & is_other


def next_key(matches_BQK: Tensor) -> Tensor:
    """The keys after the matching keys."""
    return torch.nn.functional.pad(matches_BQK, (1, 0))[:, :, :-1]


def position_patterns(inputs: Inputs) -> Patterns:
    """The patterns that depend on positions only."""
    patterns: Patterns = {}
    for kind, (query_side, key_side) in SIDES.items():
        if not {query_side, key_side} <= inputs.is_token.keys():
            continue
        is_key = inputs.is_token[key_side]
        query = torch.arange(inputs.is_token[query_side].size(1), device=is_key.device)[None, :, None]
        key = torch.arange(is_key.size(1), device=is_key.device)[None, None, :]
        patterns[kind] = {"first": key == 0}
        if kind != "cross":
            patterns[kind] |= {"previous": key == query - 1, "next": key == query + 1, "itself": key == query}
    return patterns


def last_token(is_token_BK: Tensor) -> Tensor:
    lengths_B = is_token_BK.sum(dim=1)
    return (torch.arange(is_token_BK.size(1), device=is_token_BK.device) == lengths_B[:, None] - 1)[:, None]


@dataclass(frozen=True)
class TokenClasses:
    """For each token of the vocabulary [V]: whether it is punctuation, and whether it is rare in these texts."""

    punctuation: Tensor
    rare: Tensor

    @classmethod
    def of(cls, pipeline: Pipeline, rows: Sequence[Sequence[int]]) -> TokenClasses:
        tokenizer = pipeline.tokenizer
        count_V = np.bincount([id for row in rows for id in row], minlength=tokenizer.vocab_size)
        count_V[[id for id in tokenizer.special_ids if id is not None]] = 0
        occurring = np.flatnonzero(count_V)
        marks_V = np.zeros(len(count_V), dtype=bool)
        marks_V[occurring] = [is_punctuation(token) for token in tokenizer.tokens(occurring.tolist())]
        return cls(*(torch.from_numpy(flags).to(pipeline.device) for flags in (marks_V, rare_tokens(count_V))))

    def patterns(self, ids_BK: Tensor) -> dict[str, Tensor]:
        return {"punctuation": self.punctuation[ids_BK][:, None], "rare": self.rare[ids_BK][:, None]}


def is_punctuation(token: str) -> bool:
    """Whether all characters are punctuation or symbols. "␣" is the tokenizer's sign for a space."""
    return token != "␣" and all(unicodedata.category(letter)[0] in "PS" for letter in token)


def rare_tokens(count_V: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The rarest tokens that together make up at least a tenth of all. Tokens with equal counts are treated alike."""
    rarest_first = np.sort(count_V[count_V > 0])
    if not len(rarest_first):
        return np.zeros(len(count_V), dtype=bool)
    last = np.searchsorted(np.cumsum(rarest_first), RARE * rarest_first.sum())
    return (count_V > 0) & (count_V <= rarest_first[last])


def add_gold_patterns(patterns: Patterns, inputs: Inputs, pipeline: Any, examples: Sequence[Any]) -> None:
    """Add syntactic heads and word alignments, if the examples have them."""
    if not has_alignments(examples):
        return
    words = [words_of(pipeline, pair) for pair in examples]
    shapes = {kind: [inputs.is_token[side].size(1) for side in SIDES[kind]] for kind in patterns}
    gold = {"cross": ("alignment", [alignment_matrix(*pair) for pair in zip(words, examples, strict=True)])}
    if hasattr(examples[0], "source_heads"):
        sources = [syntax_matrix(w.source, pair.source_heads) for w, pair in zip(words, examples, strict=True)]
        targets = [syntax_matrix([None, *w.target], pair.target_heads) for w, pair in zip(words, examples, strict=True)]
        gold |= {"encoder": ("syntax", sources), "decoder": ("syntax", targets)}
    for kind, (name, matrices) in gold.items():
        patterns[kind][name] = pad_matrices(matrices, *shapes[kind]).to(pipeline.device)


def syntax_matrix(words: Sequence[int | None], heads: Sequence[int]) -> NDArray[np.bool_]:
    """[T, T]: the key's word is the syntactic head of the query's word."""
    word_T = np.array([-1 if word is None else word for word in words])
    head_T = np.array([-2 if word is None or heads[word] < 0 else heads[word] for word in words])
    return head_T[:, None] == word_T[None, :]


def alignment_matrix(words: TokenWords, pair: Any) -> NDArray[np.bool_]:
    """[T, S]: the query's target word is a translation of the key's source word."""
    links = np.zeros((len(pair.target_words) + 1, len(pair.source_words) + 1), dtype=bool)  # the last: no word
    for source, target in pair.alignment:
        links[target, source] = True
    target_T = [-1 if word is None else word for word in words.target]
    source_S = [-1 if word is None else word for word in words.source]
    return links[np.ix_(target_T, source_S)]


def pad_matrices(matrices: Sequence[NDArray[np.bool_]], queries: int, keys: int) -> Tensor:
    """Matrices of different sizes as one tensor [B, Q, K], padded with False or cut."""
    whole = torch.zeros(len(matrices), queries, keys, dtype=torch.bool)
    for i, matrix in enumerate(matrices):
        part = torch.from_numpy(matrix[:queries, :keys])
        whole[i, : part.size(0), : part.size(1)] = part
    return whole
