"""The CTranslate2 engine: a run folder put to work in C++. Nothing has to be exported before.

Greedy search, and beam search for the likeliest text (α = 0), find what the PyTorch engine finds, to rounding. Where
CTranslate2 goes its own way:

    beam search       With a penalty, or for several answers, it stops when k texts are found, without asking whether a
                      better one may still come. What it found is ranked by the formula of decode/beam.py.
    alignment, coverage   Beam search takes texts one at a time for them.
    prefix and beam   A text that would end right after its prefix is found only if it is the likeliest of all.
    gains             The log-probabilities of single tokens are told to those who listen (`Search.heard`), and else [].
    sampling          Refused: all texts of a batch draw from one source of chance, so the batch would change a text.
    allowed, watch    Refused.
    repetition_penalty, no_repeat_ngram   Refused for text generators: a prompt does not count as written.

CTranslate2 knows tokens by their names; here these are their ids.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Self

import ctranslate2

from cutaway.config import Config, ModelConfig
from cutaway.errors import ConfigError, DataError
from cutaway.inference.engines.ct2_converter import DTYPES, read_model
from cutaway.inference.engines.ct2_model import model_file, settings, variables
from cutaway.runs import RunFolder
from cutaway.search.request import NO_NUMBERS, NOTHING_ALLOWED, Hypothesis, Rows, Search
from cutaway.twin.model import Model

INSTEAD = "Use engine 'torch' or 'numpy'."
IMPOSSIBLE = -1e9  # a log-probability below is that of no text, but of a place in a beam that nothing fills
NEGLIGIBLE = 1e-20  # a length penalty that changes no number, but has the search end as soon as k texts are found
LEAST = 1e-9  # as in decode/alignment.py: what nobody looked at counts as this much


class Ct2Row(NamedTuple):
    """A text to be written, as CTranslate2 counts."""

    place: int  # in the batch
    given: list[int]  # the source, or a prompt and its prefix
    prefix: list[int]  # what a translation is made to begin with, and what its answer therefore holds
    limit: int  # how many tokens the answer may have, those of the prefix and </s> counted


class Ct2Result(NamedTuple):
    """One text that it found."""

    tokens: list[int]  # with the prefix of a translation, and with </s>
    log_probability: float
    looks: list[list[float]]  # at the tokens of the source, for each of `tokens`; empty: nobody asked


Ask = Callable[[Sequence[Ct2Row], Search, dict[str, Any]], list[list[Ct2Result]]]


class Ct2Engine:
    """Translators and text generators of all architectures that CTranslate2 can express (ct2_model.py)."""

    def __init__(self, model: Any, config: ModelConfig):
        self.model, self.config = model, config
        self.names = [str(id) for id in range(config.vocab_size)]

    @classmethod
    def load(cls, run: RunFolder, config: Config, weights: Path, device: str = "auto", dtype: str = "float32") -> Self:
        return cls.of(read_model(run, config, weights), config.model, device, dtype)

    @classmethod
    def of(
        cls, twin: Model, config: ModelConfig, device: str = "cpu", dtype: str = "float32", threads: int = 1
    ) -> Self:
        """`threads` work at one batch. Several engines of one each get more done than one engine with several."""
        if dtype not in DTYPES:
            raise ConfigError(f"engine 'ct2' computes in {' or '.join(DTYPES)}, not in {dtype!r}. {INSTEAD}")
        kind, number = device_of(device)
        make = ctranslate2.Translator if config.family == "encoder_decoder" else ctranslate2.Generator
        options = {"compute_type": dtype, "inter_threads": 1, "intra_threads": threads}
        try:
            model = make("cutaway", kind, device_index=number, files=in_memory(twin, config, dtype), **options)
        except (RuntimeError, ValueError) as error:  # no CUDA, no int8 on this processor
            raise ConfigError(
                f"CTranslate2 cannot compute in {dtype} on device {device!r} here: {error}. {INSTEAD}"
            ) from None
        return cls(model, config)

    def translate(self, sources: Rows, search: Search) -> list[list[Hypothesis]]:
        self.check(sources, search, has_source=True)
        prefixes = search.prefixes or [()] * len(sources)
        rows = [
            Ct2Row(place, list(source), list(prefix), limit + len(prefix))
            for place, (source, prefix, limit) in enumerate(zip(sources, prefixes, search.limits, strict=True))
        ]
        return self.found(rows, search, alike_of_translations(search), self.ask_translator)

    def generate(self, prompts: Rows, search: Search) -> list[list[Hypothesis]]:
        self.check(prompts, search, has_source=False)
        prefixes = search.prefixes or [()] * len(prompts)
        rows = [
            Ct2Row(place, [*prompt, *prefix], [], limit)
            for place, (prompt, prefix, limit) in enumerate(zip(prompts, prefixes, search.limits, strict=True))
        ]
        # Prompts of one length are read at once. Of others the rest is read as a prefix is, which a beam does not like.
        alike = (lambda row: len(row.given)) if search.decode.strategy == "beam" else (lambda row: len(row.given) == 1)
        return self.found(rows, search, alike, self.ask_generator)

    def check(self, rows: Rows, search: Search, has_source: bool) -> None:
        """What cannot be is refused by name, before anything is computed."""
        search.check(has_source)
        if search.decode.strategy == "sample":
            raise ConfigError(
                "engine 'ct2' cannot sample such that the seed alone decides what is drawn: CTranslate2 draws for all "
                f"texts of a batch from one source of chance. {INSTEAD} Or use strategy 'greedy' or 'beam'."
            )
        for name in ("allowed", "watch"):
            if getattr(search, name) is not None:
                what = {"allowed": "restricted to some tokens or choices", "watch": "watched"}[name]
                raise ConfigError(f"the search of engine 'ct2' cannot be {what}. {INSTEAD}")
        for name, neutral in (("repetition_penalty", 1), ("no_repeat_ngram", 0)):
            if not has_source and (value := getattr(search.decode, name)) != neutral:
                raise ConfigError(
                    f"engine 'ct2' has no decode.{name} = {value} for text generators: CTranslate2 does not count the "
                    f"prompt as written. {INSTEAD}"
                )
        longest = max(map(len, rows), default=0)
        if longest > self.config.max_length:
            raise DataError(
                f"the text has {longest} tokens; this model has positions for {self.config.max_length}. "
                "Shorten it, or train with a larger model.max_length."
            )

    def found(
        self, rows: Sequence[Ct2Row], search: Search, alike: Callable[[Ct2Row], int], ask: Ask
    ) -> list[list[Hypothesis]]:
        results: list[list[Hypothesis]] = [[] for _ in rows]
        for _, group in groupby(sorted(rows, key=alike), key=alike):
            for row, answers, gains in within_limits(list(group), search, ask):
                results[row.place] = hypotheses(answers, gains, row, search)
        return results

    def ask_translator(self, rows: Sequence[Ct2Row], search: Search, options: dict[str, Any]) -> list[list[Ct2Result]]:
        first = self.names[search.bos]
        found = self.model.translate_batch(
            self.named(row.given for row in rows),
            [[first, *names] for names in self.named(row.prefix for row in rows)],
            max_input_length=0,
            max_decoding_length=options.pop("limit"),
            min_decoding_length=options.pop("at_least"),
            return_attention=search.is_looking,
            suppress_sequences=self.named([id] for id in search.decode.suppress) or None,
            **options,
        )
        return [
            [
                Ct2Result([int(name) for name in names], one.scores[i], one.attention[i] if one.attention else [])
                for i, names in enumerate(one.hypotheses)
            ]
            for one in found
        ]

    def ask_generator(self, rows: Sequence[Ct2Row], search: Search, options: dict[str, Any]) -> list[list[Ct2Result]]:
        found = self.model.generate_batch(
            self.named(row.given for row in rows),
            max_length=options.pop("limit"),
            min_length=options.pop("at_least"),
            include_prompt_in_result=False,
            suppress_sequences=self.named([id] for id in search.decode.suppress) or None,
            **options,
        )
        return [
            [Ct2Result(tokens, score, []) for tokens, score in zip(one.sequences_ids, one.scores, strict=True)]
            for one in found
        ]

    def named(self, rows: Any) -> list[list[str]]:
        names = self.names
        return [[names[id] for id in row] for row in rows]


def device_of(device: str) -> tuple[str, int]:
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or not (number.isdecimal() or not number):
        raise ConfigError(f"engine 'ct2' runs on cpu or cuda, not on device {device!r}. Use engine 'torch' for that.")
    return kind, int(number or 0)


def in_memory(twin: Model, config: ModelConfig, dtype: str) -> dict[str, bytes]:
    """The files of a CTranslate2 model whose tokens are called by their ids. None has a special meaning: who asks
    names the first and the last."""
    names = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "start": None}
    vocabulary = "shared_vocabulary.json" if config.family == "encoder_decoder" else "vocabulary.json"
    return {
        "model.bin": model_file(config, variables(twin, config), dtype),
        "config.json": json.dumps(settings(config, names)).encode(),
        vocabulary: json.dumps([str(id) for id in range(config.vocab_size)]).encode(),
    }


def alike_of_translations(search: Search) -> Callable[[Ct2Row], int]:
    """Which rows may share a call."""
    if search.is_looking and width(search) > 1:
        return lambda row: row.place  # its beams take where they look first from other texts of the batch
    if search.decode.min_length:
        return lambda row: len(row.prefix)  # because it counts from where the prefix ends
    return lambda row: bool(row.prefix)  # whoever has none is not to be searched as if there were one


def options_of(search: Search, rows: Sequence[Ct2Row], limit: int) -> dict[str, Any]:
    decode = search.decode
    at_least = decode.min_length + len(rows[0].prefix) if decode.min_length else 0
    k, texts = width(search), wanted(search)
    return {
        "limit": limit,
        "at_least": min(at_least, limit),
        "beam_size": k,
        "num_hypotheses": texts,
        "patience": max(texts / k, 1.0),
        "length_penalty": 0 if texts == 1 else NEGLIGIBLE,
        "repetition_penalty": decode.repetition_penalty,
        "no_repeat_ngram_size": decode.no_repeat_ngram,
        "end_token": [search.eos],
        "return_end_token": True,
        "return_scores": True,
    }


def width(search: Search) -> int:
    return search.decode.beam_size if search.decode.strategy == "beam" else 1


def wanted(search: Search) -> int:
    """How many texts it is to find: one, if only the likeliest is wanted; then it stops when no other can be likelier.
    Else as many as the beam is wide, for these to be ranked."""
    only_likelihood = search.n_best == 1 and search.decode.length_penalty == 0 and not search.has_coverage
    return 1 if only_likelihood or width(search) == 1 else max(width(search), search.n_best)


def within_limits(
    rows: list[Ct2Row], search: Search, ask: Ask
) -> Iterator[tuple[Ct2Row, list[Ct2Result], list[float]]]:
    """Each row with what was found within its own limit, though CTranslate2 has one limit for a call.

    All are searched up to the smallest limit. A row with a greater one that was not done by then is searched again, up
    to its own. Whether it was done can be seen, so that nothing depends on the others of a batch:

    - greedy search: it was, if it ended with </s>.
    - the likeliest text alone: it was, if that ended with </s>. What is cut off is less likely then, and would only get
      still less likely.
    - k texts: at the limit all places of the beam are given out as they are, fewer than k were found before, and the k
      likeliest are returned: so one of them is as long as the limit.

    Who listens must not hear anything twice: then rows are searched up to the greatest limit, and stopped at their own.
    """
    if search.heard:
        yield from heard(rows, search, ask)
        return
    limit = min(row.limit for row in rows)
    again: list[Ct2Row] = []
    for row, answers in zip(rows, ask(rows, search, options_of(search, rows, limit)), strict=True):
        if row.limit > limit and is_cut(answers, limit, search):
            again.append(row)
        else:
            yield row, answers, []
    again.sort(key=lambda row: row.limit)
    for own, group in groupby(again, key=lambda row: row.limit):
        alike = list(group)
        for row, answers in zip(alike, ask(alike, search, options_of(search, alike, own)), strict=True):
            yield row, answers, []


def is_cut(answers: Sequence[Ct2Result], limit: int, search: Search) -> bool:
    if wanted(search) == 1:
        return answers[0].tokens[-1:] != [search.eos]
    return any(len(answer.tokens) >= limit for answer in answers)


def heard(rows: list[Ct2Row], search: Search, ask: Ask) -> Iterator[tuple[Ct2Row, list[Ct2Result], list[float]]]:
    """Greedy search that tells each token as it is written."""
    gains: list[list[float]] = [[] for _ in rows]
    failures: list[BaseException] = []

    def stops(step: Any) -> bool:
        row = rows[step.batch_id]
        if step.step < len(row.prefix):
            return False
        gains[step.batch_id].append(step.log_prob)
        if failures or step.token_id == search.eos:
            return True
        try:
            goes_on = search.heard(row.place, step.token_id, step.log_prob)  # type: ignore[misc]
        except BaseException as failure:  # what a listener raises must not end a thread that is not Python's
            failures.append(failure)
            return True
        return not goes_on or len(row.prefix) + len(gains[step.batch_id]) >= row.limit

    options = options_of(search, rows, max(row.limit for row in rows)) | {"callback": stops}
    found = ask(rows, search, options)
    if failures:
        raise failures[0]
    yield from zip(rows, found, gains, strict=True)


def hypotheses(answers: Sequence[Ct2Result], gains: list[float], row: Ct2Row, search: Search) -> list[Hypothesis]:
    """What was found, ranked as everywhere."""
    if any(math.isnan(answer.log_probability) for answer in answers):
        raise DataError(NO_NUMBERS)
    never = set(search.decode.suppress)
    real = [a for a in answers if a.log_probability > IMPOSSIBLE and never.isdisjoint(a.tokens[len(row.prefix) :])]
    if n := search.decode.no_repeat_ngram:
        real = [a for a in real if not repeats(a.tokens, n, len(row.prefix))]
    if not real:  # where nothing may come, it takes what may not
        raise DataError(NOTHING_ALLOWED)
    found = [hypothesis(answer, gains, row, search) for answer in real]
    return sorted(found, key=lambda text: text.score, reverse=True)[: search.n_best]


def repeats(tokens: Sequence[int], n: int, before: int = 0) -> bool:
    """Whether n tokens in a row come twice; those that stand in a prefix of `before` tokens may."""
    seen: set[tuple[int, ...]] = set()
    for end in range(n, len(tokens) + 1):
        gram = tuple(tokens[end - n : end])
        if end > before and gram in seen:
            return True
        seen.add(gram)
    return False


def hypothesis(answer: Ct2Result, gains: list[float], row: Ct2Row, search: Search) -> Hypothesis:
    written = answer.tokens[len(row.prefix) :]
    finished = written[-1:] == [search.eos]
    score, decode = answer.log_probability, search.decode
    if decode.strategy == "beam":
        score /= ((5 + len(written)) / 6) ** decode.length_penalty
    if search.has_coverage:
        covered = [min(max(sum(looks), LEAST), 1) for looks in zip(*answer.looks, strict=True)]
        score += decode.coverage_penalty * sum(math.log(much) for much in covered)
    return Hypothesis(
        tokens=written[:-1] if finished else written,
        log_probability=answer.log_probability,
        score=score,
        finished=finished,
        gains=gains,
        alignment=answer.looks[len(row.prefix) :] if search.aligned else None,
    )
