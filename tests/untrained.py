"""Untrained pipelines of every task, and an example with alignment and heads."""

from __future__ import annotations

from helpers import perturbed_model, tiny_of

from cutaway.config import Config, DataConfig
from cutaway.data.tokenizer import Tokenizer
from cutaway.inference.engines.torch_engine import TorchEngine
from cutaway.inference.pipelines import KINDS

TEXTS = ["a b c d e f g h , .", "b a , c .", "d e f g h a b"]


def untrained_pipeline(family="encoder_decoder", seed=0, **changes):
    """A pipeline with random weights. Its tokenizer knows the letters a to h, the comma and the full stop."""
    has_mask = family == "encoder" and changes.get("head", "language") == "language"
    tokenizer = None if family == "vision" else Tokenizer.train(TEXTS, "word", 40, has_mask)
    sizes = {} if tokenizer is None else {"vocab_size": tokenizer.vocab_size}
    model = tiny_of(family, **sizes, **changes)
    texts = {"corpus": "reverse", "tokenizer": "word", "max_tokens": 30}
    config = Config(model=model, data=DataConfig(**(texts if tokenizer else {"corpus": "digits"}), heldout_size=12))
    kind = next(kind for kind in KINDS if model.task in kind.tasks)
    labels = [f"label {i}" for i in range(model.n_classes)]
    return kind(TorchEngine(perturbed_model(model, seed)), tokenizer, config, labels)


class AlignedExample:
    """A pair with alignment and syntactic heads: the target reverses the source; each word depends on its neighbour."""

    def __init__(self, source="a b c ,", target="c b a"):
        self.source, self.target = source, target
        self.source_words, self.target_words = tuple(source.split()), tuple(target.split())
        places = {word: place for place, word in enumerate(self.source_words)}
        self.alignment = tuple((places[word], t) for t, word in enumerate(self.target_words) if word in places)
        self.source_heads = (*range(1, len(self.source_words)), -1)
        self.target_heads = (-1, *range(len(self.target_words) - 1))
