"""A recorded run as plain data: what went in and out, who attended to whom, and what the model considered on the way.

trace(pipeline, "The small cat sleeps.") ──▶ Trace ──to_json──▶ a figure, a page in the browser, another program
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.config import DecodeConfig
from cutaway.errors import DataError
from cutaway.explore.beam_tree import beam_tree
from cutaway.explore.candidates import candidates
from cutaway.explore.lens import heights, lens
from cutaway.explore.question import Question, ask
from cutaway.explore.values import dumps
from cutaway.inference.pipelines import Pipeline, Translator, Writer
from cutaway.nn.recording import recording

KINDS = {
    "encoder": "encoder.layers.{}.self_attention.weights",
    "decoder": "decoder.layers.{}.self_attention.weights",
    "cross": "decoder.layers.{}.cross_attention.weights",
}
MANY = 300_000  # weights; of more than these the strongest are kept, a few in each row
FEWEST = 4  # ... but no fewer than these
Kept = dict[str, float] | None
Weights = Any  # [H][Q][K], or of a long text {"shape": [H,Q,K], "columns": [H][Q][n], "values": [H][Q][n]}


@dataclass(frozen=True)
class Trace:
    """One text on its way through the model.

    source      the tokens that the encoder read, </s> at the end
    target_in   the tokens that the decoder had read ...
    target_out  ... and those that it then had to say
    attention   probe name -> weights [H][Q][K]; of a long text the strongest of each row, and `kept` says so
    steps       for each thing that the model was asked: what it said, how likely that was, and what else it considered
    lens        what it would have said after each layer (explore/lens.py)
    log_p       how likely the whole answer is, in nats
    """

    source: list[str]
    target_in: list[str]
    target_out: list[str]
    attention: dict[str, Weights]
    task: str = "translation"
    text: str = ""
    output: str = ""
    target_ids: list[int] = field(default_factory=list)
    prompt: int = 0  # so many of target_out were given, not written
    finished: bool = True
    kept: dict[str, float] | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    lens: dict[str, Any] | None = None
    log_p: float | None = None
    tags: list[dict[str, Any]] | None = None
    hidden: list[int] = field(default_factory=list)
    image: dict[str, Any] | None = None
    unknown: list[str] = field(default_factory=list)
    beam: dict[str, Any] | None = None  # the tree of a beam search, on request (explore/beam_tree.py)

    def to_json(self) -> str:
        return dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> Trace:
        return cls(**json.loads(text))

    def weights(self, kind: str, layer: int) -> NDArray[np.float64]:
        """The weights of one layer, [H, Q, K]; kind is "encoder", "decoder" or "cross". What was not kept is 0."""
        return spread_out(self.attention[KINDS[kind].format(layer)])

    def n_layers(self, kind: str) -> int:
        return sum(KINDS[kind].format(i) in self.attention for i in range(len(self.attention)))

    def kinds(self) -> list[str]:
        """The kinds of attention that this model has."""
        return [kind for kind in KINDS if self.n_layers(kind)]

    def axes(self, kind: str) -> tuple[list[str], list[str]]:
        """The names along the rows (who looks) and the columns (who is looked at)."""
        return {
            "encoder": (self.source, self.source),
            "decoder": (self.target_in, self.target_in),
            "cross": (self.target_out, self.source),
        }[kind]

    def _repr_html_(self) -> str:
        """How a notebook shows it: what went in, what came out, and the sharpest head of the last kind there is."""
        from cutaway.explore.charts import attention_chart

        told = f"<p><b>{escape(self.text or ' '.join(self.source))}</b> → {escape(self.output)}</p>"
        kind = self.kinds()[-1] if self.kinds() else None
        if kind is None or max(map(len, self.axes(kind))) > 40:
            return told
        layer, head = self.sharpest(kind)
        chart = attention_chart(self.weights(kind, layer)[head], *self.axes(kind), f"{kind} attention")
        return f"{told}<p>{kind} attention, layer {layer}, head {head}</p>{chart}"

    def sharpest(self, kind: str) -> tuple[int, int]:
        """The layer and head that look at few tokens at a time."""
        sharpness = {
            (layer, head): float(weights_QK.max(axis=-1).mean())
            for layer in range(self.n_layers(kind))
            for head, weights_QK in enumerate(self.weights(kind, layer))
        }
        return max(sharpness, key=lambda place: sharpness[place])


def trace(
    pipeline: Pipeline,
    text: Any,
    target: str | None = None,
    prefix: Sequence[int] = (),
    hidden: Sequence[int] = (),
    decode: DecodeConfig | None = None,
    with_beam: bool = False,
) -> Trace:
    """Put a text (or an image) to a trained model of any task, and keep what happened. Arguments as in `ask`.

    `with_beam`: with the whole tree of a beam search for it, by the settings of the run.
    """
    found = trace_question(pipeline, ask(pipeline, text, target, prefix, hidden, decode))
    return replace(found, beam=tree_of(pipeline, text, prefix)) if with_beam else found


def tree_of(pipeline: Pipeline, text: str, prefix: Sequence[int] = ()) -> dict[str, Any] | None:
    """The beam search of a writer with the run's settings; None of models that write nothing."""
    if not isinstance(pipeline, Writer):
        return None
    decode = pipeline.config.decode
    return beam_tree(pipeline, text, decode.beam_size, decode.length_penalty, prefix)


