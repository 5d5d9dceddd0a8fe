"""Measure how fast the explorer responds and draws: the server alone, and the page in a real browser.

    python benchmarks/explorer.py runs/demo          # after `make demo`; needs Chromium

The goal for 30 tokens with the demo's model: a response within 150 ms, drawn within 100 ms. 512 tokens should stay
usable. The demo has sinusoidal positions, so its weights work for longer texts with a larger max_length.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import uvicorn
from playwright.sync_api import Page, sync_playwright

from cutaway.cli.explore import listen, load_explorer
from cutaway.runs import RunFolder
from cutaway.runs.files import write_text
from cutaway.serve.explorer_app import explorer_app

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
TEXT = "the small cat sleeps under the big table because the old woman sees the red bird and the tall man"
LENGTHS = (30, 120, 512)  # source tokens, including </s>
VIEWS = ("attention", "writing", "lens", "map", "experiments", "timelapse")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", default=Path("runs/demo"))
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = with_longer_texts(given.run, Path(folder) / "run")
        address, stop = serve(run)
        print(f"{'tokens':>6}  {'server, ms: median':>18} {'worst':>6}  {'response':>8}")
        for length in LENGTHS:
            times, size = time_requests(address, sentence(length), given.rounds if length < 500 else 5)
            print(f"{length:>6}  {statistics.median(times):>18.0f} {max(times):>6.0f}  {size / 1000:>6.0f} kB")
        print(f"\n{'tokens':>6}  {'view':<12} {'first drawing, ms':>18} {'redraw':>8}   medians")
        with sync_playwright() as playwright:
            chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            for length in LENGTHS:
                for view in VIEWS:
                    first, again = draw(
                        browser.new_page(viewport={"width": 1280, "height": 900}), address, view, length
                    )
                    print(f"{length:>6}  {view:<12} {first:>18.0f} {again:>8.0f}")
            browser.close()
        stop()


def with_longer_texts(run: Path, copy: Path) -> Path:
    """Copy a run with a larger max_length."""
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("checkpoints", "figures", "lock"))
    config = RunFolder(run).read_config()
    assert config.model.position == "sinusoidal", "only sinusoidal positions work for longer texts"
    settings = json.loads(config.to_json())
    settings["model"]["max_length"] = 1200
    write_text(RunFolder(copy).config, json.dumps(settings))
    return copy


def serve(run: Path) -> tuple[str, object]:
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(explorer_app(load_explorer([run], "cpu")), log_level="error"))
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}/", lambda: setattr(server, "should_exit", True)


def sentence(tokens: int) -> str:
    words = (TEXT + " ") * (tokens // len(TEXT.split()) + 1)
    return " ".join(words.split()[: tokens - 2]).capitalize() + "."


def time_requests(address: str, text: str, rounds: int) -> tuple[list[float], int]:
    """Return the milliseconds from request to last byte, and the size of the response."""
    body = json.dumps({"text": text}).encode()
    times, size = [], 0
    for _ in range(rounds):
        request = urllib.request.Request(f"{address}api/trace", body, {"Content-Type": "application/json"})
        started = time.perf_counter()
        size = len(urllib.request.urlopen(request).read())
        times.append(1000 * (time.perf_counter() - started))
    return times[1:], size


def draw(page: Page, address: str, view: str, length: int) -> tuple[float, float]:
    """Return the drawing times that the page measured: when a view opens, and when a setting changes."""
    firsts, redraws = [], []
    for _ in range(3):
        page.goto("about:blank")
        page.goto(f"{address}#view={view}&text={sentence(length)}")
        page.get_by_role("tabpanel").wait_for(timeout=60_000)
        page.wait_for_load_state("networkidle")
        before = drawing_times(page)
        firsts.append(before[-1])
        for head in (1, 2, 3):  # every view with heads redraws after this change
            page.evaluate("head => { location.hash = location.hash.replace(/&head=.*/, '') + `&head=${head}`; }", head)
            page.wait_for_timeout(250)
        redraws += drawing_times(page)[len(before) :]
    page.close()
    return statistics.median(firsts), statistics.median(redraws or [0])


def drawing_times(page: Page) -> list[float]:
    found: list[float] = page.evaluate("performance.getEntriesByName('draw').map((entry) => entry.duration)")
    return found


if __name__ == "__main__":
    main()
