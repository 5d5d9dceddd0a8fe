"""Base of the pipelines that generate text: from texts to a search over tokens, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from cutaway.config import DecodeConfig
from cutaway.errors import ConfigError, DataError
from cutaway.inference.pipelines.base import Pipeline, batch_by_length, require_list
from cutaway.search.choices import ChoiceTrie, config_for_choices
from cutaway.search.request import (
    BEAM_CANNOT_STREAM,
    Allowed,
    Hypothesis,
    OnToken,
    Request,
    Rows,
    Search,
    ShouldContinue,
)
from cutaway.search.streaming import OutputStream, StopStrings, cut_at_stop, stream_from_thread


class GenerationPipeline(Pipeline):
    """Base of translators and text generators: runs a search for each request."""

    engines = ("torch", "numpy", "ct2")
    spread: ClassVar[int | None] = None  # largest difference in length within a batch, in tokens

    def search(
        self,
        requests: Sequence[Request],
        decode: DecodeConfig | None = None,
        n_best: int = 1,
        allowed: Allowed | None = None,
        with_alignment: bool = False,
        choices: Sequence[str] | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses for each request, best first; none if there is nothing to translate.

        Requests of similar length share a batch. The order stays, and no result depends on the rest of its batch.
        `allowed` receives the index of a request in `requests`. With `choices`, each output is one of these.
        `with_alignment` is for translations.
        """
        decode = self.resolve_decode(decode)
        self.check_tokens(decode.suppress)
        rows, prefixes, choice_tries = (
            self.input_ids(requests),
            self.prefixes(requests),
            self.choice_tries(choices, requests),
        )
        results: list[list[Hypothesis]] = [[] for _ in requests]
        for indices in batch_by_length(rows, decode.batch_size, self.spread):
            chosen = [requests[i] for i in indices]
            search = Search(
                decode=decode,
                limits=[self.length_limit(rows[i], prefixes[i], requests[i], decode, choice_tries[i]) for i in indices],
                numbers=[request.number for request in chosen],
                bos=self.tokenizer.bos,
                eos=self.tokenizer.eos,
                n_best=n_best,
                prefixes=[prefixes[i] for i in indices] if any(prefixes[i] for i in indices) else (),
                seeds=[decode.seed if request.seed is None else request.seed for request in chosen],
                allowed=allowed_by_row(allowed, [choice_tries[i] for i in indices], indices),
                on_token=token_callback(chosen),
                should_continue=continue_callback(chosen),
                with_alignment=with_alignment,
            )
            for index, found in zip(indices, self.run_search([rows[i] for i in indices], search), strict=True):
                results[index] = found
        return results

    def hypotheses(
        self,
        texts: Sequence[str],
        decode: DecodeConfig | None = None,
        n_best: int = 1,
        first: int = 0,
        choices: Sequence[str] | None = None,
        with_alignment: bool = False,
    ) -> list[list[Hypothesis]]:
        """The hypotheses for each text, best first; none for an empty text to translate.

        `tokens` holds only the new tokens. `first` and `choices` as in `answers`.
        """
        require_list(texts)
        decode = self.resolve_decode(decode, choices)
        requests = [Request(text, number=first + i) for i, text in enumerate(texts)]
        return self.search(requests, decode, n_best, with_alignment=with_alignment, choices=choices)

    def answers(
        self,
        texts: Sequence[str],
        decode: DecodeConfig | None = None,
        first: int = 0,
        prefix: str = "",
        choices: Sequence[str] | None = None,
        stop: Sequence[str] = (),
    ) -> list[str]:
        """The best output for each text, in order.

        first     number of the first text; sampling depends only on the seed and the number of a text
        prefix    each output is forced to start with this
        choices   each output is exactly one of these; if the run samples and `decode` is None, the most probable one
        stop      an output ends before the first of these strings
        """
        require_list(texts)
        decode = self.resolve_decode(decode, choices)
        requests = [Request(text, prefix, first + i) for i, text in enumerate(texts)]
        if stop and decode.strategy != "beam":  # one hypothesis of a beam cannot stop the others
            requests = [replace(request, on_token=self.stop_callback(request, stop)) for request in requests]
        found = self.search(requests, decode, choices=choices)
        return [
            cut_at_stop(self.output_text(request, best[0]), stop) if best else ""
            for request, best in zip(requests, found, strict=True)
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
        """Yield the output in pieces as it is generated. Together they equal the output of `answers`.

        Strategies: greedy and sample. Without `decode`, the run's strategy, or greedy if that is beam search. A thread
        runs the search. Closing the iterator stops it.
        """
        is_given, decode = decode is not None, self.resolve_decode(decode, choices)
        if decode.strategy == "beam":
            if is_given:
                raise ConfigError(BEAM_CANNOT_STREAM)
            decode = replace(decode, strategy="greedy")
        request = Request(text, prefix, number)
        stream = self.output_stream(request)
        self.choice_tries(choices, [request])  # raises at once if a choice is invalid

        def generate(send: Callable[[str], bool]) -> None:
            stops = StopStrings(stop)

            def on_token(token: int, log_p: float) -> bool:
                return send(stops.add(stream.add(token))) and not stops.is_over

            if self.input_ids([request])[0]:  # an empty source has no translation, not even a prefix
                send(stops.add(stream.prefix_text))
            if self.search([replace(request, on_token=on_token)], decode, choices=choices)[0]:
                send(stops.add(stream.end()) + stops.end())

        return stream_from_thread(generate)

    def resolve_decode(self, decode: DecodeConfig | None, choices: Sequence[str] | None = None) -> DecodeConfig:
        """The given settings, or those of the run. "auto" becomes the default strategy of the task."""
        return decode.for_task(self.config.model.task) if decode else config_for_choices(self.config.decode, choices)

    def stop_callback(self, request: Request, stop: Sequence[str]) -> Callable[[int, float], bool]:
        """A callback for each new token that returns False once a stop string has appeared."""
        stream, stops = self.output_stream(request), StopStrings(stop)
        stops.add(stream.prefix_text)

        def on_token(token: int, log_p: float) -> bool:
            stops.add(stream.add(token))
            return not stops.is_over

        return on_token

    def choice_tries(self, choices: Sequence[str] | None, requests: Sequence[Request]) -> Sequence[ChoiceTrie | None]:
        """The trie of choices for each request."""
        if choices is None:
            return [None] * len(requests)
        continues_text = [self.continues_text(request) for request in requests]
        tries = {
            value: ChoiceTrie(self.encode_output("choice", choices, value), self.tokenizer.eos)
            for value in set(continues_text)
        }
        return [tries[value] for value in continues_text]

    def length_limit(
        self,
        row: Sequence[int],
        prefix: Sequence[int],
        request: Request,
        decode: DecodeConfig,
        choices: ChoiceTrie | None = None,
    ) -> int:
        """Largest number of new tokens for this request, with </s>. With choices, the length of the longest one.

        It does not depend on the rest of the batch.
        """
        max_new_tokens = self.max_new_tokens(row) - len(prefix)
        if max_new_tokens < 1:
            raise DataError(self.no_room_message(row, prefix))
        if choices:
            needed = choices.longest - len(prefix)
            if needed > max_new_tokens:
                raise DataError(
                    f"the longest choice needs {needed} more tokens, but only {max_new_tokens} positions are left. "
                    "Shorten it."
                )
            return max(needed, 1)
        return min(request.max_length or decode.max_length or self.default_length(row), max_new_tokens)

    def check_tokens(self, ids: Sequence[int]) -> None:
        if wrong := [id for id in ids if id >= self.config.model.vocab_size]:
            raise ConfigError(
                f"decode.suppress contains the token {wrong[0]}; this model has tokens 0 to "
                f"{self.config.model.vocab_size - 1}. Remove it."
            )

    def prefixes(self, requests: Sequence[Request]) -> list[list[int]]:
        """The token ids of the prefix of each request."""
        if not any(request.prefix for request in requests):
            return [[] for _ in requests]
        continues_text = [self.continues_text(request) for request in requests]
        rows = {
            value: self.encode_output("prefix", [request.prefix for request in requests], value)
            for value in set(continues_text)
        }
        return [rows[value][i] for i, value in enumerate(continues_text)]

    def encode_output(self, what: str, texts: Sequence[str], continues_text: bool) -> list[list[int]]:
        """Encode texts that the output must contain. Raises if one has unknown words."""
        tokenizer = self.tokenizer.for_target
        encoded = tokenizer.encode_batch(texts, continues_text)
        for text, ids in zip(texts, encoded, strict=True):
            if tokenizer.unk is not None and tokenizer.unk in ids:
                raise DataError(
                    f"the {what} {text!r} cannot be generated: {tokenizer.unknown(text)} is not in the vocabulary. "
                    "Leave it out, or use words in the vocabulary."
                )
        return encoded

    # defined by Translator and TextGenerator

    def continues_text(self, request: Request) -> bool:
        """Whether the output continues the text of the request."""
        raise NotImplementedError

    def input_ids(self, requests: Sequence[Request]) -> list[list[int]]:
        """The input ids for each request; empty if no model is needed."""
        raise NotImplementedError

    def run_search(self, rows: Rows, search: Search) -> list[list[Hypothesis]]:
        raise NotImplementedError

    def max_new_tokens(self, row: Sequence[int]) -> int:
        """Positions left for the output, with prefix and </s>."""
        raise NotImplementedError

    def default_length(self, row: Sequence[int]) -> int:
        """Default for the largest number of new tokens."""
        raise NotImplementedError

    def no_room_message(self, row: Sequence[int], prefix: Sequence[int]) -> str:
        raise NotImplementedError

    def output_text(self, request: Request, hypothesis: Hypothesis) -> str:
        """The output text, with its prefix."""
        raise NotImplementedError

    def output_stream(self, request: Request) -> OutputStream:
        """An incremental decoder: the pieces join to `output_text` the output."""
        raise NotImplementedError


def allowed_by_row(
    allowed: Allowed | None, choice_tries: Sequence[ChoiceTrie | None], indices: Sequence[int]
) -> Allowed | None:
    """Convert a function of request indices, or tries of choices, to a function of batch rows."""
    if allowed is not None:
        return lambda row, tokens: allowed(indices[row], tokens)
    tries = [trie for trie in choice_tries if trie is not None]
    return (lambda row, tokens: tries[row](row, tokens)) if tries else None


def token_callback(requests: Sequence[Request]) -> OnToken | None:
    if all(request.on_token is None for request in requests):
        return None

    def on_token(row: int, token: int, log_p: float) -> bool:
        callback = requests[row].on_token
        return callback is None or callback(token, log_p)

    return on_token


def continue_callback(requests: Sequence[Request]) -> ShouldContinue | None:
    if all(request.should_continue is None for request in requests):
        return None

    def should_continue(row: int) -> bool:
        check = requests[row].should_continue
        return check is None or check()

    return should_continue
