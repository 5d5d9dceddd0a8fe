"""Model inputs from examples, for head statistics, masks, leak checks and figures.

An example is a Pair, LabelledText, TaggedText, LabelledImage or text of a corpus. A plain text works for any task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cutaway.data.batching import length_mask, pad
from cutaway.data.examples import Pair
from cutaway.data.image_input import pixels_of
from cutaway.data.tasks import encode_words, has_split, load_split
from cutaway.errors import DataError
from cutaway.explore.alignment import crossings, has_alignments
from cutaway.explore.examples import has_data, plain_examples
from cutaway.explore.traced_example import patch_names
from cutaway.inference.pipelines import Pipeline

PADDING = 2  # extra tokens of the longer text in `padded_batch`
MAX_EXAMPLES = 200  # examples that `short_example` searches
# kind of attention -> the sides of the queries and of the keys
SIDES = {"encoder": ("encoder", "encoder"), "decoder": ("decoder", "decoder"), "cross": ("decoder", "encoder")}


class EncodedExample(NamedTuple):
    """One example as ids: the inputs of the encoder and the decoder; empty if the model does not have this stack."""

    encoder: list[int]
    decoder: list[int]
    target_out: list[int]  # translation: the decoder's targets

    def cut(self, longest: int) -> EncodedExample:
        return EncodedExample(*(ids[:longest] for ids in self))


@dataclass(frozen=True)
class Inputs:
    """The arguments of `model(*arguments)`, and for each side ("encoder", "decoder") its ids and which are tokens."""

    arguments: tuple[Tensor | None, ...]
    is_token: dict[str, Tensor]  # [B, T] of bool
    ids: dict[str, Tensor]  # [B, T]; empty for images


def encode_examples(pipeline: Pipeline, examples: Sequence[Any], longest: int | None = None) -> list[EncodedExample]:
    """Encode the examples, cut to `longest` tokens on each side."""
    task = pipeline.config.model.task
    if task not in ROWS:
        raise DataError(f"{task.replace('_', ' ')} has no tokens. Use `image_inputs` for images.")
    rows = ROWS[task](pipeline, examples)
    if not all(row.encoder or row.decoder for row in rows):
        raise DataError("one of the texts is empty. Leave it out.")
    return [row.cut(longest) if longest else row for row in rows]


def translation_rows(pipeline: Any, examples: Sequence[Any]) -> list[EncodedExample]:
    """Encode pairs. A text without a target gets the model's own translation."""
    tokenizer, texts = pipeline.tokenizer, [example for example in examples if isinstance(example, str)]
    own = dict(zip(texts, pipeline.translate(texts), strict=True)) if texts else {}
    pairs = [Pair(e, own[e]) if isinstance(e, str) else e for e in examples]
    sources = tokenizer.encode_batch([pair.source for pair in pairs])
    targets = tokenizer.for_target.encode_batch([pair.target for pair in pairs])
    limit = pipeline.config.longest_text - 1  # <s> needs one position
    targets = [ids[:limit] if pair.source in own else ids for ids, pair in zip(targets, pairs, strict=True)]
    return [
        EncodedExample([*source, tokenizer.eos], [tokenizer.bos, *target], [*target, tokenizer.eos])
        for source, target in zip(sources, targets, strict=True)
    ]


def language_rows(pipeline: Pipeline, examples: Sequence[str]) -> list[EncodedExample]:
    return [
        EncodedExample([], pipeline.tokenizer.add_bos(ids), []) for ids in pipeline.tokenizer.encode_batch(examples)
    ]


def text_rows(pipeline: Pipeline, examples: Sequence[Any]) -> list[EncodedExample]:
    texts = [example if isinstance(example, str) else example.text for example in examples]
    tokenizer = pipeline.tokenizer
    return [EncodedExample([tokenizer.bos, *ids, tokenizer.eos], [], []) for ids in tokenizer.encode_batch(texts)]


def tagging_rows(pipeline: Any, examples: Sequence[Any]) -> list[EncodedExample]:
    sentences = [pipeline.words(example) if isinstance(example, str) else example.words for example in examples]
    return [EncodedExample(encoded.ids, [], []) for encoded in encode_words(pipeline.tokenizer, sentences)]


