"""The trace of one forward pass as plain data: tokens, attention weights, candidates of each step, logit lens.

trace(pipeline, "The small cat sleeps.") ──▶ Trace ──to_json──▶ a figure, the explorer page, another program
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
from cutaway.explore.lens import lens, stream_probes
from cutaway.explore.traced_example import TracedExample, prepare_example
from cutaway.explore.values import dumps
from cutaway.inference.pipelines import GenerationPipeline, Pipeline, Translator
from cutaway.nn.recording import record_activations

KINDS = {
    "encoder": "encoder.layers.{}.self_attention.weights",
    "decoder": "decoder.layers.{}.self_attention.weights",
    "cross": "decoder.layers.{}.cross_attention.weights",
}
MAX_WEIGHTS = 300_000  # above this number, only the largest weights of each row are stored
MIN_PER_ROW = 4
Kept = dict[str, float] | None
Weights = Any  # [H][Q][K]; for a long text {"shape": [H,Q,K], "columns": [H][Q][n], "values": [H][Q][n]}


@dataclass(frozen=True)
class Trace:
    """The forward pass of one text.

    source      the encoder's tokens, </s> at the end
    target_in   the decoder's input tokens
    target_out  the decoder's target tokens: target_in shifted by one
    attention   probe name -> weights [H][Q][K]; for a long text the largest of each row, see `kept`
    steps       for each prediction: the token, its probability and rank, and the other candidates
    lens        the prediction after each layer (explore/lens.py)
    log_p       log-probability of the whole answer, in nats
    """

    source: list[str]
    target_in: list[str]
    target_out: list[str]
    attention: dict[str, Weights]
    task: str = "translation"
    text: str = ""
    output: str = ""
    target_ids: list[int] = field(default_factory=list)
    prompt: int = 0  # number of tokens of target_out that belong to the prompt
    finished: bool = True
    kept: dict[str, float] | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    lens: dict[str, Any] | None = None
    log_p: float | None = None
    tags: list[dict[str, Any]] | None = None
    hidden: list[int] = field(default_factory=list)
    image: dict[str, Any] | None = None
    unknown: list[str] = field(default_factory=list)
    beam: dict[str, Any] | None = None  # the beam search tree, on request (explore/beam_tree.py)

    def to_json(self) -> str:
        return dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> Trace:
        return cls(**json.loads(text))

    def weights(self, kind: str, layer: int) -> NDArray[np.float64]:
        """The weights of one layer, [H, Q, K]; kind is "encoder", "decoder" or "cross". Weights not stored are 0."""
        return unpack_weights(self.attention[KINDS[kind].format(layer)])

    def n_layers(self, kind: str) -> int:
        return sum(KINDS[kind].format(i) in self.attention for i in range(len(self.attention)))

    def kinds(self) -> list[str]:
        """The kinds of attention that this model has."""
        return [kind for kind in KINDS if self.n_layers(kind)]

    def axes(self, kind: str) -> tuple[list[str], list[str]]:
        """The tokens of the rows (queries) and of the columns (keys)."""
        return {
            "encoder": (self.source, self.source),
            "decoder": (self.target_in, self.target_in),
            "cross": (self.target_out, self.source),
        }[kind]

    def _repr_html_(self) -> str:
        """For a notebook: input, output, and the sharpest head of the last kind of attention."""
        from cutaway.explore.charts import attention_chart

        summary = f"<p><b>{escape(self.text or ' '.join(self.source))}</b> → {escape(self.output)}</p>"
        kind = self.kinds()[-1] if self.kinds() else None
        if kind is None or max(map(len, self.axes(kind))) > 40:
            return summary
        layer, head = self.sharpest(kind)
        chart = attention_chart(self.weights(kind, layer)[head], *self.axes(kind), f"{kind} attention")
        return f"{summary}<p>{kind} attention, layer {layer}, head {head}</p>{chart}"

    def sharpest(self, kind: str) -> tuple[int, int]:
        """The layer and head with the highest mean of the largest weight per row."""
        sharpness = {
            (layer, head): float(weights_QK.max(axis=-1).mean())
            for layer in range(self.n_layers(kind))
            for head, weights_QK in enumerate(self.weights(kind, layer))
        }
        return max(sharpness, key=lambda position: sharpness[position])


def trace(
    pipeline: Pipeline,
    text: Any,
    target: str | None = None,
    prefix: Sequence[int] = (),
    hidden: Sequence[int] = (),
    decode: DecodeConfig | None = None,
    with_beam: bool = False,
) -> Trace:
    """Run a trained model of any task on a text (or an image) and record the trace.

    The arguments are those of `prepare_example`. `with_beam` adds the beam search tree, with the settings of the run.
    """
    found = trace_example(pipeline, prepare_example(pipeline, text, target, prefix, hidden, decode))
    return replace(found, beam=beam_search_tree(pipeline, text, prefix)) if with_beam else found


def beam_search_tree(pipeline: Pipeline, text: str, prefix: Sequence[int] = ()) -> dict[str, Any] | None:
    """The beam search tree with the run's settings; None for a model that generates no text."""
    if not isinstance(pipeline, GenerationPipeline):
        return None
    decode = pipeline.config.decode
    return beam_tree(pipeline, text, decode.beam_size, decode.length_penalty, prefix)


