"""One input of a model and its predictions, in the same form for every task.

    task                    input                           one prediction for             output
    translation             the source, the target so far   each token of the target       a translation
    language_model          the text so far                 each token of the text         a continuation
    masked_language_model   a text with masked tokens       each masked token              the filled text
    tagging                 a text                          the first token of each word   tags
    classification          a text                          the whole text                 a label
    image_classification    an image                        the whole image                a label
    embedding               a text                          nothing                        a vector

Traces, ablations and snapshots therefore do not depend on the task. They run the same input through changed or earlier
weights, and compare the probability of the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from cutaway.config import DecodeConfig
from cutaway.data.image_input import pixels_of
from cutaway.data.tasks import encode_words
from cutaway.errors import DataError
from cutaway.inference.pipelines import (
    Classifier,
    Embedder,
    GenerationPipeline,
    Pipeline,
    Tagger,
    TextGenerator,
    Translator,
)
from cutaway.search.request import NON_FINITE_LOGITS, Hypothesis, Request, Search

SHOWN_NUMBERS = 8  # first values of a vector
MAX_NEW_TOKENS = 40  # length of a generated text, if decode.max_length is not set


@dataclass(frozen=True)
class TracedExample:
    """`inputs`: the arguments of `forward`. `places`: the positions with a prediction; None: all."""

    task: str
    text: str
    inputs: tuple[Tensor, ...]
    names: Callable[[Sequence[int]], list[str]]  # ids -> tokens, tags or labels
    source: list[str] = field(default_factory=list)
    target_in: list[str] = field(default_factory=list)
    target_out: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)  # one id for each prediction
    places: list[int] | None = None
    output: str = ""
    prompt: int = 0  # number of leading answers that belong to the prompt
    finished: bool = True
    hidden: list[int] = field(default_factory=list)
    words: list[str] = field(default_factory=list)  # tagging: one for each place

    def logits(self, model: Any) -> Tensor:
        """Run the model. -> the logits of the predictions [N, classes or vocabulary]"""
        return self.select_logits(model(*self.inputs))

    def select_logits(self, logits: Tensor) -> Tensor:
        """Select the predictions: [1,C] or [1,T,V] -> [N,C]. None for an embedding."""
        if logits.dim() == 2:
            return logits[: len(self.answers)] if self.task == "embedding" else logits
        return logits[0] if self.places is None else logits[0, self.places]

    def until(self, step: int) -> TracedExample:
        """Without the tokens after this prediction, which a causal decoder does not read for it."""
        if not self.target_in:
            return self
        *others, target_in = self.inputs
        names, count = ("target_in", "target_out", "answers"), step + 1
        cut = {name: getattr(self, name)[:count] for name in names}
        return replace(self, inputs=(*others, target_in[:, :count]), **cut)

    def log_p(self, logits: Tensor) -> list[float]:
        """The log-probability of each answer, in nats."""
        answers = torch.tensor(self.answers)
        found: list[float] = logits.cpu().double().log_softmax(-1).gather(1, answers[:, None])[:, 0].tolist()
        return found

    def total_log_p(self, logits: Tensor) -> float:
        """The log-probability of the whole output, without the prompt."""
        return sum(self.log_p(logits)[self.prompt :])


@torch.no_grad()
def prepare_example(
    pipeline: Pipeline,
    text: Any,
    target: str | None = None,
    prefix: Sequence[int] = (),
    hidden: Sequence[int] = (),
    decode: DecodeConfig | None = None,
) -> TracedExample:
    """Run a model on a text (or an image) and return the input together with the model's answers.

    For a model that generates text, `target` sets the whole output, and `prefix` the ids that it starts with.
    For a masked language model, `hidden` are the positions of the tokens to mask.
    """
    if isinstance(pipeline, Translator):
        return prepare_translation(pipeline, text, target, prefix, decode)
    if isinstance(pipeline, TextGenerator):
        return prepare_text(pipeline, text, target, prefix, decode)
    if target is not None or prefix:
        task = pipeline.config.model.task.replace("_", " ")
        raise DataError(f"a model for {task} generates no text, so it takes no target and no prefix. Leave them out.")
    if isinstance(pipeline, Tagger):
        return prepare_tagging(pipeline, text)
    if isinstance(pipeline, Classifier):
        return prepare_classification(pipeline, text)
    if isinstance(pipeline, Embedder):
        return prepare_embedding(pipeline, text)
    return prepare_masked(pipeline, text, hidden)


def prepare_translation(
    translator: Translator, text: str, target: str | None, prefix: Sequence[int], decode: DecodeConfig | None
) -> TracedExample:
    if not text.strip():
        raise DataError("there is nothing to translate: the text is empty. Give a sentence.")
    tokenizer = translator.tokenizer
    source = [*tokenizer.encode(text), tokenizer.eos]
    check_length(translator, len(source))
    if target is None:
        ids, finished = generate_ids(translator, source, prefix, translator.resolve_decode(decode))
    else:
        ids, finished = tokenizer.for_target.encode(target), True
    target_out = [*ids, tokenizer.eos] if finished else ids
    target_in = [tokenizer.bos, *target_out[:-1]]
    check_length(translator, len(target_in))
    return TracedExample(
        task="translation",
        text=text,
        inputs=(row(translator, source), row(translator, target_in)),
        names=tokenizer.tokens,
        source=tokenizer.tokens(source),
        target_in=tokenizer.tokens(target_in),
        target_out=tokenizer.tokens(target_out),
        answers=target_out,
        output=tokenizer.decode(ids),
        finished=finished,
    )


def prepare_text(
    generator: TextGenerator, text: str, target: str | None, prefix: Sequence[int], decode: DecodeConfig | None
) -> TracedExample:
    tokenizer = generator.tokenizer
    prompt = tokenizer.add_bos(tokenizer.encode(text))
    check_length(generator, len(prompt))
    if target is None:
        decode = generator.resolve_decode(decode)
        decode = replace(decode, max_length=decode.max_length or MAX_NEW_TOKENS)
        ids, finished = generate_ids(generator, prompt, prefix, decode)
    else:
        ids, finished = tokenizer.encode(target, continues=bool(text)), False
    whole = [*prompt, *ids, tokenizer.eos] if finished else [*prompt, *ids]
    check_length(generator, len(whole) - 1)
    if len(whole) < 2:
        raise DataError("the text is empty, and the target is empty too. Give a text.")
    return TracedExample(
        task="language_model",
        text=text,
        inputs=(row(generator, whole[:-1]),),
        names=tokenizer.tokens,
        target_in=tokenizer.tokens(whole[:-1]),
        target_out=tokenizer.tokens(whole[1:]),
        answers=whole[1:],
        output=generator.continuation(text, ids),
        prompt=len(prompt) - 1,
        finished=finished,
    )


def generate_ids(
    writer: GenerationPipeline, row: Sequence[int], prefix: Sequence[int], decode: DecodeConfig
) -> tuple[list[int], bool]:
    """Generate the output after the prefix. -> the ids with the prefix, and whether </s> ended it"""
    check_tokens(writer, prefix)
    eos = writer.tokenizer.eos
    if eos in prefix:  # the output is complete already
        return list(prefix[: list(prefix).index(eos)]), True
    try:
        found = run_search(writer, row, prefix, decode)
    except DataError as error:
        if str(error) != NON_FINITE_LOGITS:
            raise
        return list(prefix), True  # the model has diverged; its trace is still useful
    return [*prefix, *found[0].tokens], found[0].finished


def run_search(
    writer: GenerationPipeline,
    row: Sequence[int],
    prefix: Sequence[int],
    decode: DecodeConfig,
    on_step: Callable[[Any], None] | None = None,
    n_best: int = 1,
) -> list[Hypothesis]:
    """Run the pipeline's search. `row`: the source with </s>, or <s> and the prompt. `on_step` is called each step."""
    check_tokens(writer, prefix)
    limit, tokenizer = length_limit(writer, row, decode), writer.tokenizer
    if len(prefix) >= limit:
        raise DataError(f"the prefix has {len(prefix)} tokens; the output can have at most {limit}. Shorten it.")
    search = Search(
        decode=decode,
        limits=[limit - len(prefix)],
        numbers=[0],
        bos=tokenizer.bos,
        eos=tokenizer.eos,
        n_best=n_best,
        prefixes=[prefix] if prefix else (),
        on_step=on_step,
    )
    return writer.run_search([row], search)[0]


