"""The input and output of a search, shared by all engines. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cutaway.config import DecodeConfig
from cutaway.errors import ConfigError

NON_FINITE_LOGITS = (
    "the model's logits are not finite, so no token can be chosen. The training diverged or the weights are damaged. "
    "Use an earlier checkpoint."
)
NO_TOKEN_ALLOWED = (
    "the settings forbid every next token. Loosen one of these: allowed tokens or choices, no_repeat_ngram, suppress, "
    "min_length."
)
BEAM_CANNOT_STREAM = (
    "beam search extends several texts in parallel, so it cannot stream one text token by token. "
    'Use the strategy "greedy" or "sample".'
)
NEEDS_SOURCE = "{what} needs a source text, and a text generator has none. Use it with translation models only."

Rows = Sequence[Sequence[int]]  # token ids
# (row, tokens so far with prefix) -> tokens that may come next; None: all
Allowed = Callable[[int, Sequence[int]], Sequence[int] | None]
# (row, new token, log-probability) -> whether to continue this text. Not called for a prefix or for </s>.
OnToken = Callable[[int, int, float], bool]
ShouldContinue = Callable[[int], bool]  # row -> whether to continue this text


class Search(NamedTuple):
    """The settings of a search, and what differs between the rows of the batch."""

    decode: DecodeConfig
    limits: Sequence[int]  # for each row, the largest number of new tokens, </s> included, prefix excluded
    numbers: Sequence[int]  # the number of each row's text in the call
    bos: int
    eos: int
    n_best: int = 1
    prefixes: Rows = ()  # the tokens that each output must start with; (): none
    seeds: Sequence[int] = ()  # for each row; (): the seed of `decode` for all
    allowed: Allowed | None = None
    on_token: OnToken | None = None  # not with beam search
    with_alignment: bool = False  # translation only: return the cross-attention weights
    on_step: Callable[[Any], None] | None = None  # beam search only: called with each step
    should_continue: ShouldContinue | None = None

    def generators(self) -> list[np.random.Generator]:
        """A random generator for each row.

        It depends only on the seed and the text's number. So a text is sampled the same way in every batch and engine.
        """
        seeds = self.seeds or [self.decode.seed] * len(self.numbers)
        return [np.random.default_rng([seed, number]) for seed, number in zip(seeds, self.numbers, strict=True)]

    @property
    def has_rules(self) -> bool:
        """Whether any setting changes the model's logits."""
        d = self.decode
        return bool(
            d.repetition_penalty != 1 or d.no_repeat_ngram or d.suppress or d.min_length or self.allowed is not None
        )

    @property
    def needs_source_weights(self) -> bool:
        """Whether the search needs the cross-attention weights."""
        return self.with_alignment or self.has_coverage

    @property
    def has_coverage(self) -> bool:
        """Whether the score has a coverage penalty."""
        return self.decode.strategy == "beam" and self.decode.coverage_penalty > 0

    def check(self, has_source: bool) -> None:
        """Raise a ConfigError if the settings contradict each other or need a source that is missing."""
        if self.decode.strategy == "auto":
            raise ConfigError(
                "decode.strategy = 'auto' depends on the task, which an engine does not know. Use "
                "DecodeConfig.for_task, or name the strategy."
            )
        if self.on_token is not None and self.decode.strategy == "beam":
            raise ConfigError(BEAM_CANNOT_STREAM)
        if not has_source and self.has_coverage:
            raise ConfigError(NEEDS_SOURCE.format(what=f"decode.coverage_penalty = {self.decode.coverage_penalty}"))
        if not has_source and self.with_alignment:
            raise ConfigError(NEEDS_SOURCE.format(what="an alignment"))


class Start(NamedTuple):
    """The tokens that each row of a batch starts with.

    Prompts are cut to the length of the shortest one. The rest of a prompt and the prefix are `forced`: read one token
    per step, like generated tokens. So no row needs padding, and all positions are correct.

        prompts [a b c d], [e f]     ->   prompts [a b], [e f]     forced [c d x], [y]     answer_starts 4, 2
        prefixes [x], [y]

    The prompt of a translation is <s>. `is_history`: prompts are part of the history that rules against repetition see.
    """

    prompts: Rows  # all of the same length; the first step reads their last token
    forced: Rows
    answer_starts: Sequence[int]  # index in the history where each answer starts; its prefix is part of the answer
    is_history: bool

    @classmethod
    def of(cls, prompts: Rows, prefixes: Rows, is_history: bool) -> Start:
        shortest = min((len(prompt) for prompt in prompts), default=0)
        forced = [
            [*prompt[shortest:], *prefix]
            for prompt, prefix in zip(prompts, prefixes or [()] * len(prompts), strict=True)
        ]
        answer_starts = [len(prompt) if is_history else len(prompt) - shortest for prompt in prompts]
        return cls([prompt[:shortest] for prompt in prompts], forced, answer_starts, is_history)

    @property
    def first(self) -> list[int]:
        """The token that each row reads in the first step."""
        return [prompt[-1] for prompt in self.prompts]

    @property
    def history(self) -> Rows:
        """The history before the first step."""
        return [prompt[:-1] if self.is_history else () for prompt in self.prompts]


@dataclass(frozen=True)
class Hypothesis:
    """A text that a search found, without its prefix.

    tokens            without <s> and </s>
    log_probability   the sum over its tokens and </s>
    score             the search ranks by it: the log-probability, in beam search with its penalties
    finished          whether it ends with </s>; otherwise it was cut off at the length limit
    token_log_probs   the log-probability of each token, and of </s> if finished; []: only the sum is known
    alignment         for each of `token_log_probs`, the attention weights over the source tokens; None: not requested
    """

    tokens: list[int]
    log_probability: float
    score: float
    finished: bool
    token_log_probs: list[float] = field(default_factory=list)
    alignment: list[list[float]] | None = None


@dataclass(frozen=True)
class Request:
    """A text to translate or to continue, with its own settings. Requests with different settings can share a batch.

    prefix            the text that the output must start with
    number            its number in the call; sampling depends on seed and number
    seed              None: the seed of the settings
    max_length        None: the limit of the settings
    on_token          called with each new token and its log-probability; returns whether to continue
    should_continue   called at each step, also in beam search. If it returns False, the search ends with the texts
                      found so far, perhaps none. (Engine ct2 does not call it.)
    """

    text: str
    prefix: str = ""
    number: int = 0
    seed: int | None = None
    max_length: int | None = None
    on_token: Callable[[int, float], bool] | None = None
    should_continue: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"the seed is {self.seed}. Use 0 or a larger number.")
