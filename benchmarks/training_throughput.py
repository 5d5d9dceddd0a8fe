"""Training throughput of Cutaway and of other Transformers in Python, in one run, taking turns.

    python benchmarks/training_throughput.py --data multi30k --json throughput.json

All have the architecture of throughput/shape.py (256 wide, 3 + 3 layers, 4 heads, a vocabulary of 8,000 in one matrix)
and train on the same batches of 2,048 target tokens. Each is measured as one process with two threads and as two
processes with one thread each (DistributedDataParallel). In every round all take a turn of some steps, on the batches
that the others have in that round; the machine's peak is measured in the same rounds. Reported are medians over the
rounds. README.md in this folder says what is the same for all, and what is not.
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
from throughput.turns import CONTESTANTS, PEAK, REFERENCE, Answer, Entry, Player, Skipped, set_waiting

from cutaway.data.prepare import PreparedData
from cutaway.errors import ConfigError, CutawayError, did_you_mean
from cutaway.runs.files import write_json


def main() -> None:
    options = read_arguments()
    set_waiting(os.environ)
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
        description="Training throughput of Cutaway and its peers, in one run, taking turns.",
        epilog="example: python benchmarks/training_throughput.py --data multi30k --rounds 9 --json throughput.json",
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="with train.de, train.en; else: built-in tinyworld")
    parser.add_argument("--languages", default="de-en", help="which files of the folder (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="that count (default: %(default)s); one more to warm up")
    parser.add_argument("--steps", type=int, default=4, help="of training a turn (default: %(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="threads, and processes (default: %(default)s)")
    parser.add_argument(
        "--attention-dropout", type=float, nargs="+", default=[0.0, 0.1], help="a table each (default: 0 0.1)"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"some of: {', '.join(CONTESTANTS)}")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write everything that was measured")
    parser.add_argument("--quick", action="store_true", help="two rounds of one step on small batches: does it work?")
    parser.add_argument("--profile", action="store_true", help="instead: where the time of Cutaway's step goes")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.steps = 2, 1
    return options


def check(options: argparse.Namespace) -> None:
    for name in ("rounds", "steps", "cores"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name} = {getattr(options, name)} must be at least 1.")
    for name in options.only or ():
        if name not in CONTESTANTS:
            raise ConfigError(f"--only names {name!r}, which does not take part. {did_you_mean(name, CONTESTANTS)}")
    if options.json and not options.json.parent.is_dir():
        raise ConfigError(f"--json {options.json}: there is no such folder. Make it, or write elsewhere.")


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
        say(f"everything that was measured is in {options.json}")


def warn_if_busy() -> None:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2:
        say(
            f"the machine is busy: a load of {load:.1f} on {cores} cores. The figures will be wrong, most of all where "
            "threads wait for each other. Run it again when the machine has nothing else to do."
        )


def measure(
    options: argparse.Namespace, shape: Shape, prepared: PreparedData
) -> tuple[report.Rounds, dict[Entry, int]]:
    """Round after round, everybody's turn. In every other round they go in the opposite order."""
    players, parameters = gather(options, shape, prepared)
    rounds: dict[Entry, list[Answer]] = {player.entry: [] for player in players}
    try:
        for number in range(options.rounds + 1):
            for player in list(players)[:: -1 if number % 2 else 1]:
                try:
                    answer = player.turn(options.steps)
                except Skipped as why:
                    say(f"  {player.entry.label} drops out: {why}")
                    players.remove(player)
                    rounds.pop(player.entry)
                    continue
                if number:  # the first round is for warming up
                    rounds[player.entry].append(answer)
                    say(f"  round {number} of {options.rounds}: {player.entry.label}: {told(answer)}")
    finally:
        for player in players:
            player.leave()
    return rounds, parameters


def gather(options: argparse.Namespace, shape: Shape, prepared: PreparedData) -> tuple[list[Player], dict[Entry, int]]:
    """All who take part, built and ready, and how many parameters each has."""
    players, parameters = [], {}
    for entry in entries(options):
        player = Player(entry, shape, prepared)
        try:
            parameters[entry] = player.ready()["parameters"]
            players.append(player)
            say(f"  {entry.label}: ready" + (f", {parameters[entry]:,} parameters" if parameters[entry] else ""))
        except Skipped as why:
            say(f"  {entry.label} is left out: {why}")
            player.leave()
    return players, parameters


def entries(options: argparse.Namespace) -> list[Entry]:
    cores = options.cores
    layouts = [(1, cores), (cores, 1)] if cores > 1 else [(1, 1)]
    names = [name for name in CONTESTANTS if not options.only or name in {*options.only, REFERENCE}]
    peaks = [Entry(PEAK, 1, threads) for threads in dict.fromkeys((1, cores))]
    return peaks + [Entry(name, *layout) for name in names for layout in layouts]


def told(answer: Answer) -> str:
    if answer["tokens"]:
        return f"{report.tokens_per_second(answer):,.0f} tokens/s, loss {answer['loss']:.2f}"
    return f"{report.operations_per_second(answer) / 1e9:.0f} GFLOP/s"


def show_profile(options: argparse.Namespace, shape: Shape, prepared: PreparedData) -> None:
    from throughput.profiling import profile_cutaway

    for attention_dropout in options.attention_dropout:
        shape = replace(shape, attention_dropout=attention_dropout)
        print(profile_cutaway(shape, prepared, options.cores) + "\n")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
