"""The lab: the file format, trainings, results, the page, the command, and experiments against theory."""

import dataclasses
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from cutaway.cli import app
from cutaway.course import lab as lab_module
from cutaway.course.ablations import ABLATIONS, apply_ablations
from cutaway.course.experiment import built_in_experiments, find_experiment, read_experiment
from cutaway.course.lab import check_buildable, compare_variants, plan_trials, run_experiment
from cutaway.course.lab_page import write_page
from cutaway.course.trial import (
    TrialJob,
    copy_where_shapes_agree,
    prepare_cached,
    prepare_model,
    run_trial,
    token_accuracy,
)
from cutaway.course.workers import run_jobs
from cutaway.data.tasks import load_split
from cutaway.errors import ConfigError, CutawayWarning, RunError
from cutaway.inference.training.setup import start_training
from cutaway.models.build import FEED_FORWARDS, NORMS, POSITIONS
from cutaway.runs import RunFolder
from cutaway.runs.weights import read_sealed

SMALL = """
title = "Small"
question = "Does it run?"
theory = "It does."
recipe = "reverse"
seeds = [1, 2, 3]
variant = [{ name = "intact" }, { name = "no mask", ablations = ["no-mask"] }]

[set]
model.d_model = 8
model.d_ff = 16
model.n_heads = 2
model.encoder_layers = 1
model.decoder_layers = 1
data.size = 60
data.heldout_size = 10
data.batch_tokens = 128
train.steps = 4
train.warmup = 2
train.valid_every = 2
"""


def write_experiment(folder, text=SMALL, **changes):
    """Write an experiment file. A change replaces a line, or adds one at the top."""
    for key, value in changes.items():
        line = f"{key} = {value}"
        text, found = re.subn(rf"^{key} = .*$", line.replace("\\", "\\\\"), text, count=1, flags=re.MULTILINE)
        text = text if found else f"{line}\n{text}"
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return path


# ---- the file format


def test_a_short_file_gets_defaults(tmp_path):
    experiment = read_experiment(write_experiment(tmp_path, SMALL.partition("[set]")[0]))
    assert [variant.name for variant in experiment.variants] == ["intact", "no mask"]
    assert experiment.variants[1].ablations == ("no-mask",)
    assert experiment.judge_by == ("cross-entropy", "exact match")
    assert experiment.attention == "cross"
    assert experiment.trainings == 6
    config = experiment.config(experiment.variants[0], seed=7)
    assert config.train.seed == 7
    assert config.train.valid_every == config.train.steps // 12
    assert config.decode.strategy == "greedy"


def test_settings_of_the_variant_override_the_command_line_which_overrides_the_file(tmp_path):
    variants = '[{ name = "a" }, { name = "b", set = { model.n_heads = 1, "train.lr" = 2 } }]'
    experiment = read_experiment(write_experiment(tmp_path, variant=variants), ["train.steps=8", "model.n_heads=4"])
    a, b = (experiment.config(variant, 1) for variant in experiment.variants)
    assert (a.model.n_heads, b.model.n_heads) == (4, 1)  # the variant keeps its setting
    assert (a.train.steps, b.train.steps) == (8, 8)
    assert (a.train.lr, b.train.lr) == (1.0, 2.0)
    assert a.data == b.data
    assert read_experiment(write_experiment(tmp_path), seeds=(4, 5, 6)).seeds == (4, 5, 6)