def check_tokens(writer: GenerationPipeline, prefix: Sequence[int]) -> None:
    vocabulary = writer.tokenizer.vocab_size
    if wrong := [id for id in prefix if not 0 <= id < vocabulary]:
        raise DataError(f"{wrong[0]} is not a token id of this model. Ids go from 0 to {vocabulary - 1}.")


def length_limit(writer: GenerationPipeline, row: Sequence[int], decode: DecodeConfig) -> int:
    """The maximum length of the output in tokens, with the prefix and </s>."""
    return writer.length_limit(row, (), Request(""), decode)


def prepare_tagging(tagger: Tagger, text: str) -> TracedExample:
    words = tagger.words(text)
    if not words:
        raise DataError("the text has no word to tag. Give a text.")
    [encoded] = encode_words(tagger.tokenizer, [words])
    check_length(tagger, len(encoded.ids))
    example = TracedExample(
        task="tagging",
        text=text,
        inputs=(row(tagger, encoded.ids),),
        names=lambda ids: [tagger.labels[id] for id in ids],
        source=tagger.tokenizer.tokens(encoded.ids),
        places=encoded.first,
        words=words,
    )
    return with_best_answers(example, tagger.model, " ".join)


def prepare_classification(classifier: Classifier, content: Any) -> TracedExample:
    names, model = (lambda ids: [classifier.labels[id] for id in ids]), classifier.model
    if classifier.config.model.family == "vision":
        pixels, precision = pixels_of(content, classifier.config.model), next(model.parameters()).dtype
        image = torch.as_tensor(pixels, dtype=precision, device=classifier.device)[None]
        source = patch_names(classifier)
        return with_best_answers(TracedExample("image_classification", "", (image,), names, source), model, "".join)
    tokenizer = classifier.tokenizer
    ids = [tokenizer.bos, *tokenizer.encode(content), tokenizer.eos]
    check_length(classifier, len(ids))
    example = TracedExample("classification", content, (row(classifier, ids),), names, tokenizer.tokens(ids))
    return with_best_answers(example, model, "".join)


