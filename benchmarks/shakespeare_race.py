"""Compare the training time of nanoGPT's CPU settings with newer settings for a model of the same size.

    python benchmarks/shakespeare_race.py --data FOLDER            FOLDER contains input.txt (tiny Shakespeare, 1.1 MB)

Both models have 4 layers, d_model 128, a context of 64 characters and batches of 12 x 64. Both train on the first 90 %
of the text. Every 25 steps they are measured on *all* of the last 10 %, with the clock stopped. nanoGPT's settings
(AdamW, learned positions, GELU, no dropout, 2,000 steps) run to the end with our code; their final loss is the target.
The script reports when the other settings reach it. All trainings run one after the other on the same machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TARGET = 1.898  # final loss of nanoGPT's CPU settings on the whole validation part
COMMON = {
    "model": {
        "family": "decoder", "d_model": 128, "d_ff": 512, "n_heads": 4, "decoder_layers": 4, "dropout": 0.0,
        "bias": False, "norm_placement": "pre", "max_length": 64, "embedding_scale": "one",
    },
    "data": {"train": ["input.txt"], "valid_share": 0.1, "tokenizer": "char", "max_tokens": 64, "batch_tokens": 768},
    "train": {
        "label_smoothing": 0.0, "clip_norm": 1.0, "warmup": 100, "log_every": 1, "valid_every": 25,
        "save_every": 100_000, "keep_checkpoints": 1, "samples": 0,
    },
}  # fmt: skip
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "nanoGPT's settings": {
        "model": {"position": "learned", "feed_forward": "gelu", "init": "gpt2"},
        "train": {
            "steps": 2_000, "optimizer": "adamw", "weight_decay": 0.1, "beta2": 0.99, "epsilon": 1e-8,
            "schedule": "cosine", "lr": 1e-3, "lr_end": 0.1,
        },
    },
    "Muon, RoPE, QK-norm, ReLU²": {
        "model": {"position": "rope", "feed_forward": "relu2", "qk_norm": True, "norm": "rms"},
        "train": {
            "steps": 360, "warmup": 20, "optimizer": "muon", "weight_decay": 0.1, "beta2": 0.99, "epsilon": 1e-8,
            "schedule": "wsd", "lr": 6e-3, "decay_fraction": 0.5, "lr_end": 0.1,
        },
    },
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the folder with input.txt")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=0, help="for both; 0: one per core")
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    options = parser.parse_args()
    results: dict[str, list[dict[str, float]]] = {name: [] for name in SETTINGS}
    for seed in range(1, options.seeds + 1):
        for name in SETTINGS:
            result = run_training(name, seed, options.data, options.processes)
            results[name].append(result)
            print(f"seed {seed}  {name:28} {describe(result)}", flush=True)
    print(f"\n| settings | final loss | seconds to {TARGET} | steps |\n|---|---|---|---|")
    for name, rows in results.items():
        print(f"| {name} | {mean_of(rows, 'loss')} | {mean_of(rows, 'seconds')} | {mean_of(rows, 'steps')} |")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


def describe(result: dict[str, float]) -> str:
    if "seconds" not in result:
        return f"final loss {result['loss']:.4f} after {result['total']:.1f} s; does not reach {TARGET}"
    return f"{result['seconds']:.1f} s to {TARGET} (step {result['steps']:.0f}); final loss {result['loss']:.4f}"


def mean_of(rows: list[dict[str, float]], key: str) -> str:
    values = [row[key] for row in rows if key in row]
    if len(values) < len(rows):
        return f"reached with {len(values)} of {len(rows)} seeds"
    return f"{statistics.mean(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def run_training(name: str, seed: int, data: str, processes: int) -> dict[str, float]:
    tables = {table: {**COMMON[table], **SETTINGS[name].get(table, {})} for table in COMMON}
    tables["data"]["root"] = str(Path(data).resolve())
    tables["train"] |= {"seed": seed, "processes": processes}
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.toml"
        recipe.write_text("\n".join(f"[{table}]\n" + to_toml(values) for table, values in tables.items()))
        command = [sys.executable, "-m", "cutaway", "train", str(recipe), "--run", f"{folder}/run"]
        subprocess.run(command, check=True, capture_output=True)
        rows = [json.loads(line) for line in (Path(folder) / "run/metrics.jsonl").read_text().splitlines()]
    return evaluate(rows)


def to_toml(values: dict[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def evaluate(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return final loss and training time. A step after a validation counts as the median step."""
    clock, previous, after_validation, losses = 0.0, 0.0, False, []
    durations = []
    for row in rows:
        if "valid_loss" in row:
            losses.append((row["step"], clock, row["valid_loss"]))
            after_validation = True
            continue
        took = row["seconds"] - previous
        if after_validation:
            took = statistics.median(durations)
        else:
            durations.append(took)
        clock, previous, after_validation = clock + took, row["seconds"], False
    result = {"loss": losses[-1][2], "total": clock}
    for step, seconds, loss in losses:
        if loss <= TARGET:
            return {**result, "seconds": seconds, "steps": step}
    return result


if __name__ == "__main__":
    main()
