"""How good a run is, and what a simple method would have achieved on the same data.

task                    figures                                   the simple method beside it
translation             BLEU, chrF, exact match, perplexity       word for word, by a dictionary of the alignments
language_model          perplexity, bits a character, accuracy    a bigram model of the same tokens
masked_language_model   perplexity, accuracy of hidden tokens     the same bigram model
classification          accuracy                                  logistic regression on a bag of words
tagging                 accuracy, F1 of spans                     the most frequent tag of each word
image_classification    accuracy                                  the nearest neighbour among the training images
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from cutaway.config import DecodeConfig
from cutaway.data.batching import TextBatch, plain_batches
from cutaway.data.builtin import SentencePair
from cutaway.data.prepare import without_misfits
from cutaway.data.tasks import TASKS, Encoding, load_split, words_of
from cutaway.evaluate.baselines import Bigram, bag_of_words, most_frequent_tags, nearest_neighbour, word_for_word
from cutaway.evaluate.classes import accuracy, has_spans, span_f1
from cutaway.evaluate.scores import bleu, chrf, exact_match, perplexity
from cutaway.pipeline import Classifier, Pipeline, Tagger, Translator
from cutaway.train.objectives import OBJECTIVES, measure
from cutaway.train.observers import Measured

Figures = dict[str, float]


class Baseline(NamedTuple):
    """What a simple method achieves."""

    name: str
    figures: Figures


@dataclass(frozen=True)
class Evaluation:
    """What a translator did with a set of pairs. Rates are shares from 0 to 1; BLEU and chrF go to 100."""

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
    pipeline: Pipeline, examples: Sequence[Any], decode: DecodeConfig | None = None, **of_bleu: Any
) -> dict[str, Any]:
    """The figures of a run on these examples, by name. `of_bleu`: another way to measure it, see evaluate/scores.py."""
    if isinstance(pipeline, Translator):
        return evaluate_pairs(pipeline, examples, decode or pipeline.config.decode, **of_bleu).numbers()
    return EVALUATE[pipeline.config.model.task](pipeline, examples)


def evaluate_pairs(
    translator: Translator, pairs: Sequence[SentencePair], decode: DecodeConfig, **of_bleu: Any
) -> Evaluation:
    translations = translator.translate([pair.source for pair in pairs], decode)
    references = [pair.target for pair in pairs]
    by_bleu, by_chrf = bleu(translations, references, **of_bleu), chrf(translations, references)
    return Evaluation(
        translations=translations,
        sentences=len(pairs),
        bleu=by_bleu.value,
        chrf=by_chrf.value,
        exact_match=exact_match(translations, references),
        perplexity=perplexity(measured(translator, pairs).nll),
        bleu_signature=by_bleu.signature,
        chrf_signature=by_chrf.signature,
    )


def measured(pipeline: Pipeline, examples: Sequence[Any]) -> Measured:
    """How surprised the model is by the right answers, token for token."""
    config, task = pipeline.config, pipeline.config.model.task
    batches = plain_batches(encoded(pipeline, examples), task, pipeline.tokenizer, config.data.batch_tokens)
    return measure(pipeline.model, OBJECTIVES[task], batches)


def encoded(pipeline: Pipeline, examples: Sequence[Any]) -> list[Any]:
    """As in training, but a text may be as long as the model can read."""
    config, task = pipeline.config, pipeline.config.model.task
    cut = task in ("language_model", "masked_language_model")
    limit = config.data.max_tokens if cut else config.longest_text
    encoding = Encoding(pipeline.tokenizer, pipeline.labels, limit)
    return without_misfits(TASKS[task].encode(examples, encoding), limit)[0]


def evaluate_texts(pipeline: Pipeline, texts: Sequence[str]) -> Figures:
    """Bits a character compares models whose tokens differ."""
    nll, right, *_ = measured(pipeline, texts)
    tokens = sum(len(piece.ids) - 1 for piece in encoded(pipeline, texts))
    bits = nll * tokens / math.log(2) / sum(map(len, texts))
    return {"perplexity": perplexity(nll), "bits_per_character": bits, "accuracy": right}


def evaluate_masked(pipeline: Pipeline, texts: Sequence[str]) -> Figures:
    nll, right, *_ = measured(pipeline, texts)
    return {"perplexity": perplexity(nll), "accuracy": right}


def evaluate_classes(classifier: Classifier, examples: Sequence[Any]) -> Figures:
    predicted = classifier.classify([content_of(example) for example in examples])
    return {"accuracy": accuracy([p.label for p in predicted], [example.label for example in examples])}


def content_of(example: Any) -> Any:
    return example.text if hasattr(example, "text") else example.pixels


def evaluate_tags(tagger: Tagger, examples: Sequence[Any]) -> Figures:
    return tag_figures(tagger.tag([example.words for example in examples]), [example.tags for example in examples])


def tag_figures(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> Figures:
    figures = {"accuracy": accuracy(list(chain(*predicted)), list(chain(*gold)))}
    if has_spans(chain(*gold)):
        figures["span_f1"] = span_f1(predicted, gold).f1
    return figures


EVALUATE: dict[str, Callable[[Any, Sequence[Any]], Figures]] = {
    "language_model": evaluate_texts,
    "masked_language_model": evaluate_masked,
    "classification": evaluate_classes,
    "image_classification": evaluate_classes,
    "tagging": evaluate_tags,
}


def baseline(pipeline: Pipeline, examples: Sequence[Any]) -> Baseline | None:
    """What a simple method achieves on the same examples, having read the same training data; None: there is none."""
    config, task = pipeline.config, pipeline.config.model.task
    train = load_split(config.data, task, "train")
    if task == "translation":
        aligned = hasattr(train[0], "alignment") and hasattr(examples[0], "alignment")  # a file has no alignments
        return translated_word_for_word(train, examples) if aligned else None
    return BASELINES[task](pipeline, train, examples)


def translated_word_for_word(train: Sequence[Any], examples: Sequence[Any]) -> Baseline:
    translations = word_for_word(train, [pair.source_words for pair in examples])
    references = [pair.target for pair in examples]
    figures = {"bleu": bleu(translations, references).value, "chrf": chrf(translations, references).value}
    return Baseline("word for word", {**figures, "exact_match": exact_match(translations, references)})


def bigram_text(pipeline: Pipeline, train: Sequence[str], texts: Sequence[str]) -> Baseline:
    ids = [np.asarray(piece.ids) for piece in encoded(pipeline, texts)]
    previous, right = np.concatenate([i[:-1] for i in ids]), np.concatenate([i[1:] for i in ids])
    figures = bigram_figures(bigram_of(pipeline, train), previous, right)
    bits = math.log2(figures["perplexity"]) * len(right) / sum(map(len, texts))
    return Baseline("bigram model", {**figures, "bits_per_character": bits})


def bigram_masked(pipeline: Pipeline, train: Sequence[str], texts: Sequence[str]) -> Baseline:
    """Of the tokens that are hidden from the model; the bigram is shown the true token before each of them."""
    batches = plain_batches(
        encoded(pipeline, texts), "masked_language_model", pipeline.tokenizer, pipeline.config.data.batch_tokens
    )
    previous, right = [], []
    for batch in batches:
        assert isinstance(batch, TextBatch)
        asked = batch.asked.numpy()
        right.append(batch.answers.numpy()[asked])
        previous.append(batch.answers.roll(1, dims=1).numpy()[asked])
    figures = bigram_figures(bigram_of(pipeline, train), np.concatenate(previous), np.concatenate(right))
    return Baseline("bigram model", figures)


def bigram_of(pipeline: Pipeline, train: Sequence[str]) -> Bigram:
    return Bigram([piece.ids for piece in encoded(pipeline, train)], pipeline.tokenizer.vocab_size)


def bigram_figures(bigram: Bigram, previous: Any, right: Any) -> Figures:
    return {
        "perplexity": perplexity(float(bigram.nll(previous, right).mean())),
        "accuracy": float((bigram.best(previous) == right).mean()),
    }


def words_of_text(pipeline: Pipeline, train: Sequence[Any], examples: Sequence[Any]) -> Baseline:
    predicted = bag_of_words(
        [example.text for example in train],
        [example.label for example in train],
        [example.text for example in examples],
        words_of(pipeline.config.data),
    )
    return Baseline("bag of words", {"accuracy": accuracy(predicted, [example.label for example in examples])})


def most_frequent(pipeline: Pipeline, train: Sequence[Any], examples: Sequence[Any]) -> Baseline:
    predicted = most_frequent_tags(train, [example.words for example in examples])
    return Baseline("most frequent tag", tag_figures(predicted, [example.tags for example in examples]))


def neighbours(pipeline: Pipeline, train: Sequence[Any], examples: Sequence[Any]) -> Baseline:
    pixels = [np.stack([example.pixels for example in some]) for some in (train, examples)]
    predicted = nearest_neighbour(pixels[0], [example.label for example in train], pixels[1])
    return Baseline("nearest neighbour", {"accuracy": accuracy(predicted, [example.label for example in examples])})


BASELINES: dict[str, Callable[[Pipeline, Sequence[Any], Sequence[Any]], Baseline]] = {
    "language_model": bigram_text,
    "masked_language_model": bigram_masked,
    "classification": words_of_text,
    "tagging": most_frequent,
    "image_classification": neighbours,
}
