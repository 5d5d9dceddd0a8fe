"""A server in a process of its own, as users start it: load, signals, clients that are killed, memory."""

import http.client
import json
import random
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from helpers import cutaway_here
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


def clients(count, work):
    """So many threads that take turns until everything is done; whatever goes wrong in them is raised here."""
    trouble = []

    def run(number):
        try:
            work(number)
        except BaseException as error:
            trouble.append(error)

    threads = [threading.Thread(target=run, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads, trouble


@pytest.mark.parametrize(
    "search",
    [
        {"strategy": "greedy"},
        {"strategy": "beam", "beam_size": 3, "length_penalty": 0.6},
        {"strategy": "sample", "temperature": 1.2, "top_p": 0.95},
    ],
    ids=lambda search: search["strategy"],
)
def test_under_load_every_text_is_what_the_pipeline_alone_writes(runs, search):
    """200 sentences of unlike length from 16 clients, some of them several in a request: in double precision, the same."""
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

        threads, trouble = clients(16, work)
        for thread in threads:
            thread.join(120)
        assert not trouble
        batches = ask(served.port, "/metrics")[1].decode()
    for i, text in enumerate(texts):
        decode = DecodeConfig(**search, **seeds[i])
        assert found["/translate"][i] == translator.translate([text], decode)[0], text
        assert text + found["/generate"][i] == generator.generate([text], decode)[0], text
    lines = dict(line.rsplit(" ", 1) for line in batches.splitlines())
    worked = int(lines['cutaway_batch_texts_count{model="translator"}'])
    assert worked < 190  # texts did share batches


def test_sigterm_under_load_answers_all_that_was_accepted(runs):
    with serve_in_process(runs[:1]) as served:
        asked = []  # [when it was sent, what came of it]

        def work(number):
            for turn in range(1000):
                connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
                body, mine = json.dumps({"text": sentences(20, number + turn), **GREEDY}), [None, None]
                try:
                    connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
                    mine[0] = time.monotonic()
                    asked.append(mine)
                    response = connection.getresponse()
                    content = response.read()
                except OSError as error:
                    mine[1] = error
                    return
                finally:
                    connection.close()
                mine[1] = response.status
                if response.status == 503:
                    assert "the server is ending" in content.decode()
                    assert response.headers["retry-after"]
                else:
                    assert len(json.loads(content)["results"]) == 20

        threads, trouble = clients(8, work)
        until(lambda: len(asked) > 40)
        idle = socket.create_connection(("127.0.0.1", served.port))  # nobody asks here: it must not hold up the end
        signalled = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(30) == 0
        idle.close()
        for thread in threads:
            thread.join(30)
        assert not trouble
        before = [(when, result) for when, result in asked if when < signalled]
        assert len(before) >= 30
        # The signal may overtake a request on its way, of each client one. Then it is told; never is its connection cut.
        assert {result for _, result in before} <= {200, 503}
        assert sum(result == 503 for _, result in before) <= 8
        after = {type(result) for when, result in asked if when >= signalled}
        assert TimeoutError not in after  # told, or turned away; nobody is left waiting
        until(lambda: any("has ended" in line for line in served.told))


HELD = """
import os, pathlib, time
from cutaway.serve.loaded_model import Served

own, place = Served.work, pathlib.Path(os.environ["CUTAWAY_TEST_PLACE"])

def work(self, jobs):
    (place / "begun").touch()
    while not (place / "go").exists():
        time.sleep(0.01)
    return own(self, jobs)

Served.work = work
"""


def held_apart(runs, place):
    """A server whose model begins, makes a file `begun`, and goes on when there is a file `go`."""
    return serve_in_process(runs, before=HELD, environment={"CUTAWAY_TEST_PLACE": str(place)})


def test_a_request_that_is_being_answered_is_finished(runs, tmp_path):
    with held_apart(runs[1:2], tmp_path) as served:
        found = []
        body = {"text": sentences(20), "strategy": "beam", "beam_size": 3, "max_length": 9}
        threads, trouble = clients(1, lambda number: found.append(ask_json(served.port, "/generate", body)))
        until((tmp_path / "begun").exists)
        served.process.send_signal(signal.SIGINT)
        until(lambda: any("1 request is being answered" in line for line in served.told))
        response, _ = ask(served.port, "/generate", {"text": "a"})
        assert response.status == 503
        (tmp_path / "go").touch()
        assert served.process.wait(60) == 0
        threads[0].join(10)
        assert not trouble
        assert len(found[0]["results"]) == 20


def test_the_second_signal_ends_it_at_once(runs, tmp_path):
    with held_apart(runs[1:2], tmp_path) as served:
        threads, _ = clients(1, lambda number: ask(served.port, "/generate", {"text": "a"}))
        until((tmp_path / "begun").exists)
        served.process.send_signal(signal.SIGTERM)
        until(lambda: any("Once more ends at once" in line for line in served.told))
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(20) == 130
        threads[0].join(10)


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3, 0.6])
def test_a_signal_while_it_is_loading_ends_it_in_good_order(runs, seconds):
    with serve_in_process(runs[:2], wait=False) as served:
        time.sleep(seconds)
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(20) == 0
        until(lambda: any("has ended" in line for line in served.told))