def prepare_embedding(embedder: Embedder, text: str) -> TracedExample:
    """An embedding has no predictions: `places` and `answers` are empty."""
    [ids] = embedder.input_ids([text])
    check_length(embedder, len(ids))
    example = TracedExample(
        "embedding", text, (row(embedder, ids),), embedder.tokenizer.tokens, embedder.tokenizer.tokens(ids), places=[]
    )
    vector_D = embedder.model(*example.inputs)[0]
    shown = " ".join(f"{value:.3f}" for value in vector_D[:SHOWN_NUMBERS].tolist())
    return replace(example, output=f"{len(vector_D)} numbers: {shown} …")


def prepare_masked(pipeline: Pipeline, text: str, hidden: Sequence[int]) -> TracedExample:
    """`hidden` counts tokens from <s> = 0. A "<mask>" in the text is a masked token too.

    Without any, the token in the middle is masked.
    """
    tokenizer = pipeline.tokenizer
    assert tokenizer.mask is not None, "the tokenizer of a masked language model has a mask token"
    before, *after = text.split(tokenizer.roles["mask"])
    first, others = tokenizer.encode(before), tokenizer.encode_batch(after, continues=True)
    ids = [tokenizer.bos, *first, *(id for piece in others for id in (tokenizer.mask, *piece)), tokenizer.eos]
    hidden = [*hidden, *(place for place, id in enumerate(ids) if id == tokenizer.mask)]
    check_length(pipeline, len(ids))
    if len(ids) == 2:
        raise DataError("the text is empty, so there is no token to mask. Give a text.")
    wrong = [place for place in hidden if not 0 < place < len(ids) - 1]
    if wrong:
        raise DataError(f"token {wrong[0]} cannot be masked. The text has the tokens 1 to {len(ids) - 2}.")
    places = sorted(set(hidden)) or [len(ids) // 2]
    masked = [tokenizer.mask if place in places else id for place, id in enumerate(ids)]
    example = TracedExample(
        task="masked_language_model",
        text=text,
        inputs=(row(pipeline, masked),),
        names=tokenizer.tokens,
        source=tokenizer.tokens(masked),
        places=places,
        hidden=places,
    )
    example = with_best_answers(example, pipeline.model, " ".join)
    filled = dict(zip(places, example.answers, strict=True))
    return replace(example, output=tokenizer.decode([filled.get(place, id) for place, id in enumerate(ids)]))


def with_best_answers(example: TracedExample, model: Any, join: Callable[[Sequence[str]], str]) -> TracedExample:
    """Add the most probable answers. `join` makes the output of their names."""
    best = example.logits(model).argmax(dim=-1).tolist()
    return replace(example, answers=best, output=join(example.names(best)))


def patch_names(classifier: Classifier) -> list[str]:
    """Patches are named "row,column"."""
    config = classifier.config.model
    side = config.image_size // config.patch_size
    patches = [f"{row},{column}" for row in range(side) for column in range(side)]
    return ["<cls>", *patches] if config.pooling == "cls" else patches


def row(pipeline: Pipeline, ids: Sequence[int]) -> Tensor:
    return torch.tensor([ids], device=pipeline.device)


def check_length(pipeline: Pipeline, length: int) -> None:
    longest = pipeline.config.longest_text
    if length > longest:
        raise DataError(
            f"the text has {length:,} tokens; this model has positions for {longest:,}. "
            "Shorten it, or train with a larger model.max_length."
        )
