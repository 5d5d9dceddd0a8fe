"""What the statistics of `heads.py` mean, spelled out for each query and key: tensors of bool, [B, Q, K] or as good."""

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

RARE = 0.1  # of the tokens

Patterns = dict[str, dict[str, Tensor]]  # kind of attention -> statistic -> fact


def batches(
    pipeline: Pipeline, examples: Sequence[Any], batch_size: int, longest: int
) -> Iterator[tuple[Inputs, Patterns]]:
    """The examples, a batch at a time, with the facts that the statistics need."""
    chunks = [examples[start : start + batch_size] for start in range(0, len(examples), batch_size)]
    if pipeline.config.model.family == "vision":
        for chunk in chunks:
            inputs = image_inputs(pipeline, chunk)
            yield inputs, position_patterns(inputs)
        return
    longest = min(longest, pipeline.config.longest_text)
    rows = encode_examples(pipeline, examples, longest)
    notable = {side: TokenClasses.of(pipeline, [getattr(row, side) for row in rows]) for side in ("encoder", "decoder")}
    for number, chunk in enumerate(chunks):
        inputs = collate_examples(pipeline, rows[number * batch_size :][:batch_size])
        patterns = position_patterns(inputs)
        add_token_patterns(patterns, inputs, notable)
        add_gold_patterns(patterns, inputs, pipeline, chunk)
        yield inputs, patterns


def add_token_patterns(patterns: Patterns, inputs: Inputs, notable: dict[str, TokenClasses]) -> None:
    """What follows from which tokens they are."""
    for kind, of_kind in patterns.items():
        side = SIDES[kind][1]
        ids_BK = inputs.ids[side]
        of_kind |= notable[side].patterns(ids_BK)
        if side == "encoder":
            of_kind["last"] = last_place(inputs.is_token[side])
        if kind != "cross":
            of_kind["same"] = same_token(ids_BK)
            of_kind["continuation"] = next_key(of_kind["same"])


def same_token(ids_BT: Tensor) -> Tensor:
    """The key is the query's token again, at another place."""
    elsewhere = ~torch.eye(ids_BT.size(1), dtype=torch.bool, device=ids_BT.device)
    return (ids_BT[:, :, None] == ids_BT[:, None, :]) & elsewhere


def next_key(meant_BQK: Tensor) -> Tensor:
    """The key after each that is meant."""
    return torch.nn.functional.pad(meant_BQK, (1, 0))[:, :, :-1]


def position_patterns(inputs: Inputs) -> Patterns:
    """What follows from positions alone."""
    patterns: Patterns = {}
    for kind, (looking, looked_at) in SIDES.items():
        if not {looking, looked_at} <= inputs.is_token.keys():
            continue
        is_key = inputs.is_token[looked_at]
        query = torch.arange(inputs.is_token[looking].size(1), device=is_key.device)[None, :, None]
        key = torch.arange(is_key.size(1), device=is_key.device)[None, None, :]
        patterns[kind] = {"first": key == 0}
        if kind != "cross":
            patterns[kind] |= {"previous": key == query - 1, "next": key == query + 1, "itself": key == query}
    return patterns


def last_place(is_token_BK: Tensor) -> Tensor:
    lengths_B = is_token_BK.sum(dim=1)
    return (torch.arange(is_token_BK.size(1), device=is_token_BK.device) == lengths_B[:, None] - 1)[:, None]


@dataclass(frozen=True)
class TokenClasses:
    """Which tokens of the vocabulary are punctuation, and which are rare in these texts. [V] of bool each"""

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
    """Nothing but punctuation and symbols; "␣" is how the tokenizer shows white space."""
    return token != "␣" and all(unicodedata.category(letter)[0] in "PS" for letter in token)


def rare_tokens(count_V: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The rarest kinds of token that together are a tenth of all tokens, or a little more: equally rare go together."""
    rarest_first = np.sort(count_V[count_V > 0])
    if not len(rarest_first):
        return np.zeros(len(count_V), dtype=bool)
    enough = np.searchsorted(np.cumsum(rarest_first), RARE * rarest_first.sum())
    return (count_V > 0) & (count_V <= rarest_first[enough])


def add_gold_patterns(patterns: Patterns, inputs: Inputs, pipeline: Any, examples: Sequence[Any]) -> None:
    """Syntactic heads and word alignments, of examples that know them."""
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
    """[T, T]: the query's word has its syntactic head at the key's word."""
    word_T = np.array([-1 if word is None else word for word in words])
    head_T = np.array([-2 if word is None or heads[word] < 0 else heads[word] for word in words])
    return head_T[:, None] == word_T[None, :]


def alignment_matrix(words: TokenWords, pair: Any) -> NDArray[np.bool_]:
    """[T, S]: the word that is written at the query translates the key's word."""
    links = np.zeros((len(pair.target_words) + 1, len(pair.source_words) + 1), dtype=bool)  # a last one: no word
    for source, target in pair.alignment:
        links[target, source] = True
    target_T = [-1 if word is None else word for word in words.target]
    source_S = [-1 if word is None else word for word in words.source]
    return links[np.ix_(target_T, source_S)]


def pad_matrices(matrices: Sequence[NDArray[np.bool_]], queries: int, keys: int) -> Tensor:
    """Matrices of unequal sizes as one tensor [B, Q, K], False where they have nothing; cut where texts were."""
    whole = torch.zeros(len(matrices), queries, keys, dtype=torch.bool)
    for i, matrix in enumerate(matrices):
        part = torch.from_numpy(matrix[:queries, :keys])
        whole[i, : part.size(0), : part.size(1)] = part
    return whole
