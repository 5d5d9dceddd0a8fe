"""Why two searches in single precision part: because two candidates are as good as equal, or there is a mistake."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from cutaway.search.request import Search

TIE = 1e-4  # what single precision may confuse


def smallest_gap(judge, wish, decode) -> float:
    """The search of one wish again in double precision: how close any of its decisions was."""
    [row], [prefix] = judge.rows([wish]), judge.prefixes([wish])
    limit, tokenizer, gaps = judge.limit(row, prefix, wish, decode), judge.tokenizer, []
    search = Search(decode, [limit], [wish.number], tokenizer.bos, tokenizer.eos, 2, [prefix])
    if decode.strategy == "beam":
        found = judge.run_search([row], search._replace(watch=lambda step: gaps.extend(gaps_of_step(step, decode))))[0]
        gaps.extend(abs(a.score - b.score) for a, b in itertools.pairwise(found))
        return min(gaps)
    best = judge.run_search([row], search)[0][0]
    whole = [*best.tokens, tokenizer.eos][: len(best.gains)]
    draws = search.draws()[0].random(len(whole))
    for place, u in enumerate(draws):
        read = [*prefix, *whole[:place]]
        logits = next_logits(judge, row, read)
        gaps.append(gap_of_draw(logits, u, decode) if decode.strategy == "sample" else gap_of_best(logits))
    return min(gaps)


@torch.no_grad()
def next_logits(judge, row, read):
    """After a whole reading, without a cache."""
    if judge.config.model.family == "decoder":
        return judge.model(torch.tensor([[*row, *read]]))[0, -1]
    return judge.model(torch.tensor([row]), torch.tensor([[judge.tokenizer.bos, *read]]))[0, -1]


def gap_of_best(logits):
    best = logits.topk(2).values
    return float(best[0] - best[1])


def gap_of_draw(logits, u, decode):
    """How far the number drawn is from where one token's stretch ends and the next one's begins."""
    reached = (logits.double() / decode.temperature).softmax(-1).cumsum(-1).detach().numpy()
    return float(np.abs(np.array([0, *reached]) - u)[1:-1].min())


def gaps_of_step(step, decode):
    """Between the last that goes on and the first that does not; between an end and what it is held against."""
    totals = step.total_BKV[0].flatten().sort(descending=True).values
    k = decode.beam_size
    if len(totals) > k and totals[k].isfinite():
        yield float(totals[k - 1] - totals[k])
    for ended in step.ended_BK[0]:
        if ended.isfinite() and len(totals) >= k:
            yield float((ended - totals[k - 1]).abs())
