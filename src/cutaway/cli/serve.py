"""cutaway serve RUN [RUN2 ...]"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from cutaway.cli.console import say
from cutaway.cli.options import Device
from cutaway.errors import ConfigError, MissingExtra
from cutaway.serve.sockets import listen, local_host_names

HERE = "127.0.0.1"


def serve(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, such as runs/demo; requests name them.")],
    port: Annotated[int, typer.Option(help="The port to listen at; 0: any that is free.")] = 8643,
    host: Annotated[str, typer.Option(help="Who may connect. 127.0.0.1: this machine alone.")] = HERE,
    token: Annotated[
        str, typer.Option(help="What requests must send as a bearer token.", envvar="CUTAWAY_TOKEN", show_envvar=True)
    ] = "",
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Pages that may ask from a browser, as in https://example.org; *: all.")
    ] = None,
    engine: Annotated[str, typer.Option(help="torch, numpy, ct2; auto: torch if it is installed.")] = "auto",
    dtype: Annotated[str, typer.Option(help="float32, float64 or int8.")] = "float32",
    device: Device = "auto",
    threads: Annotated[
        int, typer.Option(help="Threads for PyTorch's arithmetic; 0: one less than there are cores.")
    ] = 0,
    batching: Annotated[bool, typer.Option(help="Work on texts together that wait at the same time.")] = True,
    batch_size: Annotated[int, typer.Option(help="So many texts at most are worked on together.")] = 64,
    max_waiting: Annotated[int, typer.Option(help="Texts that may wait before requests are sent away (429).")] = 1024,
    max_texts: Annotated[int, typer.Option(help="Texts in one request.")] = 256,
    max_characters: Annotated[int, typer.Option(help="Characters in one text.")] = 20_000,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens that a request may ask for, a text.")] = 1_024,
    max_connections: Annotated[
        int, typer.Option(help="Connections at a time; beyond, idle ones are closed. 0: as ulimit -n allows.")
    ] = 0,
    max_body: Annotated[int, typer.Option(help="Bytes in one request.")] = 1 << 20,
    timeout: Annotated[float, typer.Option(help="Seconds until an answer, waiting included; then 503.")] = 60.0,
    log: Annotated[bool, typer.Option("--log", help="Print a line for each request.")] = False,
) -> None:
    """Serve trained models over HTTP: translate, generate, classify, tag, embed, trace; and OpenAI's dialect of it.

    Texts that wait at the same time are worked on together. http://127.0.0.1:8643/docs lists what can be asked.

    Examples:  cutaway serve runs/demo

               cutaway serve runs/demo runs/python-gpt --port 9000

               curl http://127.0.0.1:8643/translate --json '{"text": "The small cat sleeps."}'

               CUTAWAY_TOKEN=secret cutaway serve runs/demo --host 0.0.0.0
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # short texts: starting threads takes longer than they do
    library = imported()
    limits = library.Limits(
        body=max_body, characters=max_characters, texts=max_texts, new_tokens=max_new_tokens, waiting=max_waiting,
        seconds=timeout, batch_size=batch_size if batching else 1,
        connections=max_connections or library.default_connections(),
    )  # fmt: skip
    found = library.read_runs(runs, device=device, engine=engine, dtype=dtype)
    use_threads(threads, {run.engine for run in found})
    access = library.Access(token, local_host_names(host), library.parse_origins(allow_origin or ()))
    listening = listen(host, port)
    app_state = library.AppState(limits=limits)
    start_logging(log)
    port = listening.getsockname()[1]
    app_state.start(found)
    app = library.api_app(app_state, access)
    library.serve(
        app, app_state, listening, lambda: tell_address(host, port, bool(token)), lambda: tell_models(app_state), say
    )


def imported() -> Any:
    """What only this command needs, under one name."""
    from types import SimpleNamespace

    try:
        from cutaway.serve.api_app import api_app
        from cutaway.serve.limits import Limits, default_connections
        from cutaway.serve.loaded_model import read_runs
        from cutaway.serve.middleware import Access, parse_origins
        from cutaway.serve.server import serve
        from cutaway.serve.state import AppState
    except ModuleNotFoundError as error:
        if error.name in ("uvicorn", "fastapi", "pydantic", "starlette"):
            raise MissingExtra(str(error.name), "serve", what="the server") from None
        raise
    return SimpleNamespace(
        api_app=api_app,
        Access=Access,
        parse_origins=parse_origins,
        AppState=AppState,
        Limits=Limits,
        default_connections=default_connections,
        read_runs=read_runs,
        serve=serve,
    )


def use_threads(threads: int, engines: set[str]) -> None:
    """One core is left to the requests."""
    if threads < 0:
        raise ConfigError(f"--threads {threads} is no number of threads. Give 1 or more, or 0 to leave it to us.")
    if not engines & {"torch", "auto"}:
        if threads:
            raise ConfigError(
                f"--threads {threads} is for engine torch, and {' and '.join(engines)} does not read it. Leave it out; "
                "for more speed, start several servers."
            )
        return
    try:
        import torch
    except ModuleNotFoundError:
        return
    torch.set_num_threads(threads or max(1, (os.cpu_count() or 1) - 1))


def start_logging(requests: bool) -> None:
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("cutaway.access").setLevel(logging.INFO if requests else logging.WARNING)


def tell_address(host: str, port: int, has_token: bool) -> None:
    shown = {"0.0.0.0": HERE, "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    say(f"The server is at http://{shown}:{port}/ (what can be asked: /docs). Loading ...", "bold")
    if not local_host_names(host) and not has_token:
        say(f"Note: with --host {host} others in your network can use it too. Give it a --token.", "yellow")


def tell_models(app_state: Any) -> None:
    for worker in app_state.workers:
        say(f"  {worker.run.name}: {', '.join(worker.model.abilities)} ({worker.model.engine})")
    say("Ready. Ctrl-C ends it.")
