"""Leak check: find outputs that depend on positions which their masks exclude.

Each embedded position is replaced with noise in turn, and all outputs are computed again, in double precision. An
output may change only if the masks of all layers together allow it to depend on that position:

    layer 1   A ──▶ B          C depends on A after two layers, although C does not attend to A
    layer 2         B ──▶ C

Independent of the masks, a decoder must not depend on later tokens, and no output on padding or on other texts in the
batch. A model with such a leak has a low training loss and fails in use.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.errors import DataError
from cutaway.explore.inputs import SIDES, EncodedExample, Inputs, labels_of, padded_batch, single_batch
from cutaway.explore.masks import AttentionCall, record_masks
from cutaway.explore.values import finite
from cutaway.inference.pipelines import Pipeline
from cutaway.nn.recording import edit_activations

UNCHANGED = 1e-12  # smaller changes are rounding errors
SHOWN = 5  # leaks in `sentences`

# side -> the name of its embedding in an encoder-decoder, and in a model with one stack
EMBEDDINGS = {"encoder": ("source_embedding", "embedding"), "decoder": ("target_embedding", "embedding")}


@dataclass(frozen=True)
class Leak:
    """An output that changed although it must not."""

    output: str
    on: str  # the position that it depends on
    why: str  # why it must not
    change: float

    def __str__(self) -> str:
        return f"{self.output} depends on {self.on}, {self.why}: a change of {self.change:.1e}"


@dataclass
class LeakReport:
    """The result of all perturbations. A pair is an output and a changed position."""

    forbidden: int = 0  # pairs in which the output must not change
    allowed: int = 0  # pairs in which it may change
    greatest_forbidden: float = 0.0  # greatest change in a forbidden pair
    smallest_allowed: float = math.inf  # smallest nonzero change in an allowed pair
    unmoved: int = 0  # allowed pairs in which the output did not change
    leaks: list[Leak] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.leaks

    @property
    def moved(self) -> int:
        return self.allowed - self.unmoved

    def count(self, change: float, is_allowed: bool) -> None:
        if is_allowed:
            self.allowed += 1
            self.unmoved += change == 0
            self.smallest_allowed = min(self.smallest_allowed, change or math.inf)
        else:
            self.forbidden += 1
            self.greatest_forbidden = max(self.greatest_forbidden, change)

    def sentences(self) -> list[str]:
        summary = [
            f"{self.forbidden:,} pairs of an output and a position that it must not depend on: "
            f"the greatest change was {format_change(self.greatest_forbidden)}.",
            f"{self.allowed:,} pairs of an output and a position that it may depend on: "
            + (f"the smallest change was {self.smallest_allowed:.1e}" if self.moved else "nothing changed")
            + (f"; {self.unmoved:,} did not change." if self.moved and self.unmoved else "."),
        ]
        if self.ok:
            return [*summary, "Nothing leaks."]
        leaks = [f"LEAK: {leak}." for leak in self.leaks[:SHOWN]]
        more = len(self.leaks) - SHOWN
        return [*summary, *leaks, *([f"... and {more:,} more leaks."] if more > 0 else [])]

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "forbidden_pairs": self.forbidden,
            "greatest_forbidden_change": finite(self.greatest_forbidden),
            "allowed_pairs": self.allowed,
            "smallest_allowed_change": finite(self.smallest_allowed),
            "allowed_pairs_unmoved": self.unmoved,
            "leaks": [{**vars(leak), "change": finite(leak.change)} for leak in self.leaks],
        }

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences())


def format_change(change: float) -> str:
    return "exactly 0" if change == 0 else f"{change:.1e}"


def find_leaks(
    pipeline: Pipeline, example: EncodedExample | Any, on_progress: Callable[[float], None] | None = None
) -> LeakReport:
    """Check one encoded text, or one image: alone, and as the shorter one in a batch of two.

    `on_progress` is called with the share that is done.
    """
    pipeline = double_precision(pipeline)
    checks = [
        LeakCheck(pipeline, inputs, example)
        for inputs in (single_batch(pipeline, example), padded_batch(pipeline, example))
    ]
    total, done, report = sum(len(check.changes) for check in checks), 0, LeakReport()
    for check in checks:
        for change in check.changes:
            check.run(change, report)
            done += 1
            if on_progress:
                on_progress(done / total)
    return report


def double_precision(pipeline: Pipeline) -> Pipeline:
    """The pipeline with a copy of its model in double precision."""
    exact = copy.copy(pipeline)
    exact.engine = copy.copy(pipeline.engine)
    exact.engine.model = copy.deepcopy(pipeline.model).cpu().double().eval()
    return exact


@dataclass(frozen=True)
class Perturbation:
    """A change of the input: one position of the checked text, or the whole other text in the batch."""

    side: str
    place: int | None  # None: the other text

    def edit(self, value_BTD: Tensor) -> Tensor:
        """Replace the embedded values with noise that is large enough to have a visible effect."""
        noise_TD = 3 * torch.randn(value_BTD.shape[1:], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        value_BTD = value_BTD.clone()
        if self.place is None:
            value_BTD[1:] = noise_TD.to(value_BTD)
        else:
            value_BTD[0, self.place] = noise_TD[self.place].to(value_BTD)
        return value_BTD


class LeakCheck:
    """One batch: the outputs of its first text, and the positions that each output may depend on."""

    def __init__(self, pipeline: Pipeline, inputs: Inputs, example: Any):
        self.pipeline, self.model, self.inputs, self.example = pipeline, pipeline.model, inputs, example
        self.lengths = {side: int(is_token[0].sum()) for side, is_token in inputs.is_token.items()}
        with record_masks(self.model) as calls:
            self.before = self.outputs()
        if not all(value.isfinite().all() for value in self.before.values()):
            raise DataError(
                "the model's outputs are not finite, so leaks cannot be checked. Its training diverged; "
                "run cutaway trace to find the first bad value."
            )
        self.reach = closure(calls, {side: mask.size(1) for side, mask in inputs.is_token.items()})

    @property
    def changes(self) -> list[Perturbation]:
        sides = self.inputs.is_token
        found = [Perturbation(side, place) for side, mask in sides.items() for place in range(mask.size(1))]
        others = [Perturbation(side, None) for side, mask in sides.items() if len(mask) > 1]
        return found + others

    def run(self, change: Perturbation, report: LeakReport) -> None:
        """Apply the change, and compare each output of the first text with its value before."""
        with edit_activations(self.model, {f"{embedding_of(self.model, change.side)}.embedded": change.edit}):
            after = self.outputs()
        for name, value in after.items():
            if name == "answer" and self.is_inside(change):
                continue  # the answer may depend on any position of its own text
            # NaN counts as an infinite change
            differences = (value - self.before[name]).abs().amax(dim=-1).nan_to_num(nan=math.inf).tolist()
            for place in range(self.lengths.get(name, 1)):
                is_allowed, why = self.is_allowed(name, place, change)
                report.count(differences[place], is_allowed)
                if not is_allowed and differences[place] >= UNCHANGED:
                    output = self.output_name(name, place)
                    report.leaks.append(Leak(output, self.change_name(change), why, differences[place]))

    def outputs(self) -> dict[str, Tensor]:
        """The outputs of the first text: [T, D] of each stack, with the logits for the last one; "answer": [1, C]."""
        with torch.no_grad(), record_stacks(self.model) as stacks:
            logits = self.model(*self.inputs.arguments)[0]
        if logits.dim() == 1:
            return {**stacks, "answer": logits[None]}
        return {**stacks, list(stacks)[-1]: logits}

    def is_allowed(self, output: str, place: int, change: Perturbation) -> tuple[bool, str]:
        """Whether the output may depend on the changed position, and the reason if not."""
        if change.place is None:
            return False, "which must not matter"
        if not self.is_inside(change):
            return False, "which must be masked"
        reached = bool(self.reach[output][change.side][place, change.place])
        reason = "which the mask allows" if reached else "which the mask excludes"
        if output == change.side == "decoder" and change.place > place:
            return False, f"which comes later and {reason.removeprefix('which ')}"
        return reached, reason

    def is_inside(self, change: Perturbation) -> bool:
        return change.place is not None and change.place < self.lengths[change.side]

    def output_name(self, output: str, place: int) -> str:
        if output == "answer":
            return "the answer"
        what = "the memory" if output == "encoder" and "decoder" in self.lengths else "the output"
        return f"{what} at {self.token(output, place)!r} (position {place})"

    def change_name(self, change: Perturbation) -> str:
        if change.place is None:
            return "another text in the batch"
        if not self.is_inside(change):
            return f"the padding at position {change.place}"
        return f"{self.token(change.side, change.place)!r} (position {change.place})"

    def token(self, side: str, place: int) -> str:
        row = self.example if isinstance(self.example, EncodedExample) else None
        return labels_of(self.pipeline, row, side)[0][place]


def embedding_of(model: nn.Module, side: str) -> str:
    return next(name for name in EMBEDDINGS[side] if hasattr(model, name))


@contextmanager
def record_stacks(model: Any) -> Iterator[dict[str, Tensor]]:
    """Record the output [T, D] of the encoder and the decoder for the first text."""
    seen: dict[str, Tensor] = {}

    def hook_for(side: str) -> Any:
        def hook(stack: nn.Module, inputs: Any, output: Tensor) -> None:
            seen[side] = output[0]

        return hook

    sides = [side for side in EMBEDDINGS if hasattr(model, side)]
    hooks = [getattr(model, side).register_forward_hook(hook_for(side)) for side in sides]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


Reach = dict[str, dict[str, Tensor]]  # side of the output -> side of the input -> [T, T'] of bool


def closure(calls: Sequence[AttentionCall], lengths: dict[str, int]) -> Reach:
    """The positions that each output can depend on: the product of the masks of all attention layers."""
    reach = {
        side: {other: torch.eye(n, dtype=torch.bool) if other == side else torch.zeros(n, m, dtype=torch.bool)
               for other, m in lengths.items()}
        for side, n in lengths.items()
    }  # fmt: skip
    for call in calls:
        query_side, key_side = SIDES[call.kind]
        allowed_QK = call.allowed()[0].float().cpu()
        for side, reached in reach[key_side].items():
            reach[query_side][side] |= (allowed_QK @ reached.float()) > 0
    return reach
