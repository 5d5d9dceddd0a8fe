"""What translators and text generators share: from texts to a search over tokens, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from cutaway.config import DecodeConfig
from cutaway.errors import ConfigError, DataError
from cutaway.inference.pipelines.base import Pipeline, by_length, refuse_text
from cutaway.search.choices import OneOf, for_choices
from cutaway.search.request import BEAM_IS_DEAF, Allowed, Heard, Hypothesis, Rows, Search, Wanted, Wish
from cutaway.search.streaming import Pieces, Stops, ended, from_thread


class Writer(Pipeline):
    """What translators and text generators share: a search over the tokens of a text."""

    engines = ("torch", "numpy", "ct2")
    spread: ClassVar[int | None] = None  # by how many tokens the rows of a batch may differ in length

    def written(
        self,
        wishes: Sequence[Wish],
        decode: DecodeConfig | None = None,
        n_best: int = 1,
        allowed: Allowed | None = None,
        aligned: bool = False,
        choices: Sequence[str] | None = None,
    ) -> list[list[Hypothesis]]:
        """What the search found for each wish, best first (none, if there is nothing to translate).

        Wishes of like length go together in a batch; the order stays, and a wish's answer does not depend on its
        company. `allowed` is asked by the place of a wish among `wishes`; with `choices`, answers are one of these.
        `aligned` is for translations.
        """
        decode = self.decoding(decode)
        self.check_tokens(decode.suppress)
        rows, prefixes, one_of = self.rows(wishes), self.prefixes(wishes), self.one_of(choices, wishes)
        results: list[list[Hypothesis]] = [[] for _ in wishes]
        for indices in by_length(rows, decode.batch_size, self.spread):
            chosen = [wishes[i] for i in indices]
            search = Search(
                decode=decode,
                limits=[self.limit(rows[i], prefixes[i], wishes[i], decode, one_of[i]) for i in indices],
                numbers=[wish.number for wish in chosen],
                bos=self.tokenizer.bos,
                eos=self.tokenizer.eos,
                n_best=n_best,
                prefixes=[prefixes[i] for i in indices] if any(prefixes[i] for i in indices) else (),
                seeds=[decode.seed if wish.seed is None else wish.seed for wish in chosen],
                allowed=asked_by_place(allowed, [one_of[i] for i in indices], indices),
                heard=heard_by(chosen),
                wanted=wanted_by(chosen),
                aligned=aligned,
            )
            for index, found in zip(indices, self.searched([rows[i] for i in indices], search), strict=True):
                results[index] = found
        return results

    def hypotheses(
        self,
        texts: Sequence[str],
        decode: DecodeConfig | None = None,
        n_best: int = 1,
        first: int = 0,
        choices: Sequence[str] | None = None,
        aligned: bool = False,
    ) -> list[list[Hypothesis]]:
        """What the search found for each text, best first (none for an empty text to translate); `tokens` are the new
        ones alone. `first` and `choices` as in `answers`."""
        refuse_text(texts)
        decode = self.decoding(decode, choices)
        wishes = [Wish(text, number=first + i) for i, text in enumerate(texts)]
        return self.written(wishes, decode, n_best, aligned=aligned, choices=choices)

    def answers(
        self,
        texts: Sequence[str],
        decode: DecodeConfig | None = None,
        first: int = 0,
        prefix: str = "",
        choices: Sequence[str] | None = None,
        stop: Sequence[str] = (),
    ) -> list[str]:
        """The best answer to each text, in their order.

        What is drawn in sampling follows from the seed and a text's number; `first` is that of the first text.
        prefix    what each answer begins with, whatever the model thinks of it
        choices   each answer is exactly one of these; of a run that draws, without `decode`, the likeliest
        stop      an answer ends before the first of these strings
        """
        refuse_text(texts)
        decode = self.decoding(decode, choices)
        wishes = [Wish(text, prefix, first + i) for i, text in enumerate(texts)]
        if stop and decode.strategy != "beam":  # a beam cannot be ended by what one of its texts says
            wishes = [replace(wish, heard=self.until(wish, stop)) for wish in wishes]
        found = self.written(wishes, decode, choices=choices)
        return [
            ended(self.text_of(wish, best[0]), stop) if best else "" for wish, best in zip(wishes, found, strict=True)
        ]

    def stream(
        self,
        text: str,
        decode: DecodeConfig | None = None,
        prefix: str = "",
        stop: Sequence[str] = (),
        choices: Sequence[str] | None = None,
        number: int = 0,
    ) -> Iterator[str]:
        """The answer in pieces, as it is written; together they are exactly the answer. Greedily or by sampling:
        without `decode`, as the run is set, and greedily if that is beam search.

        Another thread does the work. Closing the iterator ends it.
        """
        is_given, decode = decode is not None, self.decoding(decode, choices)
        if decode.strategy == "beam":
            if is_given:
                raise ConfigError(BEAM_IS_DEAF)
            decode = replace(decode, strategy="greedy")
        wish = Wish(text, prefix, number)
        pieces = self.pieces(wish)
        self.one_of(choices, [wish])  # what is wrong with them is said at once

        def work(say: Callable[[str], bool]) -> None:
            stops = Stops(stop)

            def heard(token: int, log_p: float) -> bool:
                return say(stops.add(pieces.add(token))) and not stops.is_over

            if self.rows([wish])[0]:  # nothing to translate has no translation, not even a prefix
                say(stops.add(pieces.begun))
            if self.written([replace(wish, heard=heard)], decode, choices=choices)[0]:
                say(stops.add(pieces.end()) + stops.end())

        return from_thread(work)

    def decoding(self, decode: DecodeConfig | None, choices: Sequence[str] | None = None) -> DecodeConfig:
        """What was asked for, or the run's own way; "auto" is what is usual for the task."""
        return decode.for_task(self.config.model.task) if decode else for_choices(self.config.decode, choices)

    def until(self, wish: Wish, stop: Sequence[str]) -> Callable[[int, float], bool]:
        """To be shown the tokens of an answer: whether it is to go on, for none of the stop strings has come."""
        pieces, stops = self.pieces(wish), Stops(stop)
        stops.add(pieces.begun)

        def heard(token: int, log_p: float) -> bool:
            stops.add(pieces.add(token))
            return not stops.is_over

        return heard

    def one_of(self, choices: Sequence[str] | None, wishes: Sequence[Wish]) -> Sequence[OneOf | None]:
        """For each wish: its answer is one of these texts."""
        if choices is None:
            return [None] * len(wishes)
        goes_on = [self.goes_on(wish) for wish in wishes]
        trees = {way: OneOf(self.to_be_written("choice", choices, way), self.tokenizer.eos) for way in set(goes_on)}
        return [trees[way] for way in goes_on]

    def limit(
        self,
        row: Sequence[int],
        prefix: Sequence[int],
        wish: Wish,
        decode: DecodeConfig,
        one_of: OneOf | None = None,
    ) -> int:
        """How many tokens may be written for this wish, </s> counted: a limit of each text's own, so that an answer
        does not depend on the batch that it is in. Of choices, the longest is let through."""
        room = self.room(row) - len(prefix)
        if room < 1:
            raise DataError(self.no_room(row, prefix))
        if one_of:
            needed = one_of.longest - len(prefix)
            if needed > room:
                raise DataError(
                    f"the longest choice takes {needed} tokens more, and there is room for {room}. Shorten it."
                )
            return max(needed, 1)
        return min(wish.max_length or decode.max_length or self.usual_length(row), room)

    def check_tokens(self, ids: Sequence[int]) -> None:
        if wrong := [id for id in ids if id >= self.config.model.vocab_size]:
            raise ConfigError(
                f"decode.suppress names the token {wrong[0]}, and this model has those from 0 to "
                f"{self.config.model.vocab_size - 1}. Take it out."
            )

    def prefixes(self, wishes: Sequence[Wish]) -> list[list[int]]:
        """What each answer is made to begin with."""
        if not any(wish.prefix for wish in wishes):
            return [[] for _ in wishes]
        goes_on = [self.goes_on(wish) for wish in wishes]
        rows = {way: self.to_be_written("prefix", [wish.prefix for wish in wishes], way) for way in set(goes_on)}
        return [rows[way][i] for i, way in enumerate(goes_on)]

    def to_be_written(self, what: str, texts: Sequence[str], goes_on: bool) -> list[list[int]]:
        """The tokens of texts that the model is to write as they are; those that it has no tokens for are refused."""
        tokenizer = self.tokenizer.for_target
        encoded = tokenizer.encode_batch(texts, goes_on)
        for text, ids in zip(texts, encoded, strict=True):
            if tokenizer.unk is not None and tokenizer.unk in ids:
                raise DataError(
                    f"the {what} {text!r} cannot be written: {tokenizer.unknown(text)} is not in the vocabulary. "
                    "Leave it out, or put it in words that the model knows."
                )
        return encoded

    # what a translator and a text generator do in their own way

    def goes_on(self, wish: Wish) -> bool:
        """Whether the answer comes after the text of the wish, rather than being a text of its own."""
        raise NotImplementedError

    def rows(self, wishes: Sequence[Wish]) -> list[list[int]]:
        """What the model is given for each wish; nothing for a wish that needs no model."""
        raise NotImplementedError

    def searched(self, rows: Rows, search: Search) -> list[list[Hypothesis]]:
        raise NotImplementedError

    def room(self, row: Sequence[int]) -> int:
        """How many tokens the model has positions for, prefix and </s> counted."""
        raise NotImplementedError

    def usual_length(self, row: Sequence[int]) -> int:
        """How many tokens may be written if nobody says how many."""
        raise NotImplementedError

    def no_room(self, row: Sequence[int], prefix: Sequence[int]) -> str:
        raise NotImplementedError

    def text_of(self, wish: Wish, hypothesis: Hypothesis) -> str:
        """The answer's text, its prefix included."""
        raise NotImplementedError

    def pieces(self, wish: Wish) -> Pieces:
        """Shown the tokens of an answer one by one, gives `text_of` it, piece by piece."""
        raise NotImplementedError


def asked_by_place(allowed: Allowed | None, one_of: Sequence[OneOf | None], indices: Sequence[int]) -> Allowed | None:
    """An engine knows rows of a batch; who is asked knows the places of a call. Each row may have its own choices."""
    if allowed is not None:
        return lambda row, tokens: allowed(indices[row], tokens)
    trees = [tree for tree in one_of if tree is not None]
    return (lambda row, tokens: trees[row](row, tokens)) if trees else None


def heard_by(wishes: Sequence[Wish]) -> Heard | None:
    if all(wish.heard is None for wish in wishes):
        return None

    def heard(row: int, token: int, log_p: float) -> bool:
        listener = wishes[row].heard
        return listener is None or listener(token, log_p)

    return heard


def wanted_by(wishes: Sequence[Wish]) -> Wanted | None:
    if all(wish.wanted is None for wish in wishes):
        return None

    def wanted(row: int) -> bool:
        ask = wishes[row].wanted
        return ask is None or ask()

    return wanted
