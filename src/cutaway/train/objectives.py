"""Objectives: what a model is asked to do with a batch. Each gives a loss *sum* and the count it belongs to.

Sums and counts can be added up over micro-batches, processes and a validation set, and divided once at the end;
averages of averages would weigh a token by the batch it happens to be in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cutaway.data.batching import Batch, ImageBatch, LabelBatch, PairBatch, TextBatch
from cutaway.models.balance import balance_losses
from cutaway.train.losses import smoothed_cross_entropy
from cutaway.train.observers import Measured
from cutaway.train.team import Team


class Answers(NamedTuple):
    """What a model said, and what would have been right, wherever it was asked."""

    logits: Tensor  # [N, classes]
    right: Tensor  # [N]


class LossSum(NamedTuple):
    loss: Tensor  # what training makes small
    nll: Tensor  # the plain negative log-likelihood: exp(nll / tokens) is the perplexity
    tokens: int


Objective = Callable[[nn.Module, Any], Answers]


def translation(model: nn.Module, batch: PairBatch) -> Answers:
    """Teacher forcing: given the source and the *right* target so far, say the next token, at every place at once."""
    logits_BTV = model(batch.source, batch.target_in, batch.source_mask, batch.target_mask)
    return Answers(logits_BTV[batch.target_mask], batch.target_out[batch.target_mask])


def tokens(model: nn.Module, batch: TextBatch) -> Answers:
    """Wherever a token is asked about, say which comes next (GPT), which is hidden (BERT), or what its tag is."""
    logits_BTV = model(batch.ids, batch.mask)
    return Answers(logits_BTV[batch.asked], batch.answers[batch.asked])


def whole_text(model: nn.Module, batch: LabelBatch) -> Answers:
    return Answers(model(batch.ids, batch.mask), batch.answers)


def whole_image(model: nn.Module, batch: ImageBatch) -> Answers:
    return Answers(model(batch.images), batch.answers)


OBJECTIVES: dict[str, Objective] = {
    "translation": translation,
    "language_model": tokens,
    "masked_language_model": tokens,
    "tagging": tokens,
    "classification": whole_text,
    "image_classification": whole_image,
}


def loss_of(
    model: nn.Module, objective: Objective, batch: Batch, label_smoothing: float, balance: float = 0.0
) -> LossSum:
    """The loss of a batch; with experts, `balance` times their uneven load comes on top, for each token."""
    with balance_losses(model) as uneven:
        answers = objective(model, batch)
    loss, nll = smoothed_cross_entropy(answers.logits, answers.right, label_smoothing)
    if uneven:
        loss = loss + balance * batch.tokens * torch.stack(uneven).sum()
    return LossSum(loss, nll.detach(), batch.tokens)


@torch.no_grad()
def measure(model: nn.Module, objective: Objective, batches: Iterable[Batch], team: Team | None = None) -> Measured:
    """On a whole set. Several processes share each batch, and add up."""
    model.eval()
    team = team or Team()
    device = next(model.parameters()).device
    nll_sum, right, asked = 0.0, 0, 0
    for batch in batches:
        mine = team.rank < batch.rows  # a batch of fewer rows than processes: all take the step, not all count
        part = batch.part(team.rank, team.size) if mine else batch.part(0, batch.rows)
        logits, answers = objective(model, part.to(device))
        if mine:
            nll_sum += smoothed_cross_entropy(logits, answers, 0.0)[1].item()
            right += int((logits.argmax(dim=-1) == answers).sum())
            asked += len(answers)
    nll_sum, hits, answered = team.total(nll_sum, right, asked)
    return Measured(nll_sum / answered, hits / answered)
