"""Objectives: what a model predicts for a batch. The loss is a *sum* over tokens, together with their number.

Sums can be added over micro-batches, processes and a whole validation set, and divided once at the end. In a mean of
means, the weight of a token would depend on the size of its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cutaway.data.batching import Batch, ImageBatch, LabelBatch, PairBatch, TextBatch
from cutaway.models.balance import balance_losses
from cutaway.models.decoder import DecoderOnly
from cutaway.models.encoder import EncoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.train.distributed import ProcessGroup
from cutaway.train.losses import smoothed_cross_entropy
from cutaway.train.observers import ValidationResult


class Predictions(NamedTuple):
    """The predictions of a model and the correct classes, without padding."""

    logits: Tensor  # [N, classes]
    targets: Tensor  # [N]


class LossSum(NamedTuple):
    loss: Tensor  # the number that training minimizes
    nll: Tensor  # the negative log-likelihood without smoothing; exp(nll / tokens) is the perplexity
    tokens: int


Objective = Callable[[Any, Any], Predictions]

# The head computes only positions that have a target. Padding has none.


def translation(model: EncoderDecoder, batch: PairBatch) -> Predictions:
    """Teacher forcing: predict each target token from the source and the *correct* target tokens before it."""
    memory = model.encode(batch.source, batch.source_mask)
    x_BTD = model.decode(batch.target_in, memory, batch.source_mask, batch.target_mask)
    return Predictions(model.head(x_BTD[batch.target_mask]), batch.target_out[batch.target_mask])


def next_token(model: DecoderOnly, batch: TextBatch) -> Predictions:
    """Predict the next token at each position (GPT)."""
    x_BTD = model.decode(batch.ids, batch.mask)
    return Predictions(model.head(x_BTD[batch.target_mask]), batch.targets[batch.target_mask])


def each_token(model: EncoderOnly, batch: TextBatch) -> Predictions:
    """Predict the masked tokens (BERT), or the tag of each word."""
    x_BTD = model.encode(batch.ids, batch.mask)
    return Predictions(model.head(x_BTD[batch.target_mask]), batch.targets[batch.target_mask])


def whole_text(model: EncoderOnly, batch: LabelBatch) -> Predictions:
    return Predictions(model(batch.ids, batch.mask), batch.targets)


def whole_image(model: nn.Module, batch: ImageBatch) -> Predictions:
    return Predictions(model(batch.images), batch.targets)


OBJECTIVES: dict[str, Objective] = {
    "translation": translation,
    "language_model": next_token,
    "masked_language_model": each_token,
    "tagging": each_token,
    "classification": whole_text,
    "image_classification": whole_image,
}


def compute_loss(
    model: nn.Module, objective: Objective, batch: Batch, label_smoothing: float, balance: float = 0.0
) -> LossSum:
    """The loss of a batch. With experts, `balance` times their load-balancing loss is added for each token."""
    with balance_losses(model) as balance_terms:
        predictions = objective(model, batch)
    loss, nll = smoothed_cross_entropy(predictions.logits, predictions.targets, label_smoothing)
    if balance_terms:
        loss = loss + balance * batch.tokens * torch.stack(balance_terms).sum()
    return LossSum(loss, nll.detach(), batch.tokens)


class ModelWithLoss(nn.Module):
    """A model and its objective as one module: batch -> loss. This is what DDP wraps and torch.compile compiles."""

    def __init__(self, model: nn.Module, objective: Objective, label_smoothing: float = 0.0, balance: float = 0.0):
        super().__init__()
        self.model, self.objective = model, objective
        self.label_smoothing, self.balance = label_smoothing, balance

    def forward(self, batch: Batch) -> LossSum | ValidationSums:
        if self.training:
            return compute_loss(self.model, self.objective, batch, self.label_smoothing, self.balance)
        logits, targets = self.objective(self.model, batch)
        nll = smoothed_cross_entropy(logits, targets, 0.0)[1]
        return ValidationSums(nll, (logits.argmax(dim=-1) == targets).sum(), len(targets))


class ValidationSums(NamedTuple):
    """The scores of one batch in evaluation mode."""

    nll: Tensor
    correct: Tensor
    total: int


def measure(model: nn.Module, objective: Objective, batches: Iterable[Batch]) -> ValidationResult:
    """Loss and accuracy on a whole data set."""
    return measure_distributed(ModelWithLoss(model, objective), batches, ProcessGroup(next(model.parameters()).device))


@torch.no_grad()
def measure_distributed(
    model_with_loss: nn.Module, batches: Iterable[Batch], process_group: ProcessGroup
) -> ValidationResult:
    """Loss and accuracy on a whole data set. Each process computes a part of every batch."""
    model_with_loss.eval()
    device = next(model_with_loss.parameters()).device
    sums = [0.0, 0.0, 0.0]
    for batch in batches:
        # With fewer rows than processes, some compute a row that does not count: all must make the same calls.
        has_rows = process_group.rank < batch.rows
        part = batch.part(process_group.rank, process_group.size) if has_rows else batch.part(0, batch.rows)
        scores = model_with_loss(part.to(device))
        if has_rows:
            sums = [before + float(score) for before, score in zip(sums, scores, strict=True)]
    nll, correct, total = process_group.all_reduce(*sums)
    return ValidationResult(nll / total, correct / total)
