"""Idle and slow connections: the server still answers, and its log stays short."""

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

CONNECTIONS, SECONDS = 5, 0.6
PARTIAL = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
UPLOAD = b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("runs"))[:1]


@pytest.fixture(scope="module")
def port(runs):
    with serve_in_thread(runs, connections=CONNECTIONS, upload_seconds=SECONDS) as served:
        yield served.port


@pytest.fixture
def connect(port):
    with ExitStack() as opened:
        yield lambda: opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))


def is_open(connection):
    """Whether the server keeps it open. Waits 0.1 s."""
    connection.settimeout(0.1)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionResetError:
        return False


def test_new_connections_replace_idle_ones(connect, port):
    idle = [connect() for _ in range(3 * CONNECTIONS)]
    began = time.monotonic()
    assert ask_json(port, "/health") == {"status": "alive"}
    assert time.monotonic() - began < 1
    assert [is_open(one) for one in idle[-2:]] == [True, True]  # the newest
    assert not any(is_open(one) for one in idle[: 2 * CONNECTIONS])


def test_busy_connections_are_not_closed(connect):
    busy = [connect() for _ in range(CONNECTIONS)]
    for one in busy:
        one.sendall(UPLOAD)
    time.sleep(0.1)
    other = connect()
    response = other.recv(1000)
    assert response.startswith(b"HTTP/1.1 503 ")
    assert b"all connections are in use. Retry later." in response
    for one in busy:  # until the timeout of its body
        assert one.recv(1000).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("begin", [b"", PARTIAL, PARTIAL + b"\r\n" + PARTIAL])
def test_headers_have_a_timeout(connect, begin):
    """Neither single bytes nor an earlier complete request extend it."""
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


def test_two_length_headers_are_rejected(connect):
    for extra in (
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        b"content-length: 4\r\ntransfer-encoding: chunked\r\n",
    ):
        connection = connect()
        connection.sendall(UPLOAD.partition(b"Content-Length")[0] + extra + b"\r\n0\r\n\r\n" + PARTIAL + b"\r\n")
        response = b""
        while part := connection.recv(4096):  # closed: the rest is not read as a request
            response += part
        assert response.startswith(b"HTTP/1.1 400 ")
        assert response.count(b"HTTP/1.1") == 1


def test_repeated_messages_are_logged_once(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("cutaway.serve.connections.time.monotonic", lambda: clock[0])
    passes = RepeatFilter().filter
    record = logging.makeLogRecord({"name": "asyncio", "msg": "out of %s", "args": ("files",)})
    other = logging.makeLogRecord({"name": "asyncio", "msg": "out of %s", "args": ("memory",)})
    assert [passes(record), passes(record), passes(other)] == [True, False, True]
    clock[0] += 61
    assert passes(record)


@pytest.mark.parametrize(("descriptors", "expected"), [(1024, 896), (256, 192), (20, 1), (1 << 20, MAX_CONNECTIONS)])
def test_default_connections_fit_the_file_descriptors(monkeypatch, descriptors, expected):
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
        assert len("".join(served.lines)) < 100_000
        assert not [line for line in served.lines if "Traceback" in line]
