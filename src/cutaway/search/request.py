"""What a search is asked for, and what it finds: the words that all engines share. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cutaway.config import DecodeConfig
from cutaway.errors import ConfigError

NO_NUMBERS = (
    "the model's logits are not finite numbers, so there is nothing to draw from. Its training has diverged, or its "
    "weights are damaged: take those of an earlier checkpoint."
)
NOTHING_ALLOWED = (
    "no token may come next: what is asked for forbids every one of them. Among the settings are allowed tokens or "
    "choices, no_repeat_ngram, suppress and min_length, and together they leave nothing. Loosen one of them."
)
BEAM_IS_DEAF = (
    "beam search follows several texts side by side, so there is no text to show while it is being written. "
    'Use the strategy "greedy" or "sample".'
)
NO_SOURCE = (
    "{what} needs a source to look at, and a text generator has none. It is for translations: leave it out here."
)
Rows = Sequence[Sequence[int]]  # of token ids
# row, tokens written so far (those of its prefix too) -> the tokens that may come next; None: any
Allowed = Callable[[int, Sequence[int]], Sequence[int] | None]
# row, the token just written, its log-probability -> whether this text is to go on; not of beam search
# (neither a prefix nor </s> is told: the one is not written, and after the other nothing can go on)
Heard = Callable[[int, int, float], bool]
Wanted = Callable[[int], bool]  # row -> whether anybody still waits for this text


class Search(NamedTuple):
    """What an engine is to look for, for each of some rows."""

    decode: DecodeConfig
    limits: Sequence[int]  # how many tokens may be written for each text, after its prefix, </s> counted
    numbers: Sequence[int]  # which text of the call each row is
    bos: int
    eos: int
    n_best: int = 1
    prefixes: Rows = ()  # what each text begins with, whatever the model thinks of it; (): with nothing
    seeds: Sequence[int] = ()  # of each row; (): all have that of `decode`
    allowed: Allowed | None = None
    heard: Heard | None = None
    aligned: bool = False  # translations: also tell where the model looked
    watch: Callable[[Any], None] | None = None  # of beam search: shown every step
    wanted: Wanted | None = None

    def draws(self) -> list[np.random.Generator]:
        """A source of chance for each row. It follows from the seed and the text's number, and from nothing else:
        neither the batch that a text is in nor the engine changes what is drawn for it."""
        seeds = self.seeds or [self.decode.seed] * len(self.numbers)
        return [np.random.default_rng([seed, number]) for seed, number in zip(seeds, self.numbers, strict=True)]

    @property
    def has_rules(self) -> bool:
        """Whether anything but the model says what may come next, and how likely it is."""
        d = self.decode
        return bool(
            d.repetition_penalty != 1 or d.no_repeat_ngram or d.suppress or d.min_length or self.allowed is not None
        )

    @property
    def is_looking(self) -> bool:
        """Whether it matters where in the source the model looks."""
        return self.aligned or self.has_coverage

    @property
    def has_coverage(self) -> bool:
        return self.decode.strategy == "beam" and self.decode.coverage_penalty > 0

    def check(self, has_source: bool) -> None:
        """What cannot be is refused by name."""
        if self.decode.strategy == "auto":
            raise ConfigError(
                "decode.strategy = 'auto' depends on the task, which an engine does not know. Use "
                "DecodeConfig.for_task, or name the strategy."
            )
        if self.heard is not None and self.decode.strategy == "beam":
            raise ConfigError(BEAM_IS_DEAF)
        if not has_source and self.has_coverage:
            raise ConfigError(NO_SOURCE.format(what=f"decode.coverage_penalty = {self.decode.coverage_penalty}"))
        if not has_source and self.aligned:
            raise ConfigError(NO_SOURCE.format(what="an alignment"))


class Start(NamedTuple):
    """Where texts begin that are written together: what all rows read at once, and then, token by token, what each of
    them is made to write before its own choice begins. So no row is padded, and positions are right by construction.

        prompts [a b c d], [e f]     ->   prompts [a b], [e f]     forced [c d x], [y]     before 4, 2
        prefixes [x], [y]

    Of a translation the prompt is <s>. `is_history`: whether the prompts count as something that was written, which
    the rules against repetition look at.
    """

    prompts: Rows  # all of one length; their last token is read in the first step
    forced: Rows
    before: Sequence[int]  # how many tokens of the history stand before each answer; its prefix belongs to the answer
    is_history: bool

    @classmethod
    def of(cls, prompts: Rows, prefixes: Rows, is_history: bool) -> Start:
        shortest = min((len(prompt) for prompt in prompts), default=0)
        forced = [
            [*prompt[shortest:], *prefix]
            for prompt, prefix in zip(prompts, prefixes or [()] * len(prompts), strict=True)
        ]
        before = [len(prompt) if is_history else len(prompt) - shortest for prompt in prompts]
        return cls([prompt[:shortest] for prompt in prompts], forced, before, is_history)

    @property
    def first(self) -> list[int]:
        """What each row reads in its first step."""
        return [prompt[-1] for prompt in self.prompts]

    @property
    def history(self) -> Rows:
        """What counts as written before the first step."""
        return [prompt[:-1] if self.is_history else () for prompt in self.prompts]


@dataclass(frozen=True)
class Hypothesis:
    """A text that a search has written. What it was given to begin with (`Search.prefixes`) is no part of it.

    tokens            without <s> and </s>
    log_probability   the sum over its tokens, </s> included
    score             what the search ranks by: the same; in beam search with its penalties
    finished          ended by </s>, rather than cut off at the greatest length
    gains             the log-probability of each token, and of </s> if it is finished; []: only their sum is known
    alignment         if asked for: for each of `gains`, how much the model looked at each token of the source
    """

    tokens: list[int]
    log_probability: float
    score: float
    finished: bool
    gains: list[float] = field(default_factory=list)
    alignment: list[list[float]] | None = None


@dataclass(frozen=True)
class Request:
    """A text to translate or to go on with, and all that is its own matter, so that any wishes can share a batch.

    prefix       what the answer begins with, whatever the model thinks of it
    number       which text of a call it is: sampling draws by seed and number
    seed         its own; None: that of the settings
    max_length   its own; None: that of the settings
    heard        shown each token as it is written, and its log-probability; answers whether to go on
    wanted       asked at every step, of beam search too: whether to go on. Else there is what was found until then, if
                 anything was (engine ct2 does not ask)
    """

    text: str
    prefix: str = ""
    number: int = 0
    seed: int | None = None
    max_length: int | None = None
    heard: Callable[[int, float], bool] | None = None
    wanted: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"the seed {self.seed} must not be negative.")
