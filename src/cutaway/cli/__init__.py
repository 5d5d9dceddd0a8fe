"""The command line: one command, one function, thin. Heavy imports wait until a command runs."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import warnings
from typing import Any

if is_early := signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # Ctrl-C amid the imports: no tracebacks
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

# Threads of torch that wait for each other turn round and round meanwhile, and on a busy machine they keep a core from
# the one that they wait for. Like this they fall asleep sooner: no slower on idle cores, and faster on busy ones.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")

import typer

from cutaway import __version__, missing_extra
from cutaway.cli.check import check
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
from cutaway.cli.runs import runs
from cutaway.cli.serve import serve
from cutaway.cli.tag import tag
from cutaway.cli.trace import trace
from cutaway.cli.train import train
from cutaway.cli.translate import translate
from cutaway.cli.validation import careful
from cutaway.errors import CutawayError, CutawayWarning

if is_early:
    signal.signal(signal.SIGINT, signal.default_int_handler)

app = typer.Typer(
    name="cutaway",
    help="The Transformer with part of its casing removed: read it, run it, look inside it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# what the system says of a file or a disk -> what to do about it
WAYS_OUT = {
    errno.ENOSPC: "Make room on the disk, or write to another one.",
    errno.EDQUOT: "Make room on the disk, or write to another one.",
    errno.EFBIG: "Make room on the disk, or write to another one.",
    errno.EIO: "The disk may be failing: write to another one.",
    errno.EROFS: "Choose a place that can be written to.",
    errno.EACCES: "Choose a place that you may read and write.",
    errno.EPERM: "Choose a place that you may read and write.",
}
COMMANDS = (
    *(demo, train, translate, generate, classify, tag, embed, evaluate),
    *(explore, trace, mask, figures),
    *(serve,),
    *(import_, export),
    *(runs, doctor, lesson, check, lab),
)
for command in COMMANDS:
    app.command(command.__name__.rstrip("_"))(careful(command))
app.add_typer(data_app, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"cutaway {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    """Run a command. A user's mistake is told in a sentence, with no traceback; the exit code is then 1."""
    interrupted = note_interrupts()
    for stream, on_error in ((sys.stdout, "strict"), (sys.stderr, "backslashreplace")):  # which may name odd files
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors=on_error)  # whatever the console's code page, as on Windows
    warnings.showwarning = show_warning
    try:
        app()
    except CutawayError as error:
        fail(str(error), error.exit_code)
    except KeyboardInterrupt:  # while typer made the commands ready; a command tells in its own way
        fail("stopped.", code=130)
    except OSError as error:
        if error.filename and error.strerror:
            fail(f"{os.fsdecode(error.filename)}: {error.strerror}. {WAYS_OUT.get(error.errno or 0, '')}".rstrip())
        if error.errno not in WAYS_OUT:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in it has nowhere to go
        fail(f"the output cannot be written: {error.strerror}. {WAYS_OUT[error.errno]}")
    except Exception as error:
        if interrupted.is_set():  # libraries turn a Ctrl-C while they are imported into errors of their own
            fail("stopped.", code=130)
        hint = missing_extra(error) if isinstance(error, ImportError) else error
        if hint is error:
            raise
        fail(str(hint))


def show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """A warning of Cutaway's is a note to the user; those of libraries look as they always do."""
    if issubclass(category, CutawayWarning):
        say(f"Note: {message}")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, *where[:2]))


def note_interrupts() -> threading.Event:
    """Ctrl-C as usual, but remembered."""
    noted = threading.Event()

    def on_interrupt(number: int, frame: object) -> None:
        noted.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, on_interrupt)
    return noted
