"""The command line. Each command is one thin function, which imports heavy libraries when it runs."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import warnings
from typing import Any

if is_early := signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # Ctrl-C during the imports: no traceback
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

# Threads of torch spin while they wait for each other. On a busy machine they take the core of the thread that they
# wait for. A lower spin count lets them sleep sooner: no slower on idle cores, faster on busy ones.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")

import typer

from cutaway import __version__, missing_extra
from cutaway.cli.base_command import BaseCommand, CommandGroup
from cutaway.cli.book import book
from cutaway.cli.check import check
from cutaway.cli.class_ import class_
from cutaway.cli.classify import classify
from cutaway.cli.console import fail, say
from cutaway.cli.data import app as data_app
from cutaway.cli.demo import demo
from cutaway.cli.doctor import doctor
from cutaway.cli.embed import embed
from cutaway.cli.evaluate import evaluate
from cutaway.cli.explore import explore
from cutaway.cli.export import export
from cutaway.cli.figures import figures
from cutaway.cli.generate import generate
from cutaway.cli.import_ import import_
from cutaway.cli.lab import lab
from cutaway.cli.lesson import lesson
from cutaway.cli.mask import mask
from cutaway.cli.quiz import quiz
from cutaway.cli.runs import runs
from cutaway.cli.serve import serve
from cutaway.cli.tag import tag
from cutaway.cli.trace import trace
from cutaway.cli.train import train
from cutaway.cli.translate import translate
from cutaway.cli.why import why
from cutaway.errors import CutawayError, CutawayWarning

if is_early:
    signal.signal(signal.SIGINT, signal.default_int_handler)

app = typer.Typer(
    name="cutaway",
    help="Train a Transformer, use it, and look inside it.\n\nExample:  cutaway demo",
    cls=CommandGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# errno -> what to do
REMEDIES = {
    errno.ENOSPC: "Free space on the disk, or write to another one.",
    errno.EDQUOT: "Free space on the disk, or write to another one.",
    errno.EFBIG: "Free space on the disk, or write to another one.",
    errno.EIO: "The disk may be failing. Write to another one.",
    errno.EROFS: "Choose a writable folder.",
    errno.EACCES: "Choose a folder that you may read and write.",
    errno.EPERM: "Choose a folder that you may read and write.",
}
COMMANDS = {
    "Train": (demo, train, evaluate, runs, doctor),
    "Use": (translate, generate, classify, tag, embed, serve),
    "Look inside": (explore, why, trace, mask, figures),
    "Learn": (book, lesson, quiz, check, class_, lab),
    "Exchange": (import_, export),
}
for topic, commands in COMMANDS.items():
    for command in commands:
        app.command(command.__name__.rstrip("_"), cls=BaseCommand, rich_help_panel=topic)(command)
app.add_typer(data_app, name="data", rich_help_panel="Train")


def _print_version(is_given: bool) -> None:
    if is_given:
        print(f"cutaway {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    """Run a command. A user's mistake becomes a message without a traceback, with exit code 1."""
    interrupted = record_interrupts()
    # standard error: a file name in a message may not be valid UTF-8
    for stream, on_error in ((sys.stdout, "strict"), (sys.stderr, "backslashreplace")):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors=on_error)  # Windows would use a code page
    warnings.showwarning = show_warning
    try:
        app()
    except CutawayError as error:
        fail(str(error), error.exit_code)
    except KeyboardInterrupt:  # before a command started
        fail("stopped.", code=130)
    except OSError as error:
        if error.filename and error.strerror:
            fail(f"{os.fsdecode(error.filename)}: {error.strerror}. {REMEDIES.get(error.errno or 0, '')}".rstrip())
        if error.errno not in REMEDIES:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard the buffer, which cannot be flushed
        fail(f"the output cannot be written: {error.strerror}. {REMEDIES[error.errno]}")
    except Exception as error:
        if interrupted.is_set():  # libraries turn Ctrl-C during their import into their own errors
            fail("stopped.", code=130)
        hint = missing_extra(error) if isinstance(error, ImportError) else error
        if hint is error:
            raise
        fail(str(hint))


def show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Print a CutawayWarning as a note, and warnings of libraries as usual."""
    if issubclass(category, CutawayWarning):
        say(f"Note: {message}")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, *where[:2]))


def record_interrupts() -> threading.Event:
    """Handle Ctrl-C as usual, and record that it happened."""
    happened = threading.Event()

    def on_interrupt(number: int, frame: object) -> None:
        happened.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, on_interrupt)
    return happened
