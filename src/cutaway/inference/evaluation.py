"""Evaluate a run, and compare it with a simple baseline on the same data.

task                    figures                                   baseline
translation             BLEU, chrF, exact match, perplexity       word for word, with a dictionary from the alignments
language_model          perplexity, bits per character, accuracy  a bigram model of the same tokens
masked_language_model   perplexity, accuracy of hidden tokens     the same bigram model
classification          accuracy, F1; both of each class          logistic regression on words and pairs of words
tagging                 accuracy, F1; both of each tag; span F1   the most frequent tag of each word
image_classification    accuracy, F1; both of each class          a small neural network on the pixels

The setting data.too_long decides about test examples that are too long: they are cut, left out, or raise an error. Cut
means that a classifier reads the start of the text, and a tagger reads all of it in several parts. The figures include
the number of such examples.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from cutaway.config import DecodeConfig
from cutaway.data.batching import TextBatch, evaluation_batches
from cutaway.data.builtin import SentencePair
from cutaway.data.prepare import filter_examples
from cutaway.data.scorable import fit_to_model
from cutaway.data.tasks import TASKS, Encoding, load_split, word_splitter
from cutaway.inference.pipelines import Classifier, Pipeline, Tagger, Translator
from cutaway.metrics.baselines import (
    Bigram,
    most_frequent_tags,
    nearest_neighbour,
    small_mlp,
    word_for_word,
    words_and_marks,
    words_and_pairs,
)
from cutaway.metrics.classes import Confusion, accuracy, has_spans, span_f1, span_scores
from cutaway.metrics.scores import bleu, chrf, exact_match, perplexity
from cutaway.train.objectives import OBJECTIVES, measure
from cutaway.train.observers import ValidationResult

Figures = dict[str, float]

# Limits on the training data of the baselines, so that they take at most a minute or two.
MAX_CHARACTERS = 20_000_000
MAX_PIXELS = 40_000_000


class Baseline(NamedTuple):
    """The figures of a simple method."""

    name: str
    figures: Figures
    note: str = ""  # the amount of training data, if not all of it


@dataclass(frozen=True)
class Evaluation:
    """Scores of a translator on a set of pairs. Rates are from 0 to 1; BLEU and chrF from 0 to 100."""

    translations: list[str]
    sentences: int
    bleu: float
    chrf: float
    exact_match: float
    perplexity: float
    bleu_signature: str
    chrf_signature: str

    def numbers(self) -> dict[str, Any]:
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in ("translations", "sentences")}


def evaluate_run(
    pipeline: Pipeline, examples: Sequence[Any], decode: DecodeConfig | None = None, **bleu_options: Any
) -> dict[str, Any]:
    """The figures of a run on these examples, by name. `bleu_options`: see metrics/scores.py."""
    examples, counts = select_scorable(pipeline, examples)
    if isinstance(pipeline, Translator):
        found = evaluate_pairs(pipeline, examples, decode or pipeline.config.decode, **bleu_options).numbers()
    else:
        found = EVALUATE[pipeline.config.model.task](pipeline, examples)
    return found | counts


def select_scorable(pipeline: Pipeline, examples: Sequence[Any]) -> tuple[Sequence[Any], dict[str, int]]:
    """The examples that can be scored, and how many were too long, as {"cut": n} or {"left_out": n}."""
    has_images = pipeline.config.model.family == "vision"
    return fit_to_model(pipeline.config, None if has_images else pipeline.tokenizer, examples)


def evaluate_pairs(
    translator: Translator, pairs: Sequence[SentencePair], decode: DecodeConfig, **bleu_options: Any
) -> Evaluation:
    translations = translator.translate([pair.source for pair in pairs], decode)
    references = [pair.target for pair in pairs]
    bleu_score, chrf_score = bleu(translations, references, **bleu_options), chrf(translations, references)
    return Evaluation(
        translations=translations,
        sentences=len(pairs),
        bleu=bleu_score.value,
        chrf=chrf_score.value,
        exact_match=exact_match(translations, references),
        perplexity=perplexity(measure_nll(translator, pairs).nll),
        bleu_signature=bleu_score.signature,
        chrf_signature=chrf_score.signature,
    )


def measure_nll(pipeline: Pipeline, examples: Sequence[Any]) -> ValidationResult:
    """Loss and accuracy of the model on the references, per token."""
    config, task = pipeline.config, pipeline.config.model.task
    batches = evaluation_batches(
        encode_examples(pipeline, examples), task, pipeline.tokenizer, config.data.batch_tokens
    )
    return measure(pipeline.model, OBJECTIVES[task], batches)


def encode_examples(pipeline: Pipeline, examples: Sequence[Any]) -> Sequence[Any]:
    """Encode as in training, but with texts as long as the model can read."""
    config, task = pipeline.config, pipeline.config.model.task
    cut = task in ("language_model", "masked_language_model")
    limit = config.data.max_tokens if cut else config.longest_text
    encoding = Encoding(pipeline.tokenizer, pipeline.labels, limit)
    return filter_examples(TASKS[task].encode(examples, encoding), limit).kept


def evaluate_texts(pipeline: Pipeline, texts: Sequence[str]) -> Figures:
    """Bits per character compares models with different tokenizers."""
    nll, token_accuracy, *_ = measure_nll(pipeline, texts)
    tokens = sum(len(chunk.ids) - 1 for chunk in encode_examples(pipeline, texts))
    bits = nll * tokens / math.log(2) / sum(map(len, texts))
    return {"perplexity": perplexity(nll), "bits_per_character": bits, "accuracy": token_accuracy}


def evaluate_masked(pipeline: Pipeline, texts: Sequence[str]) -> Figures:
    nll, token_accuracy, *_ = measure_nll(pipeline, texts)
    return {"perplexity": perplexity(nll), "accuracy": token_accuracy}


def evaluate_classes(classifier: Classifier, examples: Sequence[Any]) -> dict[str, Any]:
    rows = classifier.probabilities([content_of(example) for example in examples])
    predicted = [max(zip(row, classifier.labels, strict=True))[1] for row in rows]
    return class_figures(predicted, [example.label for example in examples])


def class_figures(predicted: Sequence[str], gold: Sequence[str]) -> dict[str, Any]:
    """Scores over all classes, for each class, and the confusion matrix."""
    confusion = Confusion.of(predicted, gold)
    scores = confusion.scores()
    return {
        "accuracy": accuracy(predicted, gold),
        "macro_f1": sum(score.f1 for score in scores.values()) / len(scores),
        "classes": {label: score._asdict() for label, score in scores.items()},
        "confusion": {"labels": confusion.labels, "counts": confusion.counts.tolist()},
    }


def scalar_figures(figures: Mapping[str, Any]) -> Figures:
    """The figures that are single numbers."""
    return {name: value for name, value in figures.items() if isinstance(value, float)}


def content_of(example: Any) -> Any:
    return example.text if hasattr(example, "text") else example.pixels


def evaluate_tags(tagger: Tagger, examples: Sequence[Any]) -> dict[str, Any]:
    return tag_figures(tagger.tag([example.words for example in examples]), [example.tags for example in examples])


def tag_figures(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, Any]:
    figures = class_figures(list(chain(*predicted)), list(chain(*gold)))
    if has_spans(chain(*gold)):
        figures["span_f1"] = span_f1(predicted, gold).f1
        figures["spans"] = {label: score._asdict() for label, score in span_scores(predicted, gold).items()}
    return figures


EVALUATE: dict[str, Callable[[Any, Sequence[Any]], dict[str, Any]]] = {
    "language_model": evaluate_texts,
    "masked_language_model": evaluate_masked,
    "classification": evaluate_classes,
    "image_classification": evaluate_classes,
    "tagging": evaluate_tags,
}


def baseline(pipeline: Pipeline, examples: Sequence[Any]) -> Baseline | None:
    """The figures of a simple method with the same training data, on the same examples; None if there is none."""
    config, task = pipeline.config, pipeline.config.model.task
    examples, _ = select_scorable(pipeline, examples)
    train = load_split(config.data, task, "train")
    if task == "translation":
        aligned = hasattr(train[0], "alignment") and hasattr(examples[0], "alignment")  # a file has no alignments
        return word_for_word_baseline(train, examples) if aligned else None
    return BASELINES[task](pipeline, train, examples)


def word_for_word_baseline(train: Sequence[Any], examples: Sequence[Any]) -> Baseline:
    translations = word_for_word(train, [pair.source_words for pair in examples])
    references = [pair.target for pair in examples]
    figures = {"bleu": bleu(translations, references).value, "chrf": chrf(translations, references).value}
    return Baseline("word for word", {**figures, "exact_match": exact_match(translations, references)})


def bigram_baseline(pipeline: Pipeline, train: Sequence[str], texts: Sequence[str]) -> Baseline:
    ids = [np.asarray(chunk.ids) for chunk in encode_examples(pipeline, texts)]
    previous, targets = np.concatenate([i[:-1] for i in ids]), np.concatenate([i[1:] for i in ids])
    figures = bigram_figures(fit_bigram(pipeline, train), previous, targets)
    bits = math.log2(figures["perplexity"]) * len(targets) / sum(map(len, texts))
    return Baseline("bigram model", {**figures, "bits_per_character": bits})


def masked_bigram_baseline(pipeline: Pipeline, train: Sequence[str], texts: Sequence[str]) -> Baseline:
    """Scores on the masked tokens. The bigram model sees the true token before each of them."""
    batches = evaluation_batches(
        encode_examples(pipeline, texts), "masked_language_model", pipeline.tokenizer, pipeline.config.data.batch_tokens
    )
    previous, targets = [], []
    for batch in batches:
        assert isinstance(batch, TextBatch)
        target_mask = batch.target_mask.numpy()
        targets.append(batch.targets.numpy()[target_mask])
        previous.append(batch.targets.roll(1, dims=1).numpy()[target_mask])
    figures = bigram_figures(fit_bigram(pipeline, train), np.concatenate(previous), np.concatenate(targets))
    return Baseline("bigram model", figures)


def fit_bigram(pipeline: Pipeline, train: Sequence[str]) -> Bigram:
    return Bigram([chunk.ids for chunk in encode_examples(pipeline, train)], pipeline.tokenizer.vocab_size)


def bigram_figures(bigram: Bigram, previous: Any, targets: Any) -> Figures:
    return {
        "perplexity": perplexity(float(bigram.nll(previous, targets).mean())),
        "accuracy": float((bigram.best(previous) == targets).mean()),
    }


def tfidf_baseline(pipeline: Pipeline, train: Sequence[Any], examples: Sequence[Any]) -> Baseline:
    chosen = subsample(train, [len(example.text) for example in train], MAX_CHARACTERS)
    data = pipeline.config.data
    predicted = words_and_pairs(
        [example.text for example in chosen],
        [example.label for example in chosen],
        [example.text for example in examples],
        word_splitter(data) if data.corpus else words_and_marks,
    )
    return make_baseline("TF-IDF regression", chosen, train, predicted, examples)


def make_baseline(
    name: str, chosen: Sequence[Any], train: Sequence[Any], predicted: Sequence[str], examples: Sequence[Any]
) -> Baseline:
    figures = scalar_figures(class_figures(predicted, [example.label for example in examples]))
    part = f"{name}: learned from {len(chosen):,} of the {len(train):,} training examples, to save time."
    return Baseline(name, figures, part if len(chosen) < len(train) else "")


def subsample(examples: Sequence[Any], sizes: Sequence[int], max_size: int) -> Sequence[Any]:
    """Every n-th example, so that the sizes add up to about `max_size`; all if they fit."""
    every = math.ceil(sum(sizes) / max_size)
    return examples[::every] if every > 1 else examples


def most_frequent_tag_baseline(pipeline: Pipeline, train: Sequence[Any], examples: Sequence[Any]) -> Baseline:
    predicted = most_frequent_tags(train, [example.words for example in examples])
    return Baseline("most frequent tag", scalar_figures(tag_figures(predicted, [example.tags for example in examples])))


def pixel_baseline(pipeline: Pipeline, train: Sequence[Any], examples: Sequence[Any]) -> Baseline:
    """A small MLP; without scikit-learn, the weaker nearest neighbour."""
    chosen = subsample(train, [train[0].pixels.size] * len(train), MAX_PIXELS)
    pixels = [np.stack([example.pixels for example in part]) for part in (chosen, examples)]
    name, predict = ("small MLP", small_mlp) if find_spec("sklearn") else ("nearest neighbour", nearest_neighbour)
    predicted = predict(pixels[0], [example.label for example in chosen], pixels[1])
    return make_baseline(name, chosen, train, predicted, examples)


BASELINES: dict[str, Callable[[Pipeline, Sequence[Any], Sequence[Any]], Baseline]] = {
    "language_model": bigram_baseline,
    "masked_language_model": masked_bigram_baseline,
    "classification": tfidf_baseline,
    "tagging": most_frequent_tag_baseline,
    "image_classification": pixel_baseline,
}
