"""The class of every command: short help, old option names, and option names in errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand

from cutaway.errors import CutawayError, DataError

# old option name -> new one; the old name is still accepted, and is not shown
OLD_NAMES = {
    "--again": "--fresh",
    "--jobs": "--workers",
    "--max-tokens": "--max-length",
    "--color": "--colour",
    "--no-color": "--no-colour",
}
# options that only --help-all shows
RARE = {
    *("length_penalty", "coverage_penalty", "min_p", "repetition_penalty", "no_repeat_ngram", "min_length", "dtype"),
    *("scores", "align", "batch_tokens", "fresh", "skip_errors", "prompt", "lowercase", "tokenize"),
    *("threads", "batching", "batch_size", "max_waiting", "max_texts", "max_characters", "max_new_tokens"),
    *("max_connections", "max_body"),
}


class BaseCommand(TyperCommand):
    """A command of `cutaway`. `--help` fits on a screen; `--help-all` lists every option."""

    shows_all = False

    @property
    def rare_options(self) -> list[Any]:
        options: list[Any] = [p for p in self.params if p.name in RARE and p.param_type_name == "option"]
        return options if len(self.params) > 12 else []

    def make_parser(self, ctx: Any) -> Any:
        parser: Any = super().make_parser(ctx)
        for old, new in OLD_NAMES.items():
            if new in parser._long_opt:
                parser._long_opt.setdefault(old, parser._long_opt[new])
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--help-all" in args and self.rare_options:
            self.shows_all, args = True, ["--help"]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for option in self.rare_options:
            option.hidden = not self.shows_all
        if self.rare_options and not self.shows_all:
            self.help = f"{self.help}\n\nAll options: {ctx.command_path} --help-all"
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        given = [p for p in self.params if str(ctx.get_parameter_source(p.name)).endswith("COMMANDLINE")]
        refuse_bytes(given, ctx.params)
        try:
            return super().invoke(ctx)
        except CutawayError as error:
            if len(error.args) == 1:
                error.args = (name_options(str(error), given),)
            raise


def name_options(message: str, given: Iterable[Any]) -> str:
    """`message` with the option in place of the setting that it sets: `decode.top_p = 2` -> `--top-p 2`.

    given: the parameters that were typed. A setting from a recipe or from --set keeps its name.
    """
    for param in given:
        if param.param_type_name == "option":
            table = r"(?:decode\.)?" if "_" in param.name else r"decode\."
            message = re.sub(rf"(?<![\w.-]){table}{param.name}(?!\w)(?: = )?", option_name(param) + " ", message)
            message = re.sub(rf"({option_name(param)}) (?=[\s.,:;)]|$)", r"\1", message)
    return message


def option_name(param: Any) -> str:
    """The name as it is typed: `--top-p`, or `RUN` for an argument."""
    return str(param.opts[0]) if param.param_type_name == "option" else param.metavar or param.name.upper()


def refuse_bytes(given: Iterable[Any], values: dict[str, Any]) -> None:
    """Refuse texts that are not UTF-8: Python represents their bytes as lone surrogates. File names may have them."""
    for param in given:
        value = values.get(param.name)
        texts = value if isinstance(value, list) else [value]
        for text in (text for text in texts if isinstance(text, str)):
            if any("\ud800" <= character <= "\udfff" for character in text):
                raise DataError(
                    f"{option_name(param)} is not UTF-8: {text!r}. Convert it first, for example with iconv."
                )
