"""The CTranslate2 engine: runs a run folder in C++, without an export.

Greedy search, and beam search for the most probable text (α = 0), give the same results as the PyTorch engine, up to
rounding. CTranslate2 differs in these points:

    beam search       With a penalty, or for several outputs, it stops after k finished texts, even if a better one
                      could follow. The results are ranked by the formula of decode/beam.py.
    alignment, coverage   With beam search, each text is a separate call.
    prefix and beam   A text that ends right after its prefix is found only if it is the most probable one.
    token_log_probs   Known only with a callback (`Search.on_token`); otherwise [].
    sampling          Not supported: all texts of a batch share one random generator, so the batch would change a text.
    allowed, on_step  Not supported.
    repetition_penalty, no_repeat_ngram   Not supported for text generators: CTranslate2 ignores the prompt.

CTranslate2 identifies tokens by name; this engine uses the token ids as names.
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
from cutaway.inference.engines.ct2_model import model_file, model_settings, model_variables
from cutaway.runs import RunFolder
from cutaway.search.request import NO_TOKEN_ALLOWED, NON_FINITE_LOGITS, Hypothesis, Rows, Search
from cutaway.twin.model import Model

ALTERNATIVE = "Use engine 'torch' or 'numpy'."
MIN_LOG_PROBABILITY = -1e9  # CTranslate2 fills empty places of a beam with texts below this
TINY_PENALTY = 1e-20  # a length penalty that changes no score, but makes the search stop after k finished texts
MIN_COVERAGE = 1e-9  # as in decode/alignment.py: the coverage of a source token without attention


class Ct2Row(NamedTuple):
    """The input of one text."""

    number: int  # in the batch
    input: list[int]  # the source, or the prompt with its prefix
    prefix: list[int]  # for a translation: the tokens that the output must start with, which CTranslate2 returns too
    limit: int  # the largest number of output tokens, prefix and </s> included


class Ct2Result(NamedTuple):
    """One output text."""

    tokens: list[int]  # for a translation with the prefix; with </s>
    log_probability: float
    source_weights: list[list[float]]  # for each token, the attention to each source token; []: not requested


CallModel = Callable[[Sequence[Ct2Row], Search, dict[str, Any]], list[list[Ct2Result]]]


class Ct2Engine:
    """Translators and text generators with an architecture that CTranslate2 supports (ct2_model.py)."""

    def __init__(self, model: Any, config: ModelConfig):
        self.model, self.config = model, config
        self.names = [str(id) for id in range(config.vocab_size)]

    @classmethod
    def load(cls, run: RunFolder, config: Config, weights: Path, device: str = "auto", dtype: str = "float32") -> Self:
        return cls.from_twin(read_model(run, config, weights), config.model, device, dtype)

    @classmethod
    def from_twin(
        cls, twin: Model, config: ModelConfig, device: str = "cpu", dtype: str = "float32", threads: int = 1
    ) -> Self:
        """`threads` compute one batch. Several engines with one thread each are faster than one with several."""
        if dtype not in DTYPES:
            raise ConfigError(f"engine 'ct2' computes in {' or '.join(DTYPES)}, not in {dtype!r}. {ALTERNATIVE}")
        kind, number = parse_device(device)
        make = ctranslate2.Translator if config.family == "encoder_decoder" else ctranslate2.Generator
        options = {"compute_type": dtype, "inter_threads": 1, "intra_threads": threads}
        try:
            model = make("cutaway", kind, device_index=number, files=model_files(twin, config, dtype), **options)
        except (RuntimeError, ValueError) as error:  # for example no CUDA, or no int8 on this processor
            raise ConfigError(
                f"CTranslate2 cannot compute in {dtype} on device {device!r}: {error}. {ALTERNATIVE}"
            ) from None
        return cls(model, config)

    def translate(self, sources: Rows, search: Search) -> list[list[Hypothesis]]:
        self.check(sources, search, has_source=True)
        prefixes = search.prefixes or [()] * len(sources)
        rows = [
            Ct2Row(number, list(source), list(prefix), limit + len(prefix))
            for number, (source, prefix, limit) in enumerate(zip(sources, prefixes, search.limits, strict=True))
        ]
        return self.search_in_groups(rows, search, translation_group(search), self.call_translator)

    def generate(self, prompts: Rows, search: Search) -> list[list[Hypothesis]]:
        self.check(prompts, search, has_source=False)
        prefixes = search.prefixes or [()] * len(prompts)
        rows = [
            Ct2Row(number, [*prompt, *prefix], [], limit)
            for number, (prompt, prefix, limit) in enumerate(zip(prompts, prefixes, search.limits, strict=True))
        ]
        # CTranslate2 reads prompts of different lengths as prefixes, and its beam search differs after a prefix.
        group_key = (
            (lambda row: len(row.input)) if search.decode.strategy == "beam" else (lambda row: len(row.input) == 1)
        )
        return self.search_in_groups(rows, search, group_key, self.call_generator)

    def check(self, rows: Rows, search: Search, has_source: bool) -> None:
        """Raise an error for a search that CTranslate2 does not support."""
        search.check(has_source)
        if search.decode.strategy == "sample":
            raise ConfigError(
                "engine 'ct2' cannot sample reproducibly: CTranslate2 has one random generator for all texts of a "
                f"batch. {ALTERNATIVE} Or use strategy 'greedy' or 'beam'."
            )
        for name, feature in (("allowed", "a restriction to some tokens or choices"), ("on_step", "a step callback")):
            if getattr(search, name) is not None:
                raise ConfigError(f"engine 'ct2' does not support {feature}. {ALTERNATIVE}")
        for name, neutral in (("repetition_penalty", 1), ("no_repeat_ngram", 0)):
            if not has_source and (value := getattr(search.decode, name)) != neutral:
                raise ConfigError(
                    f"engine 'ct2' does not support decode.{name} = {value} for text generators: CTranslate2 ignores "
                    f"the prompt. {ALTERNATIVE}"
                )
        longest = max(map(len, rows), default=0)
        if longest > self.config.max_length:
            raise DataError(
                f"the text has {longest} tokens; this model has positions for {self.config.max_length}. "
                "Shorten it, or train with a larger model.max_length."
            )

    def search_in_groups(
        self, rows: Sequence[Ct2Row], search: Search, group_key: Callable[[Ct2Row], int], call: CallModel
    ) -> list[list[Hypothesis]]:
        """Search with one call for each group of rows, and return the results in the order of the rows."""
        found: list[list[Hypothesis]] = [[] for _ in rows]
        for _, group in groupby(sorted(rows, key=group_key), key=group_key):
            for row, results, token_log_probs in search_within_limits(list(group), search, call):
                found[row.number] = make_hypotheses(results, token_log_probs, row, search)
        return found

    def call_translator(self, rows: Sequence[Ct2Row], search: Search, options: dict[str, Any]) -> list[list[Ct2Result]]:
        first = self.names[search.bos]
        results = self.model.translate_batch(
            self.to_names(row.input for row in rows),
            [[first, *names] for names in self.to_names(row.prefix for row in rows)],
            max_input_length=0,
            max_decoding_length=options.pop("max_length"),
            min_decoding_length=options.pop("min_length"),
            return_attention=search.needs_source_weights,
            suppress_sequences=self.to_names([id] for id in search.decode.suppress) or None,
            **options,
        )
        return [
            [
                Ct2Result([int(name) for name in names], text.scores[i], text.attention[i] if text.attention else [])
                for i, names in enumerate(text.hypotheses)
            ]
            for text in results
        ]

    def call_generator(self, rows: Sequence[Ct2Row], search: Search, options: dict[str, Any]) -> list[list[Ct2Result]]:
        results = self.model.generate_batch(
            self.to_names(row.input for row in rows),
            include_prompt_in_result=False,
            suppress_sequences=self.to_names([id] for id in search.decode.suppress) or None,
            **options,
        )
        return [
            [Ct2Result(tokens, score, []) for tokens, score in zip(text.sequences_ids, text.scores, strict=True)]
            for text in results
        ]

    def to_names(self, rows: Any) -> list[list[str]]:
        names = self.names
        return [[names[id] for id in row] for row in rows]


def parse_device(device: str) -> tuple[str, int]:
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or not (number.isdecimal() or not number):
        raise ConfigError(f"engine 'ct2' runs on cpu or cuda, not on device {device!r}. Use engine 'torch'.")
    return kind, int(number or 0)


def model_files(twin: Model, config: ModelConfig, dtype: str) -> dict[str, bytes]:
    """The files of a CTranslate2 model, in memory. Token names are ids; each call passes the first and last token."""
    names = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "start": None}
    vocabulary = "shared_vocabulary.json" if config.family == "encoder_decoder" else "vocabulary.json"
    return {
        "model.bin": model_file(config, model_variables(twin, config), dtype),
        "config.json": json.dumps(model_settings(config, names)).encode(),
        vocabulary: json.dumps([str(id) for id in range(config.vocab_size)]).encode(),
    }


def translation_group(search: Search) -> Callable[[Ct2Row], int]:
    """Rows with the same group key may share a call."""
    if search.needs_source_weights and beam_size(search) > 1:
        return lambda row: row.number  # in a batch, CTranslate2 mixes up the attention weights of the first step
    if search.decode.min_length:
        return lambda row: len(row.prefix)  # CTranslate2 counts the prefix for the minimum length
    return lambda row: bool(row.prefix)  # a row without a prefix would be searched as if it had one


def call_options(search: Search, rows: Sequence[Ct2Row], limit: int) -> dict[str, Any]:
    decode = search.decode
    min_length = decode.min_length + len(rows[0].prefix) if decode.min_length else 0
    k, n = beam_size(search), n_hypotheses(search)
    return {
        "max_length": limit,
        "min_length": min(min_length, limit),
        "beam_size": k,
        "num_hypotheses": n,
        "patience": max(n / k, 1.0),
        "length_penalty": 0 if n == 1 else TINY_PENALTY,
        "repetition_penalty": decode.repetition_penalty,
        "no_repeat_ngram_size": decode.no_repeat_ngram,
        "end_token": [search.eos],
        "return_end_token": True,
        "return_scores": True,
    }


def beam_size(search: Search) -> int:
    return search.decode.beam_size if search.decode.strategy == "beam" else 1


def n_hypotheses(search: Search) -> int:
    """The number of texts that CTranslate2 should find.

    1 if only the most probable text is needed; CTranslate2 then stops when no other can be more probable. Otherwise the
    beam size, so that the texts can be ranked.
    """
    only_likelihood = search.n_best == 1 and search.decode.length_penalty == 0 and not search.has_coverage
    return 1 if only_likelihood or beam_size(search) == 1 else max(beam_size(search), search.n_best)


def search_within_limits(
    rows: list[Ct2Row], search: Search, call: CallModel
) -> Iterator[tuple[Ct2Row, list[Ct2Result], list[float]]]:
    """Search each row up to its own length limit, although CTranslate2 has one limit for a call.

    The first call uses the smallest limit. A row with a larger limit is searched again if the first limit truncated it.
    This is visible in the results, so they do not depend on the other rows of the batch:

    - greedy search: the row is complete if its text ends with </s>.
    - only the most probable text: the row is complete if that text ends with </s>. A truncated text is less probable,
      and would become even less probable.
    - k texts: at the limit, CTranslate2 adds the unfinished texts of the beam and returns the k most probable texts. If
      one of them is as long as the limit, the row was truncated.

    With a token callback, no token may be reported twice. All rows are then searched once, up to the largest limit, and
    stopped at their own limits.
    """
    if search.on_token:
        yield from stream_tokens(rows, search, call)
        return
    smallest = min(row.limit for row in rows)
    truncated: list[Ct2Row] = []
    for row, results in zip(rows, call(rows, search, call_options(search, rows, smallest)), strict=True):
        if row.limit > smallest and is_truncated(results, smallest, search):
            truncated.append(row)
        else:
            yield row, results, []
    truncated.sort(key=lambda row: row.limit)
    for limit, group in groupby(truncated, key=lambda row: row.limit):
        same_limit = list(group)
        for row, results in zip(
            same_limit, call(same_limit, search, call_options(search, same_limit, limit)), strict=True
        ):
            yield row, results, []


def is_truncated(results: Sequence[Ct2Result], limit: int, search: Search) -> bool:
    if n_hypotheses(search) == 1:
        return results[0].tokens[-1:] != [search.eos]
    return any(len(result.tokens) >= limit for result in results)


def stream_tokens(
    rows: list[Ct2Row], search: Search, call: CallModel
) -> Iterator[tuple[Ct2Row, list[Ct2Result], list[float]]]:
    """Greedy search that calls `search.on_token` for each new token."""
    token_log_probs: list[list[float]] = [[] for _ in rows]
    errors: list[BaseException] = []

    def should_stop(step: Any) -> bool:
        row = rows[step.batch_id]
        if step.step < len(row.prefix):
            return False
        token_log_probs[step.batch_id].append(step.log_prob)
        if errors or step.token_id == search.eos:
            return True
        try:
            should_continue = search.on_token(row.number, step.token_id, step.log_prob)  # type: ignore[misc]
        except BaseException as error:  # an exception in a C++ thread would end the process
            errors.append(error)
            return True
        return not should_continue or len(row.prefix) + len(token_log_probs[step.batch_id]) >= row.limit

    options = call_options(search, rows, max(row.limit for row in rows)) | {"callback": should_stop}
    results = call(rows, search, options)
    if errors:
        raise errors[0]
    yield from zip(rows, results, token_log_probs, strict=True)


def make_hypotheses(
    results: Sequence[Ct2Result], token_log_probs: list[float], row: Ct2Row, search: Search
) -> list[Hypothesis]:
    """Convert and rank the results. Without an allowed token, CTranslate2 chooses a forbidden one; drop such texts."""
    if any(math.isnan(result.log_probability) for result in results):
        raise DataError(NON_FINITE_LOGITS)
    suppressed, n, n_prefix = set(search.decode.suppress), search.decode.no_repeat_ngram, len(row.prefix)
    allowed = [
        result
        for result in results
        if result.log_probability > MIN_LOG_PROBABILITY
        and suppressed.isdisjoint(result.tokens[n_prefix:])
        and not (n and has_repeated_ngram(result.tokens, n, n_prefix))
    ]
    if not allowed:
        raise DataError(NO_TOKEN_ALLOWED)
    found = [make_hypothesis(result, token_log_probs, row, search) for result in allowed]
    return sorted(found, key=lambda text: text.score, reverse=True)[: search.n_best]


def has_repeated_ngram(tokens: Sequence[int], n: int, n_prefix: int = 0) -> bool:
    """Whether an n-gram occurs twice. Repetitions within the prefix do not count."""
    seen: set[tuple[int, ...]] = set()
    for end in range(n, len(tokens) + 1):
        ngram = tuple(tokens[end - n : end])
        if end > n_prefix and ngram in seen:
            return True
        seen.add(ngram)
    return False


def make_hypothesis(result: Ct2Result, token_log_probs: list[float], row: Ct2Row, search: Search) -> Hypothesis:
    tokens = result.tokens[len(row.prefix) :]
    finished = tokens[-1:] == [search.eos]
    score, decode = result.log_probability, search.decode
    if decode.strategy == "beam":
        score /= ((5 + len(tokens)) / 6) ** decode.length_penalty
    if search.has_coverage:
        coverage = [min(max(sum(weights), MIN_COVERAGE), 1) for weights in zip(*result.source_weights, strict=True)]
        score += decode.coverage_penalty * sum(map(math.log, coverage))
    return Hypothesis(
        tokens=tokens[:-1] if finished else tokens,
        log_probability=result.log_probability,
        score=score,
        finished=finished,
        token_log_probs=token_log_probs,
        alignment=result.source_weights[len(row.prefix) :] if search.with_alignment else None,
    )
