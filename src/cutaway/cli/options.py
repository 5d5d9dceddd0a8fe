"""Arguments and options that several commands have in common. A command takes a group of options as one parameter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from cutaway.cli.completion import complete_recipes, complete_runs
from cutaway.config import Config, DecodeConfig, with_given
from cutaway.errors import ConfigError
from cutaway.search.choices import config_for_choices

DECODING, TEXT, OUTPUT, LARGE_FILES, ENGINE = (
    "Decoding",
    "Generated text",
    "Output",
    "Large files (--file)",
    "Engine",
)


def option(help: str, group: str | None, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=group, show_default=False, **settings)


Run = Annotated[
    Path, typer.Argument(help="A run folder, such as runs/demo.", metavar="RUN", autocompletion=complete_runs)
]
Recipe = Annotated[
    str,
    typer.Argument(
        help="A recipe: a .toml file or the name of a built-in one.",
        metavar="RECIPE",
        autocompletion=complete_recipes,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting, as in --set train.steps=500.", metavar="NAME=VALUE"),
]
File = Annotated[Path | None, typer.Option(help="Read the lines of this file, plain or .gz.", metavar="FILE")]
Out = Annotated[Path | None, typer.Option(help="Write to this file. Default: standard output.", metavar="FILE")]
Plot = Annotated[Path | None, typer.Option(help="Draw a figure: .png, .svg or .pdf.", metavar="FILE")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print a JSON object for each text, one per line.")]
Strategy = Annotated[str | None, option("greedy, beam or sample. Default: as in the run.", None)]
Device = Annotated[str, option("auto, cpu, cuda, ...", None)]
Engine = Annotated[
    str,
    option("torch, numpy (needs no torch) or ct2 (CTranslate2, fast). Default: torch if installed.", ENGINE),
]
Dtype = Annotated[str, option("float32, float64 or int8 (not with numpy).", ENGINE)]


@dataclass(frozen=True)
class DecodingOptions:
    """How a text is decoded. An option that is not given has the value of the run."""

    strategy: Annotated[str | None, option("greedy, beam or sample. Default: as in the run.", DECODING)] = None
    beam_size: Annotated[int | None, option("Hypotheses that beam search keeps.", DECODING, metavar="N")] = None
    length_penalty: Annotated[float | None, option("beam: above 0 favours longer texts.", DECODING, metavar="X")] = None
    temperature: Annotated[
        float | None, option("sample: below 1 safer, above 1 more varied.", DECODING, metavar="X")
    ] = None
    top_k: Annotated[int | None, option("sample: only the K most probable tokens.", DECODING)] = None
    top_p: Annotated[float | None, option("sample: only the top tokens that sum to P.", DECODING)] = None
    min_p: Annotated[
        float | None, option("sample: only tokens with at least P times the top probability.", DECODING)
    ] = None
    seed: Annotated[int | None, option("sample: the same seed gives the same text.", DECODING, metavar="N")] = None
    repetition_penalty: Annotated[
        float | None, option("Above 1: tokens of the text so far become less probable.", TEXT, metavar="X")
    ] = None
    no_repeat_ngram: Annotated[int | None, option("No sequence of N tokens occurs twice.", TEXT, metavar="N")] = None
    min_length: Annotated[int | None, option("At least N tokens.", TEXT, metavar="N")] = None
    prefix: Annotated[str, option("Every output starts with this text.", TEXT, metavar="TEXT")] = ""
    choice: Annotated[
        list[str] | None, option("The output is one of these. Repeat the option.", TEXT, metavar="TEXT")
    ] = None
    stop: Annotated[
        list[str] | None, option("The output ends before this text. Repeat it for more.", TEXT, metavar="TEXT")
    ] = None

    def decode_config(self, config: Config, **more: Any) -> DecodeConfig:
        """The run's decoding settings, overridden by the command line."""
        decode = config_for_choices(config.decode, self.choice) if self.strategy is None else config.decode
        settings = {name: value for name, value in vars(self).items() if name not in ("prefix", "choice", "stop")}
        return override_decoding(decode, config.model.task, **settings, **more)

    @property
    def job_options(self) -> dict[str, Any]:
        """Arguments of a job besides its DecodeConfig."""
        if "" in (self.stop or ()):
            raise ConfigError("--stop is empty, so every output would be empty. Leave it out.")
        return {"prefix": self.prefix, "choices": tuple(self.choice or ()), "stops": tuple(self.stop or ())}


