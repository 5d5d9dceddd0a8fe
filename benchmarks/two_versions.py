"""Compare the speed of two versions of Cutaway, measured in turns.

    git worktree add ../old HEAD~1
    python benchmarks/two_versions.py ../old/src src --rounds 9

Each version runs in a separate process. In every round both do the same work:
- decode one text and 64 texts, greedily and with a beam of 5 (30 tokens each; one thread), with a translator and a
  language model with d_model 256 and 3 layers;
- train the translator for some steps (two threads).
The result is the median over the rounds of old time / new time; above 1, the new version is faster. The weights are
random, written by the old version and read by both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TOKENS = 30
CASES = {"1 greedy": (1, 1), "1 beam 5": (1, 5), "64 greedy": (64, 1), "64 beam 5": (64, 5)}
TASKS = {"translator": "encoder_decoder", "language model": "decoder"}
TRAINING = {"training": 0.0, "training, attention dropout": 0.1}
SECONDS = 0.6  # approximate duration of a turn


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Compare the speed of two versions of Cutaway.",
        epilog="example: python benchmarks/two_versions.py ../old/src src --rounds 9",
    )
    parser.add_argument("old", type=Path, help="the folder with the package of the old version")
    parser.add_argument("new", type=Path, help="the folder with the package of the new version")
    parser.add_argument("--rounds", type=int, default=9, help="(default: %(default)s)")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="rows that contain one of these words")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all measurements")
    options = parser.parse_args()
    rows = [f"{task}, {case}" for task in TASKS for case in CASES] + list(TRAINING)
    rows = [row for row in rows if not options.only or any(word in row for word in options.only)]
    measured: dict[str, list[tuple[float, float]]] = {row: [] for row in rows}
    with tempfile.TemporaryDirectory() as place:
        # in another process, because training changes how memory is allocated
        Version(options.old, Path(place), threads=2).ask("make")
        old, new = (Version(source, Path(place), threads=1) for source in (options.old, options.new))
        trainers = [Version(source, Path(place), threads=2) for source in (options.old, options.new)]
        repeats: dict[str, int] = {}
        for turn in range(-1, options.rounds):
            for row in rows:
                pair = trainers if row in TRAINING else [old, new]
                if turn < 0:  # the first round warms up and finds the number of repetitions
                    both = max(version.ask(row, 3) for version in pair) / 3
                    repeats[row] = max(1, round(SECONDS / both))
                    continue
                order = pair if turn % 2 else pair[::-1]
                times = {id(version): version.ask(row, repeats[row]) for version in order}
                measured[row].append((times[id(pair[0])], times[id(pair[1])]))
            print(f"round {turn + 1} of {options.rounds}", file=sys.stderr)
    print("| | old / new | from | to |\n|---|---|---|---|")
    for row, pairs in measured.items():
        ratios = sorted(one / other for one, other in pairs)
        print(f"| {row} | {statistics.median(ratios):.3f} | {ratios[0]:.3f} | {ratios[-1]:.3f} |")
    if options.json:
        options.json.write_text(json.dumps({"load": os.getloadavg()[0], "seconds": measured}))


class Version:
    """A process that uses the package in `source`."""

    def __init__(self, source: Path, place: Path, threads: int):
        environment = {**os.environ, "PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": str(threads)}
        environment["GOMP_SPINCOUNT"] = "3000"  # as the commands set it: waiting threads go to sleep
        # reuse freed memory: otherwise it is random which version gets new pages for large buffers
        environment |= dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(2**32))
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import two_versions as t; t.work()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", code, str(place)], env=environment, text=True, **pipes)

    def ask(self, what: str, times: int = 1) -> float:
        print(f"{what}\t{times}", file=self.process.stdin, flush=True)
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the process for {what!r} failed. Its error is above.")
        return float(answer)


def work() -> None:
    """In the child process: read a job and its repetitions from each line, and print the seconds it took."""
    place, ready = Path(sys.argv[1]), {}
    while line := sys.stdin.readline():
        what, times = line.rstrip("\n").split("\t")
        if what == "make":
            make(place)
            print(0.0, flush=True)
            continue
        if what not in ready:
            ready[what] = job(place, what)
        start = time.perf_counter()
        for _ in range(int(times)):
            ready[what]()
        print(time.perf_counter() - start, flush=True)


def settings(family: str, attention_dropout: float = 0.0) -> Any:
    from cutaway import Config, DataConfig, ModelConfig, TrainConfig

    layers = {"encoder_layers": 3, "decoder_layers": 3} if family == "encoder_decoder" else {"decoder_layers": 3}
    size = {"d_model": 256, "d_ff": 1024, "n_heads": 4, "max_length": 128, "dropout": 0.1}
    model = ModelConfig(family=family, **size, **layers, attention_dropout=attention_dropout)  # type: ignore[arg-type]
    corpus = "tinyworld:en-fr" if family == "encoder_decoder" else "python"
    data = DataConfig(corpus=corpus, tokenizer="bpe", vocab_size=4_000, max_tokens=64, batch_tokens=2_048, size=20_000)
    if family == "decoder":
        data = DataConfig(corpus=corpus, tokenizer="bpe", vocab_size=4_000, max_tokens=64, batch_tokens=2_048)
    return Config(model, data, TrainConfig(steps=1, warmup=1, valid_every=1, save_every=1, device="cpu"))


def start_training(config: Any, folder: Path) -> Any:
    """Call the function under its new or its former name."""
    import cutaway

    start = getattr(cutaway, "start_training", None) or cutaway.begin
    return start(config, cutaway.RunFolder(folder))


def make(place: Path) -> None:
    for task, family in TASKS.items():
        start_training(settings(family), place / task).trainer.run()


def job(place: Path, what: str) -> Any:
    import dataclasses

    if what in TRAINING:
        folder = place / f"{what} {os.getpid()}"
        trainer = start_training(settings("encoder_decoder", TRAINING[what]), folder).trainer
        batches = iter(trainer.batches)
        kept = [next(batches) for _ in range(4)]
        return lambda: [trainer.step(batch) for batch in kept]
    from cutaway import DecodeConfig, TextGenerator, Translator

    task, case = what.split(", ")
    n, beam = CASES[case]
    pipeline = (Translator if task == "translator" else TextGenerator).load(place / task)
    strategy = {"strategy": "beam", "beam_size": beam} if beam > 1 else {"strategy": "greedy"}
    decode = DecodeConfig(**strategy, max_length=TOKENS, suppress=(pipeline.tokenizer.eos,))  # type: ignore[arg-type]
    decode = dataclasses.replace(decode, length_penalty=0.0) if beam > 1 else decode
    texts = ["The small cat sleeps under the table.", "A bird sees the old house in the rain."] * (n // 2) or [
        "The cat."
    ]
    return lambda: pipeline.hypotheses(texts[:n], decode)


if __name__ == "__main__":
    main()
