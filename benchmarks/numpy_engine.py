"""Compare the speed of the NumPy engine and eager PyTorch, measured in turns.

    python benchmarks/numpy_engine.py [RUN]          (default: runs/demo, created by `make demo`)

- time from the start of a process to the first translation, and its peak memory;
- single sentences: milliseconds per sentence, with greedy and beam search;
- many sentences, in batches of 64: milliseconds per sentence;
- 20 tokens with a model of the paper's size and random weights;
- one training step on batches of the demo.

Each engine runs in a separate process. They take turns of a second or less, so that other load on the machine affects
both. The results are medians and their ratio; above 1, NumPy is faster. PyTorch is measured with its default number of
threads, and with one thread, which is faster for small models.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

ROUNDS, SENTENCES, BATCHED, STARTS, STEPS = 12, 16, 512, 9, 8
REST = 0.3  # seconds until idle threads sleep
ENGINES = ("torch", "torch, 1 thread", "numpy")
STATE: dict[str, Any] = {}  # of a worker process, between its turns


def main(run: Path) -> None:
    print(f"{os.cpu_count()} cores; medians; in brackets torch / numpy: above 1, NumPy is faster\n")
    compare_starts(run)
    with Workers(run) as workers:
        for strategy in ("greedy", "beam"):
            workers.compare(f"one sentence, {strategy}", "ms", partial(one_at_a_time, strategy), ROUNDS, 1e3)
        for strategy in ("greedy", "beam"):
            workers.compare(f"of {BATCHED} sentences, {strategy}", "ms each", partial(many_at_once, strategy), 5, 1e3)
        with tempfile.TemporaryDirectory() as folder:
            workers.compare("one step of training, the demo", "ms", partial(train_some, Path(folder)), ROUNDS, 1e3)
    with tempfile.TemporaryDirectory() as folder:
        make_paper_base(Path(folder))
        with Workers(Path(folder)) as workers:
            for strategy in ("greedy", "beam"):
                name = f"paper-base, 20 tokens, {strategy}"
                workers.compare(name, "ms", partial(some_tokens, strategy), ROUNDS, 1e3)


class Workers:
    """A worker process for each engine."""

    def __init__(self, run: Path):
        spawn = get_context("spawn")
        self.workers: dict[str, Pool] = {name: spawn.Pool(1, prepare, (name, run)) for name in ENGINES}

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers.values():
            worker.terminate()

    def compare(self, what: str, unit: str, work: Callable[[int], list[float]], rounds: int, factor: float) -> None:
        seconds: dict[str, list[float]] = {name: [] for name in ENGINES}
        for turn in range(rounds + 1):
            for name in ENGINES[:: 1 if turn % 2 else -1]:
                measured = self.workers[name].apply(work, (turn,))
                time.sleep(REST)
                seconds[name] += measured if turn else []  # the first round warms up
        report(what, unit, {name: statistics.median(values) * factor for name, values in seconds.items()})


def report(what: str, unit: str, medians: dict[str, float]) -> None:
    numpy = medians["numpy"]
    others = "   ".join(
        f"{name} {value:.2f} ({value / numpy:.2f})" for name, value in medians.items() if value != numpy
    )
    print(f"{what:36} numpy {numpy:.2f} {unit};   {others}", flush=True)


def compare_starts(run: Path) -> None:
    """Measure whole processes. This runs first: a child inherits the peak memory of its parent."""
    code = "from cutaway.cli import main; main()"
    seconds: dict[str, list[float]] = {"torch": [], "numpy": []}
    peaks: dict[str, float] = {}
    for turn in range(STARTS + 1):
        for engine in list(seconds)[:: 1 if turn % 2 else -1]:
            arguments = ["translate", str(run), "The small cat sleeps under the table.", "--engine", engine]
            before = time.perf_counter()
            process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            assert status == 0
            seconds[engine] += [time.perf_counter() - before] if turn else []
            peaks[engine] = usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    report("process start to first translation", "s", {name: statistics.median(s) for name, s in seconds.items()})
    report("peak memory of that process", "MB", peaks)


def prepare(name: str, run: Path) -> None:
    """Load the engine, once in each worker."""
    from cutaway import Translator

    engine, _, threads = name.partition(", ")
    if threads:
        import torch

        torch.set_num_threads(1)
    STATE.update(engine=engine, run=run, translator=Translator.load(run, engine=engine))


def seconds_of(work: Callable[[], object]) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def sentences(n: int) -> list[str]:
    if "sentences" not in STATE:
        from cutaway import load_builtin

        STATE["sentences"] = [pair.source for pair in load_builtin("tinyworld:en-fr", "test", BATCHED)]
    return STATE["sentences"][:n]


def one_at_a_time(strategy: str, turn: int) -> list[float]:
    from cutaway import DecodeConfig

    decode, texts = DecodeConfig(strategy=strategy), sentences(BATCHED)[turn * SENTENCES : (turn + 1) * SENTENCES]
    return [seconds_of(partial(STATE["translator"].translate, [text], decode)) for text in texts]


def many_at_once(strategy: str, turn: int) -> list[float]:
    from cutaway import DecodeConfig

    texts = sentences(BATCHED)
    return [seconds_of(partial(STATE["translator"].translate, texts, DecodeConfig(strategy=strategy))) / len(texts)]


def some_tokens(strategy: str, turn: int) -> list[float]:
    from cutaway import DecodeConfig

    decode = DecodeConfig(strategy=strategy, max_length=20)
    return [
        seconds_of(partial(STATE["translator"].translate, [text], decode))
        for text in sentences(BATCHED)[turn :: BATCHED // 2]
    ]


def train_some(folder: Path, turn: int) -> list[float]:
    if "trainer" not in STATE:
        STATE["trainer"] = new_trainer(folder / str(os.getpid()))
    return [seconds_of(STATE["trainer"].next_step) for _ in range(STEPS)]


def new_trainer(folder: Path) -> Any:
    from cutaway import RunFolder, read_recipe
    from cutaway.cli.recipes import find_recipe
    from cutaway.data.prepare import prepare as prepare_data

    config = read_recipe(find_recipe("demo"), ["data.size=4000"])
    prepared, run = prepare_data(config.data, "translation"), RunFolder(folder)
    if STATE["engine"] == "numpy":
        from cutaway.inference.training import numpy_trainer

        return numpy_trainer.start_training(config, run, (), prepared).trainer
    from cutaway import start_training

    return start_training(config, run, prepared=prepared).trainer


def make_paper_base(folder: Path) -> None:
    """Write a run folder with random weights."""
    import numpy as np

    from cutaway import Config, RunFolder, Tokenizer, preset
    from cutaway.config import with_given
    from cutaway.inference.engines.numpy_engine import weights_to_bytes
    from cutaway.runs.files import write_bytes, write_text
    from cutaway.runs.weights import seal_weights
    from cutaway.twin.build import build_model
    from cutaway.twin.modules import xavier

    run, tokenizer = RunFolder(folder), Tokenizer.train(sentences(50), "bpe", 400)
    config = with_given(preset("paper-base"), vocab_size=tokenizer.vocab_size)
    model = build_model(config)
    xavier(model, np.random.default_rng(0))
    write_text(run.config, Config(model=config).to_json())
    write_text(run.tokenizer, tokenizer.to_json())
    write_bytes(run.weights, seal_weights(weights_to_bytes(model)))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo"))