INVALID = {
    "unknown key": ({"questoin": '"?"'}, "has an unknown key 'questoin'. Did you mean 'question'?"),
    "no title": ({"title": '""'}, "has no title. Required: title, question, theory, recipe, seeds, variant"),
    "two seeds": ({"seeds": "[1, 2]"}, "has 2 seeds; a verdict needs at least 3"),
    "one seed twice": ({"seeds": "[1, 2, 2]"}, "expected different integers"),
    "seeds of text": ({"seeds": '["1", "2", "3"]'}, "expected different integers"),
    "one variant": ({"variant": '[{ name = "a" }]'}, "has 1 variant; a comparison needs at least 2"),
    "two of a name": ({"variant": '[{ name = "A b" }, { name = "a-b" }]'}, "several variants with the name 'A b'"),
    "a variant without a name": ({"variant": '[{ name = "a" }, { ablations = ["no-mask"] }]'}, "has a variant without a name"),
    "a variant's key": ({"variant": '[{ name = "a" }, { name = "b", ablation = [] }]'}, "unknown key 'ablation'. Did you mean 'ablations'?"),
    "ablations no list": ({"variant": '[{ name = "a" }, { name = "b", ablations = "no-mask" }]'}, "expected a list, ablations = "),
    "a variant's own data": (
        {"variant": '[{ name = "a" }, { name = "b", set = { data.size = 5 } }]'},
        "the variant 'b' of .* changes data.size, but all variants must have the same data",
    ),
    "a seed as setting": ({"train.warmup": "2\ntrain.seed = 3"}, "sets train.seed, but the lab takes it from `seeds`"),
    "unknown setting": ({"train.warmup": "2\ntrain.stepps = 3"}, "unknown setting train.stepps. Did you mean 'steps'?"),
    "no table": ({"train.warmup": "2\nsteps = 3"}, "unknown table \\[steps\\]"),
    "impossible variant": (
        {"variant": '[{ name = "a" }, { name = "b", set = { model.n_heads = 3 } }]'},
        "cannot build the variant 'b' of .*: model.d_model = 8 is not divisible by model.n_heads = 3",
    ),
    "unknown recipe": ({"recipe": '"revers"'}, "there is no recipe 'revers', .* Did you mean 'reverse'?"),
    "unknown measure": ({"judge_by": '["bleu"]'}, "has judge_by = \\['bleu'\\]. Allowed: cross-entropy, accuracy"),
    "unknown attention": ({"attention": '"corss"'}, "has attention = 'corss'. Did you mean 'cross'?"),
    "unknown fit": ({"fit": '"scaling"'}, "has fit = 'scaling'. Did you mean 'scaling-law'?"),
    "minutes of text": ({"minutes": '"two"'}, "has minutes = 'two'; expected a number"),
    "attention of a language model": ({"recipe": '"python-gpt"', "attention": '"cross"'}, "the lab draws attention for translation only"),
    "decoding of a language model": ({"recipe": '"python-gpt"', "judge_by": '["exact match"]'}, "has judge_by = \\['exact match'\\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_invalid_experiments_are_rejected(name, tmp_path):
    changes, message = INVALID[name]
    text = SMALL.partition("[set]")[0] if "python-gpt" in str(changes) else SMALL
    with pytest.raises(ConfigError, match=message):
        read_experiment(write_experiment(tmp_path, text, **changes))


def test_invalid_toml_and_missing_files_are_reported(tmp_path):
    with pytest.raises(ConfigError, match="the experiment .* is not valid TOML"):
        read_experiment(write_experiment(tmp_path, "title = "))
    with pytest.raises(ConfigError, match="there is no experiment 'no-residul', .* Did you mean 'no-residual'?"):
        find_experiment("no-residul")


@pytest.mark.parametrize(
    ("ablation", "message"), [("no-msk", "unknown ablation 'no-msk'"), ("share-layers", "has nothing to change")]
)
def test_an_impossible_ablation_is_reported_before_the_first_training(ablation, message, tmp_path):
    variants = f'[{{ name = "a" }}, {{ name = "b", ablations = ["{ablation}"] }}]'
    experiment = read_experiment(write_experiment(tmp_path, variant=variants))
    with pytest.raises(ConfigError, match=f"cannot build the variant 'b' of 'small': .*{message}"):
        run_experiment(experiment, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---- the built-in experiments

WANTED = [
    "no-residual",
    "no-scaling",
    "no-positions",
    "no-positions-sort",
    "no-mask",
    "no-norm",
    "deep-post-norm",
    "no-warmup",
    "no-label-smoothing",
    "one-head",
    "untied",
    "positions",
    "norms",
    "feed-forwards",
    "learning-rate",
    "depth-width",
    "scaling-law",
]


@pytest.mark.parametrize("name", built_in_experiments())
def test_every_experiment_can_be_built(name):
    experiment = read_experiment(find_experiment(name))
    check_buildable(experiment)
    assert experiment.minutes > 0
    assert experiment.minutes <= 10
    assert len(experiment.theory) > 100


def test_all_built_in_experiments_exist():
    assert set(WANTED) <= set(built_in_experiments())


@pytest.mark.parametrize(
    ("name", "table", "setting"),
    [("positions", POSITIONS, "position"), ("feed-forwards", FEED_FORWARDS, "feed_forward"), ("norms", NORMS, "norm")],
)
def test_a_sweep_has_a_variant_for_every_choice(name, table, setting):
    experiment = read_experiment(find_experiment(name))
    tried = {getattr(experiment.config(variant, 1).model, setting) for variant in experiment.variants}
    assert tried == set(table)


def test_every_ablation_has_an_experiment():
    experiments = [read_experiment(find_experiment(name)) for name in built_in_experiments()]
    assert {name for e in experiments for variant in e.variants for name in variant.ablations} == set(ABLATIONS)


def test_the_numbers_in_the_theory_of_no_positions_follow_from_the_data():
    """The best loss without knowing the order of the letters, and the chance that a random order is right."""
    experiment = read_experiment(find_experiment("no-positions"))
    data = experiment.config(experiment.variants[0], 1).data

    def orders(pair):
        letters = pair.source.split()
        return math.factorial(len(letters)) / math.prod(map(math.factorial, Counter(letters).values()))

    valid, test = (load_split(data, "translation", split) for split in ("valid", "test"))
    floor = sum(math.log(orders(pair)) for pair in valid) / sum(len(pair.source.split()) + 1 for pair in valid)
    luck = sum(1 / orders(pair) for pair in test) / len(test)
    assert f"{floor:.2f} nats" in experiment.theory
    assert f"{luck:.1%}".replace("%", " %") in experiment.theory


# ---- one training


def job(folder, experiment, variant=1, **changes):
    config, first = (experiment.config(experiment.variants[i], 1) for i in (variant, 0))
    return dataclasses.replace(
        TrialJob(str(folder), config, first, experiment.variants[variant].ablations, "cross"), **changes
    )


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_variants_have_equal_initial_weights_where_shapes_agree(tmp_path):
    """Also after parts with other shapes, which consume other random numbers."""
    variants = '[{ name = "a" }, { name = "b", set = { model.position = "learned", model.d_ff = 12 } }]'
    experiment = read_experiment(write_experiment(tmp_path, variant=variants))
    begun = []
    for variant in experiment.variants:
        config, first = (experiment.config(a, 1) for a in (variant, experiment.variants[0]))
        one = TrialJob("", config, first)
        prepared = prepare_cached(config.data, "translation")
        training = start_training(
            config,
            RunFolder(tmp_path / variant.name),
            [],
            prepared,
            lambda m, j=one, p=prepared: prepare_model(m, j, p),
        )
        begun.append(weights(training.trainer.model))
    a, b = begun
    agree = [name for name in a if name in b and a[name].shape == b[name].shape]
    assert "encoder.layers.0.self_attention.query.weight" in agree
    assert len(agree) < len(b)
    for name in agree:
        assert torch.equal(a[name], b[name]), name


def test_ablations_are_applied_before_the_optimizer_is_created(tmp_path):
    experiment = read_experiment(write_experiment(tmp_path))
    config = experiment.config(experiment.variants[0], 1)
    training = start_training(
        config, RunFolder(tmp_path / "run"), modify_model=lambda model: apply_ablations(model, ["no-norm"])
    )
    known = {id(p) for group in training.trainer.optimizer.param_groups for p in group["params"]}
    assert known == {id(p) for p in training.trainer.model.parameters()}
    assert training.parameters == sum(p.numel() for p in training.trainer.model.parameters())
    assert not [name for name, _ in training.trainer.model.named_parameters() if "norm" in name]
    training.trainer.run()


def test_the_files_of_a_trial(tmp_path):
    experiment = read_experiment(write_experiment(tmp_path))
    messages = []
    result = run_trial(job(tmp_path / "run", experiment), messages.append)
    assert json.loads((tmp_path / "run/result.json").read_text()) == result
    assert result["diverged_at"] is None
    assert [point["step"] for point in result["curve"]] == [2, 4]
    assert result["measures"].keys() == {"cross-entropy", "accuracy", "exact match", "token accuracy"}
    assert 0 < result["parameters_without_embeddings"] < result["parameters"]
    assert messages[0]["event"] == "step"
    trace = json.loads((tmp_path / "run/trace.json").read_text())
    assert 6 <= len(trace["source"]) - 1 <= 8
    # after an ablation, no command can load the weights into an intact model
    assert read_sealed(tmp_path / "run/operated.safetensors")
    with pytest.raises(RunError, match="has no model.safetensors"):
        RunFolder(tmp_path / "run").require()
    run_trial(job(tmp_path / "whole", experiment, variant=0), messages.append)
    assert RunFolder(tmp_path / "whole").require()
    assert not (tmp_path / "whole/checkpoints").exists()


def test_a_trial_is_deterministic(tmp_path):
    experiment = read_experiment(write_experiment(tmp_path))
    one, other = (run_trial(job(tmp_path / name, experiment), lambda message: None) for name in "ab")
    for result in (one, other):
        del result["seconds"], result["cpu_seconds"]
    assert one == other


def test_a_training_that_diverges_has_a_result(tmp_path):
    experiment = read_experiment(write_experiment(tmp_path))
    diverging = job(tmp_path / "run", experiment)
    train = dataclasses.replace(diverging.config.train, lr=1e30, clip_norm=0.0)
    diverging = dataclasses.replace(diverging, config=dataclasses.replace(diverging.config, train=train))
    result = run_trial(diverging, lambda message: None)
    assert result["diverged_at"] in (2, 3)
    assert result["measures"] == {}
    assert is_finite(result["curve"])


def is_finite(curve):
    return all(math.isfinite(value) for point in curve for value in point.values())


def test_token_accuracy_counts_words_at_the_right_position():
    assert token_accuracy(["a b c", "a", ""], ["a b c", "a b", "a"]) == pytest.approx(4 / 6)
    assert token_accuracy(["a b c d"], ["a b"]) == 0.5


def test_parameters_of_another_shape_are_not_copied():
    small, large = torch.nn.Linear(2, 3), torch.nn.Linear(4, 3)
    before = weights(large)
    copy_where_shapes_agree(small, large)
    assert torch.equal(large.bias, small.bias)
    assert torch.equal(large.weight, before["weight"])


# ---- a whole experiment

DIVERGING_VARIANTS = (
    '[{ name = "intact" }, { name = "far too fast", set = { train.lr = 1e30, train.clip_norm = 0.0 } }]'
)


class RecordingListener:
    """Stores the progress of an experiment."""

    def __init__(self):
        self.finished, self.results = None, []

    def on_start(self, trials, finished):
        self.finished = finished

    def on_step(self, trial, step, steps, loss):
        assert 0 < step <= steps

    def on_result(self, trial):
        self.results.append(trial.name)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """An experiment in real processes with a diverging variant: (experiment, folder, results, listener)."""
    folder = tmp_path_factory.mktemp("lab")
    experiment = read_experiment(write_experiment(folder, variant=DIVERGING_VARIANTS))
    listener = RecordingListener()
    return experiment, folder, run_experiment(experiment, folder / "out", 2, listener=listener), listener


def test_every_variant_is_trained_with_every_seed(finished):
    experiment, folder, results, listener = finished
    assert listener.finished == 0
    assert sorted(listener.results) == sorted(
        f"{variant.name}, seed {seed}" for variant in experiment.variants for seed in (1, 2, 3)
    )
    saved = json.loads((folder / "out/results.json").read_text())
    assert [run["seed"] for run in saved["variants"][0]["runs"]] == [1, 2, 3]
    assert all(
        (folder / "out" / run["folder"] / "result.json").is_file()
        for variant in saved["variants"]
        for run in variant["runs"]
    )
    losses = {run["measures"]["cross-entropy"] for run in saved["variants"][0]["runs"]}
    assert len(losses) == 3  # seeds differ
    assert saved["verdict"] == results.verdict


def test_a_diverged_variant_is_a_result(finished):
    results = finished[2]
    assert all(trial.result["diverged_at"] for trial in results.trials if trial.variant.name == "far too fast")
    expected = "“far too fast” cannot be compared with “intact”: no seed has a result for both. No result: seed 1 "
    assert results.verdict[0].startswith(expected + "(far too fast: diverged at step ")


def test_the_page_has_all_sections_despite_a_diverged_variant(finished):
    experiment, folder, results, _ = finished
    page = write_page(results, folder / "out").read_text(encoding="utf-8")
    for piece in (
        experiment.title,
        experiment.question,
        "What theory says",
        "Verdict",
        "Learning curves",
        "Attention",
        "All numbers",
    ):
        assert piece in page
    assert page.index("Verdict") < page.index("<figure>")
    assert "diverged at step" in page
    assert "train.lr = 1e30" in page  # the content of the TOML file
    assert page.count("data:image/png;base64,") == 4  # curves, two metrics, attention
    assert "http" not in page.split("</style>")[1]


def test_finished_trials_are_not_trained_again(finished, monkeypatch):
    experiment, folder, results, _ = finished
    listener = RecordingListener()
    monkeypatch.setattr(
        lab_module, "run_jobs", lambda module, jobs, *rest: None if not jobs else pytest.fail("trained again")
    )
    again = run_experiment(experiment, folder / "out", 2, listener=listener)
    assert listener.finished == 6
    assert again.verdict == results.verdict


def test_only_missing_and_changed_trials_are_trained(finished, monkeypatch):
    experiment, folder, *_ = finished
    started = []

    def record_jobs(module, jobs, workers, logs, on_message):
        started.extend(jobs)
        for number in range(len(jobs)):
            on_message(number, {"event": "done", "result": {"failed": "not really"}})

    monkeypatch.setattr(lab_module, "run_jobs", record_jobs)
    more = read_experiment(folder / "small.toml", seeds=(1, 2, 3, 4))
    results = run_experiment(more, folder / "out")
    assert len(started) == 2  # seed 4 of both variants
    assert "No result: seed 1 (far too fast: diverged at step" in results.verdict[0]
    assert "seed 4 (intact: not really)" in results.verdict[0]
    started.clear()
    with pytest.raises(RunError, match="all 6 trainings failed. The first error: not really"):
        run_experiment(read_experiment(folder / "small.toml", ["train.steps=5"]), folder / "out")
    assert len(started) == 6  # other settings are other runs
    assert run_experiment(experiment, folder / "out").trials[0].result["measures"]  # the old results are still there


def test_runs_of_other_settings_have_other_folders(tmp_path):
    experiment = read_experiment(write_experiment(tmp_path))
    other = read_experiment(write_experiment(tmp_path), ["train.lr=0.5"])
    one, two = ({trial.folder.name for trial in plan_trials(e, tmp_path)} for e in (experiment, other))
    assert len(one) == len(two) == 6
    assert not one & two


def test_a_process_that_dies_loses_only_its_current_job(tmp_path):
    worker = tmp_path / "sometimes_dies.py"
    worker.write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    if 'die' in line:\n"
        "        print('{\"event\": ', end='', flush=True)\n"
        "        print('out of luck', file=sys.stderr, flush=True); os._exit(7)\n"
        "    print(json.dumps({'event': 'step', 'at': line.strip()}), flush=True)\n"
        "    print(json.dumps({'event': 'done', 'result': {'fine': line.strip()}}), flush=True)\n"
    )
    results = {}

    def on_message(number, message):
        if message["event"] == "done":
            results[number] = message["result"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        run_jobs("sometimes_dies", ["a", "die", "b", "c", "die", "d"], 2, tmp_path / "logs", on_message)
    assert results[1] == results[4] == {"failed": "crashed (exit code 7): out of luck"}
    assert [results[i]["fine"] for i in (0, 2, 3, 5)] == ["a", "b", "c", "d"]


def test_a_scaling_law_is_fitted_to_an_experiment(tmp_path):
    widths = {8: 1_000, 16: 4_000, 32: 16_000, 64: 64_000}
    variants = ", ".join(f'{{ name = "{w}", set = {{ model.d_model = {w} }} }}' for w in widths)
    experiment = read_experiment(write_experiment(tmp_path, variant=f"[{variants}]", fit='"scaling-law"'))

    def result(trial):
        size = widths[int(trial.variant.name)]
        loss = 1 + 10 * size ** -(0.3 + 0.01 * trial.seed)
        curve = [
            {"step": 1, "cross-entropy": 3.0, "accuracy": 0.1},
            {"step": 4, "cross-entropy": loss, "accuracy": 0.5},
        ]
        return {"diverged_at": None, "parameters": size + 500, "parameters_without_embeddings": size, "seconds": 1.0,
                "curve": curve, "measures": {"cross-entropy": loss, "accuracy": 0.5}}  # fmt: skip

    trials = [dataclasses.replace(trial, result=result(trial)) for trial in plan_trials(experiment, tmp_path / "runs")]
    results = compare_variants(experiment, trials)
    assert results.scaling.exponent.mean == pytest.approx(0.32, abs=0.002)
    assert "loss(N) = 1." in results.verdict[0]
    page = write_page(results, tmp_path / "out").read_text(encoding="utf-8")
    assert "Scaling law" in page
    assert page.count("data:image/png;base64,") == 2


# ---- the command

CUTAWAY = [sys.executable, "-c", "from cutaway.cli import main; main()"]


def test_the_command_lists_experiments_without_importing_torch():
    result = CliRunner().invoke(app, ["lab"])
    assert result.exit_code == 0
    for name in built_in_experiments():
        assert re.search(rf"^{name} .* \d+  +[\d.]+ min", result.stdout, re.MULTILINE), name
    listed = json.loads(CliRunner().invoke(app, ["lab", "--json"]).stdout)
    assert {one["name"] for one in listed} == set(built_in_experiments())
    code = "import sys; from cutaway.cli.lab import list_experiments; list_experiments(True); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-residul"], "Did you mean 'no-residual'?"),
        (["no-residual", "--seeds", "1,2"], "has 2 seeds; a verdict needs at least 3"),
        (["no-residual", "--seeds", "a"], "--seeds a is not a list of integers"),
        (["no-residual", "--set", "train.stepps=1"], "unknown setting train.stepps"),
        (["no-residual", "--workers", "0"], "--workers 0 would train nothing"),
    ],
)
def test_invalid_options_are_reported_before_the_first_training(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(message)):
        app(["lab", *arguments], standalone_mode=False)
    assert not list(tmp_path.iterdir())


