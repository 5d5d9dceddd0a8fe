"""Does anything leak? Proved by perturbation, in double precision, on the model itself.

The embedded value of each position is changed in turn, and all outputs are computed again. An output may change only
if it may depend on that position. Whether it may follows from the masks that the model hands to its attention, closed
over its layers: what a token reads, it passes on to those who read it.

    layer 1   A ──▶ B          A's value reaches C in two layers, though C never looks at A
    layer 2         B ──▶ C

And whatever its masks say, a decoder must not depend on what comes later, nor any output on padding or on another text
of the batch: a model that does would look good in training and be of no use.
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

UNCHANGED = 1e-12  # a change below this is rounding: no more than other sums in another order
SHOWN = 5  # leaks that are told in words

# side -> its embedding, in a model with both sides and in one with a single one
EMBEDDINGS = {"encoder": ("source_embedding", "embedding"), "decoder": ("target_embedding", "embedding")}


@dataclass(frozen=True)
class Leak:
    """An output that changed although it must not."""

    output: str  # in words, as the next two
    on: str
    why: str
    change: float

    def __str__(self) -> str:
        return f"{self.output} depends on {self.on}, {self.why}: a change of {self.change:.1e}"


@dataclass
class LeakReport:
    """What the perturbations showed. A pair is an output, and a position that was changed."""

    forbidden: int = 0  # pairs of which the output must not change
    allowed: int = 0  # pairs of which it may
    greatest_forbidden: float = 0.0  # the greatest change among the first
    smallest_allowed: float = math.inf  # the smallest among the others, of those that changed
    unmoved: int = 0  # of those that may change and did not
    leaks: list[Leak] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.leaks

    @property
    def moved(self) -> int:
        return self.allowed - self.unmoved

    def count(self, change: float, may: bool) -> None:
        if may:
            self.allowed += 1
            self.unmoved += change == 0
            self.smallest_allowed = min(self.smallest_allowed, change or math.inf)
        else:
            self.forbidden += 1
            self.greatest_forbidden = max(self.greatest_forbidden, change)

    def sentences(self) -> list[str]:
        said = [
            f"{self.forbidden:,} pairs of an output and a position on which it must not depend were checked: "
            f"the greatest change was {format_change(self.greatest_forbidden)}.",
            f"In the {self.allowed:,} pairs where an output may depend on the position, "
            + (f"the smallest change was {self.smallest_allowed:.1e}" if self.moved else "nothing changed")
            + (f"; {self.unmoved:,} did not change at all." if self.moved and self.unmoved else "."),
        ]
        if self.ok:
            return [*said, "Nothing leaks."]
        told_leaks = [f"LEAK: {leak}." for leak in self.leaks[:SHOWN]]
        more = len(self.leaks) - SHOWN
        return [*said, *told_leaks, *([f"... and {more:,} leaks more."] if more > 0 else [])]

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
    return "0: not one bit" if change == 0 else f"{change:.1e}"


def find_leaks(
    pipeline: Pipeline, example: EncodedExample | Any, on_progress: Callable[[float], None] | None = None
) -> LeakReport:
    """Check one text, as a Row of ids, or one picture: by itself, and as the shorter one in a batch of two.

    `on_progress` is called now and then with how much is done.
    """
    pipeline = in_double(pipeline)
    setups = [
        LeakCheck(pipeline, inputs, example)
        for inputs in (single_batch(pipeline, example), padded_batch(pipeline, example))
    ]
    steps, done, report = sum(len(setup.changes) for setup in setups), 0, LeakReport()
    for setup in setups:
        for change in setup.changes:
            setup.check(change, report)
            done += 1
            if on_progress:
                on_progress(done / steps)
    return report


def in_double(pipeline: Pipeline) -> Pipeline:
    """The same with a copy of the model in double precision."""
    exact = copy.copy(pipeline)
    exact.engine = copy.copy(pipeline.engine)
    exact.engine.model = copy.deepcopy(pipeline.model).double().eval()
    return exact


@dataclass(frozen=True)
class Perturbation:
    """What is changed: one place of the text that is looked at, or all of another text in the batch."""

    side: str
    place: int | None  # None: the other text, as a whole

    def edit(self, value_BTD: Tensor) -> Tensor:
        """Random numbers in its place; large ones, so that what they change can be seen."""
        noise_TD = 3 * torch.randn(value_BTD.shape[1:], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        value_BTD = value_BTD.clone()
        if self.place is None:
            value_BTD[1:] = noise_TD.to(value_BTD)
        else:
            value_BTD[0, self.place] = noise_TD[self.place].to(value_BTD)
        return value_BTD


class LeakCheck:
    """A model with one input: what it says to it, and what each output may depend on. All of the first text."""

    def __init__(self, pipeline: Pipeline, inputs: Inputs, example: Any):
        self.pipeline, self.model, self.inputs, self.example = pipeline, pipeline.model, inputs, example
        self.lengths = {side: int(is_token[0].sum()) for side, is_token in inputs.is_token.items()}
        with record_masks(self.model) as calls:
            self.before = self.outputs()
        if not all(value.isfinite().all() for value in self.before.values()):
            raise DataError(
                "the model's outputs are not finite numbers, so nothing can be said about what changes them. Its "
                "training has diverged; cutaway trace shows where it begins."
            )
        self.reach = closure(calls, {side: mask.size(1) for side, mask in inputs.is_token.items()})

    @property
    def changes(self) -> list[Perturbation]:
        sides = self.inputs.is_token
        found = [Perturbation(side, place) for side, mask in sides.items() for place in range(mask.size(1))]
        others = [Perturbation(side, None) for side, mask in sides.items() if len(mask) > 1]
        return found + others

    def check(self, change: Perturbation, report: LeakReport) -> None:
        """Change one thing, and compare each output of the first text with what it was."""
        with edit_activations(self.model, {f"{embedding_of(self.model, change.side)}.embedded": change.edit}):
            after = self.outputs()
        for name, value in after.items():
            if name == "answer" and self.is_inside(change):
                continue  # what of the text itself an answer reads is for its pooling to decide
            # what is no number is a change without end
            differences = (value - self.before[name]).abs().amax(dim=-1).nan_to_num(nan=math.inf).tolist()
            for place in range(self.lengths.get(name, 1)):
                may, why = self.may(name, place, change)
                report.count(differences[place], may)
                if not may and differences[place] >= UNCHANGED:
                    report.leaks.append(Leak(self.said(name, place), self.named(change), why, differences[place]))

    def outputs(self) -> dict[str, Tensor]:
        """Of the first text: what each stack gives [T, D], but of the last one the logits; of a whole text [1, C]."""
        with torch.no_grad(), record_stacks(self.model) as stacks:
            logits = self.model(*self.inputs.arguments)[0]
        if logits.dim() == 1:
            return {**stacks, "answer": logits[None]}
        return {**stacks, list(stacks)[-1]: logits}

    def may(self, output: str, place: int, change: Perturbation) -> tuple[bool, str]:
        """Whether an output may depend on what is changed; if not, why not."""
        if change.place is None:
            return False, "which is none of its business"
        if not self.is_inside(change):
            return False, "which nobody may see"
        reached = bool(self.reach[output][change.side][place, change.place])
        how = "the mask lets it pass" if reached else "in spite of the mask"
        if output == change.side == "decoder" and change.place > place:
            return False, f"which comes later; {how}"
        return reached, how

    def is_inside(self, change: Perturbation) -> bool:
        return change.place is not None and change.place < self.lengths[change.side]

    def said(self, output: str, place: int) -> str:
        if output == "answer":
            return "the answer"
        what = "the memory" if output == "encoder" and "decoder" in self.lengths else "the output"
        return f"{what} at {self.token(output, place)!r} (place {place})"

    def named(self, change: Perturbation) -> str:
        if change.place is None:
            return "another text of the batch"
        if not self.is_inside(change):
            return f"the padding at place {change.place}"
        return f"{self.token(change.side, change.place)!r} (place {change.place})"

    def token(self, side: str, place: int) -> str:
        return labels_of(self.pipeline, self.example if isinstance(self.example, EncodedExample) else None, side)[0][
            place
        ]


def embedding_of(model: nn.Module, side: str) -> str:
    return next(name for name in EMBEDDINGS[side] if hasattr(model, name))


@contextmanager
def record_stacks(model: Any) -> Iterator[dict[str, Tensor]]:
    """What the encoder and the decoder give for the first text, [T, D] each."""
    seen: dict[str, Tensor] = {}

    def hook_for(side: str) -> Any:
        def note(stack: nn.Module, given: Any, output: Tensor) -> None:
            seen[side] = output[0]

        return note

    sides = [side for side in EMBEDDINGS if hasattr(model, side)]
    hooks = [getattr(model, side).register_forward_hook(hook_for(side)) for side in sides]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


Reach = dict[str, dict[str, Tensor]]  # side of an output -> side of an input -> [T, T'] of bool


def closure(calls: Sequence[AttentionCall], lengths: dict[str, int]) -> Reach:
    """Which embedded positions each output can depend on, by the masks of all attentions one after the other."""
    reach = {
        side: {of: torch.eye(n, dtype=torch.bool) if of == side else torch.zeros(n, m, dtype=torch.bool)
               for of, m in lengths.items()}
        for side, n in lengths.items()
    }  # fmt: skip
    for call in calls:
        looking, looked_at = SIDES[call.kind]
        allowed_QK = call.allowed()[0].float().cpu()
        for of, reached in reach[looked_at].items():
            passed_on = (allowed_QK @ reached.float()) > 0
            reach[looking][of] = reach[looking][of] | passed_on
    return reach
