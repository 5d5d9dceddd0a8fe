"""Servers for tests: in a thread of this process, whose inside can be watched, or in a process of their own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

from looking import untrained

from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.weights import sealed
from cutaway.serve.api_app import api_app
from cutaway.serve.limits import Limits
from cutaway.serve.middleware import Access
from cutaway.serve.served_model import runs_to_serve
from cutaway.serve.server import GracefulServer
from cutaway.serve.sockets import listen
from cutaway.serve.state import AppState

HOME = frozenset({"127.0.0.1", "localhost"})


def write_run(folder, pipeline):
    """A pipeline that nobody trained, as a run folder."""
    folder.mkdir(parents=True)
    run = RunFolder(folder)
    if pipeline.config.model.family != "vision":
        run.tokenizer.write_text(pipeline.tokenizer.to_json(), encoding="utf-8")
    run.model.write_bytes(sealed(weights_to_bytes(pipeline.model)))
    if pipeline.labels:
        run.labels.write_text(json.dumps(pipeline.labels), encoding="utf-8")
    run.write_config(pipeline.config)
    return folder


def tiny_runs(folder):
    """One run for each thing that can be asked."""
    kinds = {
        "translator": untrained("encoder_decoder"),
        "writer": untrained("decoder"),
        "classifier": untrained("encoder", head="classes"),
        "tagger": untrained("encoder", head="tags"),
    }
    return [write_run(folder / name, pipeline) for name, pipeline in kinds.items()]


@contextmanager
def served_here(runs, access=None, dtype="float64", **limits):
    """A server in a thread; `app_state` is all that is behind it."""
    app_state = AppState(limits=Limits(**limits))
    app_state.start(runs_to_serve(runs, device="cpu", dtype=dtype))
    app = api_app(app_state, access or Access(hosts=HOME))
    listening = listen("127.0.0.1", 0)
    server = GracefulServer(app, app_state, lambda: None, lambda text: None)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    port = listening.getsockname()[1]
    try:
        until(lambda: (server.started and not app_state.problem) or app_state.trouble)
        if app_state.trouble:
            raise app_state.trouble
        yield SimpleNamespace(port=port, app_state=app_state, server=server)
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        app_state.stop(5)
        listening.close()


@contextmanager
def served_apart(runs, *options, environment=None, wait=True, before="", command="serve"):
    """A server in a process of its own, as users start it: its port, and the process. `before`: code that it runs."""
    program = [sys.executable, "-c", f"{before}\nfrom cutaway.cli import main; main()"]
    process = subprocess.Popen(
        [*program, command, *map(str, runs), "--port", "0", *options],
        stderr=subprocess.PIPE, text=True, encoding="utf-8", env={**os.environ, **(environment or {})},
    )  # fmt: skip
    told = []
    reader = threading.Thread(target=lambda: told.extend(iter(process.stderr.readline, "")), daemon=True)
    reader.start()
    try:
        until(lambda: process.poll() is not None or any("http://" in line for line in told), 60)
        if wait:
            until(lambda: process.poll() is not None or any(line.startswith(("Ready", "Ctrl-C")) for line in told), 60)
        found = re.search(r":(\d+)/", "".join(told))
        yield SimpleNamespace(port=int(found[1]) if found else 0, process=process, told=told)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        reader.join(5)
        process.stderr.close()


def until(holds, seconds=30):
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.01)


def ask(port, path, body=None, headers=None, method=None, timeout=60):
    """A request: its response, and its content."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    given = {"Content-Type": "application/json"} if data is not None else {}
    connection.request(method or ("GET" if data is None else "POST"), path, data, {**given, **(headers or {})})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response, content


def answered(port, path, body=None, **more):
    response, content = ask(port, path, body, **more)
    assert response.status == 200, content
    return json.loads(content)


def events(port, path, body):
    """All that a stream tells."""
    response, content = ask(port, path, {**body, "stream": True})
    assert response.status == 200, content
    assert response.headers["content-type"].startswith("text/event-stream")
    *told, last, end = content.decode().split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in told]
