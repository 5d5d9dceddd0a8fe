"""The command line as a process: its output and exit code. A user's mistake never shows a traceback."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
from helpers import run_cutaway

from cutaway.bulk.formats import join_lines
from cutaway.cli.console import clock, command

SMALL = [
    "--set", "model.d_model=16", "--set", "model.d_ff=32", "--set", "data.size=300", "--set", "data.heldout_size=30",
    "--set", "train.warmup=10", "--set", "train.valid_every=10", "--set", "train.save_every=5",
]  # fmt: skip
NUMPY = ["--engine", "numpy"]  # starts faster than torch


def cutaway(*arguments, cwd, stdin="", **kwargs):
    command = [sys.executable, "-c", "from cutaway.cli import main; main()", *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=120, encoding="utf-8", **kwargs
    )


def translate(*arguments, cwd, **kwargs):
    """Without a process and without torch, for tests that need neither."""
    return run_cutaway("translate", *arguments, *NUMPY, cwd=cwd, **kwargs)


def fails(result, *parts, code=1):
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    for part in parts:
        assert part in result.stderr, result.stderr
    return True


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a small trained run in runs/reverse."""
    folder = tmp_path_factory.mktemp("home")
    result = cutaway("train", "reverse", *SMALL, "--set", "train.steps=20", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "300 examples" in result.stderr
    assert "step 20/20" in result.stderr
    assert "tokens/s" in result.stderr
    assert "perplexity" in result.stderr
    assert result.stdout == ""
    return folder


def test_translate_a_text_a_file_and_standard_input(home):
    text = cutaway("translate", "runs/reverse", "a b c", "d e", cwd=home)
    assert text.returncode == 0, text.stderr
    lines = text.stdout.splitlines()
    assert len(lines) == 2
    (home / "in.txt").write_text("a b c\n\nd e\n", encoding="utf-8")
    piped = cutaway("translate", "runs/reverse", *NUMPY, cwd=home, stdin="a b c\n\nd e\n")
    assert piped.stdout.splitlines() == [lines[0], "", lines[1]]
    result = translate("runs/reverse", "--file", "in.txt", "--out", "out.txt", cwd=home)
    assert result.stdout == ""
    assert (home / "out.txt").read_text("utf-8") == piped.stdout


def test_decoding_options(home):
    def sample(*options):
        return translate("runs/reverse", "a b c d", "--strategy", "sample", *options, cwd=home).stdout

    assert sample("--seed", "1") == sample("--seed", "1")
    assert sample("--temperature", "3", "--seed", "1") != sample("--temperature", "3", "--seed", "2")
    greedy = translate("runs/reverse", "a b c d", "--strategy", "greedy", cwd=home).stdout
    assert sample("--top-k", "1") == greedy == sample("--top-p", "0.0001")
    beam = translate("runs/reverse", "a b c d", "--strategy", "beam", "--beam-size", "1", cwd=home).stdout
    assert beam == greedy


def test_equal_lines_are_sampled_independently_for_every_kind_of_input(home):
    (home / "same.txt").write_text("a b c d e f\n" * 3, encoding="utf-8")
    hot = ("--strategy", "sample", "--temperature", "3", "--seed", "1")
    from_file = translate("runs/reverse", "--file", "same.txt", *hot, cwd=home).stdout
    piped = translate("runs/reverse", *hot, cwd=home, stdin="a b c d e f\n" * 3).stdout
    assert piped == from_file == translate("runs/reverse", *["a b c d e f"] * 3, *hot, cwd=home).stdout
    assert len(set(piped.splitlines())) == 3


def test_evaluate(home):
    result = run_cutaway("evaluate", "runs/reverse", cwd=home)
    assert result.returncode == 0, result.stderr
    assert "BLEU" in result.stdout
    assert "nrefs:1|case:mixed|eff:no|tok:13a" in result.stdout
    numbers = json.loads(run_cutaway("evaluate", "runs/reverse", "--json", "--limit", "10", cwd=home).stdout)
    assert numbers["examples"] == 10
    assert {"bleu", "chrf", "exact_match", "perplexity", "bleu_signature"} <= numbers.keys()
    (home / "s").write_text("a b c\n")
    (home / "r").write_text("c b a\n")
    files = run_cutaway("evaluate", "runs/reverse", "--data", "s", "--data", "r", "--json", cwd=home)
    assert json.loads(files.stdout)["examples"] == 1
    assert fails(
        run_cutaway("evaluate", "runs/reverse", "--data", "s", cwd=home), "must name two files whose lines correspond"
    )


def test_a_run_is_not_overwritten_by_accident(home):
    assert fails(cutaway("train", "reverse", *SMALL, cwd=home), "there is a run in", "--resume", "--overwrite")


@pytest.mark.parametrize(
    "command", ["", "demo", "train", "translate", "generate", "classify", "tag", "evaluate", "lesson", "check", "lab"]
)
def test_help_has_an_example(command, tmp_path):
    result = run_cutaway(*command.split(), "--help", cwd=tmp_path)
    assert result.returncode == 0
    assert "Usage" in result.stdout
    if command:
        assert "Example" in result.stdout
        assert f"cutaway {command}" in result.stdout


def test_version(tmp_path):
    assert cutaway("--version", cwd=tmp_path).stdout.startswith("cutaway 0.")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["translate", "runs/nope", "hi"], ["there is no run folder 'runs/nope'", "cutaway demo"]),
        (["train", "nope"], ["there is no recipe 'nope'", "demo"]),
        (["train", "reverse", "--set", "model.n_heads=3"], ["d_model = 64", "n_heads = 3", "Choose n_heads from"]),
        (["train", "reverse", "--set", "model.d_modle=3"], ["unknown setting model.d_modle", "Did you mean 'd_model'"]),
        (["train", "reverse", "--set", "train.schedule=noma"], ["'noma' is not a choice", "Did you mean 'noam'"]),
        (["train", "reverse", "--set", "data.corpus=revers", *NUMPY], ["no built-in corpus 'revers'", "Did you mean 'reverse'"]),
        (["train", "files.toml", *NUMPY], ["has 3 lines", "has 2"]),
        (["train", "files.toml", "--set", 'data.train=["empty", "empty"]', *NUMPY], ["are empty"]),
        (["train", "files.toml", "--set", 'data.train=["latin1", "two"]', *NUMPY], ["line 1 is not UTF-8", "iconv"]),
        (["train", "files.toml", "--set", 'data.train=["gone", "two"]', *NUMPY], ["there is no file 'gone'"]),
        (["train", "files.toml", "--resume"], ["there is no run in", "Train without --resume"]),
        (["evaluate", "runs/nope"], ["there is no run folder"]),
    ],
)  # fmt: skip
def test_a_users_mistake_gives_a_message_and_leaves_no_files(arguments, parts, tmp_path):
    (tmp_path / "three").write_text("a\nb\nc\n")
    (tmp_path / "two").write_text("a\nb\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "latin1").write_bytes(b"caf\xe9\nb\n")
    (tmp_path / "files.toml").write_text('[data]\ntrain = ["three", "two"]\n')
    before = sorted(tmp_path.iterdir())
    assert fails(run_cutaway(*arguments, cwd=tmp_path), *parts)
    assert sorted(tmp_path.iterdir()) == before


def test_errors_with_a_run(home, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(home / "runs" / "reverse", run)
    weights = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    assert fails(translate(run, "a b", cwd=tmp_path), "model.safetensors is damaged", "Restore it")
    (run / "model.safetensors").unlink()
    assert fails(translate(run, "a b", cwd=tmp_path), "has no model.safetensors")
    assert fails(translate(home / "runs" / "reverse", "--file", "none", cwd=tmp_path), "there is no file 'none'")
    (tmp_path / "empty").write_text("")
    result = translate(home / "runs" / "reverse", "--file", "empty", "--out", "out", cwd=tmp_path)
    assert (result.returncode, (tmp_path / "out").read_text()) == (0, "")  # like an empty pipe
    (tmp_path / "folder").mkdir()
    assert fails(translate(home / "runs" / "reverse", "--file", "folder", cwd=tmp_path), "folder is a folder")
    (tmp_path / "wide").write_bytes("a b\n".encode("utf-16"))
    assert fails(translate(home / "runs" / "reverse", "--file", "wide", cwd=tmp_path), "iconv -f utf-16 -t utf-8 wide")
    result = translate(home / "runs" / "reverse", "a", "--out", "folder", cwd=tmp_path)
    assert fails(result, "folder is a folder. Give a file name.")
    assert "greater than or equal to 1" in run_cutaway("generate", "x", "y", "--max-length", "0", cwd=tmp_path).stderr
    assert fails(
        translate(home / "runs" / "reverse", " ".join("a" * 100), cwd=tmp_path),
        "101 tokens",
        "positions for 64",
    )
    assert fails(
        translate(home / "runs" / "reverse", "a", "--strategy", "gredy", cwd=tmp_path),
        "Did you mean 'greedy'",
    )
    assert fails(
        run_cutaway("evaluate", home / "runs" / "reverse", "--split", "unseen", cwd=tmp_path), "no --split unseen"
    )


def test_more_errors_with_a_run(home):
    run = home / "runs" / "reverse"
    assert fails(
        run_cutaway("translate", run, "a", "--device", "nonsense", cwd=home), "--device nonsense cannot be used"
    )
    assert fails(translate(run, "a", "--top-k", "3", cwd=home), "--top-k has no effect with strategy 'greedy'")
    assert fails(run_cutaway("evaluate", run, "--limit", "0", cwd=home), "--limit 0 leaves nothing to score")


def test_unknown_words_are_listed(home):
    result = translate("runs/reverse", "a zebra b zebra", cwd=home)
    assert result.returncode == 0
    assert result.stderr.rstrip().endswith("not in this model's vocabulary: zebra")  # once


def test_a_byte_order_mark_is_ignored(home):
    plain = translate("runs/reverse", cwd=home, stdin="a b c\n").stdout
    assert translate("runs/reverse", cwd=home, stdin="\ufeffa b c\n").stdout == plain


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_saves_and_names_the_command_to_resume(tmp_path):
    command = [sys.executable, "-c", "from cutaway.cli import main; main()", "train", "reverse", *SMALL]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "runs/reverse/latest").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert "everything is saved. Resume with: cutaway train reverse --resume --set model.d_model=16" in stderr
    step = int(stderr.partition("stopped at step ")[2].split()[0])
    assert (tmp_path / "runs/reverse/latest").read_text().strip() == f"step_{step:06d}"
    again = cutaway("train", "reverse", *SMALL, "--set", f"train.steps={step + 3}", "--resume", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert f"Resuming at step {step}." in again.stderr


def test_tensorboard(tmp_path):
    steps = ["--set", "train.steps=4", "--set", "train.log_every=2"]
    result = cutaway("train", "reverse", *SMALL, *steps, "--tensorboard", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    [events] = (tmp_path / "runs/reverse/tensorboard").iterdir()
    assert b"train/loss" in events.read_bytes()


def test_clock_and_one_line():
    assert clock(75) == "1:15"
    assert clock(3671) == "1:01:11"
    assert join_lines("a\nb") == "a b"
    assert join_lines("") == ""


def test_a_suggested_command_can_be_copied_into_a_shell(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/cutaway"
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("PATH", "")
    assert command() == "bin/cutaway"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert command("train", "a b", "--set", "x.y=[1]") == "cutaway train 'a b' --set 'x.y=[1]'"
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert command() == "cutaway"
