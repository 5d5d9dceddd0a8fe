"""Are two candidates of a search so close that single precision can confuse them? Otherwise a difference is a bug."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from cutaway.search.request import Search

TIE = 1e-4  # differences below this can be rounding errors of single precision


def smallest_gap(pipeline, request, decode) -> float:
    """Repeat a search in double precision and return the smallest margin of its decisions."""
    [row], [prefix] = pipeline.input_ids([request]), pipeline.prefixes([request])
    limit, tokenizer, gaps = pipeline.length_limit(row, prefix, request, decode), pipeline.tokenizer, []
    search = Search(decode, [limit], [request.number], tokenizer.bos, tokenizer.eos, 2, [prefix])
    if decode.strategy == "beam":
        found = pipeline.run_search(
            [row], search._replace(on_step=lambda step: gaps.extend(gaps_of_step(step, decode)))
        )[0]
        gaps.extend(abs(a.score - b.score) for a, b in itertools.pairwise(found))
        return min(gaps)
    best = pipeline.run_search([row], search)[0][0]
    whole = [*best.tokens, tokenizer.eos][: len(best.token_log_probs)]
    random_numbers = search.generators()[0].random(len(whole))
    for place, u in enumerate(random_numbers):
        read = [*prefix, *whole[:place]]
        logits = next_logits(pipeline, row, read)
        gaps.append(gap_of_sample(logits, u, decode) if decode.strategy == "sample" else gap_of_best(logits))
    return min(gaps)


@torch.no_grad()
def next_logits(pipeline, row, read):
    """The logits after `row` and `read`, computed without a cache."""
    if pipeline.config.model.family == "decoder":
        return pipeline.model(torch.tensor([[*row, *read]]))[0, -1]
    return pipeline.model(torch.tensor([row]), torch.tensor([[pipeline.tokenizer.bos, *read]]))[0, -1]


def gap_of_best(logits):
    best = logits.topk(2).values
    return float(best[0] - best[1])


def gap_of_sample(logits, u, decode):
    """The distance of the random number from the nearest boundary in the cumulative distribution."""
    cumulative = (logits.double() / decode.temperature).softmax(-1).cumsum(-1).detach().numpy()
    return float(np.abs(np.array([0, *cumulative]) - u)[1:-1].min())


def gaps_of_step(step, decode):
    """The margins of a beam step: last kept against first dropped prefix; each finished text against its threshold."""
    totals = step.total_BKV[0].flatten().sort(descending=True).values
    k = decode.beam_size
    if len(totals) > k and totals[k].isfinite():
        yield float(totals[k - 1] - totals[k])
    for ended in step.ended_BK[0]:
        if ended.isfinite() and len(totals) >= k:
            yield float((ended - totals[k - 1]).abs())