def trace_translation(translator: Translator, source: str, target: str | None = None) -> Trace:
    """Run one pair through the model and keep what attention did. With no target, the model's own translation."""
    return trace(translator, source, target)


@torch.no_grad()
def trace_question(pipeline: Pipeline, question: Question) -> Trace:
    """What goes on in the model while it answers."""
    model = pipeline.model
    with recording(model, "*_attention.weights", *heights(model).values()) as seen:
        logits = question.logits(model)
    attention, kept = packed({name: value[0] for name, value in seen.items() if name.endswith(".weights")})
    check_numbers(logits)
    answers = question.task != "embedding"
    is_written = question.task in ("translation", "language_model")
    axis = question.target_out or question.words or [question.source[i] for i in question.places or []] or [""]
    steps = candidates(question, logits)
    return Trace(
        source=question.source,
        target_in=question.target_in,
        target_out=question.target_out,
        attention=attention,
        task=question.task,
        text=question.text,
        output=question.output,
        target_ids=question.answers if is_written else [],
        prompt=question.prompt,
        finished=question.finished,
        kept=kept,
        steps=steps,
        lens=lens(model, question, seen, axis) if answers else None,
        log_p=question.total_log_p(logits) if answers else None,
        tags=tags_of(question, steps),
        hidden=question.hidden,
        image=image_of(pipeline, question),
        unknown=[] if question.task == "image_classification" else pipeline.tokenizer.unknown(question.text),
    )


def attention_of(pipeline: Pipeline, question: Question) -> tuple[dict[str, Weights], Kept, list[float]]:
    """Only who attended to whom, and how likely each answer was: what is compared between snapshots."""
    with torch.no_grad(), recording(pipeline.model, "*_attention.weights") as seen:
        logits = question.logits(pipeline.model)
    check_numbers(logits)
    return *packed({name: value[0] for name, value in seen.items()}), question.log_p(logits)


def check_numbers(logits: Tensor) -> None:
    """What a diverged model says is not worth a picture."""
    if not logits.isfinite().all():
        raise DataError(
            "the model's logits are not finite numbers: its training has diverged, or its weights are damaged. "
            "cutaway trace shows where it begins; take the weights of an earlier checkpoint."
        )


def tags_of(question: Question, steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    if question.task != "tagging":
        return None
    places = question.places or []
    return [
        {"word": word, "tag": step["token"], "p": step["p"], "at": place}
        for word, step, place in zip(question.words, steps, places, strict=True)
    ]


def image_of(pipeline: Pipeline, question: Question) -> dict[str, Any] | None:
    if question.task != "image_classification":
        return None
    pixels = question.inputs[0][0].double().cpu().numpy().round(3).tolist()
    config = pipeline.config.model
    return {"pixels": pixels, "patch": config.patch_size, "class_token": config.pooling == "cls"}


def packed(attention: Mapping[str, Tensor]) -> tuple[dict[str, Weights], Kept]:
    """Weights [H,Q,K] as lists. If they are too many, the strongest of each row alone, and what these amount to."""
    arrays = {name: weights.double().cpu().numpy() for name, weights in attention.items()}
    rows = sum(weights.shape[0] * weights.shape[1] for weights in arrays.values())
    if sum(weights.size for weights in arrays.values()) <= MANY:
        return {name: weights.round(4).tolist() for name, weights in arrays.items()}, None
    most = max(FEWEST, MANY // rows)
    strongest = {name: strongest_of(weights, most) for name, weights in arrays.items()}
    shares = np.concatenate([np.take_along_axis(arrays[n], c, -1).sum(-1).ravel() for n, c in strongest.items()])
    kept = {"per_row": most, "least": round(float(shares.min()), 4), "mean": round(float(shares.mean()), 4)}
    told = {
        name: {
            "shape": list(arrays[name].shape),
            "columns": columns.tolist(),
            "values": np.take_along_axis(arrays[name], columns, -1).round(4).tolist(),
        }
        for name, columns in strongest.items()
    }
    return told, kept


def strongest_of(weights_HQK: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """The columns [H,Q,n] of the n greatest weights of each row, in the order of the text."""
    n = min(most, weights_HQK.shape[-1])
    return np.sort(np.argpartition(-weights_HQK, n - 1, axis=-1)[..., :n], axis=-1)


def spread_out(weights: Weights) -> NDArray[np.float64]:
    """The way back from `packed`: [H,Q,K], 0 where nothing was kept."""
    if not isinstance(weights, dict):
        return np.asarray(weights)
    whole = np.zeros(weights["shape"])
    np.put_along_axis(whole, np.asarray(weights["columns"]), np.asarray(weights["values"]), -1)
    return whole
