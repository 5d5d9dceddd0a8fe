"""Fine-tuning from the command line: first the base, then every command on the fine-tuned run."""

import json
import subprocess
import sys

import pytest
from helpers import run_cutaway as cutaway

from cutaway.runs import RunFolder
from cutaway.system import resources

pytestmark = pytest.mark.slow

BASE = """
[model]
family = "decoder"
d_model = 16
d_ff = 32
n_heads = 2
decoder_layers = 2
max_length = 128
dropout = 0.0
position = "rope"
[data]
train = ["a.txt"]
valid = ["a.txt"]
test = ["a.txt"]
tokenizer = "word"
max_tokens = 24
batch_tokens = 64
[train]
steps = 6
warmup = 3
valid_every = 3
save_every = 3
[decode]
strategy = "greedy"
"""
TUNED = """
[finetune]
base = "tiny-base"
method = "{method}"
[data]
train = ["b.txt"]
valid = ["b.txt"]
test = ["b.txt"]
max_tokens = 24
batch_tokens = 64
[train]
steps = 6
schedule = "constant"
lr = 1e-2
valid_every = 3
save_every = 3
snapshots = 2
"""
METHODS = ["lora", "prefix", "prompt", "full"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with small recipes in place of the built-in ones, and one run of each."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "recipes").mkdir()
    (folder / "recipes/tiny-base.toml").write_text(BASE)
    for method in METHODS:
        (folder / f"recipes/tiny-{method}.toml").write_text(TUNED.format(method=method))
    (folder / "a.txt").write_text("a b c d e .\n\nb c d e a .\n\n" * 8)
    (folder / "b.txt").write_text("e d c b a .\n\na e d c b .\n\n" * 8)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resources, "shipped_folder", lambda name: folder / name)
        results = {method: cutaway("train", f"tiny-{method}", cwd=folder) for method in METHODS}
    for method, result in results.items():
        assert result.returncode == 0, result.stderr
        (folder / f"{method}.log").write_text(result.stderr)
    return folder


def stdout_of(result):
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout


def test_the_base_is_trained_first_and_only_once(home):
    logs = {method: (home / f"{method}.log").read_text() for method in METHODS}
    assert "The base 'tiny-base' is not trained yet. Training it first, in runs/tiny-base" in " ".join(
        logs["lora"].split()
    )
    assert all("is not trained yet" not in log for method, log in logs.items() if method != "lora")
    assert RunFolder(home / "runs/tiny-base").require()


def test_the_share_of_trained_parameters_is_printed(home):
    log = " ".join((home / "lora.log").read_text().split())
    # two layers with a query and a value each, 8 x 16 and 16 x 8
    assert "Base: tiny-base" in log
    assert f"Trained: {2 * 2 * 2 * 8 * 16:,} of " in log
    assert "%): lora on 4 modules" in log
    assert "(100.00 %): all" in (home / "full.log").read_text()


@pytest.mark.parametrize("method", METHODS)
def test_every_command_works_on_a_fine_tuned_run(home, method):
    run = f"runs/tiny-{method}"
    assert stdout_of(cutaway("generate", run, "a e", cwd=home)).startswith("a e")
    assert "perplexity" in json.loads(stdout_of(cutaway("evaluate", run, "--json", cwd=home)))
    row = json.loads(stdout_of(cutaway("runs", run, "--json", cwd=home)))["runs"][0]
    assert row["state"] == "finished"
    assert row["parameters"] > 3_000
    assert cutaway("doctor", run, "--json", cwd=home).returncode in (0, 3)
    walk = json.loads(stdout_of(cutaway("trace", run, "a e d", "--json", cwd=home)))
    assert len(walk["attention"]) == 2
    assert "Nothing leaks." in stdout_of(cutaway("mask", run, "a e d", cwd=home))
    stdout_of(cutaway("explore", run, "--export", f"{method}.html", cwd=home))
    assert (home / f"{method}.html").stat().st_size > 10_000
    assert (home / run / "report.html").is_file()
    stdout_of(cutaway("figures", run, "a e d", cwd=home))


def test_a_lora_run_is_exported_as_a_run_without_adapter(home):
    stdout_of(cutaway("export", "runs/tiny-lora", "alone", "--to", "run", cwd=home))
    assert (home / "alone/model.safetensors").is_file()
    texts = [stdout_of(cutaway("generate", run, "a e", cwd=home)) for run in ("alone", "runs/tiny-lora")]
    assert texts[0] == texts[1]
    refused = cutaway("export", "runs/tiny-prefix", "no", "--to", "run", cwd=home)
    assert refused.returncode == 1
    assert "finetune.method = 'prefix'" in refused.stderr


def test_it_resumes(home):
    steps = ("--set", "train.steps=9", "--resume")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resources, "shipped_folder", lambda name: home / name)
        result = cutaway("train", "tiny-lora", *steps, "--run", "runs/tiny-lora", cwd=home)
    stdout_of(result)
    assert "Resuming at step 6" in result.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["finetune.base=tiny"], "finetune.base = 'tiny' is not a run folder. Runs in runs/: tiny-base, tiny-full"),
        (["finetune.base=runs/tiny-prompt"], "is an adapter itself"),
        (["model.n_heads=4"], "model.n_heads = 4, but the base 'tiny-base' was trained with 2"),
        (["data.tokenizer=char"], "data.tokenizer = 'char' cannot be set: a fine-tuned model uses the tokenizer of its base"),
        (["finetune.target_modules=[\"x\"]"], "finetune.target_modules: 'x' matches nothing"),
        (["finetune.method=prompt", "finetune.prompt_length=120"], "finetune.prompt_length = 120 vectors before data.max_tokens = 24"),
    ],
)  # fmt: skip
def test_errors(home, settings, message):
    words = [word for setting in settings for word in ("--set", setting)]
    result = cutaway("train", "recipes/tiny-lora.toml", "--run", "runs/new", *words, cwd=home)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert message in " ".join(result.stderr.split())
    assert not (home / "runs/new/config.json").exists()


def test_the_numpy_engine_says_what_it_cannot_do(home):
    result = cutaway("train", "recipes/tiny-lora.toml", "--run", "runs/new", "--engine", "numpy", cwd=home)
    assert result.returncode == 1
    assert "--engine numpy cannot fine-tune" in result.stderr
    for method, code in (("lora", 0), ("prefix", 1)):
        result = cutaway("generate", f"runs/tiny-{method}", "a e", "--engine", "numpy", cwd=home)
        assert result.returncode == code
    assert "Use engine 'torch'" in result.stderr


def test_data_inspect_uses_the_tokenizer_of_the_base(home):
    assert "tokens (from a file)" in stdout_of(cutaway("data", "inspect", "recipes/tiny-lora.toml", cwd=home))


def test_two_processes_train_the_same_as_one(home):
    """The command starts the processes; both find the base."""
    runs = []
    for processes in (1, 2):
        name = f"runs/by-{processes}"
        result = subprocess.run(
            [sys.executable, "-m", "cutaway", "train", "recipes/tiny-lora.toml", "--run", name,
             "--set", f"train.processes={processes}", "--set", "train.precision=float64"],
            cwd=home, capture_output=True, text=True, timeout=200, encoding="utf-8",
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        runs.append(RunFolder(home / name))
    losses = [[row["valid_loss"] for row in run.read_metrics() if "valid_loss" in row] for run in runs]
    assert losses[0] == pytest.approx(losses[1], abs=1e-9)
