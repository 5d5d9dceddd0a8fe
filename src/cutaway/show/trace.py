"""A recorded run as plain data: which tokens went in and out, and who attended to whom on the way."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from cutaway.data.batching import collate_pairs
from cutaway.data.tasks import EncodedPair
from cutaway.nn.probe import recording
from cutaway.pipeline import Translator

KINDS = {
    "encoder": "encoder.layers.{}.self_attention.weights",
    "decoder": "decoder.layers.{}.self_attention.weights",
    "cross": "decoder.layers.{}.cross_attention.weights",
}


@dataclass(frozen=True)
class Trace:
    """One sentence on its way through the model.

    source      the tokens that the encoder read, </s> at the end
    target_in   the tokens that the decoder had read ...
    target_out  ... and those that it then had to say
    attention   probe name -> weights [H][Q][K]
    """

    source: list[str]
    target_in: list[str]
    target_out: list[str]
    attention: dict[str, list[list[list[float]]]]

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Trace:
        return cls(**json.loads(text))

    def weights(self, kind: str, layer: int) -> NDArray[np.float64]:
        """The weights of one layer, [H, Q, K]; kind is "encoder", "decoder" or "cross"."""
        return np.asarray(self.attention[KINDS[kind].format(layer)])

    def n_layers(self, kind: str) -> int:
        return sum(KINDS[kind].format(i) in self.attention for i in range(len(self.attention)))

    def axes(self, kind: str) -> tuple[list[str], list[str]]:
        """The names along the rows (who looks) and the columns (who is looked at)."""
        return {
            "encoder": (self.source, self.source),
            "decoder": (self.target_in, self.target_in),
            "cross": (self.target_out, self.source),
        }[kind]


@torch.no_grad()
def trace_translation(translator: Translator, source: str, target: str | None = None) -> Trace:
    """Run one pair through the model and keep what attention did. With no target, the model's own translation."""
    if target is None:
        target = translator.translate([source])[0]
    tokenizer = translator.tokenizer
    pair = EncodedPair(tokenizer.encode(source), tokenizer.encode(target))
    batch = collate_pairs([pair], tokenizer).to(translator.device)
    with recording(translator.model, "*.weights") as seen:
        translator.model(batch.source, batch.target_in)
    return Trace(
        source=tokenizer.tokens(batch.source[0].tolist()),
        target_in=tokenizer.tokens(batch.target_in[0].tolist()),
        target_out=tokenizer.tokens(batch.target_out[0].tolist()),
        attention={name: value[0].tolist() for name, value in seen.items()},
    )
