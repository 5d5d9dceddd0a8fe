"""The classes of commands and command groups: help that fits on a screen, old option names, option names in errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

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
ADVANCED = {
    *("length_penalty", "coverage_penalty", "min_p", "repetition_penalty", "no_repeat_ngram", "min_length", "dtype"),
    *("scores", "align", "batch_tokens", "fresh", "skip_errors", "prompt", "lowercase", "tokenize"),
    *("threads", "batching", "batch_size", "max_waiting", "max_texts", "max_characters", "max_new_tokens"),
    *("max_connections", "max_body"),
}
MANY_PARAMETERS = 12  # a command with more hides its advanced options from --help


class BaseCommand(TyperCommand):
    """A command of `cutaway`. `--help` shows examples first and fits on a screen; `--help-all` lists every option."""

    shows_all = False

    @property
    def advanced_options(self) -> list[Any]:
        options: list[Any] = [p for p in self.params if p.name in ADVANCED and p.param_type_name == "option"]
        return options if len(self.params) > MANY_PARAMETERS else []

    def make_parser(self, ctx: Any) -> Any:
        parser: Any = super().make_parser(ctx)
        for old, new in OLD_NAMES.items():
            if new in parser._long_opt:
                parser._long_opt.setdefault(old, parser._long_opt[new])
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--help-all" in args and self.advanced_options:
            self.shows_all, args = True, ["--help"]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [p for p in self.params if p.param_type_name == "argument"]
        return [*map(argument_usage, arguments), "[OPTIONS]"]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, summary, examples, details, arguments, options by group."""
        self.format_usage(ctx, formatter)
        write_prose(formatter, self.help)
        arguments: list[Any] = [p for p in self.params if p.param_type_name == "argument"]
        if arguments:
            write_section(formatter, "Arguments", [(argument_usage(p), p.help or "") for p in arguments])
        hidden = [] if self.shows_all else self.advanced_options
        groups: dict[str, list[tuple[str, str]]] = {"Options": []}
        options: list[Any] = [p for p in self.get_params(ctx) if p.param_type_name == "option"]
        for param in options:
            if param not in hidden and param.name != "help":
                groups.setdefault(param.rich_help_panel or "Options", []).append(option_row(param))
        for title, rows in groups.items():
            if rows:
                write_section(formatter, title, rows)
        if hidden:
            formatter.write(f"\n{len(hidden)} more options: {ctx.command_path} --help-all\n")

    def invoke(self, ctx: Any) -> Any:
        given = [p for p in self.params if str(ctx.get_parameter_source(p.name)).endswith("COMMANDLINE")]
        reject_invalid_text(given, ctx.params)
        try:
            return super().invoke(ctx)
        except CutawayError as error:
            if len(error.args) == 1:
                error.args = (name_options(str(error), given, ctx.params),)
            raise


class CommandGroup(TyperGroup):
    """A group of commands. `--help`, or no argument, lists the commands by topic, one line each."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.format_usage(ctx, formatter)
        write_prose(formatter, self.help)
        topics: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            summary = inspect.cleandoc(command.help or "").partition("\n\n")[0]
            topics.setdefault(command.rich_help_panel or "Commands", []).append((name, " ".join(summary.split())))
        width = max(len(name) for rows in topics.values() for name, _ in rows)
        for topic, rows in topics.items():
            write_section(formatter, topic, [(f"{name:{width}}", summary) for name, summary in rows])
        options = [p for p in self.get_params(ctx) if p.param_type_name == "option"]
        write_section(formatter, "Options", [option_row(param) for param in options])


def write_prose(formatter: Any, text: str | None) -> None:
    """The docstring of a command. The paragraph with the examples keeps its lines; the others are wrapped."""
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        if heading := re.match(r"(Examples?):\s+", paragraph):
            lines = [line.strip() for line in paragraph[heading.end() :].splitlines()]
            formatter.write(f"\n{typer.style(heading[1], bold=True)}:\n" + "".join(f"  {line}\n" for line in lines))
        elif paragraph.strip():
            formatter.write("\n")
            formatter.write_text(" ".join(paragraph.split()))


def write_section(formatter: Any, title: str, rows: list[tuple[str, str]]) -> None:
    with formatter.section(typer.style(title, bold=True)):
        formatter.write_dl(rows, col_max=26)


def argument_usage(param: Any) -> str:
    """`RUN`, `[TEXT]...`"""
    name = (param.metavar or param.name).upper()
    return (name if param.required else f"[{name}]") + ("..." if param.nargs == -1 else "")


def option_row(param: Any) -> tuple[str, str]:
    """Names with the placeholder of the value; help with the default."""
    names = ", ".join(param.opts) if len(param.opts) > 1 else param.opts[0]
    if param.secondary_opts:
        names = names.replace("--", "--[no-]", 1)
    if not param.is_flag:
        names += f" {param.metavar or param.name.rpartition('_')[2].upper()}"
    text = param.help or ""
    if param.show_default and param.default not in (None, False, True, "", ()) and not callable(param.default):
        text += f" Default: {param.default}."
    return names, text


def name_options(message: str, given: Iterable[Any], values: dict[str, Any]) -> str:
    """`message` with options as they were typed: `decode.top_p = 2` -> `--top-p 2`, `dtype 'x'` -> `--dtype x`.

    given: the parameters that were typed. A setting from a recipe or from --set keeps its name.
    """
    for param in given:
        if param.param_type_name == "option":
            name, option, value = param.name, option_name(param), values.get(param.name)
            if isinstance(value, str):
                setting = rf"(?<![\w.-])(?:the )?(?:decode\.)?{name}(?: =)? {re.escape(repr(value))}"
                message = re.sub(setting, f"{option} {value}".replace("\\", r"\\"), message)
            # a name of one word is also an ordinary word, so it is replaced only after `decode.`
            prefix = r"(?:decode\.)?" if "_" in name else r"decode\."
            message = re.sub(rf"(?<![\w.-]){prefix}{name}(?!\w)(?: =(?= ))?", option, message)
    return message


def option_name(param: Any) -> str:
    """The name as it is typed: `--top-p`, or `RUN` for an argument."""
    return str(param.opts[0]) if param.param_type_name == "option" else param.metavar or param.name.upper()


def reject_invalid_text(given: Iterable[Any], values: dict[str, Any]) -> None:
    """Reject texts that are not UTF-8: Python represents their bytes as lone surrogates. File names may have them."""
    for param in given:
        value = values.get(param.name)
        texts = value if isinstance(value, list) else [value]
        for text in (text for text in texts if isinstance(text, str)):
            if any("\ud800" <= character <= "\udfff" for character in text):
                raise DataError(
                    f"{option_name(param)} is not UTF-8: {text!r}. Convert it first, for example with iconv."
                )
