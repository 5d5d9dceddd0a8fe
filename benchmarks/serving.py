"""How many requests a second the server answers, and how soon: with batching and without, at 1, 8 and 32 clients.

    python benchmarks/serving.py runs/demo --seconds 4 --rounds 3

Two servers are started on this machine, one with batching and one without; clients ask one of them at a time, in
rounds that take turns, so that a machine that is slow for a while is slow for both. A client sends its next request
when it has its answer. The clients are one asyncio loop over plain sockets: they share the cores with the server.
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
    """The port of a server that ends with the block."""
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
    """One request after the other on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.perf_counter() < until:
        body = bodies[number % len(bodies)]
        began = time.perf_counter()
        writer.write(b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n%b" % (len(body), body))  # fmt: skip
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the server answered {head.splitlines()[0]!r}")
        found = re.search(rb"content-length: (\d+)", head)
        assert found
        await reader.readexactly(int(found[1]))
        times.append(time.perf_counter() - began)
        number += 1
    writer.close()


async def load(port: int, clients: int, seconds: float, settings: dict[str, object]) -> list[float]:
    """So many clients for so long; how long each request took."""
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
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--strategy", default="greedy", choices=["greedy", "beam", "sample"])
    parser.add_argument("--options", default="", help="more options for both servers, such as '--engine ct2'")
    asked = parser.parse_args()
    more = asked.options.split()
    print(f"{asked.run}, {asked.strategy}, {os.cpu_count()} cores, {asked.rounds} rounds of {asked.seconds:g} s {more}")
    rates: dict[tuple[int, str], list[float]] = {}
    times: dict[tuple[int, str], list[float]] = {}
    with server(asked.run, *more) as batching, server(asked.run, "--no-batching", *more) as alone:
        for _ in range(asked.rounds):
            for clients in asked.clients:
                for name, port in (("batching", batching), ("one by one", alone)):
                    found = asyncio.run(load(port, clients, asked.seconds, {"strategy": asked.strategy}))
                    rates.setdefault((clients, name), []).append(len(found) / asked.seconds)
                    times.setdefault((clients, name), []).extend(found)
    print(f"{'clients':>7}  {'':10}  {'requests/s':>10}  {'p50 ms':>8}  {'p95 ms':>8}  {'p99 ms':>8}  {'gain':>6}")
    for (clients, name), found in rates.items():
        rate, alone_rate = statistics.median(found), statistics.median(rates[clients, "one by one"])
        late = "  ".join(f"{percentile(times[clients, name], share):8.1f}" for share in (0.5, 0.95, 0.99))
        gain = f"{rate / alone_rate:5.2f}×" if name == "batching" else ""
        print(f"{clients:>7}  {name:10}  {rate:>10.0f}  {late}  {gain:>6}")


if __name__ == "__main__":
    main()
