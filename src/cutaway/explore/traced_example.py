"""A text made ready for a model, and what the model answers: one shape for every task.

    task                    the model reads                 it is asked                     the answer
    translation             the source, the target so far   for each token of the target    a translation
    language_model          the text so far                 for each token of the text      what it goes on with
    masked_language_model   a text with tokens hidden       for the hidden tokens           what may stand there
    tagging                 a text                          for the first token of a word   its tag
    classification          a text                          for the whole                   a label
    image_classification    an image                        for the whole                   a label
    embedding               a text                          nothing: there is no answer     a vector

So traces, ablations and snapshots need not know which task it is: they put the same question to a model again, changed
or younger, and see how likely the same answer has become.
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
from cutaway.search.request import NO_NUMBERS, Hypothesis, Request, Search

SHOWN_NUMBERS = 8  # of a vector
WRITTEN = 40  # tokens that a text generator writes, if nobody says how many: what one can look at


@dataclass(frozen=True)
class TracedExample:
    """`inputs` are what the model's `forward` takes; `places` the rows of its logits that are asked (None: all)."""

    task: str
    text: str
    inputs: tuple[Tensor, ...]
    names: Callable[[Sequence[int]], list[str]]  # of tokens, tags or labels, by their ids
    source: list[str] = field(default_factory=list)
    target_in: list[str] = field(default_factory=list)
    target_out: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)  # one for each row of logits that is asked
    places: list[int] | None = None
    output: str = ""
    prompt: int = 0  # so many of the answers were given, not written
    finished: bool = True
    hidden: list[int] = field(default_factory=list)
    words: list[str] = field(default_factory=list)  # of a tagger, one for each place

    def logits(self, model: Any) -> Tensor:
        """The logits that are asked for [N, classes or vocabulary]."""
        return self.select_logits(model(*self.inputs))

    def select_logits(self, logits: Tensor) -> Tensor:
        """[1,C] of a whole, or [1,T,V] of tokens -> [N,C]; of a vector, nothing"""
        if logits.dim() == 2:
            return logits[: len(self.answers)] if self.task == "embedding" else logits
        return logits[0] if self.places is None else logits[0, self.places]

    def log_p(self, logits: Tensor) -> list[float]:
        """How likely each answer is, in nats."""
        answers = torch.tensor(self.answers, device=logits.device)
        found: list[float] = logits.double().log_softmax(-1).gather(1, answers[:, None])[:, 0].tolist()
        return found

    def total_log_p(self, logits: Tensor) -> float:
        """Of the whole answer; what was given is not an answer."""
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
    """Put a text (or an image) to a model, and see what it answers.

    A translation or a continuation may be led: `target` gives the whole answer, `prefix` the ids that it begins with.
    `hidden` are the tokens that a masked language model may not see.
    """
    if isinstance(pipeline, Translator):
        return prepare_translation(pipeline, text, target, prefix, decode)
    if isinstance(pipeline, TextGenerator):
        return prepare_text(pipeline, text, target, prefix, decode)
    if target is not None or prefix:
        raise DataError(f"a model for {pipeline.config.model.task.replace('_', ' ')} writes nothing that can be led.")
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
        decode = replace(decode, max_length=decode.max_length or WRITTEN)
        ids, finished = generate_ids(generator, prompt, prefix, decode)
    else:
        ids, finished = tokenizer.encode(target, continues=bool(text)), False
    whole = [*prompt, *ids, tokenizer.eos] if finished else [*prompt, *ids]
    check_length(generator, len(whole) - 1)
    if len(whole) < 2:
        raise DataError("there is no token to look at: the text is empty, and nothing is to be written. Give a text.")
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
    """What the model writes after the prefix, if there is one: the ids, and whether it came to an end."""
    check_tokens(writer, prefix)
    eos = writer.tokenizer.eos
    if eos in prefix:  # the prefix itself says that the text ends
        return list(prefix[: list(prefix).index(eos)]), True
    try:
        found = run_search(writer, row, prefix, decode)
    except DataError as error:
        if str(error) != NO_NUMBERS:
            raise
        return list(prefix), True  # there is no text, but all the more to look at
    return [*prefix, *found[0].tokens], found[0].finished


