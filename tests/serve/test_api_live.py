"""A server in a separate process, as users start it: load, signals, killed clients, memory."""

import http.client
import json
import random
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from helpers import run_cutaway
from serving import ask, ask_json, events, serve_in_process, tiny_runs, until

from cutaway.config import DecodeConfig
from cutaway.inference.pipelines import TextGenerator, Translator

pytestmark = pytest.mark.slow
WORDS = list("abcdefgh,.")
GREEDY = {"strategy": "greedy", "max_length": 12}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("runs"))


def sentences(count, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 20))) for _ in range(count)]


def start_clients(count, work):
    """Start `count` threads. Return them and the list of their errors."""
    errors = []

    def run(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads, errors


@pytest.mark.parametrize(
    "search",
    [
        {"strategy": "greedy"},
        {"strategy": "beam", "beam_size": 3, "length_penalty": 0.6},
        {"strategy": "sample", "temperature": 1.2, "top_p": 0.95},
    ],
    ids=lambda search: search["strategy"],
)
def test_texts_under_load_are_equal_to_the_pipelines(runs, search):
    """200 sentences of different lengths from 16 clients, in double precision."""
    texts = sentences(200)
    seeds = [{"seed": i} if search["strategy"] == "sample" else {} for i in range(200)]
    translator = Translator.load(runs[0], "cpu", dtype="float64")
    generator = TextGenerator.load(runs[1], "cpu", dtype="float64")
    found = {"/translate": {}, "/generate": {}}
    with serve_in_process(runs[:2], "--dtype", "float64", "--device", "cpu") as served:

        def work(number):
            for i in range(number, 200, 16):
                for path in found:
                    found[path][i] = ask_json(served.port, path, {"text": texts[i], **search, **seeds[i]})["results"][
                        0
                    ]["text"]

        threads, errors = start_clients(16, work)
        for thread in threads:
            thread.join(120)
        assert not errors
        batches = ask(served.port, "/metrics")[1].decode()
    for i, text in enumerate(texts):
        decode = DecodeConfig(**search, **seeds[i])
        assert found["/translate"][i] == translator.translate([text], decode)[0], text
        assert text + found["/generate"][i] == generator.generate([text], decode)[0], text
    lines = dict(line.rsplit(" ", 1) for line in batches.splitlines())
    batch_count = int(lines['cutaway_batch_texts_count{model="translator"}'])
    assert batch_count < 190  # texts shared batches


def test_accepted_requests_are_finished_after_sigterm(runs):
    with serve_in_process(runs[:1]) as served:
        sent = []  # [time of sending, status or error]

        def work(number):
            for turn in range(1000):
                connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
                body, mine = json.dumps({"text": sentences(20, number + turn), **GREEDY}), [None, None]
                try:
                    connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
                    mine[0] = time.monotonic()
                    sent.append(mine)
                    response = connection.getresponse()
                    content = response.read()
                except OSError as error:
                    mine[1] = error
                    return
                finally:
                    connection.close()
                mine[1] = response.status
                if response.status == 503:
                    assert "the server is shutting down" in content.decode()
                    assert response.headers["retry-after"]
                else:
                    assert len(json.loads(content)["results"]) == 20

        threads, errors = start_clients(8, work)
        until(lambda: len(sent) > 40)
        idle = socket.create_connection(("127.0.0.1", served.port))  # an idle connection must not delay the shutdown
        signalled = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(30) == 0
        idle.close()
        for thread in threads:
            thread.join(30)
        assert not errors
        before = [(when, result) for when, result in sent if when < signalled]
        assert len(before) >= 30
        # The signal may arrive before one request of each client. That request gets 503; its connection is not cut.
        assert {result for _, result in before} <= {200, 503}
        assert sum(result == 503 for _, result in before) <= 8
        after = {type(result) for when, result in sent if when >= signalled}
        assert TimeoutError not in after  # every client got a response or an error
        until(lambda: any("has stopped" in line for line in served.lines))


HELD = """
import os, pathlib, time
from cutaway.serve.loaded_model import LoadedModel

own, folder = LoadedModel.run, pathlib.Path(os.environ["CUTAWAY_TEST_FOLDER"])

def run(self, jobs):
    (folder / "started").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    return own(self, jobs)

LoadedModel.run = run
"""


def serve_held(runs, folder):
    """Start a server whose model writes the file `started` and then waits for the file `go`."""
    return serve_in_process(runs, before=HELD, environment={"CUTAWAY_TEST_FOLDER": str(folder)})


def test_a_request_in_progress_is_finished(runs, tmp_path):
    with serve_held(runs[1:2], tmp_path) as served:
        found = []
        body = {"text": sentences(20), "strategy": "beam", "beam_size": 3, "max_length": 9}
        threads, errors = start_clients(1, lambda number: found.append(ask_json(served.port, "/generate", body)))
        until((tmp_path / "started").exists)
        served.process.send_signal(signal.SIGINT)
        until(lambda: any("1 request is in progress" in line for line in served.lines))
        response, _ = ask(served.port, "/generate", {"text": "a"})
        assert response.status == 503
        (tmp_path / "go").touch()
        assert served.process.wait(60) == 0
        threads[0].join(10)
        assert not errors
        assert len(found[0]["results"]) == 20


def test_a_second_signal_stops_at_once(runs, tmp_path):
    with serve_held(runs[1:2], tmp_path) as served:
        threads, _ = start_clients(1, lambda number: ask(served.port, "/generate", {"text": "a"}))
        until((tmp_path / "started").exists)
        served.process.send_signal(signal.SIGTERM)
        until(lambda: any("Press Ctrl-C again to stop at once" in line for line in served.lines))
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(20) == 130
        threads[0].join(10)


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3, 0.6])
def test_a_signal_during_loading_stops_gracefully(runs, seconds):
    with serve_in_process(runs[:2], wait=False) as served:
        time.sleep(seconds)
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(20) == 0
        until(lambda: any("has stopped" in line for line in served.lines))