def test_help_has_examples():
    text = CliRunner().invoke(app, ["lab", "--help"]).stdout
    assert "cutaway lab no-residual" in text
    assert "Example" in text


# ---- the page in the docs

DOCS = Path(__file__).parents[2] / "docs" / "lab.md"


def test_the_experiment_in_the_docs_can_be_built(tmp_path):
    [text] = re.findall(r"^```toml\n(.*?)^```", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    experiment = read_experiment(write_experiment(tmp_path, text))
    check_buildable(experiment)
    assert [experiment.config(variant, 1).model.d_ff for variant in experiment.variants] == [256, 128]


def test_the_docs_name_every_experiment_and_its_question():
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.+\?) \|$", DOCS.read_text("utf-8"), re.MULTILINE))
    assert rows == {name: read_experiment(find_experiment(name)).question for name in built_in_experiments()}


# ---- built-in experiments against theory


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


def run_command(name, home, *settings):
    """Run `cutaway lab`. Return variant -> metrics for each seed, and (variant, metric) -> finding."""
    result = cutaway_lab(name, *settings, "--json", cwd=home)
    numbers = json.loads(result.stdout)
    assert json.loads((home / "lab" / name / "results.json").read_text()) == numbers
    values = {variant["name"]: [run["measures"] for run in variant["runs"]] for variant in numbers["variants"]}
    return values, {(c["variant"], c["measure"]): c["finding"] for c in numbers["comparisons"]}