def run_search(
    writer: GenerationPipeline,
    row: Sequence[int],
    prefix: Sequence[int],
    decode: DecodeConfig,
    watch: Callable[[Any], None] | None = None,
    n_best: int = 1,
) -> list[Hypothesis]:
    """The search of the run, led by a prefix and watched on request. `row`: a source with </s>, or <s> and a prompt."""
    check_tokens(writer, prefix)
    limit, tokenizer = length_limit(writer, row, decode), writer.tokenizer
    if len(prefix) >= limit:
        raise DataError(f"the given beginning has {len(prefix)} tokens, and a text may have {limit}. Shorten it.")
    search = Search(
        decode=decode,
        limits=[limit - len(prefix)],
        numbers=[0],
        bos=tokenizer.bos,
        eos=tokenizer.eos,
        n_best=n_best,
        prefixes=[prefix] if prefix else (),
        watch=watch,
    )
    return writer.run_search([row], search)[0]


def check_tokens(writer: GenerationPipeline, prefix: Sequence[int]) -> None:
    vocabulary = writer.tokenizer.vocab_size
    if wrong := [id for id in prefix if not 0 <= id < vocabulary]:
        raise DataError(f"{wrong[0]} is no token: this model's tokens are numbered from 0 to {vocabulary - 1}.")


def length_limit(writer: GenerationPipeline, row: Sequence[int], decode: DecodeConfig) -> int:
    """How many tokens the text may have, </s> and what it is made to begin with counted."""
    return writer.limit(row, (), Request(""), decode)


def prepare_tagging(tagger: Tagger, text: str) -> TracedExample:
    words = tagger.words(text)
    if not words:
        raise DataError("there is no word to tag. Give a text.")
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
    """A vector is right or wrong only beside others, so nothing is asked."""
    [ids] = embedder.rows([text])
    check_length(embedder, len(ids))
    example = TracedExample(
        "embedding", text, (row(embedder, ids),), embedder.tokenizer.tokens, embedder.tokenizer.tokens(ids), places=[]
    )
    vector_D = embedder.model(*example.inputs)[0]
    shown = " ".join(f"{value:.3f}" for value in vector_D[:SHOWN_NUMBERS].tolist())
    return replace(example, output=f"{len(vector_D)} numbers: {shown} …")


def prepare_masked(pipeline: Pipeline, text: str, hidden: Sequence[int]) -> TracedExample:
    """Tokens are counted with <s> as 0, and "<mask>" in the text hides one as well.

    If none is hidden, the middle one is: there must be something to guess.
    """
    tokenizer = pipeline.tokenizer
    assert tokenizer.mask is not None, "a masked language model is trained with a token to hide others with"
    before, *after = text.split(tokenizer.roles["mask"])
    first, others = tokenizer.encode(before), tokenizer.encode_batch(after, continues=True)
    ids = [tokenizer.bos, *first, *(id for piece in others for id in (tokenizer.mask, *piece)), tokenizer.eos]
    hidden = [*hidden, *(place for place, id in enumerate(ids) if id == tokenizer.mask)]
    check_length(pipeline, len(ids))
    if len(ids) == 2:
        raise DataError("there is no token to hide: the text is empty. Give a text.")
    wrong = [place for place in hidden if not 0 < place < len(ids) - 1]
    if wrong:
        raise DataError(f"token {wrong[0]} cannot be hidden: the text has the tokens 1 to {len(ids) - 2}.")
    places = sorted(set(hidden)) or [len(ids) // 2]
    seen = [tokenizer.mask if place in places else id for place, id in enumerate(ids)]
    example = TracedExample(
        task="masked_language_model",
        text=text,
        inputs=(row(pipeline, seen),),
        names=tokenizer.tokens,
        source=tokenizer.tokens(seen),
        places=places,
        hidden=places,
    )
    example = with_best_answers(example, pipeline.model, " ".join)
    filled = dict(zip(places, example.answers, strict=True))
    return replace(example, output=tokenizer.decode([filled.get(place, id) for place, id in enumerate(ids)]))


def with_best_answers(example: TracedExample, model: Any, told: Callable[[Sequence[str]], str]) -> TracedExample:
    """With the likeliest answer to each thing that is asked."""
    best = example.logits(model).argmax(dim=-1).tolist()
    return replace(example, answers=best, output=told(example.names(best)))


def patch_names(classifier: Classifier) -> list[str]:
    """Patches are called by their row and column, as in a game of chess without letters."""
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
            f"the text has {length:,} tokens, and this model has positions for {longest:,}. Shorten it, or train with "
            "a larger model.max_length."
        )
