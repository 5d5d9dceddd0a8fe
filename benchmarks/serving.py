"""Measure requests per second and latency of the server, with and without batching, for 1, 8 and 32 clients.

    python benchmarks/serving.py runs/demo --seconds 4 --rounds 3

The script starts two servers, one with batching and one without, and measures them in turns, so that other load on the
machine affects both. A client sends its next request when it has the response. All clients run in one asyncio loop over
plain sockets; they share the cores with the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TEXTS = [
    "The small cat sleeps.",
    "A dog eats.",
    "The old man sees a big red house near the river.",
    "My sister reads a book.",
    "The children play in the garden with a white dog.",
    "He gives the woman a green apple.",
]


@contextmanager
def server(run: Path, *options: str) -> Iterator[int]:
    """Start a server, yield its port, and stop it at the end of the block."""
    command = [sys.executable, "-c", "from cutaway.cli import main; main()", "serve", str(run), "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        port = 0
        for line in process.stderr:
            if found := re.search(r":(\d+)/", line):
                port = int(found[1])
            if line.startswith("Ready"):
                break
        else:
            raise SystemExit("the server did not start")
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def client(port: int, bodies: Sequence[bytes], until: float, times: list[float]) -> None:
    """Send requests one after the other over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.perf_counter() < until:
        body = bodies[number % len(bodies)]
        started = time.perf_counter()
        writer.write(b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n%b" % (len(body), body))  # fmt: skip
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the server responded with {head.splitlines()[0]!r}")
        found = re.search(rb"content-length: (\d+)", head)
        assert found
        await reader.readexactly(int(found[1]))
        times.append(time.perf_counter() - started)
        number += 1
    writer.close()


async def load(port: int, clients: int, seconds: float, settings: dict[str, object]) -> list[float]:
    """Run the clients and return the latency of each request."""
    times: list[float] = []
    until = time.perf_counter() + seconds
    bodies = [json.dumps({"text": text, **settings}).encode() for text in TEXTS]
    await asyncio.gather(*(client(port, bodies[i % 6 :] + bodies[: i % 6], until, times) for i in range(clients)))
    return times


def percentile(times: Sequence[float], share: float) -> float:
    return 1000 * sorted(times)[min(len(times) - 1, int(share * len(times)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?", default=Path("runs/demo"))
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--strategy", default="greedy", choices=["greedy", "beam", "sample"])
    parser.add_argument("--options", default="", help="more options for both servers, such as '--engine ct2'")
    options = parser.parse_args()
    more = options.options.split()
    rounds = f"{options.rounds} rounds of {options.seconds:g} s"
    print(f"{options.run}, {options.strategy}, {os.cpu_count()} cores, {rounds} {more}")
    rates: dict[tuple[int, str], list[float]] = {}
    times: dict[tuple[int, str], list[float]] = {}
    with server(options.run, *more) as batching, server(options.run, "--no-batching", *more) as alone:
        for _ in range(options.rounds):
            for clients in options.clients:
                for name, port in (("batching", batching), ("no batching", alone)):
                    found = asyncio.run(load(port, clients, options.seconds, {"strategy": options.strategy}))
                    rates.setdefault((clients, name), []).append(len(found) / options.seconds)
                    times.setdefault((clients, name), []).extend(found)
    print(f"{'clients':>7}  {'':11}  {'requests/s':>10}  {'p50 ms':>8}  {'p95 ms':>8}  {'p99 ms':>8}  {'gain':>6}")
    for (clients, name), found in rates.items():
        rate, alone_rate = statistics.median(found), statistics.median(rates[clients, "no batching"])
        latency = "  ".join(f"{percentile(times[clients, name], share):8.1f}" for share in (0.5, 0.95, 0.99))
        gain = f"{rate / alone_rate:5.2f}×" if name == "batching" else ""
        print(f"{clients:>7}  {name:11}  {rate:>10.0f}  {latency}  {gain:>6}")


if __name__ == "__main__":
    main()
