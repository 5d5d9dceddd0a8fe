"""What a model considered at each place where it was asked: the likeliest answers, and what the rest amounts to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cutaway.explore.question import Question

ROWS = 64  # worked at a time
NAMED = 128  # the likeliest answers are named; more than these nobody reads
BINS, WIDTH = 48, 0.5  # the others are counted in bins so wide, in nats below the last that is named


def candidates(question: Question, logits_NV: Tensor) -> list[dict[str, Any]]:
    """For each thing that was asked: the answer, its probability and rank, and its rivals with their logits.

    With the logits of the likeliest and the bins of the rest any temperature, top-k and top-p can be worked out later,
    without the model: a bin stands for `count` answers with one logit, chosen so that their probabilities add up.
    """
    if len(logits_NV) > ROWS:  # double precision for a large vocabulary takes its room
        blocks = range(0, len(logits_NV), ROWS)
        parts = [replace(question, answers=question.answers[i : i + ROWS]) for i in blocks]
        return [
            told for i, part in zip(blocks, parts, strict=True) for told in candidates(part, logits_NV[i : i + ROWS])
        ]
    logits_NV = logits_NV.double()
    answers_N = torch.tensor(question.answers, device=logits_NV.device)
    said_N1 = logits_NV.gather(1, answers_N[:, None])
    p_N = (said_N1 - logits_NV.logsumexp(-1, keepdim=True)).exp()[:, 0].tolist()
    rank_N = (logits_NV > said_N1).sum(-1).tolist()
    top = logits_NV.topk(min(NAMED, logits_NV.size(-1)))
    ids_NK, values_NK = top.indices.tolist(), top.values.round(decimals=4).tolist()
    tails = bins(logits_NV, top.indices, top.values[:, -1:])
    return [
        {
            "token": question.names([answer])[0],
            "id": answer,
            "p": round(p, 6),
            "rank": rank,
            "ids": ids,
            "tokens": question.names(ids),
            "logits": values,
            "tail": tail,
        }
        for answer, p, rank, ids, values, tail in zip(
            question.answers, p_N, rank_N, ids_NK, values_NK, tails, strict=True
        )
    ]


def bins(logits_NV: Tensor, named_NK: Tensor, last_N1: Tensor) -> list[list[list[float]]]:
    """For each row [[logit, count], ...] of all answers that are not named."""
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
