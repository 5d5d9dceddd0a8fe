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
from cutaway.models.decoder import DecoderOnly
from cutaway.models.encoder import EncoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.train.distributed import Team
from cutaway.train.losses import smoothed_cross_entropy
from cutaway.train.observers import Measured


class Answers(NamedTuple):
    """What a model said, and what would have been right, wherever it was asked."""

    logits: Tensor  # [N, classes]
    right: Tensor  # [N]


class LossSum(NamedTuple):
    loss: Tensor  # what training makes small
    nll: Tensor  # the plain negative log-likelihood: exp(nll / tokens) is the perplexity
    tokens: int


Objective = Callable[[Any, Any], Answers]

# Where nothing is asked, as at padding, the head has nothing to compute: it is shown what matters alone.


def translation(model: EncoderDecoder, batch: PairBatch) -> Answers:
    """Teacher forcing: given the source and the *right* target so far, say the next token, at every place at once."""
    memory = model.encode(batch.source, batch.source_mask)
    x_BTD = model.decode(batch.target_in, memory, batch.source_mask, batch.target_mask)
    return Answers(model.head(x_BTD[batch.target_mask]), batch.target_out[batch.target_mask])


def next_token(model: DecoderOnly, batch: TextBatch) -> Answers:
    """Which token comes next, at every place at once (GPT)."""
    x_BTD = model.decode(batch.ids, batch.mask)
    return Answers(model.head(x_BTD[batch.asked]), batch.answers[batch.asked])


def each_token(model: EncoderOnly, batch: TextBatch) -> Answers:
    """Which token is hidden here (BERT), or what its tag is."""
    x_BTD = model.encode(batch.ids, batch.mask)
    return Answers(model.head(x_BTD[batch.asked]), batch.answers[batch.asked])


def whole_text(model: EncoderOnly, batch: LabelBatch) -> Answers:
    return Answers(model(batch.ids, batch.mask), batch.answers)


def whole_image(model: nn.Module, batch: ImageBatch) -> Answers:
    return Answers(model(batch.images), batch.answers)


OBJECTIVES: dict[str, Objective] = {
    "translation": translation,
    "language_model": next_token,
    "masked_language_model": each_token,
    "tagging": each_token,
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


class Assignment(nn.Module):
    """A model with what it is asked to do: a batch goes in, its loss comes out.

    All that a step computes is in here, so it is this that is compiled, or worked on by several processes.
    """

    def __init__(self, model: nn.Module, objective: Objective, label_smoothing: float = 0.0, balance: float = 0.0):
        super().__init__()
        self.model, self.objective = model, objective
        self.label_smoothing, self.balance = label_smoothing, balance

    def forward(self, batch: Batch) -> LossSum | Tally:
        if self.training:
            return loss_of(self.model, self.objective, batch, self.label_smoothing, self.balance)
        logits, right = self.objective(self.model, batch)
        nll = smoothed_cross_entropy(logits, right, 0.0)[1]
        return Tally(nll, (logits.argmax(dim=-1) == right).sum(), len(right))


class Tally(NamedTuple):
    """How a model did, when it is not being trained."""

    nll: Tensor
    hits: Tensor
    asked: int


def measure(model: nn.Module, objective: Objective, batches: Iterable[Batch]) -> Measured:
    """On a whole set."""
    return measure_together(Assignment(model, objective), batches, Team(next(model.parameters()).device))


@torch.no_grad()
def measure_together(assignment: nn.Module, batches: Iterable[Batch], team: Team) -> Measured:
    """Several processes share each batch, and add up."""
    assignment.eval()
    device = next(assignment.parameters()).device
    sums = [0.0, 0.0, 0.0]
    for batch in batches:
        mine = team.rank < batch.rows  # a batch of fewer rows than processes: all take the step, not all count
        part = batch.part(team.rank, team.size) if mine else batch.part(0, batch.rows)
        tally = assignment(part.to(device))
        if mine:
            sums = [total + float(one) for total, one in zip(sums, tally, strict=True)]
    nll, hits, asked = team.total(*sums)
    return Measured(nll / asked, hits / asked)
