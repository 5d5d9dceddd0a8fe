"""Fuzzing with schemathesis: no internal error, and every response matches the OpenAPI document."""

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from serving import ask, ask_json, serve_in_process, serve_in_thread, tiny_runs, until, write_run
from untrained import untrained_pipeline

from cutaway.explore.explorer import Explorer
from cutaway.serve.connections import BoundedServer
from cutaway.serve.explorer_app import explorer_app
from cutaway.serve.limits import Limits
from cutaway.serve.sockets import listen

HUGE = [2**31, 2**63, 10**30, 10**400, -1, -(2**63), -(10**30), 0, 1e308, -1e308, 1.5]
NO_NUMBERS = [
    float("nan"),
    float("inf"),
    -float("inf"),
    "1",
    "",
    "9" * 5_000,
    True,
    None,
    [],
    [[1]],
    [1.5],
    {},
    {"a": 1},
]
ODD = [*HUGE, *NO_NUMBERS, *([value] for value in (2**63, 10**30, -1, "1", None))]


@pytest.mark.parametrize(
    ("requests", "examples"),
    [
        pytest.param(1_000, 10, id="1000", marks=pytest.mark.slow),
        pytest.param(10_000, 1_300, id="10000", marks=pytest.mark.soak),
    ],
)
def test_every_response_matches_the_openapi_document(tmp_path, requests, examples):
    with serve_in_process(tiny_runs(tmp_path)) as served:
        program = Path(sys.executable).with_name("schemathesis")
        result = subprocess.run(
            [
                program, "run", f"http://127.0.0.1:{served.port}/openapi.json", "--max-examples", str(examples),
                # a text that the schema allows may still be too long for a model
                "--exclude-checks", "positive_data_acceptance",
                "--phases", "examples,coverage,fuzzing", "--continue-on-failure", "--seed", "1", "--no-color",
            ],
            cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", errors="replace",
            timeout=300 if requests < 5_000 else 3_000, env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
        assert result.returncode == 0, result.stdout[-5_000:]
        counts = dict(line.rsplit(" ", 1) for line in ask(served.port, "/metrics")[1].decode().splitlines())
        answers = {name: int(n) for name, n in counts.items() if name.startswith("cutaway_requests_total")}
        assert sum(answers.values()) >= requests
        assert not [name for name in answers if 'status="5' in name]
        assert counts["cutaway_requests_in_flight"] == "1"  # only this request itself
        assert all(counts[name] == "0" for name in counts if name.startswith("cutaway_texts_waiting"))
        assert len(ask_json(served.port, "/models")["data"]) == 4
        assert not [line for line in served.lines if "Traceback" in line]


def with_odd_values(schema, body):
    """Yield the body with each field of the schema set to each odd value."""
    for name in schema["properties"]:
        for value in ODD:
            yield {**body, name: value}


def body_schema(document, path):
    """The schema of a path's request body."""
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return document["components"]["schemas"][content["$ref"].rpartition("/")[2]]


@pytest.mark.slow
def test_odd_values_are_no_internal_error_of_the_api(tmp_path):
    with serve_in_thread(tiny_runs(tmp_path), new_tokens=8, seconds=20.0) as served:
        document = ask_json(served.port, "/openapi.json")
        for path in (path for path, way in document["paths"].items() if "post" in way):
            for model in ("translator", "writer"):
                body = {"model": model, "text": "a b"} if "/v1" not in path else {"model": model, "prompt": "a b"}
                body |= {"input": "a b"} if "embeddings" in path else {}
                body |= {"messages": [{"role": "user", "content": "a"}]} if "chat" in path else {}
                schema = body_schema(document, path)
                body = {name: value for name, value in body.items() if name in schema["properties"]}
                for changed in with_odd_values(schema, body):
                    response, content = ask(served.port, path, json.dumps(changed).encode())
                    assert response.status < 500, (path, str(changed)[:300], content)


@contextmanager
def serve_explorer(folder):
    """Serve an explorer of one run for each task. Yield the port, the OpenAPI document and the number of runs."""
    runs = [*tiny_runs(folder), write_run(folder / "masked", untrained_pipeline("encoder"))]
    runs.append(write_run(folder / "vectors", untrained_pipeline("encoder", head="vectors")))
    runs.append(write_run(folder / "pictures", untrained_pipeline("vision")))
    app = explorer_app(Explorer(runs, "cpu"))
    listening = listen("127.0.0.1", 0)
    server = BoundedServer(app, Limits())
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield listening.getsockname()[1], app.openapi(), len(runs)
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listening.close()


@pytest.mark.slow
def test_odd_values_are_no_internal_error_of_the_explorer(tmp_path):
    with serve_explorer(tmp_path) as (port, document, count):
        for path in (path for path, way in document["paths"].items() if "post" in way):
            for run in range(count) if path in ("/api/trace", "/api/beam") else (0,):
                body = {"text": "a b", "run": run}
                body |= {"name": "encoder.norm"} if path.endswith("part") else {}
                body |= {"sentences": 2} if path.endswith("score") else {}
                for changed in with_odd_values(body_schema(document, path), body):
                    response, content = ask(port, path, json.dumps(changed).encode())
                    assert response.status < 500, (path, str(changed)[:300], content)
                    assert b"Traceback" not in content
        for value in ("-1", "1e9", "9" * 5_000, "nan", "", "%00", "1&run=2"):
            response, content = ask(port, f"/api/heads?run={value}")
            assert response.status < 500, (value, content)


@pytest.mark.slow
def test_fuzzing_the_explorer_gives_no_internal_error(tmp_path):
    with serve_explorer(tmp_path) as (port, document, _):
        (tmp_path / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
        result = subprocess.run(
            [
                Path(sys.executable).with_name("schemathesis"), "run", "openapi.json",
                "--url", f"http://127.0.0.1:{port}", "--max-examples", "60", "--checks", "not_a_server_error",
                "--phases", "examples,coverage,fuzzing", "--continue-on-failure", "--seed", "1", "--no-color",
            ],
            cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", errors="replace",
            timeout=600, env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
        assert result.returncode == 0, result.stdout[-5_000:]
