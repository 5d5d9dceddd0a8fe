"""Compare the training throughput of Cutaway and other Transformer libraries, measured in turns.

    python benchmarks/training_throughput.py --data multi30k --json throughput.json

All have the architecture of throughput/shape.py (d_model 256, 3 + 3 layers, 4 heads, a shared vocabulary of 8,000) and
train on the same batches of 2,048 target tokens. Each is measured as one process with two threads, and as two processes
with one thread each (DistributedDataParallel). In every round, each takes some steps on the same batches, and the peak
of the machine is measured. The results are medians over the rounds. README.md lists what is equal and what is not.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

from throughput import report
from throughput.pairs import SEED, read_pairs
from throughput.shape import Shape
from throughput.turns import (
    IMPLEMENTATIONS,
    PEAK,
    REFERENCE,
    Entry,
    Result,
    Skipped,
    Workers,
    set_openmp_waiting,
)

from cutaway.data.prepare import PreparedData
from cutaway.errors import ConfigError, CutawayError, did_you_mean
from cutaway.runs.files import write_json


def main() -> None:
    options = read_arguments()
    set_openmp_waiting(os.environ)
    try:
        check(options)
        shape = Shape(batch_tokens=256) if options.quick else Shape()
        prepared = read_pairs(options.data, options.languages, shape, 2_000 if options.quick else 40_000)
        (show_profile if options.profile else compare)(options, shape, prepared)
    except CutawayError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compare the training throughput of Cutaway and other libraries, measured in turns.",
        epilog="example: python benchmarks/training_throughput.py --data multi30k --rounds 9 --json throughput.json",
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="with train.de and train.en; default: tinyworld")
    parser.add_argument("--languages", default="de-en", help="extensions of the files (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="default: %(default)s, after one to warm up")
    parser.add_argument("--steps", type=int, default=4, help="training steps per turn (default: %(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="threads, and processes (default: %(default)s)")
    parser.add_argument(
        "--attention-dropout",
        type=float,
        nargs="+",
        default=[0.0, 0.1],
        help="one table each (default: 0 0.1)",
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"some of: {', '.join(IMPLEMENTATIONS)}")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all measurements")
    parser.add_argument("--quick", action="store_true", help="two rounds of one step, to check that it works")
    parser.add_argument("--profile", action="store_true", help="profile Cutaway's training step instead")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.steps = 2, 1
    return options


def check(options: argparse.Namespace) -> None:
    for name in ("rounds", "steps", "cores"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name} {getattr(options, name)} is too small. Use at least 1.")
    for name in options.only or ():
        if name not in IMPLEMENTATIONS:
            raise ConfigError(f"--only {name!r} is unknown. {did_you_mean(name, IMPLEMENTATIONS)}")
    if options.json and not options.json.parent.is_dir():
        raise ConfigError(f"the folder of --json {options.json} does not exist. Create it, or choose another.")


def compare(options: argparse.Namespace, shape: Shape, prepared: PreparedData) -> None:
    machine = report.machine()
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    corpus = options.data or "tinyworld:en-fr"
    say(f"{machine['processor']}, {machine['cores']} cores; Python {machine['python']}, {versions}")
    warn_if_busy()
    tables, texts = [], []
    for attention_dropout in options.attention_dropout:
        shape = replace(shape, attention_dropout=attention_dropout)
        say(f"attention dropout {attention_dropout}: {options.rounds} rounds of {options.steps} steps, {corpus}")
        rounds, parameters = measure(options, shape, prepared)
        texts.append(
            f"Attention dropout {attention_dropout}, {report.peaks(rounds)}\n\n"
            f"{report.table(rounds, parameters, options.cores)}\n"
        )
        tables.append({"shape": asdict(shape), "contestants": report.as_data(rounds, parameters)})
    print("\n" + "\n".join(texts))
    if options.json:
        about = {"steps": options.steps, "seed": SEED, "corpus": str(corpus)}
        write_json(options.json, {"machine": machine, **about, "tables": tables})
        say(f"all measurements are in {options.json}")


def warn_if_busy() -> None:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2:
        say(
            f"the machine is busy: load {load:.1f} on {cores} cores. The results will be wrong, above all with several "
            "threads. Run it again on an idle machine."
        )


def measure(
    options: argparse.Namespace, shape: Shape, prepared: PreparedData
) -> tuple[report.Rounds, dict[Entry, int]]:
    """Measure all entries in each round, in alternating order."""
    workers, parameters = start_workers(options, shape, prepared)
    rounds: dict[Entry, list[Result]] = {worker.entry: [] for worker in workers}
    try:
        for number in range(options.rounds + 1):
            for worker in list(workers)[:: -1 if number % 2 else 1]:
                try:
                    result = worker.turn(options.steps)
                except Skipped as why:
                    say(f"  {worker.entry.label} failed: {why}")
                    workers.remove(worker)
                    rounds.pop(worker.entry)
                    continue
                if number:  # the first round warms up
                    rounds[worker.entry].append(result)
                    say(f"  round {number} of {options.rounds}: {worker.entry.label}: {describe(result)}")
    finally:
        for worker in workers:
            worker.stop()
    return rounds, parameters


def start_workers(
    options: argparse.Namespace, shape: Shape, prepared: PreparedData
) -> tuple[list[Workers], dict[Entry, int]]:
    """Start the workers of all entries and return them with their numbers of parameters."""
    workers, parameters = [], {}
    for entry in entries(options):
        worker = Workers(entry, shape, prepared)
        try:
            parameters[entry] = worker.wait_until_built()["parameters"]
            workers.append(worker)
            say(f"  {entry.label}: ready" + (f", {parameters[entry]:,} parameters" if parameters[entry] else ""))
        except Skipped as why:
            say(f"  {entry.label} is skipped: {why}")
            worker.stop()
    return workers, parameters


def entries(options: argparse.Namespace) -> list[Entry]:
    cores = options.cores
    layouts = [(1, cores), (cores, 1)] if cores > 1 else [(1, 1)]
    names = [name for name in IMPLEMENTATIONS if not options.only or name in {*options.only, REFERENCE}]
    peaks = [Entry(PEAK, 1, threads) for threads in dict.fromkeys((1, cores))]
    return peaks + [Entry(name, *layout) for name in names for layout in layouts]


def describe(result: Result) -> str:
    if result["tokens"]:
        return f"{report.tokens_per_second(result):,.0f} tokens/s, loss {result['loss']:.2f}"
    return f"{report.operations_per_second(result) / 1e9:.0f} GFLOP/s"


def show_profile(options: argparse.Namespace, shape: Shape, prepared: PreparedData) -> None:
    from throughput.profiling import profile_cutaway

    for attention_dropout in options.attention_dropout:
        shape = replace(shape, attention_dropout=attention_dropout)
        print(profile_cutaway(shape, prepared, options.cores) + "\n")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
