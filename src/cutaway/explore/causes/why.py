"""Why a model wrote one token and not another: every method for one margin, and one sentence that names the cause."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import torch
from torch import Tensor

from cutaway.errors import ConfigError
from cutaway.explore.ablation import ablate, ablation_targets
from cutaway.explore.causes.attribution import METHODS, Attribution, attribute
from cutaway.explore.causes.direct import direct_contributions
from cutaway.explore.causes.effects import margins_without
from cutaway.explore.causes.margin import Margin, Term, find_margin
from cutaway.explore.causes.patching import PatchedPath, Patching, patch_all, path_patch, prepare_other
from cutaway.explore.causes.tables import html_table
from cutaway.explore.lens import stack_of, stream_probes
from cutaway.explore.traced_example import TracedExample, prepare_example
from cutaway.explore.values import dumps
from cutaway.inference.pipelines import GenerationPipeline, Pipeline
from cutaway.nn.recording import record_activations

MATTERS = 0.05  # a change of the margin by less than this share of it is not named as a cause


@dataclass(frozen=True)
class Part:
    """A head or sub-layer: the change of the margin without it, and what it adds to the margin directly."""

    id: str
    title: str
    kind: str  # "head" or "sublayer"
    stack: str
    layer: int
    part: str
    head: int | None
    effect: float  # the margin without the part, minus the margin
    mean_effect: float | None  # the same with the part's mean output instead of zeros
    direct: float | None  # None for parts that the head does not read


@dataclass(frozen=True)
class Why:
    """The causes of one prediction.

    terms         what is explained, as ids
    step          the number of the first prediction that is explained
    token, rival  their names; of several, with spaces between them
    margin        logit(token) - logit(rival), or the sum of several
    attributions  for each method, a number for each token of the input
    parts         heads and sub-layers
    direct        part -> direct contribution, with "embedding" and "biases"; None: `no_direct` says why
    lens          (depth, the margin if the rest of the model were skipped), from the first layer to the last
    without       the output of the model without the most important head
    """

    text: str
    output: str
    task: str
    terms: tuple[Term, ...]
    step: int
    token: str
    rival: str
    margin: float
    source: list[str]
    target: list[str]
    attributions: list[Attribution]
    parts: list[Part]
    direct: dict[str, float] | None
    no_direct: str | None
    lens: list[tuple[str, float]]
    without: str | None

    @property
    def main_head(self) -> Part | None:
        """The head without which the margin falls most."""
        return min((part for part in self.parts if part.kind == "head"), key=lambda part: part.effect, default=None)

    @property
    def main_token(self) -> tuple[str, int, float] | None:
        """(side, position, effect) of the input token without which the margin falls most.

        Of a model with a source, it is a source token.
        """
        return self.strongest_token("source" if self.source else "target")

    def strongest_token(self, side: str) -> tuple[str, int, float] | None:
        names, effects = getattr(self, side), getattr(self.attribution("occlusion"), side)
        # <s> and </s> are left out: they are in every text
        values = [(side, i, effect) for i, effect in enumerate(effects) if names[i] not in ("<s>", "</s>")]
        return max(values, key=lambda value: value[2], default=None)

    def attribution(self, method: str) -> Attribution:
        return next(each for each in self.attributions if each.method == method)

    @property
    def sentence(self) -> str:
        """The most important token and head, by what the margin is without them."""
        prefers = "prefers" if self.margin > 0 else "does not prefer"
        several = "" if len(self.terms) == 1 else f", a sum over {len(self.terms)} tokens,"
        parts = [
            f"The model {prefers} “{self.token}” to “{self.rival}”: the margin{several} is {self.margin:+.2f} nats."
        ]
        parts += [self.sentence_about_tokens(), self.sentence_about_heads()]
        return " ".join(parts)

    def matters(self, effect: float) -> bool:
        return effect >= MATTERS * abs(self.margin)

    def sentence_about_tokens(self) -> str:
        token, written = self.main_token, self.strongest_token("target") if self.source else None
        least = 0.0 if token is None else token[2]
        if token is None or not self.matters(least):
            found = "No single token of the input matters for it."
        else:
            name = getattr(self, token[0])[token[1]]
            place = "image is patch" if self.task == "image_classification" else "text is"
            found = f"The cause in the {place} “{name}”: without it, the margin is {self.margin - least:+.2f}."
        if written is None or written[2] <= least or not self.matters(written[2]):
            return found
        without = f"without it, the margin is {self.margin - written[2]:+.2f}"
        return f"{found} In the output so far, “{self.target[written[1]]}” matters more: {without}."

    def sentence_about_heads(self) -> str:
        head = self.main_head
        if head is None or not self.matters(-head.effect):
            return "No single head matters for it."
        changed = "" if self.without in (None, self.output) else f", and the output is “{self.without}”"
        margin = f"{self.margin + head.effect:+.2f}"
        found = f"The most important head is {head.title}: without it, the margin is {margin}{changed}."
        if head.mean_effect is None:
            return found
        return (
            f"{found} With its mean over other texts in its place, the margin is {self.margin + head.mean_effect:+.2f}."
        )

    def as_json(self) -> dict[str, Any]:
        found = {**vars(self), "sentence": self.sentence}
        found["attributions"] = [{**vars(each), "gap": each.gap} for each in self.attributions]
        found["parts"] = [vars(part) for part in self.parts]
        found["terms"] = [vars(term) for term in self.terms]
        return found

    def to_json(self) -> str:
        return dumps(self.as_json())

    def _repr_html_(self) -> str:
        """For notebooks: the sentence, and the table of tokens."""
        rows = (
            [each.method.replace("_", " "), *(f"{value:+.2f}" for value in [*each.source, *each.target])]
            for each in self.attributions
        )
        return f"<p>{escape(self.sentence)}</p>{html_table(['', *self.source, *self.target], rows)}"


def why(
    pipeline: Pipeline,
    text: Any,
    token: str | int | Sequence[str | int] | None = None,
    rival: str | int | Sequence[str | int] | None = None,
    step: int | Sequence[int] | None = None,
    target: str | None = None,
    methods: Sequence[str] = tuple(METHODS),
    means: Mapping[str, Tensor] | None = None,
) -> Why:
    """Explain why the model wrote `token` and not `rival`.

    Without a token: the least certain one of the output. Without a rival: the most probable other token. Lists explain
    several tokens together. `target` sets the output that the model reads, `means` (causes/effects.py) adds ablation by
    the mean.
    """
    example = prepare_example(pipeline, text, target)
    return explain(pipeline, example, find_margin(pipeline, example, token, rival, step), methods, means)


def patch_texts(pipeline: Pipeline, text: Any, other: Any, found: Why) -> Patching:
    """Patch the run on `text` with values of `other`, for the margin of `found`. The decoder reads the same output."""
    return patch_all(pipeline.model, *prepare_both(pipeline, text, other, found), Margin(found.terms))


def trace_path(pipeline: Pipeline, text: Any, other: Any, found: Why, sender: str, receiver: str) -> PatchedPath:
    """How much of the difference to `other` moves directly from one part to a later one. Both have ids."""
    both = prepare_both(pipeline, text, other, found)
    return path_patch(pipeline.model, *both, Margin(found.terms), sender, receiver)


def prepare_both(pipeline: Pipeline, text: Any, other: Any, found: Why) -> tuple[TracedExample, TracedExample]:
    example = prepare_example(pipeline, text, found.output if isinstance(pipeline, GenerationPipeline) else None)
    return example, prepare_other(pipeline, example, other)


def explain(
    pipeline: Pipeline,
    example: TracedExample,
    margin: Margin,
    methods: Sequence[str] = tuple(METHODS),
    means: Mapping[str, Tensor] | None = None,
) -> Why:
    """All causes of a margin whose terms have rivals."""
    model, terms = pipeline.model, margin.terms
    read = example.until(max(term.step for term in terms))
    methods = ["occlusion", *(name for name in methods if name != "occlusion")]
    direct, no_direct = direct_or_reason(model, read, margin)
    lens = margin_lens(model, read, margin)
    found = Why(
        text=example.text,
        output=example.output,
        task=example.task,
        terms=terms,
        step=terms[0].step,
        token=" ".join(example.names([term.token for term in terms])),
        rival=" ".join(example.names([term.rival for term in terms if term.rival is not None])),
        margin=lens[-1][1],
        source=read.source,
        target=read.target_in,
        attributions=[attribute(model, read, margin, method) for method in methods],
        parts=measure_parts(model, read, margin, lens[-1][1], direct, means),
        direct=direct,
        no_direct=no_direct,
        lens=lens,
        without=None,
    )
    return dataclasses.replace(found, without=output_without(pipeline, example, found.main_head))


def direct_or_reason(model: Any, example: TracedExample, margin: Margin) -> tuple[dict[str, float] | None, str | None]:
    try:
        return direct_contributions(model, example, margin), None
    except ConfigError as error:  # the head is not linear, or layers share their weights
        return None, str(error)


def measure_parts(
    model: Any,
    example: TracedExample,
    margin: Margin,
    value: float,
    direct: Mapping[str, float] | None,
    means: Mapping[str, Tensor] | None,
) -> list[Part]:
    zero = margins_without(model, example, margin)
    mean = margins_without(model, example, margin, means) if means is not None else {}
    return [
        Part(
            **{name: getattr(each, name) for name in ("id", "title", "kind", "stack", "layer", "part", "head")},
            effect=zero[id] - value,
            mean_effect=mean[id] - value if id in mean else None,
            direct=(direct or {}).get(id),
        )
        for id, each in ablation_targets(model).items()
    ]


@torch.no_grad()
def margin_lens(model: Any, example: TracedExample, margin: Margin) -> list[tuple[str, float]]:
    """The margin read from the residual stream after each sub-layer; the last row is the margin itself."""
    streams = stream_probes(model, with_sublayers=True)
    norm = getattr(model, stack_of(model)).norm
    with record_activations(model, *streams.values()) as seen:
        logits = example.logits(model)
    rows = [
        (depth, margin.of(example.select_logits(model.head(norm(seen[name])))[None]).item())
        for depth, name in streams.items()
    ]
    return [*rows, ("output", margin.of(logits[None]).item())]


def output_without(pipeline: Pipeline, example: TracedExample, head: Part | None) -> str | None:
    """The model's own output without this head. None for an image, whose text is empty."""
    if head is None or not example.text:
        return None
    with ablate(pipeline.model, [head.id]):
        return prepare_example(pipeline, example.text, hidden=example.hidden).output