NEVER_DONE = """
import torch
from cutaway.serve.loaded_model import LoadedModel

def run(self, jobs):
    while True:
        torch.ones(200, 200) @ torch.ones(200, 200)

LoadedModel.run = run
"""


def test_the_server_stops_while_a_model_runs_forever(runs):
    """Python would abort if it exits while a thread is inside PyTorch."""
    with serve_in_process(runs[:1], "--timeout", "0.5", before=NEVER_DONE) as served:
        assert ask(served.port, "/translate", {"text": "a"})[0].status == 503  # cancelled, but still running
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(20) == 0
        until(lambda: any("has stopped" in line for line in served.lines))


def test_the_server_survives_killed_clients(runs):
    with serve_in_process(runs[1:2]) as served:
        body = json.dumps({"text": "a b", "strategy": "greedy", "max_length": 30, "stream": True}).encode()
        head = b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        for number in range(60):
            client = socket.create_connection(("127.0.0.1", served.port), timeout=20)
            whole = head % len(body) + body
            client.sendall(whole[: 20 + number * 3] if number % 3 == 0 else whole)  # some disconnect while sending
            if number % 3 == 2:
                client.recv(100)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # a reset
            client.close()
        assert "".join(event.get("text", "") for event in events(served.port, "/generate", {"text": "a b", **GREEDY}))
        metrics = lambda: ask(served.port, "/metrics")[1].decode()  # noqa: E731
        until(lambda: "cutaway_requests_in_flight 1\n" in metrics(), 30)
        assert not [line for line in served.lines if "Traceback" in line]


def test_a_client_that_does_not_read_delays_no_other(runs):
    with serve_in_process(runs[1:2]) as served:
        body = json.dumps({"text": ["a b"] * 200, "strategy": "greedy", "max_length": 30, "stream": True}).encode()
        head = b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        slow = []
        for _ in range(4):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            client.connect(("127.0.0.1", served.port))
            client.sendall(head % len(body) + body)
            slow.append(client)
        assert ask_json(served.port, "/generate", {"text": "a", **GREEDY}, timeout=30)["results"]
        for client in slow:
            client.close()


