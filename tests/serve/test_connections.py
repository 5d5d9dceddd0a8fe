"""Connections that ask nothing, or slowly: the server goes on answering, and does not fill its log."""

import logging
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest
from serving import ask, ask_json, serve_in_process, serve_in_thread, tiny_runs

from cutaway.serve.connections import RepeatFilter
from cutaway.serve.limits import MAX_CONNECTIONS, default_connections

PLACES, SECONDS = 5, 0.6
BEGUN = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
UPLOAD = b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("runs"))[:1]


@pytest.fixture(scope="module")
def port(runs):
    with serve_in_thread(runs, connections=PLACES, upload_seconds=SECONDS) as served:
        yield served.port


@pytest.fixture
def connect(port):
    with ExitStack() as opened:
        yield lambda: opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))


def is_open(connection):
    """Whether the other side has closed it; after a moment, in which it may."""
    connection.settimeout(0.1)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionResetError:
        return False


def test_idle_connections_make_room_for_new_ones(connect, port):
    idle = [connect() for _ in range(3 * PLACES)]
    began = time.monotonic()
    assert ask_json(port, "/health") == {"status": "alive"}
    assert time.monotonic() - began < 1
    assert [is_open(one) for one in idle[-2:]] == [True, True]  # those that came last
    assert not any(is_open(one) for one in idle[: 2 * PLACES])


def test_one_that_is_being_answered_keeps_its_place(connect):
    busy = [connect() for _ in range(PLACES)]
    for one in busy:
        one.sendall(UPLOAD)
    time.sleep(0.1)
    other = connect()
    said = other.recv(1000)
    assert said.startswith(b"HTTP/1.1 503 ")
    assert b"all connections are in use. Ask again later." in said
    for one in busy:  # until the time for its body is over
        assert one.recv(1000).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("begin", [b"", BEGUN, BEGUN + b"\r\n" + BEGUN])
def test_headers_have_to_arrive_in_time(connect, begin):
    """A byte now and then does not help, nor does a whole request before."""
    connection = connect()
    connection.sendall(begin)
    began = time.monotonic()
    with pytest.raises(OSError):
        while time.monotonic() < began + 5:
            connection.sendall(b"X" if begin else b"")
            if not begin and not is_open(connection):
                raise OSError
            time.sleep(0.05)
    assert SECONDS / 2 < time.monotonic() - began < 4


def test_two_lengths_are_refused(connect):
    for extra in (
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        b"content-length: 4\r\ntransfer-encoding: chunked\r\n",
    ):
        connection = connect()
        connection.sendall(UPLOAD.partition(b"Content-Length")[0] + extra + b"\r\n0\r\n\r\n" + BEGUN + b"\r\n")
        said = b""
        while part := connection.recv(4096):  # it is closed: what comes after is not taken for a request
            said += part
        assert said.startswith(b"HTTP/1.1 400 ")
        assert said.count(b"HTTP/1.1") == 1


def test_what_repeats_itself_is_logged_once(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("cutaway.serve.connections.time.monotonic", lambda: clock[0])
    passes = RepeatFilter().filter
    record = logging.makeLogRecord({"name": "asyncio", "msg": "out of %s", "args": ("files",)})
    other = logging.makeLogRecord({"name": "asyncio", "msg": "out of %s", "args": ("memory",)})
    assert [passes(record), passes(record), passes(other)] == [True, False, True]
    clock[0] += 61
    assert passes(record)


@pytest.mark.parametrize(("descriptors", "expected"), [(1024, 896), (256, 192), (20, 1), (1 << 20, MAX_CONNECTIONS)])
def test_as_many_connections_as_descriptors_allow(monkeypatch, descriptors, expected):
    monkeypatch.setattr("resource.getrlimit", lambda which: (descriptors, descriptors))
    assert default_connections() == expected


HOLD = """
import socket, sys
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "explore"])
def test_more_idle_connections_than_descriptors(runs, command):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))"
    options = ["--no-open"] if command == "explore" else []
    with serve_in_process(runs, *options, before=limit, command=command) as served, ExitStack() as held:
        slowest = 0.0
        for _ in range(4):
            program = [sys.executable, "-c", HOLD, str(served.port), "550"]
            holder = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            held.callback(holder.communicate)
            assert holder.stdout.readline() == "held\n"
            for _ in range(10):
                began = time.monotonic()
                response, _ = ask(served.port, "/health" if command == "serve" else "/api/info", timeout=10)
                slowest = max(slowest, time.monotonic() - began)
                assert response.status == 200
                time.sleep(0.2)
        assert slowest < 1
        assert len("".join(served.told)) < 100_000
        assert not [line for line in served.told if "Traceback" in line]
