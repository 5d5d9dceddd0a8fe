"""Compare the JavaScript engine with the NumPy engine and PyTorch, each on one thread, measured in turns.

    python benchmarks/javascript_engine.py [RUN]          (default: runs/demo, created by `make demo`; needs Node 20)

- one sentence, exactly 30 tokens: milliseconds with greedy search, and with beam search with 5 hypotheses;
- the test set: BLEU with PyTorch, and with the web export in each dtype.

Each engine runs in a separate process. The engines take turns with the same sentences, so that other load on the
machine affects all. The results are medians, and in brackets JavaScript divided by the other: above 1, JavaScript is
slower. The translations must be equal, so that the engines do the same work.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

SENTENCES, ROUNDS, TOKENS = 16, 4, 30
REST = 0.05  # seconds until the threads of the last engine sleep
SEARCHES = {"greedy": {"strategy": "greedy"}, "beam 5": {"strategy": "beam", "beam_size": 5}}
EXACT = {"min_length": TOKENS, "max_length": TOKENS}
STATE: dict[str, Any] = {}  # of a worker process, between its turns


class Engine(Protocol):
    def translate(self, text: str, decode: dict[str, Any]) -> tuple[str, float]:
        """The translation, and the seconds that it took."""


def main(run: Path) -> None:
    from cutaway.data.tasks import load_split
    from cutaway.runs import RunFolder

    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    pairs = load_split(RunFolder(run).require().read_config().data, "translation", "test")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start\n")
    compare_speed(run, [pair.source for pair in pairs[:SENTENCES]])
    compare_quality(run, pairs)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


def compare_speed(run: Path, sentences: list[str]) -> None:
    with ExitStack() as stack:
        engines: dict[str, Engine] = {
            "torch": stack.enter_context(python_engine("torch", run)),
            "numpy": stack.enter_context(python_engine("numpy", run)),
            "JavaScript": stack.enter_context(JavaScriptEngine(run)),
        }
        for name, decode in SEARCHES.items():
            found = measure_in_turns(engines, sentences, {**decode, **EXACT})
            medians = {engine: 1000 * statistics.median(seconds) for engine, seconds in found.items()}
            ours = medians["JavaScript"]
            others = "   ".join(f"{e} {m:.1f} ms ({ours / m:.2f})" for e, m in medians.items() if e != "JavaScript")
            print(f"{TOKENS} tokens, {name:7} JavaScript {ours:.1f} ms   {others}", flush=True)


def measure_in_turns(
    engines: dict[str, Engine], sentences: list[str], decode: dict[str, Any]
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(ROUNDS + 1):
        for sentence in sentences:
            texts = {}
            for name in list(engines)[:: 1 if turn % 2 else -1]:
                texts[name], taken = engines[name].translate(sentence, decode)
                seconds[name] += [taken] if turn else []  # the first round warms up
                time.sleep(REST)
            assert len(set(texts.values())) == 1, texts
    return seconds


def compare_quality(run: Path, pairs: list[Any]) -> None:
    from cutaway.explore.web_export import DTYPES, export_web
    from cutaway.metrics.scores import bleu, exact_match

    sources, references, greedy = [p.source for p in pairs], [p.target for p in pairs], SEARCHES["greedy"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        torch = stack.enter_context(python_engine("torch", run))
        expected = [torch.translate(source, greedy)[0] for source in sources]
        found = {"torch": expected}
        for dtype in DTYPES:
            engine = stack.enter_context(JavaScriptEngine(export_web(run, folder / dtype, dtype).folder))
            found[f"JavaScript, {dtype}"] = [engine.translate(source, greedy)[0] for source in sources]
    print(f"\n{len(pairs):,} sentences of the test set, greedy")
    for name, texts in found.items():
        other = sum(a != b for a, b in zip(texts, expected, strict=True))
        score, exact = bleu(texts, references).value, exact_match(texts, references)
        print(f"{name:20} BLEU {score:.2f}, exact match {exact:.1%}, {other} texts differ from torch's", flush=True)


class PythonEngine:
    """An engine of Cutaway in a worker process."""

    def __init__(self, pool: Any):
        self.pool = pool

    def translate(self, text: str, decode: dict[str, Any]) -> tuple[str, float]:
        found: tuple[str, float] = self.pool.apply(translate_in_worker, (text, decode))
        return found


@contextmanager
def python_engine(engine: str, run: Path) -> Iterator[PythonEngine]:
    with get_context("spawn").Pool(1, prepare, (engine, run)) as pool:
        yield PythonEngine(pool)


def prepare(engine: str, run: Path) -> None:
    """Load the engine, once in each worker."""
    from cutaway import Translator

    if engine == "torch":
        import torch

        torch.set_num_threads(1)
    STATE["translator"] = Translator.load(run, engine=engine)


def translate_in_worker(text: str, decode: dict[str, Any]) -> tuple[str, float]:
    from cutaway import DecodeConfig

    settings, before = DecodeConfig(**decode), time.perf_counter()
    [found] = STATE["translator"].translate([text], settings)
    return found, time.perf_counter() - before


class JavaScriptEngine:
    """The engine in Node: one process, one line for each request and each answer."""

    def __init__(self, folder: Path):
        program = Path(__file__).with_suffix(".mjs")
        self.process = subprocess.Popen(
            ["node", program, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> JavaScriptEngine:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.communicate()  # closes its input, which ends it

    def translate(self, text: str, decode: dict[str, Any]) -> tuple[str, float]:
        assert self.process.stdin
        assert self.process.stdout
        options = {camel_case(name): value for name, value in decode.items()}
        self.process.stdin.write(json.dumps({"text": text, "options": options}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["text"], answer["seconds"]


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo"))
