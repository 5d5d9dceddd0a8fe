"""Objectives: what a model is asked to do with a batch. Each gives a loss *sum* and the count it belongs to.

Sums and counts can be added up over micro-batches, processes and a validation set, and divided once at the end;
averages of averages would weigh a token by the batch it happens to be in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cutaway.data.batching import Batch
from cutaway.train.losses import smoothed_cross_entropy


class LossSum(NamedTuple):
    loss: Tensor  # what training makes small
    nll: Tensor  # the plain negative log-likelihood: exp(nll / tokens) is the perplexity
    tokens: int


Objective = Callable[[nn.Module, Batch, float], LossSum]


def translation(model: nn.Module, batch: Batch, label_smoothing: float) -> LossSum:
    """Teacher forcing: given the source and the *right* target so far, say the next token, at every place at once."""
    logits_BTV = model(batch.source, batch.target_in, batch.source_mask, batch.target_mask)
    is_token = batch.target_mask
    loss, nll = smoothed_cross_entropy(logits_BTV[is_token], batch.target_out[is_token], label_smoothing)
    return LossSum(loss, nll.detach(), batch.tokens)


@torch.no_grad()
def mean_nll(model: nn.Module, objective: Objective, batches: Iterable[Batch]) -> float:
    """Cross-entropy a token over a whole set, without dropout and label smoothing: its exp is the perplexity."""
    model.eval()
    device = next(model.parameters()).device
    nll_sum, tokens = 0.0, 0
    for batch in batches:
        result = objective(model, batch.to(device), 0.0)
        nll_sum, tokens = nll_sum + result.nll.item(), tokens + result.tokens
    return nll_sum / tokens


OBJECTIVES: dict[str, Objective] = {"encoder_decoder": translation}
