"""Which explanations are true? Every attribution method, on runs with several seeds for each language.

    for seed in 1 2 3; do cutaway train demo --set train.seed=$seed --run runs/fr$seed; done
    OMP_NUM_THREADS=1 python benchmarks/causes.py runs/fr1 runs/fr2 runs/fr3 --predictions 300

One thread is faster than two for models of this size. Prints a table in Markdown: the mean over the runs, and a 95 %
interval of the mean (Student's t, one value for each run). With --json FILE, also writes what each run gave.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from cutaway.explore.causes.benchmark import benchmark
from cutaway.explore.causes.grammar import tinyworld_pairs
from cutaway.inference.pipelines import load_pipeline

T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571}  # runs -> quantile of Student's t
COLUMNS = ("top", "precision", "deletion", "insertion")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--predictions", type=int, default=300)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = []
    for run in given.runs:
        started = time.perf_counter()
        pipeline = load_pipeline(run, "cpu")
        found.append(benchmark(pipeline, tinyworld_pairs(pipeline), given.predictions).as_json())
        print(f"{run}: {found[-1]['predictions']} predictions in {time.perf_counter() - started:.0f} s", flush=True)
    if given.json:
        given.json.write_text(json.dumps(dict(zip(map(str, given.runs), found, strict=True)), indent=1))
    print_methods(found)
    print_features(found)


def print_methods(found: list[dict]) -> None:
    print("\n| method | top word is a cause | average precision | deletion | insertion |\n|---|---:|---:|---:|---:|")
    for method in found[0]["methods"]:
        rows = [run["methods"][method] for run in found]
        cells = [with_interval([row[column] for row in rows]) if column in rows[0] else "" for column in COLUMNS]
        print(f"| {method.replace('_', ' ')} | {' | '.join(cells)} |")


def print_features(found: list[dict]) -> None:
    features = sorted(set.intersection(*(set(run["top_by_feature"]) for run in found)))
    counts = {feature: sum(run["features"][feature] for run in found) for feature in features}
    print("\n| top word is a cause | " + " | ".join(f"{name} ({counts[name]})" for name in features) + " |")
    print("|---|" + "---:|" * len(features))
    for method in found[0]["top_by_feature"][features[0]]:
        cells = [with_interval([run["top_by_feature"][name][method] for run in found]) for name in features]
        print(f"| {method.replace('_', ' ')} | {' | '.join(cells)} |")


def with_interval(values: list[float]) -> str:
    """The mean in percent, ± half of its 95 % interval."""
    mean = f"{100 * statistics.mean(values):.1f}"
    if len(values) not in T_95:
        return mean
    return f"{mean} ± {100 * T_95[len(values)] * statistics.stdev(values) / len(values) ** 0.5:.1f}"


if __name__ == "__main__":
    main()
