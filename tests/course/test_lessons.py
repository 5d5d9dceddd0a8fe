"""Every lesson runs in its time limit, and its key numbers are those in its text."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cutaway.cli.lesson import find_lessons

pytestmark = pytest.mark.slow
LESSONS = {path.stem: path for path in find_lessons()}
SECONDS = {1: 60, 2: 60, 3: 60, 4: 60, 5: 120, 6: 120, 7: 120, 8: 120}  # on two quiet cores

# conditions on the variables of a lesson after its run
KEY_NUMBERS = {
    "01_attention_mechanism": [
        "reach['LSTM'][0] < 1e-6 * reach['LSTM'][-2] and reach['attention'][0] > 0.1 * reach['attention'][-2]",
        "all(counts[2 * n] == 4 * counts[n] for n in (128, 256, 512, 1024))",
        "lost > 10",
        "max(exact_difference, fused_difference) < 1e-5",
        "max(twin_difference, gradient_difference) < 1e-12",
    ],
    "02_multi_head_attention": [
        "final_error[1] > 0.3 and final_error[2] < 0.01",
        "leak > 0.1 and right_leak == 0",
        "max(library_difference, torch_difference, grouped_difference) < 1e-5",
        "len(set(parameters.values())) == 1",
    ],
    "03_positional_encoding": [
        "max(equivariance_error, sinusoid_error, map_difference, unseen_error, rope_error) < 1e-5",
        "bag_difference['none'] < 1e-4",
        "extrapolation['learned'][2] > 2 * extrapolation['alibi'][2]",
        "extrapolation['relative'][2] < 1.5 * extrapolation['relative'][0]",
    ],
    "04_transformer_encoder_block": [
        "gradient_without[-1] < 1e-9 < gradient_with[-1]",
        "block_parameters == 3_152_384",
        "max(walk_error, torch_error, masked_error) < 1e-5",
        "last_layer_ratio > 2",
        "future_leak == 0.0",
    ],
    "05_full_transformer_encoder": [
        "stack_difference < 1e-5 and padding_difference < 1e-4",
        "min(pooling_accuracy.values()) > majority_accuracy + 0.5",
        "tagger_scores['accuracy'] > tag_baseline.figures['accuracy'] + 0.1",
        "abs(f1_by_hand - 2 / 3) < 1e-9",
    ],
    "06_transformer_decoder": [
        "max(encoder_difference, decoder_difference, layer_difference) < 1e-5",
        "cache_difference < 1e-3",
        "gpt_perplexity < 0.8 * bigram_perplexity",
        "speedup > 4",
        "different['greedy'] < different['drawn as it is']",
    ],
    "07_complete_transformer": [
        "forward_difference < 1e-5",
        "abs(bleu_difference) < 1e-6",
        "greedy_bleu > 2 * dictionary_bleu",
        "best_aer < diagonal_aer",
        "best_head_loss > 0",
    ],
    "08_transformer_training": [
        "my_merges == their_merges",
        "waste_by_length < 0.2 * waste_random",
        "sums_error < 1e-5 < means_error",
        "copier_losses[-1] < 0.2 and copier_scores['exact_match'] == 0",
        "max(noam_difference, adam_difference) < 1e-5",
        "resume_difference == 0.0 < forgetful_difference",
        "one_batch_losses[-1] < 1.1 * one_batch_floor",
        "translator_scores['bleu'] > 20",
    ],
}

RUN = """
import runpy, sys
names = runpy.run_path(sys.argv[1])
for claim in sys.argv[2:]:
    assert eval(claim, names), claim
"""


def test_every_lesson_is_tested():
    assert list(LESSONS) == list(KEY_NUMBERS)


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_runs_in_time_and_its_numbers_hold(name, tmp_path):
    claims = KEY_NUMBERS[name]
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    started = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-c", RUN, str(LESSONS[name]), *claims], cwd=tmp_path, capture_output=True, text=True,
        timeout=600, encoding="utf-8", env=environment | {"CUTAWAY_FIGURES": str(tmp_path / "figures")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr
    assert time.monotonic() - started < 1.5 * SECONDS[int(name[:2])]
    figures = list((tmp_path / "figures").iterdir())
    assert 3 <= len(figures) <= 8
    assert {path.suffix for path in figures} == {".png"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures"]  # no other files


def test_minimal_training_has_at_most_60_lines_and_learns(tmp_path):
    script = Path(__file__).parents[2] / "examples/minimal_training.py"
    assert len(script.read_text("utf-8").splitlines()) <= 60
    result = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300, encoding="utf-8"
    )
    assert result.returncode == 0, result.stderr
    right = int(result.stdout.splitlines()[-1].split()[0])
    assert right >= 80
