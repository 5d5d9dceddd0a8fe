"""Servers for tests: in a thread of the test process, or in a separate process."""

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

from untrained import untrained_pipeline

from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.weights import seal_weights
from cutaway.serve.api_app import api_app
from cutaway.serve.limits import Limits
from cutaway.serve.loaded_model import read_runs
from cutaway.serve.middleware import Access
from cutaway.serve.server import GracefulServer
from cutaway.serve.sockets import listen
from cutaway.serve.state import AppState

HOME = frozenset({"127.0.0.1", "localhost"})


def write_run(folder, pipeline):
    """Write an untrained pipeline as a run folder."""
    folder.mkdir(parents=True)
    run = RunFolder(folder)
    if pipeline.config.model.family != "vision":
        run.tokenizer.write_text(pipeline.tokenizer.to_json(), encoding="utf-8")
    run.model.write_bytes(seal_weights(weights_to_bytes(pipeline.model)))
    if pipeline.labels:
        run.labels.write_text(json.dumps(pipeline.labels), encoding="utf-8")
    run.write_config(pipeline.config)
    return folder


def tiny_runs(folder):
    """Write one run for each task."""
    kinds = {
        "translator": untrained_pipeline("encoder_decoder"),
        "writer": untrained_pipeline("decoder"),
        "classifier": untrained_pipeline("encoder", head="classes"),
        "tagger": untrained_pipeline("encoder", head="tags"),
    }
    return [write_run(folder / name, pipeline) for name, pipeline in kinds.items()]


@contextmanager
def serve_in_thread(runs, access=None, dtype="float64", **limits):
    """Run a server in a thread. Yield its port and its AppState."""
    app_state = AppState(limits=Limits(**limits))
    app_state.start(read_runs(runs, device="cpu", dtype=dtype))
    app = api_app(app_state, access or Access(hosts=HOME))
    listening = listen("127.0.0.1", 0)
    server = GracefulServer(app, app_state, lambda: None, lambda text: None)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    port = listening.getsockname()[1]
    try:
        until(lambda: (server.started and not app_state.not_ready_reason) or app_state.load_error)
        if app_state.load_error:
            raise app_state.load_error
        yield SimpleNamespace(port=port, app_state=app_state, server=server)
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        app_state.stop(5)
        listening.close()


@contextmanager
def serve_in_process(runs, *options, environment=None, wait=True, before="", command="serve"):
    """Run a server in a separate process, as users start it. `before`: Python code that runs first."""
    program = [sys.executable, "-c", f"{before}\nfrom cutaway.cli import main; main()"]
    process = subprocess.Popen(
        [*program, command, *map(str, runs), "--port", "0", *options],
        stderr=subprocess.PIPE, text=True, encoding="utf-8", env={**os.environ, **(environment or {})},
    )  # fmt: skip
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(iter(process.stderr.readline, "")), daemon=True)
    reader.start()
    try:
        until(lambda: process.poll() is not None or any("http://" in line for line in lines), 60)
        if wait:
            until(
                lambda: process.poll() is not None or any(line.startswith(("Ready", "Press Ctrl-C")) for line in lines),
                60,
            )
        found = re.search(r":(\d+)/", "".join(lines))
        yield SimpleNamespace(port=int(found[1]) if found else 0, process=process, lines=lines)
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


def until(condition, seconds=30):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "the condition was not met in time"
        time.sleep(0.01)


def ask(port, path, body=None, headers=None, method=None, timeout=60):
    """Send a request. Return the response and its content."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    given = {"Content-Type": "application/json"} if data is not None else {}
    connection.request(method or ("GET" if data is None else "POST"), path, data, {**given, **(headers or {})})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response, content


def ask_json(port, path, body=None, **more):
    response, content = ask(port, path, body, **more)
    assert response.status == 200, content
    return json.loads(content)


def events(port, path, body):
    """Return all events of a stream."""
    response, content = ask(port, path, {**body, "stream": True})
    assert response.status == 200, content
    assert response.headers["content-type"].startswith("text/event-stream")
    *lines, last, end = content.decode().split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in lines]