ROWS: dict[str, Callable[[Any, Sequence[Any]], list[EncodedExample]]] = {
    "translation": translation_rows,
    "language_model": language_rows,
    "masked_language_model": text_rows,
    "classification": text_rows,
    "embedding": text_rows,
    "tagging": tagging_rows,
}


def collate_examples(pipeline: Pipeline, rows: Sequence[EncodedExample], masked: bool = True) -> Inputs:
    """Collate rows into a batch. masked=False: without padding masks; all rows must have the same length."""
    device, ids, is_token = pipeline.device, {}, {}
    for side in ("encoder", "decoder"):
        side_rows: list[list[int]] = [getattr(row, side) for row in rows]
        if any(side_rows):
            ids[side] = pad(side_rows, pipeline.tokenizer.pad).to(device)
            is_token[side] = length_mask([len(row) for row in side_rows]).to(device)
    masks = is_token.values() if masked else [None] * len(is_token)
    return Inputs((*ids.values(), *masks), is_token, ids)


def image_inputs(pipeline: Pipeline, examples: Sequence[Any]) -> Inputs:
    """Collate images, or anything that `Classifier.classify` takes. Tokens: the class token, if any, and patches."""
    model = pipeline.config.model
    images = torch.stack(
        [torch.as_tensor(pixels_of(getattr(example, "pixels", example), model)) for example in examples]
    )
    precision = next(pipeline.model.parameters()).dtype
    is_token = torch.ones(len(images), pipeline.config.model.n_positions, dtype=torch.bool, device=pipeline.device)
    return Inputs((images.to(pipeline.device, precision),), {"encoder": is_token}, {})


def labels_of(pipeline: Any, row: EncodedExample | None, kind: str) -> tuple[list[str], list[str]]:
    """The tokens of the rows (queries) and columns (keys); without a row, the patches of an image."""
    if row is None:
        patches = patch_names(pipeline)
        return patches, patches
    query_side, key_side = SIDES[kind]
    queries = row.target_out if kind == "cross" else getattr(row, query_side)
    return pipeline.tokenizer.tokens(queries), pipeline.tokenizer.tokens(getattr(row, key_side))


def single_batch(pipeline: Pipeline, example: EncodedExample | Any) -> Inputs:
    """A batch of one encoded text, or of one image."""
    if not isinstance(example, EncodedExample):
        return image_inputs(pipeline, [example])
    return collate_examples(pipeline, [example], masked=False)


def padded_batch(pipeline: Pipeline, example: EncodedExample | Any) -> Inputs:
    """A batch of two: this example, and a longer one, so that the first needs padding."""
    if not isinstance(example, EncodedExample):
        return image_inputs(pipeline, [example, example])
    longer = EncodedExample(*([*ids, *ids[:1] * PADDING] for ids in example)).cut(pipeline.config.longest_text)
    return collate_examples(pipeline, [example, longer])


def some_examples(pipeline: Pipeline) -> Sequence[Any]:
    """Examples of the run's data: test, else valid, else train. For a run without data, English sentences."""
    data, task = pipeline.config.data, pipeline.config.model.task
    if not has_data(pipeline):
        return plain_examples(pipeline)
    split = next(split for split in ("test", "valid", "train") if has_split(data, split))
    return load_split(data, task, split)


def short_example(pipeline: Any, examples: Sequence[Any], wanted: int = 10) -> Any:
    """A text, pair or image of about `wanted` tokens, short enough for a figure.

    A language model's text is cut. Among aligned pairs, take the one with the most crossing links.
    """
    task = pipeline.config.model.task
    if task == "image_classification":
        return examples[0]
    if task.endswith("language_model"):
        text = next((text for text in examples if text.strip()), "")
        return pipeline.tokenizer.decode(pipeline.tokenizer.encode(text.strip())[:wanted])
    if isinstance(examples[0], str):  # English sentences
        return examples[0]
    examples = examples[:MAX_EXAMPLES]
    differences = [abs(len(row.encoder) - wanted) for row in encode_examples(pipeline, examples)]
    nearest = [example for example, gap in zip(examples, differences, strict=True) if gap == min(differences)]
    if has_alignments(nearest):
        return max(nearest, key=lambda pair: crossings(pair.alignment))
    if task == "tagging":
        return " ".join(nearest[0].words)
    return getattr(nearest[0], "text", nearest[0])