def cutaway_lab(*arguments, cwd):
    result = subprocess.run(
        [*CUTAWAY, "lab", *arguments], cwd=cwd, capture_output=True, text=True, timeout=900, encoding="utf-8"
    )
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert "\x1b" not in result.stdout + result.stderr  # plain when piped
    return result


@pytest.mark.slow
def test_without_a_mask_the_loss_is_low_and_the_texts_are_wrong(home):
    values, findings = run_command("no-mask", home)
    assert findings == {
        ("no mask", "cross-entropy"): "better",
        ("no mask", "exact match"): "worse",
        ("no mask", "token accuracy"): "worse",
    }
    for measures in values["no mask"]:
        assert measures["cross-entropy"] < 0.05
        assert measures["accuracy"] > 0.99
        assert measures["exact match"] < 0.02
    check_page_in_browser(home / "lab/no-mask/index.html", "Without the causal mask", figures=5)


@pytest.mark.slow
def test_without_positions_the_order_is_unknown(home):
    values, findings = run_command("no-positions", home, "--set", "train.steps=300")
    assert set(findings.values()) == {"worse"}
    for measures in values["no positions"]:
        assert measures["cross-entropy"] > 1.06  # the best possible without order; see the theory
        assert measures["exact match"] < 0.06  # chance


