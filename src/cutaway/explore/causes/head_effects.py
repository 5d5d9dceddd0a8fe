"""Heads by what they cause: how many test tokens are lost without each head, beside where the head looks.

lost        correct next tokens without the head, subtracted from those with it; the correct output is the input
copying     how often the head raises the logit of a token that it attends to, more than those of almost all others
induction   on random tokens, repeated: the weight on the token after the earlier copy of the current token
            (Olsson et al. 2022); for self-attention of a decoder
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.errors import DataError
from cutaway.explore.ablation import AblationTarget, ablate, ablation_targets
from cutaway.explore.causes.tables import html_table
from cutaway.explore.heads import HeadStatistics, head_statistics
from cutaway.explore.inputs import EncodedExample, Inputs, collate_examples, encode_examples
from cutaway.explore.lens import stack_of
from cutaway.inference.pipelines import GenerationPipeline, Pipeline
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.embedding import LanguageHead
from cutaway.nn.recording import record_activations
from cutaway.nn.residual import PostNorm

RESAMPLES = 2000  # of the bootstrap
BATCH_SIZE, LONGEST = 64, 256
SAMPLED_TOKENS, TOP = 300, 0.02  # copying: this many tokens; the own logit is among this share of the largest
REPEATED = 24  # random tokens that are repeated
COPIES = 0.5  # a head with a higher score copies; the same for induction


HEADER = ["head", "looks at", "tokens lost", "95 % interval", "copying", "induction"]


@dataclass(frozen=True)
class HeadEffect:
    """`lost` tokens of `total`; `low` and `high` are the ends of a 95 % interval. None: the score does not apply."""

    id: str
    title: str
    lost: int
    total: int
    low: float
    high: float
    role: str
    copying: float | None
    induction: float | None


class HeadEffects(list[HeadEffect]):
    """The effects of all heads, largest first."""

    @property
    def sentence(self) -> str:
        """What stands out: the most important heads, heads that copy, and heads without an effect."""
        worst = self[0]
        if worst.lost > 0:
            parts = [
                f"The most important head is {worst.title}: without it, {worst.lost:,} of {worst.total:,} tokens are "
                f"lost (95 % interval {worst.low:,.0f} to {worst.high:,.0f})."
            ]
        else:
            parts = [f"No head alone has an effect: without it, none of the {worst.total:,} tokens is lost."]
        useless = sum(row.low <= 0 <= row.high for row in self)
        parts.append(f"For {useless} of {len(self)} heads, no effect can be shown.")
        copying = [row for row in self if row.copying is not None and row.copying > COPIES]
        induction = [row for row in self if row.induction is not None and row.induction > COPIES]
        parts.append(f"Copying: {'; '.join(row.title for row in copying)}." if copying else "No head copies here.")
        if any(row.induction is not None for row in self):
            titles = "; ".join(row.title for row in induction)
            parts.append(f"Induction: {titles}." if induction else "No head continues a repeated text.")
        return " ".join(parts)

    def as_json(self) -> list[dict[str, Any]]:
        return [vars(row) for row in self]

    def _repr_html_(self) -> str:
        return html_table(HEADER, map(cells_of, self))


def cells_of(row: HeadEffect) -> tuple[str, ...]:
    scores = ("" if score is None else f"{score:.0%}" for score in (row.copying, row.induction))
    return row.title, row.role, f"{row.lost:,}", f"{row.low:,.0f} to {row.high:,.0f}", *scores


@torch.no_grad()
def head_effects(
    pipeline: Pipeline,
    examples: Sequence[Any],
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> HeadEffects:
    """Measure every head on these examples, which have the correct outputs."""
    if not isinstance(pipeline, GenerationPipeline):
        task = pipeline.config.model.task.replace("_", " ")
        raise DataError(f"tokens are lost by models that generate text. This run is a model for {task}.")
    batches = encoded_batches(pipeline, examples)
    with_all = correct_by_example(pipeline, batches)
    total = sum(int(is_target.sum()) for _, _, is_target in batches)
    roles = {f"{each.name}.heads.{each.head}": each for each in head_statistics(pipeline, examples)}
    targets = {id: target for id, target in ablation_targets(pipeline.model).items() if target.head is not None}
    found = []
    for number, (id, target) in enumerate(targets.items()):
        with ablate(pipeline.model, [id]):
            lost_N = with_all - correct_by_example(pipeline, batches)
        found.append(head_effect(pipeline, target, lost_N, total, roles[id], seed))
        on_progress(number + 1, len(targets))
    return HeadEffects(sorted(found, key=lambda row: -row.lost))


def head_effect(
    pipeline: Pipeline, target: AblationTarget, lost_N: NDArray[np.int64], total: int, role: HeadStatistics, seed: int
) -> HeadEffect:
    low, high = bootstrap_interval(lost_N, seed)
    copying = copying_score(pipeline.model, target, seed)
    induction = induction_score(pipeline, target, seed) if target.part == "self_attention" else None
    return HeadEffect(target.id, target.title, int(lost_N.sum()), total, low, high, role.role, copying, induction)


def encoded_batches(pipeline: Pipeline, examples: Sequence[Any]) -> list[tuple[Inputs, Tensor, Tensor]]:
    """Batches with the correct next token at each position [B,T], and where there is one."""
    longest = min(LONGEST, pipeline.config.longest_text)
    rows = encode_examples(pipeline, examples, longest)
    found = []
    for start in range(0, len(rows), BATCH_SIZE):
        chunk = rows[start : start + BATCH_SIZE]
        inputs = collate_examples(pipeline, chunk)
        wanted_BT = torch.full_like(inputs.ids["decoder"], -1)
        for b, row in enumerate(chunk):
            targets = next_tokens(row)
            wanted_BT[b, : len(targets)] = torch.tensor(targets)
        found.append((inputs, wanted_BT, wanted_BT >= 0))
    return found


def next_tokens(row: EncodedExample) -> list[int]:
    return row.target_out or row.decoder[1:]


def correct_by_example(pipeline: Pipeline, batches: Sequence[tuple[Inputs, Tensor, Tensor]]) -> NDArray[np.int64]:
    """The number of correctly predicted tokens of each example."""
    counts = [
        ((pipeline.model(*inputs.arguments).argmax(-1) == wanted_BT) & is_target_BT).sum(1).cpu().numpy()
        for inputs, wanted_BT, is_target_BT in batches
    ]
    return np.concatenate(counts)


def bootstrap_interval(values_N: NDArray[np.int64], seed: int) -> tuple[float, float]:
    """The 95 % interval of the sum, over resampled examples."""
    draw = np.random.default_rng(seed)
    sums = [values_N[draw.integers(len(values_N), size=len(values_N))].sum() for _ in range(RESAMPLES)]
    low, high = np.quantile(sums, [0.025, 0.975])
    return float(low), float(high)


def copying_score(model: Any, target: AblationTarget, seed: int) -> float | None:
    """The share of tokens whose own logit the head raises more than nearly all others, if it attends to them alone.

    The token's embedding passes the norm before the layer, the head's value matrix and its slice of the output matrix.
    None if the head is not in the stack that the output reads, or if the output has other tokens than the input.
    """
    head = model.head
    if target.stack != stack_of(model) or not isinstance(head, LanguageHead):
        return None
    embedding: Any = model.source_embedding if target.part == "cross_attention" else own_embedding(model)
    attention = model.get_submodule(target.probe.removesuffix(".heads"))
    if not isinstance(attention, MultiHeadAttention) or embedding.tokens.weight.size(0) != head.weight.size(0):
        return None
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randperm(head.weight.size(0), generator=draw)[:SAMPLED_TOKENS].to(head.weight.device)
    x_1VD = embedding.tokens(ids[None])
    if target.part == "self_attention":
        x_1VD = norm_before(model, target)(x_1VD)
    value_1GVE = attention.split(attention.value(x_1VD))
    group = target.head * attention.n_kv_heads // attention.n_heads if target.head is not None else 0
    heads_1HVE = value_1GVE.new_zeros(1, attention.n_heads, len(ids), attention.d_head)
    nothing = attention.output(attention.merge(heads_1HVE[:, :, :1]))
    heads_1HVE[:, target.head] = value_1GVE[:, group]
    update_VD = (attention.output(attention.merge(heads_1HVE)) - nothing)[0]
    logits_VV = update_VD @ head.weight.T
    own_V = logits_VV.gather(1, ids[:, None])
    rank_V = (logits_VV >= own_V).double().mean(1)  # a head that writes nothing raises no token
    return float((rank_V <= max(TOP, 1 / logits_VV.size(1))).double().mean())


def own_embedding(model: Any) -> Any:
    """The embedding of the tokens that the model writes."""
    return model.target_embedding if hasattr(model, "target_embedding") else model.embedding


def norm_before(model: Any, target: AblationTarget) -> Callable[[Tensor], Tensor]:
    """The norm that a token passes before this self-attention; none for post-norm."""
    layer = model.get_submodule(f"{target.stack}.layers.{target.layer}")
    residual = getattr(layer, "self_attention_residual", None) or layer.residual
    norm: Callable[[Tensor], Tensor] = torch.nn.Identity() if isinstance(residual, PostNorm) else residual.norm
    return norm


def induction_score(pipeline: Pipeline, target: AblationTarget, seed: int) -> float | None:
    """The weight on the token after the earlier copy, on random tokens that are repeated. None for an encoder."""
    length = min(REPEATED, pipeline.config.longest_text // 2 - 1)
    if target.stack != "decoder" or hasattr(pipeline.model, "source_embedding") or length < 2:
        return None
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(len(pipeline.tokenizer.special_ids), pipeline.tokenizer.vocab_size, (1, length), generator=draw)
    bos = torch.tensor([[pipeline.tokenizer.bos]])
    probe = target.probe.removesuffix("heads") + "weights"
    with record_activations(pipeline.model, probe) as seen:
        pipeline.model(torch.cat([bos, ids, ids], dim=1).to(pipeline.device))
    weights_QK = seen[probe][0, target.head]
    queries = torch.arange(length + 1, 2 * length)  # the second copy; the token after the first copy is known
    return float(weights_QK[queries, queries - length + 1].mean())