def trace_translation(translator: Translator, source: str, target: str | None = None) -> Trace:
    """Trace one sentence pair; without a target, the model's own translation."""
    return trace(translator, source, target)


@torch.no_grad()
def trace_example(pipeline: Pipeline, example: TracedExample) -> Trace:
    """Run the model on the example and record attention, candidates and the logit lens."""
    model = pipeline.model
    with record_activations(model, "*_attention.weights", *stream_probes(model).values()) as seen:
        logits = example.logits(model)
    attention, kept = pack_weights({name: value[0] for name, value in seen.items() if name.endswith(".weights")})
    check_numbers(logits)
    has_answers = example.task != "embedding"
    is_generated = example.task in ("translation", "language_model")
    axis = example.target_out or example.words or [example.source[i] for i in example.places or []] or [""]
    steps = candidates(example, logits)
    return Trace(
        source=example.source,
        target_in=example.target_in,
        target_out=example.target_out,
        attention=attention,
        task=example.task,
        text=example.text,
        output=example.output,
        target_ids=example.answers if is_generated else [],
        prompt=example.prompt,
        finished=example.finished,
        kept=kept,
        steps=steps,
        lens=lens(model, example, seen, axis) if has_answers else None,
        log_p=example.total_log_p(logits) if has_answers else None,
        tags=tags_of(example, steps),
        hidden=example.hidden,
        image=image_of(pipeline, example),
        unknown=[] if example.task == "image_classification" else pipeline.tokenizer.unknown(example.text),
    )


def trace_attention(pipeline: Pipeline, example: TracedExample) -> tuple[dict[str, Weights], Kept, list[float]]:
    """Only the attention weights and the log-probability of each answer, to compare snapshots."""
    with torch.no_grad(), record_activations(pipeline.model, "*_attention.weights") as seen:
        logits = example.logits(pipeline.model)
    check_numbers(logits)
    return *pack_weights({name: value[0] for name, value in seen.items()}), example.log_p(logits)


def check_numbers(logits: Tensor) -> None:
    """Raise DataError if the model has diverged."""
    if not logits.isfinite().all():
        raise DataError(
            "the model's logits are not finite: its training diverged, or its weights are damaged. "
            "Run cutaway trace to find the first bad value, or use an earlier checkpoint."
        )


def tags_of(example: TracedExample, steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    if example.task != "tagging":
        return None
    places = example.places or []
    return [
        {"word": word, "tag": step["token"], "p": step["p"], "at": place}
        for word, step, place in zip(example.words, steps, places, strict=True)
    ]


def image_of(pipeline: Pipeline, example: TracedExample) -> dict[str, Any] | None:
    if example.task != "image_classification":
        return None
    pixels = example.inputs[0][0].cpu().double().numpy().round(4).tolist()
    config = pipeline.config.model
    return {"pixels": pixels, "patch": config.patch_size, "class_token": config.pooling == "cls"}


def pack_weights(attention: Mapping[str, Tensor]) -> tuple[dict[str, Weights], Kept]:
    """Weights [H,Q,K] as lists. Above MAX_WEIGHTS, only the largest of each row, and their share of the row."""
    arrays = {name: weights.cpu().double().numpy() for name, weights in attention.items()}
    rows = sum(weights.shape[0] * weights.shape[1] for weights in arrays.values())
    if sum(weights.size for weights in arrays.values()) <= MAX_WEIGHTS:
        return {name: weights.round(4).tolist() for name, weights in arrays.items()}, None
    most = max(MIN_PER_ROW, MAX_WEIGHTS // rows)
    strongest = {name: strongest_columns(weights, most) for name, weights in arrays.items()}
    shares = np.concatenate([np.take_along_axis(arrays[n], c, -1).sum(-1).ravel() for n, c in strongest.items()])
    kept = {"per_row": most, "least": round(float(shares.min()), 4), "mean": round(float(shares.mean()), 4)}
    sparse = {
        name: {
            "shape": list(arrays[name].shape),
            "columns": columns.tolist(),
            "values": np.take_along_axis(arrays[name], columns, -1).round(4).tolist(),
        }
        for name, columns in strongest.items()
    }
    return sparse, kept


def strongest_columns(weights_HQK: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """The columns [H,Q,n] of the n largest weights of each row, in text order."""
    n = min(most, weights_HQK.shape[-1])
    return np.sort(np.argpartition(-weights_HQK, n - 1, axis=-1)[..., :n], axis=-1)


def unpack_weights(weights: Weights) -> NDArray[np.float64]:
    """The inverse of `pack_weights`: [H,Q,K], 0 where no weight is stored."""
    if not isinstance(weights, dict):
        return np.asarray(weights)
    whole = np.zeros(weights["shape"])
    np.put_along_axis(whole, np.asarray(weights["columns"]), np.asarray(weights["values"]), -1)
    return whole
