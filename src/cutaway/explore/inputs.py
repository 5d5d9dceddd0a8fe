"""From examples to what a model is called with: for those who look into a model rather than use it.

Examples are those of a corpus (Pair, LabelledText, TaggedText, LabelledImage, a text), or plain texts whatever the task.
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

PADDING = 2  # places by which the other text of a batch is longer
TRIED = 200  # examples among which a short one is looked for
# kind of attention -> who looks, and at whom
SIDES = {"encoder": ("encoder", "encoder"), "decoder": ("decoder", "decoder"), "cross": ("decoder", "encoder")}


class EncodedExample(NamedTuple):
    """One example as ids: what the encoder and the decoder read; empty for a model that has none."""

    encoder: list[int]
    decoder: list[int]
    written: list[int]  # what a translator's decoder says to what it reads

    def cut(self, longest: int) -> EncodedExample:
        return EncodedExample(*(ids[:longest] for ids in self))


@dataclass(frozen=True)
class Inputs:
    """model(*arguments), and of each side ("encoder", "decoder") which places are tokens, and which ones they are."""

    arguments: tuple[Tensor | None, ...]
    is_token: dict[str, Tensor]  # [B, T] of bool
    ids: dict[str, Tensor]  # [B, T]; images have none


def encode_examples(pipeline: Pipeline, examples: Sequence[Any], longest: int | None = None) -> list[EncodedExample]:
    """The examples as ids, of each side the first `longest` at most."""
    task = pipeline.config.model.task
    if task not in ROWS:
        raise DataError(f"{task.replace('_', ' ')} has no tokens. Give images to `image_inputs`.")
    rows = ROWS[task](pipeline, examples)
    if not all(row.encoder or row.decoder for row in rows):
        raise DataError("one of the texts is empty: there is nothing to look at. Leave it out.")
    return [row.cut(longest) if longest else row for row in rows]


def translation_rows(pipeline: Any, examples: Sequence[Any]) -> list[EncodedExample]:
    """A text without a translation gets the model's own."""
    tokenizer, texts = pipeline.tokenizer, [example for example in examples if isinstance(example, str)]
    own = dict(zip(texts, pipeline.translate(texts), strict=True)) if texts else {}
    pairs = [Pair(e, own[e]) if isinstance(e, str) else e for e in examples]
    sources = tokenizer.encode_batch([pair.source for pair in pairs])
    targets = tokenizer.for_target.encode_batch([pair.target for pair in pairs])
    room = pipeline.config.longest_text - 1  # a translation that was cut off there would be one token too long
    targets = [ids[:room] if pair.source in own else ids for ids, pair in zip(targets, pairs, strict=True)]
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
    """Rows as one batch. Not `masked`: the model is told that there is no padding, so all must have one length."""
    device, ids, is_token = pipeline.device, {}, {}
    for side in ("encoder", "decoder"):
        of_side: list[list[int]] = [getattr(row, side) for row in rows]
        if any(of_side):
            ids[side] = pad(of_side, pipeline.tokenizer.pad).to(device)
            is_token[side] = length_mask([len(row) for row in of_side]).to(device)
    masks = is_token.values() if masked else [None] * len(is_token)
    return Inputs((*ids.values(), *masks), is_token, ids)


def image_inputs(pipeline: Pipeline, examples: Sequence[Any]) -> Inputs:
    """Pictures, or what `Classifier.classify` takes: the tokens are patches, after the class token if there is one."""
    model = pipeline.config.model
    images = torch.stack(
        [torch.as_tensor(pixels_of(getattr(example, "pixels", example), model)) for example in examples]
    )
    precision = next(pipeline.model.parameters()).dtype
    is_token = torch.ones(len(images), pipeline.config.model.n_positions, dtype=torch.bool, device=pipeline.device)
    return Inputs((images.to(pipeline.device, precision),), {"encoder": is_token}, {})


def labels_of(pipeline: Any, row: EncodedExample | None, kind: str) -> tuple[list[str], list[str]]:
    """The names along the rows (who looks) and the columns (who is looked at); without a row, those of an image."""
    if row is None:
        patches = patch_names(pipeline)
        return patches, patches
    looking, looked_at = SIDES[kind]
    queries = row.written if kind == "cross" else getattr(row, looking)
    return pipeline.tokenizer.tokens(queries), pipeline.tokenizer.tokens(getattr(row, looked_at))


def single_batch(pipeline: Pipeline, example: EncodedExample | Any) -> Inputs:
    """One text, as a Row, or one picture by itself."""
    if not isinstance(example, EncodedExample):
        return image_inputs(pipeline, [example])
    return collate_examples(pipeline, [example], masked=False)


def padded_batch(pipeline: Pipeline, example: EncodedExample | Any) -> Inputs:
    """The same as the first of a batch of two. The other text is longer, so that the first one needs padding."""
    if not isinstance(example, EncodedExample):
        return image_inputs(pipeline, [example, example])
    longer = EncodedExample(*([*ids, *ids[:1] * PADDING] for ids in example)).cut(pipeline.config.longest_text)
    return collate_examples(pipeline, [example, longer])


def some_examples(pipeline: Pipeline) -> Sequence[Any]:
    """Of the data that the run names: the test data, or what there is. Of imported weights: plain sentences."""
    data, task = pipeline.config.data, pipeline.config.model.task
    if not has_data(pipeline):
        return plain_examples(pipeline)
    split = next(split for split in ("test", "valid", "train") if has_split(data, split))
    return load_split(data, task, split)


def short_example(pipeline: Any, examples: Sequence[Any], wanted: int = 10) -> Any:
    """A text, pair or picture of about `wanted` tokens: short enough to be drawn.

    Long texts are cut. Of pairs that know their alignment, one is taken whose words change places.
    """
    task = pipeline.config.model.task
    if task == "image_classification":
        return examples[0]
    if task.endswith("language_model"):
        text = next((text for text in examples if text.strip()), "")
        return pipeline.tokenizer.decode(pipeline.tokenizer.encode(text.strip())[:wanted])
    if isinstance(examples[0], str):  # plain sentences, of which each will do
        return examples[0]
    examples = examples[:TRIED]
    apart = [abs(len(row.encoder) - wanted) for row in encode_examples(pipeline, examples)]
    nearest = [example for example, far in zip(examples, apart, strict=True) if far == min(apart)]
    if has_alignments(nearest):
        return max(nearest, key=lambda pair: crossings(pair.alignment))
    if task == "tagging":
        return " ".join(nearest[0].words)
    return getattr(nearest[0], "text", nearest[0])
