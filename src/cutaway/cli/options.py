"""Options that several commands have in common, in groups. A command takes a group as one parameter (`spread`)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from cutaway.config import Config, DecodeConfig, with_given
from cutaway.errors import ConfigError
from cutaway.search.choices import for_choices

SEARCH, DRAWING, ANSWER, PRINTED, LARGE, MACHINE = (
    "How to search",
    "How to draw (strategy sample)",
    "What the answer is like",
    "What is printed",
    "Large files (--file)",
    "What does the work",
)


def option(help: str, panel: str, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **settings)


Engine = Annotated[
    str, option("torch; numpy, without torch; ct2 (CTranslate2), fast. auto: torch if it is there.", MACHINE)
]
Dtype = Annotated[str, option("float32, float64 or int8 (which numpy does not know).", MACHINE)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Strategy = Annotated[str | None, typer.Option(help="greedy, beam or sample; default: the run's.")]
Out = Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON object for each text, a line each.")]


@dataclass(frozen=True)
class Searching:
    """How a text is searched for; what is not given is as in the run."""

    strategy: Annotated[str | None, option("greedy, beam or sample. Default: the run's.", SEARCH)] = None
    beam_size: Annotated[int | None, option("How many beginnings beam search follows.", SEARCH)] = None
    length_penalty: Annotated[float | None, option("beam: above 0 favours longer texts.", SEARCH)] = None
    temperature: Annotated[float | None, option("Below 1 safer, above 1 bolder.", DRAWING)] = None
    top_k: Annotated[int | None, option("Draw from the k likeliest tokens only.", DRAWING)] = None
    top_p: Annotated[float | None, option("Draw from the likeliest tokens that make up p.", DRAWING)] = None
    min_p: Annotated[
        float | None, option("Draw no token that is less likely than this share of the likeliest.", DRAWING)
    ] = None
    seed: Annotated[int | None, option("The same seed draws the same text.", DRAWING)] = None
    repetition_penalty: Annotated[float | None, option("Above 1: what was written becomes less likely.", ANSWER)] = None
    no_repeat_ngram: Annotated[int | None, option("No n tokens in a row are written twice.", ANSWER)] = None
    min_length: Annotated[int | None, option("At least so many tokens.", ANSWER)] = None
    prefix: Annotated[str, option("What every answer begins with.", ANSWER)] = ""
    choice: Annotated[list[str] | None, option("The answer is one of these; give the option for each.", ANSWER)] = None
    stop: Annotated[
        list[str] | None, option("The answer ends before this text; can be given several times.", ANSWER)
    ] = None

    def decode(self, config: Config, **more: Any) -> DecodeConfig:
        """The run's way of decoding, with what the command line was given on top."""
        decode = for_choices(config.decode, self.choice) if self.strategy is None else config.decode
        of_search = {name: value for name, value in vars(self).items() if name not in ("prefix", "choice", "stop")}
        return decode_settings(decode, config.model.task, **of_search, **more)

    @property
    def answer(self) -> dict[str, Any]:
        """What a job knows beside its DecodeConfig."""
        if "" in (self.stop or ()):
            raise ConfigError("--stop is empty, and so would be every answer. Leave it out.")
        return {"prefix": self.prefix, "choices": tuple(self.choice or ()), "stops": tuple(self.stop or ())}


@dataclass(frozen=True)
class Printing:
    """What is printed for a text that was written; see bulk/formats.py."""

    n_best: Annotated[
        int, option("beam: so many texts for each, a line each: line number, score, text.", PRINTED, min=1)
    ] = 1
    scores: Annotated[bool, option("Print score, tab, text.", PRINTED, "--scores")] = False
    json: Annotated[bool, option("Print a JSON object for each text: text, score, tokens, ...", PRINTED, "--json")] = (
        False
    )
    stream: Annotated[
        bool | None,
        option("Show a text while it is being written (greedy, sample). Default: generate, on a terminal.", PRINTED),
    ] = None


@dataclass(frozen=True)
class Bulk:
    """How the lines of a large file are worked; see docs/bulk.md."""

    workers: Annotated[
        int | None, option("Processes of one thread each; 0: none but this. Default: all cores.", LARGE, min=0)
    ] = None
    batch_tokens: Annotated[int | None, option("Tokens that are worked together.", LARGE, min=1)] = None
    fresh: Annotated[bool, option("Begin anew, instead of going on with what was interrupted.", LARGE, "--fresh")] = (
        False
    )

    @property
    def given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value not in (None, False)}


@dataclass(frozen=True)
class SkippingBulk(Bulk):
    """The same where a result may be empty."""

    skip_errors: Annotated[
        bool,
        option(
            "Leave the result of a line that cannot be worked empty, and go on; also on standard input.",
            LARGE,
            "--skip-errors",
        ),
    ] = False


@dataclass(frozen=True)
class Machine:
    """What runs a writer: engine, precision, device."""

    engine: Engine = "auto"
    dtype: Dtype = "float32"
    device: Annotated[str, option("auto, cpu, cuda, ...", MACHINE)] = "auto"


@dataclass(frozen=True)
class TorchMachine:
    """The same for models that only one engine runs."""

    dtype: Annotated[str, option("float32, float64 or int8.", MACHINE)] = "float32"
    device: Annotated[str, option("auto, cpu, cuda, ...", MACHINE)] = "auto"


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """A command that typer can read: each parameter that is a group becomes the options of the group."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            types = get_type_hints(groups[name], include_extras=True)
            parameters += [keyword(f.name, types[f.name], f.default) for f in fields(groups[name])]
        else:
            parameters.append(keyword(name, hints[name], parameter.default))

    @functools.wraps(command)
    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{f.name: given.pop(f.name) for f in fields(group)})
        command(**given)

    del called.__wrapped__  # typer would look there
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


OF_BEAM = ("beam_size", "length_penalty", "coverage_penalty")
OF_SAMPLE = ("temperature", "top_k", "top_p", "min_p", "seed")


def decode_settings(config: DecodeConfig, task: str, **given: Any) -> DecodeConfig:
    """A way of decoding with what was given on top."""
    decode: DecodeConfig = with_given(config, **given).for_task(task)
    refuse_unread("beam", decode.strategy, OF_BEAM, given)
    refuse_unread("sample", decode.strategy, OF_SAMPLE, given)
    if decode.max_length and decode.min_length > decode.max_length:
        raise ConfigError(f"--min-length {decode.min_length} is more than the {decode.max_length} tokens that may be.")
    return decode


def refuse_unread(strategy: str, chosen: str, names: Sequence[str], given: Mapping[str, Any]) -> None:
    """An option that the chosen strategy does not read is a misunderstanding."""
    unread = [name for name in names if given.get(name) is not None]
    if unread and chosen != strategy:
        option = "--" + unread[0].replace("_", "-")
        raise ConfigError(f"{option} has no effect on strategy {chosen!r}. Add --strategy {strategy}, or leave it out.")
