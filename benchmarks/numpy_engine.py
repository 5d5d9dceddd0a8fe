"""The NumPy engine beside eager PyTorch, in one run, taking turns: what is said about its speed, to be measured again.

    python benchmarks/numpy_engine.py [RUN]          (default: runs/demo, which `make demo` leaves behind)

- one sentence at a time, as when somebody is waiting for an answer: milliseconds a sentence, greedy and beam search;
- many at once, in batches of 64: sentences a second;
- a model of the paper's size with random weights, made to write 20 tokens: what changes when models grow;
- from the start of the process to the first translation, and the most memory that it took;
- one step of training on the batches of the demo.

The engines take turns sentence by sentence, process by process, step by step, so that whatever else the machine does
meets both. Reported are medians, and their ratio: above 1, NumPy is faster.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

SENTENCES, BATCHED, STARTS, STEPS = 200, 512, 7, 40
ENGINES = ("torch", "numpy")


def main(run: Path) -> None:
    # processes first, while this one has imported nothing: a child inherits the memory peak of its parent
    print(f"{os.cpu_count()} cores; medians; ratio above 1: NumPy is faster\n")
    starts(run)
    one_at_a_time(run)
    many_at_once(run)
    of_the_papers_size()
    training()


def row(name: str, unit: str, torch: float, numpy: float, more_is_better: bool = False) -> None:
    ratio = numpy / torch if more_is_better else torch / numpy
    print(f"{name:38} torch {torch:8.2f} {unit:12} numpy {numpy:8.2f} {unit:12} ratio {ratio:5.2f}", flush=True)


def in_turns(work: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """The median seconds of each, taking turns; who goes first changes every time."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(times):
        for name in list(work)[:: 1 if turn % 2 else -1]:
            before = time.perf_counter()
            work[name]()
            seconds[name].append(time.perf_counter() - before)
    return {name: statistics.median(values) for name, values in seconds.items()}


def starts(run: Path) -> None:
    code = "from cutaway.cli import main; main()"
    peaks: dict[str, float] = {}

    def start(engine: str) -> None:
        arguments = ["translate", str(run), "The small cat sleeps under the table.", "--engine", engine]
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0
        peaks[engine] = usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)

    took = in_turns({engine: partial(start, engine) for engine in ENGINES}, STARTS)
    row("process start to first translation", "s", took["torch"], took["numpy"])
    row("the most memory of that process", "MB", peaks["torch"], peaks["numpy"])


def translators(run: Path) -> dict:
    from cutaway import Translator

    return {engine: Translator.load(run, engine=engine) for engine in ENGINES}


def test_sentences(run: Path, n: int) -> list[str]:
    from cutaway import RunFolder
    from cutaway.data.tasks import load_split

    return [pair.source for pair in load_split(RunFolder(run).read_config().data, "translation", "test")[:n]]


def one_at_a_time(run: Path) -> None:
    from cutaway import DecodeConfig

    loaded, texts = translators(run), test_sentences(run, SENTENCES)
    for decode in (DecodeConfig(strategy="greedy"), DecodeConfig(strategy="beam", beam_size=4)):
        for threads in with_threads():
            took = by_sentence(loaded, texts, decode)
            name = f"one sentence, {decode.strategy}, torch on {threads}"
            row(name, "ms", took["torch"] * 1e3, took["numpy"] * 1e3)


def with_threads() -> Iterator[str]:
    """Torch with its own choice of threads, and with one, which is often faster for small models."""
    import torch

    default = torch.get_num_threads()
    for n in {default: None, 1: None}:
        torch.set_num_threads(n)
        yield f"{n} thread{'s' * (n > 1)}"
    torch.set_num_threads(default)


def by_sentence(loaded: dict, texts: Sequence[str], decode: object) -> dict[str, float]:
    for translator in loaded.values():
        translator.translate(texts[:5], decode)

    def next_of(engine: str, waiting: Iterator[str]) -> None:
        loaded[engine].translate([next(waiting)], decode)

    return in_turns({engine: partial(next_of, engine, iter(texts)) for engine in ENGINES}, len(texts))


def many_at_once(run: Path) -> None:
    from cutaway import DecodeConfig

    loaded, texts = translators(run), test_sentences(run, BATCHED)
    for decode in (DecodeConfig(strategy="greedy"), DecodeConfig(strategy="beam", beam_size=4)):
        took = in_turns({engine: partial(loaded[engine].translate, texts, decode) for engine in ENGINES}, 4)
        rates = {engine: len(texts) / seconds for engine, seconds in took.items()}
        row(f"{len(texts)} sentences, {decode.strategy}", "sentences/s", rates["torch"], rates["numpy"], True)


def of_the_papers_size() -> None:
    """Random weights: what is written is nonsense, and takes as long as sense."""
    import torch

    from cutaway import Config, DecodeConfig, RunFolder, Tokenizer, build_model, load_builtin, preset
    from cutaway.config import with_given
    from cutaway.models.weights import weights_to_bytes
    from cutaway.runs import sealed, write_bytes, write_text

    pairs = load_builtin("tinyworld:en-fr", "test", 50)
    tokenizer = Tokenizer.train([pair.source for pair in pairs], "bpe", 400)
    with tempfile.TemporaryDirectory() as folder:
        run, model = RunFolder(folder), with_given(preset("paper-base"), vocab_size=tokenizer.vocab_size)
        torch.manual_seed(0)
        write_text(run.config, Config(model=model).to_json())
        write_text(run.tokenizer, tokenizer.to_json())
        write_bytes(run.weights, sealed(weights_to_bytes(build_model(model))))
        loaded = translators(run.path)
    texts = [pair.source for pair in pairs[:10]]
    for strategy in ("greedy", "beam"):
        took = by_sentence(loaded, texts, DecodeConfig(strategy=strategy, max_length=20))
        row(f"paper-base, 20 tokens, {strategy}", "ms", took["torch"] * 1e3, took["numpy"] * 1e3)


def training() -> None:
    from cutaway import RunFolder, begin, read_recipe
    from cutaway.cli.recipes import find_recipe
    from cutaway.data.prepare import prepare
    from cutaway.train.numpy_trainer import NumpyTrainer

    config = read_recipe(find_recipe("demo"), ["data.size=4000"])
    prepared = prepare(config.data, "translation")
    with tempfile.TemporaryDirectory() as folder:
        trainers = {
            "torch": begin(config, RunFolder(folder), prepared=prepared).trainer,
            "numpy": NumpyTrainer(config, RunFolder(folder), prepared),
        }
        took = in_turns({engine: trainers[engine].next_step for engine in ENGINES}, STEPS)
    row("one step of training, the demo", "ms", took["torch"] * 1e3, took["numpy"] * 1e3)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo"))