def memory(process):
    """Resident memory of the process in megabytes."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def test_memory_does_not_grow(runs):
    """Less than 20 MB from the 1,000th to the 5,000th request, with streams and invalid requests among them."""
    bodies = [
        ("/translate", {"text": sentences(3), **GREEDY}),
        ("/generate", {"text": "a b", "strategy": "sample", "seed": 1, "max_length": 8}),
        ("/generate", {"text": "a b", "strategy": "greedy", "max_length": 8, "stream": True}),
        ("/classify", {"text": "a b"}),
        ("/tag", {"text": "a b"}),
        ("/embed", {"text": "a b"}),
        ("/trace", {"text": "a b"}),
        ("/v1/completions", {"model": "writer", "prompt": "a", "max_tokens": 4}),
        ("/translate", {"text": 5}),
        ("/metrics", None),
    ]
    with serve_in_process(runs) as served:

        def send(count):
            def work(number):
                for i in range(number, count, 8):
                    ask(served.port, *bodies[i % len(bodies)])

            threads, errors = start_clients(8, work)
            for thread in threads:
                thread.join(200)
            assert not errors

        send(1_000)
        before = memory(served.process)
        send(4_000)
        assert memory(served.process) - before < 20


def test_invalid_ports_runs_and_options(runs, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run_cutaway("serve", runs[0], "--port", port, cwd=tmp_path)
    assert (
        "Choose another address with --host"
        in run_cutaway("serve", runs[0], "--host", "192.0.2.1", cwd=tmp_path).stderr
    )
    assert result.returncode == 1
    assert f"cannot listen at 127.0.0.1:{port}" in result.stderr
    assert "Choose another address with --port" in result.stderr
    assert "Traceback" not in result.stderr
    result = run_cutaway("serve", "runs/nothing", cwd=tmp_path)
    assert (result.returncode, "Traceback" in result.stderr) == (1, False)
    other = tmp_path / "translator"
    other.symlink_to(runs[1])
    twin = tmp_path / "deeper" / runs[0].name
    twin.parent.mkdir()
    twin.symlink_to(runs[0])
    result = run_cutaway("serve", runs[0], twin, cwd=tmp_path)
    assert (result.returncode, "two runs have the name 'translator'" in result.stderr) == (1, True)
    for option in (
        ("--max-texts", "5000"),
        ("--batch-size", "0"),
        ("--timeout", "0"),
        ("--port", "99999"),
        ("--threads", "-1"),
        ("--engine", "ct2", "--threads", "2"),
        ("--allow-origin", "example.org"),
    ):
        result = run_cutaway("serve", runs[0], *option, cwd=tmp_path)
        assert (result.returncode, "Traceback" in result.stderr) == (1, False), option


def test_a_model_that_fails_to_load_stops_the_server(runs, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in runs[0].iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\x00\x01\x02\x03")
    with serve_in_process([runs[0], broken], wait=False) as served:
        assert served.process.wait(60) == 1
        until(lambda: any("error:" in line for line in served.lines))
    with serve_in_process([runs[2]], "--engine", "numpy", wait=False) as served:
        assert served.process.wait(60) == 1
        until(lambda: any("cannot do this" in line for line in served.lines))


def test_requests_get_503_during_loading(runs):
    with serve_in_process(runs[:1], wait=False, environment={"CUTAWAY_TOKEN": "secret"}) as served:
        statuses = set()
        header = {"Authorization": "Bearer secret"}

        def is_ready():
            response, _ = ask(served.port, "/translate", {"text": "a"}, header)
            statuses.add(response.status)
            assert response.status in (200, 503)
            assert ask(served.port, "/health")[0].status == 200
            return response.status == 200

        until(is_ready)
        assert ask(served.port, "/translate", {"text": "a"})[0].status == 401
        until(lambda: any(line.startswith("Ready") for line in served.lines))


def test_torch_serves_what_an_engine_cannot(runs):
    with serve_in_process(runs[:3], "--engine", "ct2") as served:
        cards = ask_json(served.port, "/models")["data"]
        assert [(card["id"], card["engine"]) for card in cards] == [
            ("translator", "ct2"), ("writer", "ct2"), ("classifier", "torch"),
        ]  # fmt: skip
        assert ask_json(served.port, "/classify", {"text": "a b"})["results"]
        assert any("classifier: classify, embed, trace (torch)" in line for line in served.lines)


@pytest.mark.parametrize("engine", ["numpy", "ct2"])
def test_other_engines(runs, engine):
    with serve_in_process(runs[:2], "--engine", engine) as served:
        results = ask_json(served.port, "/translate", {"text": sentences(20), **GREEDY})["results"]
        expected = Translator.load(runs[0], "cpu", engine=engine).translate(sentences(20), DecodeConfig(**GREEDY))
        assert [one["text"] for one in results] == expected
        pieces = events(served.port, "/generate", {"text": "a b", **GREEDY})
        [whole] = ask_json(served.port, "/generate", {"text": "a b", **GREEDY})["results"]
        assert "".join(event.get("text", "") for event in pieces) == whole["text"]
        response, content = ask(served.port, "/embed", {"text": "a"})
        assert (response.status, "no served model can embed" in content.decode()) == (404, True)
        assert [card["engine"] for card in ask_json(served.port, "/models")["data"]] == [engine, engine]
        sampled, content = ask(served.port, "/generate", {"text": "a", "strategy": "sample"})
        assert sampled.status == (400 if engine == "ct2" else 200), content