def check_page_in_browser(path, title, figures):
    from playwright.sync_api import sync_playwright

    chromium = next(
        found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width in (1200, 390):
            page = browser.new_page(viewport={"width": width, "height": 900})
            problems, requests = [], []
            page.on("console", lambda message, seen=problems: seen.append(message.text))
            page.on("request", lambda request, seen=requests: seen.append(request.url))
            page.goto(path.as_uri())
            assert problems == []
            assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
            assert page.title() == title
            assert page.locator("img").count() == figures
            assert page.eval_on_selector_all("img", "all => all.filter(i => !i.naturalWidth).length") == 0
            headings = page.locator("h2").all_inner_texts()
            assert headings == [
                "What theory says",
                "Verdict",
                "Learning curves",
                "Attention",
                "Decoded texts",
                "All numbers",
            ]
            assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
            page.close()
        browser.close()


@pytest.mark.slow
def test_ctrl_c_keeps_finished_trials(tmp_path):
    write_experiment(tmp_path)
    command = [*CUTAWAY, "lab", "small.toml", "--set", "train.steps=150", "--workers", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("lab/small/runs/*/result.json"))) < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "trainings are finished and saved. Run the same command again to train the rest." in stderr
    saved = {path: path.stat().st_mtime_ns for path in tmp_path.glob("lab/small/runs/*/result.json")}
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    assert f"({len(saved)} of them are finished already)" in again.stderr
    assert all(path.stat().st_mtime_ns == when for path, when in saved.items())
    assert (tmp_path / "lab/small/index.html").is_file()


def test_keys_of_version_0_1_are_read_with_one_notice(tmp_path):
    old = SMALL.replace("variant = ", "arm = ").replace("ablations", "surgery")
    path = write_experiment(tmp_path, old, look='"decoder"')
    with pytest.warns(CutawayWarning) as notices:
        experiment = read_experiment(path)
    assert experiment.attention == "decoder"
    assert experiment.variants[1].ablations == ("no-mask",)
    assert [str(notice.message) for notice in notices] == [
        "experiment.look is now experiment.attention; experiment.arm is now experiment.variant; "
        "variant.surgery is now variant.ablations. The old names still work. Use the new ones."
    ]
