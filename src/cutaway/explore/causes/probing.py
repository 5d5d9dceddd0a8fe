"""Linear probes: what of the grammar can be read from each layer of the encoder.

    probability(feature) = softmax(W x + b),  x: the residual stream at one source word

A probe is a linear classifier, trained on some sentences and tested on others. In "the small beach", the word "the"
does not show that "plage" is feminine. If a probe reads it there after a layer, the layer has moved it there from
"beach".

`control` is the same probe for random labels, one for each word of the vocabulary (Hewitt & Liang 2019): what a probe
can learn by heart about words. `majority` is the share of the most frequent value.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cutaway.data.builtin.tinyworld import AlignedPair
from cutaway.data.builtin.tinyworld.features import source_features
from cutaway.explore.alignment import words_of
from cutaway.explore.causes.grammar import require_tinyworld
from cutaway.explore.causes.tables import html_table
from cutaway.explore.lens import stream_probes
from cutaway.inference.pipelines import Pipeline, Translator
from cutaway.nn.recording import record_activations

TEST_SHARE = 0.3
MIN_TEST = 40  # test words, so that an accuracy means something
PENALTY, ITERATIONS = 1e-3, 60  # of the logistic regression (L2, L-BFGS)


@dataclass(frozen=True)
class ProbeResult:
    """The accuracy of one feature at one kind of word, by depth: "embedding", "layer 0", ..."""

    feature: str
    role: str
    accuracy: dict[str, float]
    control: dict[str, float]
    majority: float
    count: int  # test words


class ProbeResults(list[ProbeResult]):
    """The results of all probes; a notebook shows a table."""

    @property
    def header(self) -> list[str]:
        depths = list(self[0].accuracy) if self else []
        return ["word", "feature", *depths, "most frequent value", "test words"]

    def rows(self) -> Iterator[list[str]]:
        for each in self:
            accuracies = (f"{value:.0%}" for value in each.accuracy.values())
            yield [each.role, each.feature, *accuracies, f"{each.majority:.0%}", f"{each.count:,}"]

    def as_json(self) -> list[dict[str, Any]]:
        return [vars(each) for each in self]

    def _repr_html_(self) -> str:
        return html_table(self.header, self.rows())


class Word(NamedTuple):
    vectors: dict[str, Tensor]  # depth -> [D]
    name: str
    values: dict[str, str]
    is_test: bool


def probe_grammar(pipeline: Pipeline, pairs: Sequence[AlignedPair], seed: int = 0) -> ProbeResults:
    """Train and test a probe for each feature and each kind of word, on different sentences."""
    translator, direction = require_tinyworld(pipeline)
    words = read_words(translator, pairs, direction, random.Random(seed))
    found = ProbeResults()
    for role, chosen in words.items():
        for feature in sorted({name for word in chosen for name in word.values}):
            rows = [word for word in chosen if feature in word.values]
            if sum(word.is_test for word in rows) >= MIN_TEST and len({word.values[feature] for word in rows}) > 1:
                found.append(probe_feature(rows, feature, role, random.Random(seed)))
    return found


@torch.no_grad()
def read_words(
    translator: Translator, pairs: Sequence[AlignedPair], direction: str, draw: random.Random
) -> dict[str, list[Word]]:
    """The residual stream at each source word with known features, by part of speech."""
    streams = stream_probes(translator.model, "encoder")
    found: dict[str, list[Word]] = {}
    for pair in pairs:
        is_test = draw.random() < TEST_SHARE
        ids = torch.tensor([[*translator.tokenizer.encode(pair.source), translator.tokenizer.eos]])
        with record_activations(translator.model, *streams.values()) as seen:
            translator.model.encode(ids.to(translator.device))
        features = source_features(direction, pair)
        last_token = {word: t for t, word in enumerate(words_of(translator, pair).source) if word is not None}
        for number, t in last_token.items():
            if (of_word := features[number]) is not None:
                vectors = {depth: seen[name][0, t].float().cpu() for depth, name in streams.items()}
                word = Word(vectors, pair.source_words[number].lower(), of_word.values, is_test)
                found.setdefault(of_word.role, []).append(word)
    return found


def probe_feature(words: Sequence[Word], feature: str, role: str, draw: random.Random) -> ProbeResult:
    values = [word.values[feature] for word in words]
    kinds = sorted(set(values))
    by_name = {name: draw.choice(kinds) for name in sorted({word.name for word in words})}
    controls = [by_name[word.name] for word in words]
    is_test = torch.tensor([word.is_test for word in words])
    accuracy, control = {}, {}
    for depth in words[0].vectors:
        x_ND = torch.stack([word.vectors[depth] for word in words])
        accuracy[depth] = accuracy_of(x_ND, labels_of(values, kinds), is_test)
        control[depth] = accuracy_of(x_ND, labels_of(controls, kinds), is_test)
    tested = Counter(value for value, test in zip(values, is_test.tolist(), strict=True) if test)
    majority = max(tested.values()) / sum(tested.values())
    return ProbeResult(feature, role, accuracy, control, majority, int(is_test.sum()))


def labels_of(values: Sequence[str], kinds: Sequence[str]) -> Tensor:
    return torch.tensor([kinds.index(value) for value in values])


def accuracy_of(x_ND: Tensor, labels_N: Tensor, is_test: Tensor) -> float:
    """Fit a logistic regression to the training rows. -> its accuracy on the test rows"""
    train = ~is_test
    mean_D, std_D = x_ND[train].mean(0), x_ND[train].std(0).clamp(min=1e-6)
    x_ND = (x_ND - mean_D) / std_D
    linear = torch.nn.Linear(x_ND.size(1), int(labels_N.max()) + 1)
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    optimizer = torch.optim.LBFGS(linear.parameters(), max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Any:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(linear(x_ND[train]), labels_N[train])
        value = value + PENALTY * linear.weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    with torch.no_grad():
        return float((linear(x_ND[is_test]).argmax(1) == labels_N[is_test]).double().mean())