@dataclass(frozen=True)
class OutputOptions:
    """What is printed for each generated text; see bulk/formats.py."""

    n_best: Annotated[int, option("beam: N texts for each input: number, score, text.", OUTPUT, min=1, metavar="N")] = 1
    scores: Annotated[bool, option("Print score, tab, text.", OUTPUT, "--scores")] = False
    json: Annotated[bool, option("Print a JSON object for each text, one per line.", OUTPUT, "--json")] = False
    stream: Annotated[bool | None, option("Show tokens as they are generated (greedy, sample).", OUTPUT)] = None


@dataclass(frozen=True)
class BulkOptions:
    """How the lines of a large file are processed; see docs/bulk.md."""

    workers: Annotated[
        int | None, option("Worker processes. 0: only this one. Default: all cores.", LARGE_FILES, min=0, metavar="N")
    ] = None
    batch_tokens: Annotated[int | None, option("Tokens in a batch.", LARGE_FILES, min=1, metavar="N")] = None
    fresh: Annotated[bool, option("Start over instead of resuming an interrupted file.", LARGE_FILES, "--fresh")] = (
        False
    )

    @property
    def given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value not in (None, False)}


@dataclass(frozen=True)
class SkippingBulkOptions(BulkOptions):
    """The same for commands whose result may be empty."""

    skip_errors: Annotated[
        bool,
        option("A line that fails gives an empty result. Also for standard input.", LARGE_FILES, "--skip-errors"),
    ] = False


@dataclass(frozen=True)
class EngineOptions:
    engine: Engine = "auto"
    dtype: Dtype = "float32"
    device: Annotated[str, option("auto, cpu, cuda, ...", ENGINE)] = "auto"


@dataclass(frozen=True)
class TorchOptions:
    """The same for models that only torch runs."""

    dtype: Annotated[str, option("float32, float64 or int8.", ENGINE)] = "float32"
    device: Annotated[str, option("auto, cpu, cuda, ...", ENGINE)] = "auto"


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command that typer can read: each parameter that is a group of options becomes the options of the group."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            types = get_type_hints(groups[name], include_extras=True)
            parameters += [keyword_parameter(f.name, types[f.name], f.default) for f in fields(groups[name])]
        else:
            parameters.append(keyword_parameter(name, hints[name], parameter.default))

    @functools.wraps(command)
    def expanded(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{f.name: given.pop(f.name) for f in fields(group)})
        command(**given)

    del expanded.__wrapped__  # typer would read its signature
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


def keyword_parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


BEAM_SETTINGS = ("beam_size", "length_penalty", "coverage_penalty")
SAMPLE_SETTINGS = ("temperature", "top_k", "top_p", "min_p", "seed")


def override_decoding(config: DecodeConfig, task: str, **given: Any) -> DecodeConfig:
    decode: DecodeConfig = with_given(config, **given).for_task(task)
    reject_unused("beam", decode.strategy, BEAM_SETTINGS, given)
    reject_unused("sample", decode.strategy, SAMPLE_SETTINGS, given)
    if decode.max_length and decode.min_length > decode.max_length:
        raise ConfigError(
            f"--min-length {decode.min_length} is more than the maximum of {decode.max_length} tokens. Lower it, or "
            "raise --max-length."
        )
    return decode


def reject_unused(strategy: str, chosen: str, names: Sequence[str], given: Mapping[str, Any]) -> None:
    """Reject options that the chosen strategy does not use."""
    unused = [name for name in names if given.get(name) is not None]
    if unused and chosen != strategy:
        option = "--" + unused[0].replace("_", "-")
        raise ConfigError(
            f"{option} has no effect with strategy {chosen!r}. Add --strategy {strategy}, or leave it out."
        )
