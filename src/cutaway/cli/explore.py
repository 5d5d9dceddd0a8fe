"""cutaway explore RUN [RUN2 ...]"""

from __future__ import annotations

import threading
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.completion import complete_runs
from cutaway.cli.console import command, err, say
from cutaway.cli.export import merged_run
from cutaway.cli.options import Device
from cutaway.errors import ConfigError, MissingExtra
from cutaway.runs import RunFolder
from cutaway.runs.merge import can_merge
from cutaway.serve.sockets import listen, local_host_names

if TYPE_CHECKING:
    from cutaway.explore.explorer import Explorer

LOCALHOST = "127.0.0.1"


def explore(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run folders; several to compare them.", metavar="RUN", autocompletion=complete_runs),
    ],
    port: Annotated[int, typer.Option(help="Port of the page. 0: any free port.")] = 8642,
    host: Annotated[str, typer.Option(help="Address to listen on. 0.0.0.0: open to the network.")] = LOCALHOST,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the browser. Default: on.")] = True,
    export: Annotated[
        Path | None, typer.Option(help="Write one file that works without a server.", metavar="PAGE.html")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="With --export: an example in the page. Repeat it for more.", metavar="TEXT"),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="With --export: float16 (default), float32 or int8 weights.", metavar="DTYPE")
    ] = None,
    snapshots: Annotated[
        bool, typer.Option("--snapshots", help="With --export: add the weights of earlier steps, for the time-lapse.")
    ] = False,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="With --export: record answers instead of including the model.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Look inside a model in the browser.

    Examples:  cutaway explore runs/demo
               cutaway explore runs/demo runs/tinyworld-en-de --port 9000 --no-open
               cutaway explore runs/demo --export page.html --dtype int8

    Shows attention, decoding step by step, ablations, and how the model learned. The file of --export has the model in
    it: it answers any text in any browser, without a server.
    """
    for name, given in {"text": text, "dtype": dtype, "snapshots": snapshots, "recorded": recorded}.items():
        if given and not export:
            raise ConfigError(f"--{name} needs --export. Add --export PAGE.html, or leave it out.")
    if recorded and (dtype or snapshots):
        raise ConfigError("--recorded writes a page without the model. Leave out --dtype and --snapshots.")
    unmergeable = [run for run in runs if export and not recorded and not has_one_set_of_weights(run)]
    if unmergeable and (dtype or snapshots):
        raise ConfigError(f"a page cannot have the model of {unmergeable[0]}. Leave out --dtype and --snapshots.")
    if unmergeable:
        say(f"Note: {unmergeable[0]} adds vectors to its base, which a page cannot run. The page has recorded answers.")
    if export and (recorded or unmergeable):
        record_page(runs, export, text or [], device)
    elif export:
        write_page(runs, export, text or [], dtype or "float16", snapshots)
    else:
        serve(runs, port, open_page, host, device)


def has_one_set_of_weights(run: Path) -> bool:
    """False for prefix and prompt tuning."""
    finetune = RunFolder(run).require().read_config().finetune
    return not finetune.is_adapter or can_merge(finetune)


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
        explorer = load_explorer(runs, device)
        listening = listen(host, port)
    address = f"http://{LOCALHOST if host == '0.0.0.0' else host}:{listening.getsockname()[1]}/"
    names = local_host_names(host)
    app = explorer_app(explorer, names)
    if not names:
        say(f"Note: with --host {host} anyone in your network can open the explorer. There is no password.", "yellow")
    say(f"The explorer is at {address}", "bold")
    say("Press Ctrl-C to stop it.")
    if open_page:
        threading.Timer(0.3, webbrowser.open, [address]).start()
    BoundedServer(app, Limits()).run(sockets=[listening])


def load_explorer(runs: list[Path], device: str) -> Explorer:
    """Load the runs and trace one example of each, because the first trace is slower than the others."""
    from cutaway.explore.explorer import Explorer, ExplorerRequest

    explorer = Explorer(runs, device)
    for number, run in enumerate(explorer.info()["runs"]):
        if run["examples"]:
            first = run["examples"][0]
            explorer.trace(ExplorerRequest(first if isinstance(first, str) else "0", run=number))
    return explorer


def write_page(runs: list[Path], file: Path, texts: list[str], dtype: str, snapshots: bool) -> None:
    from cutaway.explore.explorer import Explorer
    from cutaway.explore.export import page_with_models
    from cutaway.runs.files import write_text

    require_file(file)
    with err.status("writing ...") as status, ExitStack() as merged:
        complete = [merged.enter_context(merged_run(run)) for run in runs]
        explorer = Explorer(complete, "cpu")
        page, weights = page_with_models(
            explorer, texts, dtype, snapshots, lambda part: status.update(f"writing {part} ...")
        )
        write_text(file, page)
    say(f"Wrote {file} ({file.stat().st_size / 1e6:.1f} MB). It has the model in it: open it in a browser.")
    for run, stored in zip(runs, weights, strict=True):
        say(f"The weights of {run} are stored as {stored}.")


def record_page(runs: list[Path], file: Path, texts: list[str], device: str) -> None:
    from cutaway.explore.explorer import Explorer
    from cutaway.explore.export import export_recorded_page

    require_file(file)
    with err.status("recording ...") as status:
        explorer = Explorer(runs, device)
        export_recorded_page(explorer, file, texts, lambda part: status.update(f"recording {part} ..."))
    say(f"Wrote {file} ({file.stat().st_size / 1e6:.1f} MB). It needs no server: open it in a browser.")
    say("Live, with any text:  " + command("explore", *runs))


def require_file(file: Path) -> None:
    if file.is_dir():
        raise ConfigError(f"--export {file} is a folder. Give the name of a file.")