NEVER_DONE = """
import torch
from cutaway.serve.loaded_model import Served

def work(self, jobs):
    while True:
        torch.ones(200, 200) @ torch.ones(200, 200)

Served.work = work
"""


def test_a_model_that_does_not_come_back_does_not_spoil_the_end(runs):
    """Python would abort if it ended beside a thread that is inside of PyTorch."""
    with serve_in_process(runs[:1], "--timeout", "0.5", before=NEVER_DONE) as served:
        assert ask(served.port, "/translate", {"text": "a"})[0].status == 503  # given up, but not ended
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(20) == 0
        until(lambda: any("has ended" in line for line in served.told))


def test_clients_that_are_killed_leave_the_server_well(runs):
    with serve_in_process(runs[1:2]) as served:
        body = json.dumps({"text": "a b", "strategy": "greedy", "max_length": 30, "stream": True}).encode()
        head = b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        for number in range(60):
            client = socket.create_connection(("127.0.0.1", served.port), timeout=20)
            whole = head % len(body) + body
            client.sendall(whole[: 20 + number * 3] if number % 3 == 0 else whole)  # some leave in the midst of asking
            if number % 3 == 2:
                client.recv(100)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # a reset
            client.close()
        assert "".join(event.get("text", "") for event in events(served.port, "/generate", {"text": "a b", **GREEDY}))
        metrics = lambda: ask(served.port, "/metrics")[1].decode()  # noqa: E731
        until(lambda: "cutaway_requests_in_flight 1\n" in metrics(), 30)
        assert not [line for line in served.told if "Traceback" in line]


