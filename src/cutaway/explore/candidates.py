"""The candidates of each prediction: the most probable tokens with their logits, and a histogram of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cutaway.explore.traced_example import TracedExample

ROWS = 64  # predictions processed at a time
NAMED = 128  # candidates that are listed by name
BINS, WIDTH = 48, 0.5  # the others are counted in bins; WIDTH in nats, counted down from the last named candidate


def candidates(example: TracedExample, logits_NV: Tensor) -> list[dict[str, Any]]:
    """For each prediction: the answer, its probability and rank, and the most probable candidates with their logits.

    The logits and the bins suffice to apply any temperature, top-k and top-p later, without the model: a bin stands
    for `count` candidates with one logit, chosen so that their probabilities add up.
    """
    if len(logits_NV) > ROWS:  # limits the memory that double precision takes for a large vocabulary
        starts = range(0, len(logits_NV), ROWS)
        parts = [replace(example, answers=example.answers[i : i + ROWS]) for i in starts]
        return [
            step for i, part in zip(starts, parts, strict=True) for step in candidates(part, logits_NV[i : i + ROWS])
        ]
    logits_NV = logits_NV.cpu().double()  # MPS has no double precision
    answers_N = torch.tensor(example.answers, device=logits_NV.device)
    answer_N1 = logits_NV.gather(1, answers_N[:, None])
    p_N = (answer_N1 - logits_NV.logsumexp(-1, keepdim=True)).exp()[:, 0].tolist()
    rank_N = (logits_NV > answer_N1).sum(-1).tolist()
    top = logits_NV.topk(min(NAMED, logits_NV.size(-1)))
    ids_NK, values_NK = top.indices.tolist(), top.values.round(decimals=4).tolist()
    tails = bins(logits_NV, top.indices, top.values[:, -1:])
    return [
        {
            "token": example.names([answer])[0],
            "id": answer,
            "p": round(p, 6),
            "rank": rank,
            "ids": ids,
            "tokens": example.names(ids),
            "logits": values,
            "tail": tail,
        }
        for answer, p, rank, ids, values, tail in zip(
            example.answers, p_N, rank_N, ids_NK, values_NK, tails, strict=True
        )
    ]


def bins(logits_NV: Tensor, named_NK: Tensor, last_N1: Tensor) -> list[list[list[float]]]:
    """For each row, [[logit, count], ...] of the candidates that are not named."""
    if named_NK.size(1) == logits_NV.size(1):
        return [[] for _ in logits_NV]
    is_named_NV = torch.zeros_like(logits_NV, dtype=torch.bool).scatter(1, named_NK, True)
    below_NV = last_N1 - logits_NV
    bin_NV = (below_NV / WIDTH).long().clamp(0, BINS - 1)
    counted = torch.zeros(len(logits_NV), BINS, dtype=torch.float64, device=logits_NV.device)
    counts_NB = counted.scatter_add(1, bin_NV, (~is_named_NV).double())
    sums_NB = counted.scatter_add(1, bin_NV, (-below_NV).exp().masked_fill(is_named_NV, 0.0))
    level_NB = (last_N1 + (sums_NB / counts_NB).log()).round(decimals=4)
    return [
        [[level, int(count)] for level, count in zip(levels, counts, strict=True) if count and level > float("-inf")]
        for levels, counts in zip(level_NB.tolist(), counts_NB.tolist(), strict=True)
    ]
