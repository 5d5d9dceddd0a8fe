"""cutaway explore RUN [RUN2 ...]"""

from __future__ import annotations

import threading
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from cutaway.cli.console import command, err, say
from cutaway.cli.texts import Device
from cutaway.errors import ConfigError, MissingExtra
from cutaway.serve.sockets import listen, local_host_names

HERE = "127.0.0.1"


def explore(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, such as runs/demo; several to compare.")],
    port: Annotated[int, typer.Option(help="The port to listen at; 0: any that is free.")] = 8642,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
    export: Annotated[
        Path | None, typer.Option(help="Write one self-contained file of recorded views instead.", metavar="PAGE.html")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="With --export: a text to record; several times for several.")
    ] = None,
    host: Annotated[str, typer.Option(help="Who may connect. 127.0.0.1: this machine alone.")] = HERE,
    device: Device = "auto",
) -> None:
    """Look inside a trained model in the browser: attention, writing step by step, what-if experiments, how it learned.

    Examples:  cutaway explore runs/demo

               cutaway explore runs/demo runs/tinyworld-en-de --port 9000 --no-open

               cutaway explore runs/demo --export page.html --text "The small cat sleeps."
    """
    if text and not export:
        raise ConfigError("--text says what --export records; in the page you type. Add --export PAGE.html.")
    if export:
        write_page(runs, export, text or [], device)
    else:
        serve(runs, port, open_page, host, device)


def serve(runs: list[Path], port: int, open_page: bool, host: str, device: str) -> None:
    try:
        from cutaway.serve.connections import BoundedServer
        from cutaway.serve.explorer_app import explorer_app
        from cutaway.serve.limits import Limits
    except ModuleNotFoundError as error:
        if error.name in ("uvicorn", "fastapi", "pydantic", "starlette"):
            raise MissingExtra(str(error.name), "serve", what="the explorer") from None
        raise
    with err.status("loading ..."):
        explorer = opened(runs, device)
        listening = listen(host, port)
    address = f"http://{HERE if host == '0.0.0.0' else host}:{listening.getsockname()[1]}/"
    names = local_host_names(host)
    app = explorer_app(explorer, names)
    if not names:
        say(f"Note: with --host {host} others in your network can look inside too. There is no password.", "yellow")
    say(f"The explorer is at {address}", "bold")
    say("Ctrl-C ends it.")
    if open_page:
        threading.Timer(0.3, webbrowser.open, [address]).start()
    BoundedServer(app, Limits()).run(sockets=[listening])


def opened(runs: list[Path], device: str) -> Any:
    """The runs, loaded, and asked once: the first answer of a model takes longer than the others."""
    from cutaway.explore.explorer import Explorer, ExplorerRequest

    explorer = Explorer(runs, device)
    for number, run in enumerate(explorer.info()["runs"]):
        if run["examples"]:
            first = run["examples"][0]
            explorer.trace(ExplorerRequest(first if isinstance(first, str) else "0", run=number))
    return explorer


def write_page(runs: list[Path], file: Path, texts: list[str], device: str) -> None:
    from cutaway.explore.explorer import Explorer
    from cutaway.explore.export import export_page

    if file.is_dir():
        raise ConfigError(f"--export {file} is a folder. Give the name of a file.")
    with err.status("recording ...") as status:
        written = export_page(Explorer(runs, device), file, texts, lambda what: status.update(f"recording {what} ..."))
    say(f"Wrote {written} ({written.stat().st_size / 1e6:.1f} MB). It needs no server: open it, mail it, publish it.")
    say("Live, with any sentence:  " + command("explore", *runs))
