"""Objectives: what a model is asked to do with a batch. Each gives a loss *sum* and the count it belongs to.

Sums and counts can be added up over micro-batches, processes and a validation set, and divided once at the end;
averages of averages would weigh a token by the batch it happens to be in.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from cutaway.data.batching import Batch
from cutaway.train.losses import smoothed_cross_entropy

Objective = Callable[[nn.Module, Batch, float], tuple[Tensor, int]]


def translation(model: nn.Module, batch: Batch, label_smoothing: float) -> tuple[Tensor, int]:
    """Teacher forcing: given the source and the *right* target so far, say the next token, at every place at once."""
    logits_BTV = model(batch.source, batch.target_in, batch.source_mask, batch.target_mask)
    is_token = batch.target_mask
    return smoothed_cross_entropy(logits_BTV[is_token], batch.target_out[is_token], label_smoothing), batch.tokens


OBJECTIVES: dict[str, Objective] = {"encoder_decoder": translation}
