"""cutaway serve RUN [RUN2 ...]"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from cutaway.cli.completion import complete_runs
from cutaway.cli.console import say
from cutaway.cli.options import ENGINE, Engine, option
from cutaway.errors import ConfigError, MissingExtra
from cutaway.serve.sockets import listen, local_host_names

LOCALHOST = "127.0.0.1"


def limit_option(help: str) -> Any:
    return typer.Option(help=help, rich_help_panel="Limits", metavar="N")


def serve(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run folders. Requests choose one by its name.", metavar="RUN", autocompletion=complete_runs
        ),
    ],
    port: Annotated[int, typer.Option(help="Port of the server. 0: any free port.")] = 8643,
    host: Annotated[str, typer.Option(help="Address to listen on. 0.0.0.0: open to the network.")] = LOCALHOST,
    token: Annotated[
        str,
        typer.Option(help="Bearer token that requests must send. Or set CUTAWAY_TOKEN.", envvar="CUTAWAY_TOKEN"),
    ] = "",
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Web pages that may send requests; *: all.", metavar="URL")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds until a request fails with 503.", metavar="S")] = 60.0,
    log: Annotated[bool, typer.Option("--log", help="Print a line for each request.")] = False,
    engine: Engine = "auto",
    dtype: Annotated[str, option("float32, float64 or int8.", ENGINE)] = "float32",
    device: Annotated[str, option("auto, cpu, cuda, ...", ENGINE)] = "auto",
    threads: Annotated[int, option("torch: threads. 0: one less than the cores.", ENGINE, metavar="N")] = 0,
    batching: Annotated[bool, option("Batch waiting texts. Default: on.", ENGINE)] = True,
    batch_size: Annotated[int, limit_option("Texts in a batch.")] = 64,
    max_waiting: Annotated[int, limit_option("Waiting texts; more are rejected with 429.")] = 1024,
    max_texts: Annotated[int, limit_option("Texts in a request.")] = 256,
    max_characters: Annotated[int, limit_option("Characters in a text.")] = 20_000,
    max_new_tokens: Annotated[int, limit_option("Generated tokens for a text.")] = 1_024,
    max_connections: Annotated[int, limit_option("Connections; then idle ones are closed. 0: by ulimit -n.")] = 0,
    max_body: Annotated[int, limit_option("Bytes in a request.")] = 1 << 20,
) -> None:
    """Serve models over HTTP, also with OpenAI's API.

    Examples:  cutaway serve runs/demo
               cutaway serve runs/demo runs/python-gpt --port 9000
               curl http://127.0.0.1:8643/translate --json '{"text": "The cat sleeps."}'
               CUTAWAY_TOKEN=secret cutaway serve runs/demo --host 0.0.0.0

    http://127.0.0.1:8643/docs documents the requests. Texts of several requests are batched.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # for short texts, threads cost more than they save
    library = import_server()
    limits = library.Limits(
        body=max_body, characters=max_characters, texts=max_texts, new_tokens=max_new_tokens, waiting=max_waiting,
        seconds=timeout, batch_size=batch_size if batching else 1,
        connections=max_connections or library.default_connections(),
    )  # fmt: skip
    found = library.read_runs(runs, device=device, engine=engine, dtype=dtype)
    set_threads(threads, {run.engine for run in found})
    access = library.Access(token, local_host_names(host), library.parse_origins(allow_origin or ()))
    listening = listen(host, port)
    app_state = library.AppState(limits=limits)
    start_logging(log)
    port = listening.getsockname()[1]
    app_state.start(found)
    app = library.api_app(app_state, access)
    library.serve(
        app, app_state, listening, lambda: print_address(host, port, bool(token)), lambda: print_models(app_state), say
    )


def import_server() -> Any:
    """The names of the serve package, as one object. They are imported here because they need an extra."""
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


def set_threads(threads: int, engines: set[str]) -> None:
    """Set torch's threads. The default leaves one core for handling requests."""
    if threads < 0:
        raise ConfigError(f"--threads {threads} is negative. Give 1 or more, or 0 for the default.")
    if not engines & {"torch", "auto"}:
        if threads:
            raise ConfigError(
                f"--threads {threads} has no effect on the engine {' and '.join(engines)}. Leave it out, and start "
                "several servers for more speed."
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


def print_address(host: str, port: int, has_token: bool) -> None:
    shown = {"0.0.0.0": LOCALHOST, "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    say(f"The server is at http://{shown}:{port}/ (documentation: /docs). Loading ...", "bold")
    if not local_host_names(host) and not has_token:
        say(f"Note: with --host {host} anyone in your network can use the server. Set a --token.", "yellow")


def print_models(app_state: Any) -> None:
    for worker in app_state.workers:
        say(f"  {worker.run.name}: {', '.join(worker.model.abilities)} ({worker.model.engine})")
    say("Ready. Press Ctrl-C to stop.")