def test_a_reader_that_does_not_read_holds_nobody_up(runs):
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
    """Megabytes that the process has in memory."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def test_memory_does_not_grow(runs):
    """From the 1,000th request to the 5,000th, of all kinds, refused ones and streams among them: less than 20 MB."""
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

        def asked(count):
            def work(number):
                for i in range(number, count, 8):
                    ask(served.port, *bodies[i % len(bodies)])

            threads, trouble = clients(8, work)
            for thread in threads:
                thread.join(200)
            assert not trouble

        asked(1_000)
        before = memory(served.process)
        asked(4_000)
        assert memory(served.process) - before < 20


def test_a_port_that_is_taken_and_runs_that_are_none(runs, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = cutaway_here("serve", runs[0], "--port", port, cwd=tmp_path)
    assert "Choose another with --host" in cutaway_here("serve", runs[0], "--host", "192.0.2.1", cwd=tmp_path).stderr
    assert result.returncode == 1
    assert f"cannot listen at 127.0.0.1:{port}" in result.stderr
    assert "Choose another with --port" in result.stderr
    assert "Traceback" not in result.stderr
    result = cutaway_here("serve", "runs/nothing", cwd=tmp_path)
    assert (result.returncode, "Traceback" in result.stderr) == (1, False)
    other = tmp_path / "translator"
    other.symlink_to(runs[1])
    twin = tmp_path / "deeper" / runs[0].name
    twin.parent.mkdir()
    twin.symlink_to(runs[0])
    result = cutaway_here("serve", runs[0], twin, cwd=tmp_path)
    assert (result.returncode, "two of the runs are called 'translator'" in result.stderr) == (1, True)
    for option in (
        ("--max-texts", "5000"),
        ("--batch-size", "0"),
        ("--timeout", "0"),
        ("--port", "99999"),
        ("--threads", "-1"),
        ("--engine", "ct2", "--threads", "2"),
        ("--allow-origin", "example.org"),
    ):
        result = cutaway_here("serve", runs[0], *option, cwd=tmp_path)
        assert (result.returncode, "Traceback" in result.stderr) == (1, False), option


def test_a_model_that_cannot_be_loaded_ends_the_server(runs, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in runs[0].iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\x00\x01\x02\x03")
    with serve_in_process([runs[0], broken], wait=False) as served:
        assert served.process.wait(60) == 1
        until(lambda: any("error:" in line for line in served.told))
    with serve_in_process([runs[2]], "--engine", "numpy", wait=False) as served:
        assert served.process.wait(60) == 1
        until(lambda: any("cannot do this" in line for line in served.told))


def test_it_says_that_it_is_starting(runs):
    with serve_in_process(runs[:1], wait=False, environment={"CUTAWAY_TOKEN": "secret"}) as served:
        statuses = set()
        header = {"Authorization": "Bearer secret"}

        def is_answered():
            response, _ = ask(served.port, "/translate", {"text": "a"}, header)
            statuses.add(response.status)
            assert response.status in (200, 503)
            assert ask(served.port, "/health")[0].status == 200
            return response.status == 200

        until(is_answered)
        assert ask(served.port, "/translate", {"text": "a"})[0].status == 401
        until(lambda: any(line.startswith("Ready") for line in served.told))


def test_what_an_engine_cannot_do_is_done_by_torch(runs):
    with serve_in_process(runs[:3], "--engine", "ct2") as served:
        cards = ask_json(served.port, "/models")["data"]
        assert [(card["id"], card["engine"]) for card in cards] == [
            ("translator", "ct2"), ("writer", "ct2"), ("classifier", "torch"),
        ]  # fmt: skip
        assert ask_json(served.port, "/classify", {"text": "a b"})["results"]
        assert any("classifier: classify, embed, trace (torch)" in line for line in served.told)


@pytest.mark.parametrize("engine", ["numpy", "ct2"])
def test_other_engines(runs, engine):
    with serve_in_process(runs[:2], "--engine", engine) as served:
        told = ask_json(served.port, "/translate", {"text": sentences(20), **GREEDY})["results"]
        expected = Translator.load(runs[0], "cpu", engine=engine).translate(sentences(20), DecodeConfig(**GREEDY))
        assert [one["text"] for one in told] == expected
        streamed = events(served.port, "/generate", {"text": "a b", **GREEDY})
        [whole] = ask_json(served.port, "/generate", {"text": "a b", **GREEDY})["results"]
        assert "".join(event.get("text", "") for event in streamed) == whole["text"]
        response, content = ask(served.port, "/embed", {"text": "a"})
        assert (response.status, "none of the models here can embed" in content.decode()) == (404, True)
        assert [card["engine"] for card in ask_json(served.port, "/models")["data"]] == [engine, engine]
        sampled, content = ask(served.port, "/generate", {"text": "a", "strategy": "sample"})
        assert sampled.status == (400 if engine == "ct2" else 200), content
