"""translate and generate: options, output formats, and files."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from helpers import run_cutaway
from untrained import untrained_pipeline

from cutaway.cli.bulk_progress import BulkProgress
from cutaway.inference.pipelines import Translator
from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes, write_json, write_text
from cutaway.runs.weights import seal_weights

BEAM = ("--strategy", "beam", "--beam-size", 3)
GREEDY = ("--strategy", "greedy")
SAMPLE = ("--strategy", "sample", "--seed", 5)


def save_run(pipeline, path):
    folder = RunFolder(path)
    write_text(folder.tokenizer, pipeline.tokenizer.to_json())
    write_bytes(folder.path / "model.safetensors", seal_weights(weights_to_bytes(pipeline.model)))
    folder.write_config(pipeline.config)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    save_run(untrained_pipeline(), folder / "translator")
    save_run(untrained_pipeline("decoder"), folder / "writer")
    (folder / "in.txt").write_text("a b c\n\nd e f g\nh a\n" * 3)
    return folder


def stdout_of(home, *arguments, stdin=""):
    result = run_cutaway(*arguments, cwd=home, stdin=stdin)
    assert result.returncode == 0, result.stderr
    return result.stdout


def fails(home, *arguments, stdin=""):
    result = run_cutaway(*arguments, cwd=home, stdin=stdin)
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def test_n_best_prints_line_score_and_text(home):
    found = Translator.load(home / "translator").hypotheses(["a b c", "", "d"], decode_of(home), n_best=3)
    rows = [
        row.split("\t")
        for row in stdout_of(home, "translate", "translator", "a b c", "", "d", *BEAM, "--n-best", 3).splitlines()
    ]
    assert [(row[0], row[1]) for row in rows] == [
        (str(line), f"{one.score:.4f}") for line, texts in enumerate(found, 1) for one in texts
    ]
    assert {row[0] for row in rows} == {"1", "3"}  # an empty text has no translations


def decode_of(home):
    config = RunFolder(home / "translator").read_config().decode
    return dataclasses.replace(config, strategy="beam", beam_size=3)


def test_scores_and_json_agree(home):
    plain = stdout_of(home, "translate", "translator", "a b c", *GREEDY).splitlines()
    score, text = stdout_of(home, "translate", "translator", "a b c", *GREEDY, "--scores").rstrip("\n").split("\t")
    [line] = stdout_of(home, "translate", "translator", "a b c", *GREEDY, "--json", "--align").splitlines()
    answer = json.loads(line)
    assert [text] == plain == [answer["text"]]
    assert float(score) == pytest.approx(answer["score"], abs=1e-4)
    assert answer["line"] == 1
    assert sum(answer["log_probabilities"]) == pytest.approx(answer["log_probability"], abs=1e-4)
    assert len(answer["log_probabilities"]) == len(answer["tokens"]) + answer["finished"]
    for source, target in answer["alignment"]:
        assert 0 <= source < 3
        assert 0 <= target < len(text.split())
    best = json.loads(stdout_of(home, "translate", "translator", "a b c", *BEAM, "--json", "--n-best", 2))
    assert len(best["n_best"]) == 2
    assert best["n_best"][0]["text"] == best["text"]
    assert json.loads(stdout_of(home, "translate", "translator", "", *BEAM, "--json", "--n-best", 2))["n_best"] == []


def test_alignment_is_of_words(home):
    text, pairs = stdout_of(home, "translate", "translator", "a b c", *GREEDY, "--align").rstrip("\n").split("\t")
    numbers = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
    assert numbers == sorted(set(numbers), key=lambda pair: (pair[1], pair[0]))
    assert {target for _, target in numbers} == set(range(len(text.split())))  # every word looks somewhere


@pytest.mark.slow
def test_options_that_constrain_the_output(home):
    begun = stdout_of(home, "translate", "translator", "a b c", *GREEDY, "--prefix", "d e")
    assert begun.startswith("d e")
    choices = ("--choice", "a b", "--choice", "h")
    assert stdout_of(home, "translate", "translator", "c", "d", *BEAM, *choices).splitlines()[0] in ("a b", "h")
    free = stdout_of(home, "generate", "writer", "a b", *SAMPLE, "--max-length", 12).rstrip("\n")
    stop = free[len("a b") :].split()[1]
    cut = stdout_of(home, "generate", "writer", "a b", *SAMPLE, "--max-length", 12, "--stop", stop).rstrip("\n")
    assert cut == "a b" + free[len("a b") :].partition(stop)[0]
    assert len(stdout_of(home, "translate", "translator", "a b", *GREEDY, "--max-length", 2).split()) <= 2
    assert len(stdout_of(home, "translate", "translator", "a b", *GREEDY, "--min-length", 6).split()) >= 6


@pytest.mark.parametrize(
    ("command", "run", "strategy"),
    [
        ("generate", "writer", SAMPLE),
        pytest.param("generate", "writer", GREEDY, marks=pytest.mark.slow),
        *(pytest.param("translate", "translator", strategy, marks=pytest.mark.slow) for strategy in (GREEDY, SAMPLE)),
    ],
)
def test_a_stream_is_the_same_text(home, command, run, strategy):
    texts = ("a b", "c d e")
    assert stdout_of(home, command, run, *texts, *strategy, "--stream") == stdout_of(
        home, command, run, *texts, *strategy
    )


@pytest.mark.parametrize(
    ("command", "run"), [pytest.param("translate", "translator", marks=pytest.mark.slow), ("generate", "writer")]
)
def test_a_file_standard_input_and_texts_give_the_same(home, command, run):
    lines = (home / "in.txt").read_text().splitlines()
    of_file = stdout_of(home, command, run, "--file", "in.txt", *SAMPLE)
    assert stdout_of(home, command, run, *SAMPLE, stdin="\n".join(lines) + "\n") == of_file
    assert stdout_of(home, command, run, *lines, *SAMPLE) == of_file
    stdout_of(home, command, run, "--file", "in.txt", "--out", "out.txt", "--batch-tokens", 40, *SAMPLE)
    assert (home / "out.txt").read_text() == of_file
    stdout_of(home, command, run, "--file", "in.txt", "--out", "out.json", "--json", *SAMPLE)
    answers = [json.loads(line) for line in (home / "out.json").read_text().splitlines()]
    assert [answer["text"] for answer in answers] == of_file.splitlines()
    assert [answer["line"] for answer in answers] == list(range(1, len(lines) + 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n-best", 2, *GREEDY], "--strategy greedy returns one text"),
        (["--n-best", 4, *BEAM], "--n-best 4 is more than --beam-size 3"),
        (["--min-p", 0.1, *GREEDY], "--min-p has no effect with --strategy greedy"),
        (["--coverage-penalty", 0.1, *SAMPLE], "--coverage-penalty has no effect with --strategy sample"),
        (["--json", "--scores"], "JSON includes the scores"),
        (["--workers", 2], "--workers is for a file that is processed line by line"),
        (["--fresh"], "--fresh is for a file that is processed line by line"),
        (["--stream", *GREEDY, "--scores"], "--stream cannot be combined with --scores"),
        (["--stream", *BEAM], 'Use the strategy "greedy" or "sample"'),
        (["--stream", *GREEDY, "--file", "in.txt"], "both a text and --file in.txt were given"),
        (["--stream", *GREEDY, "--workers", 2], "--workers is for a file that is processed line by line"),
        (["--stop", ""], "--stop is empty"),
        (["--min-length", 5, "--max-length", 4], "--min-length 5 is more than the maximum of 4 tokens"),
        (["--prefix", "a zebra"], "--prefix a zebra cannot be generated: ['zebra'] is not in the vocabulary"),
        (["--out", "out.gz"], "out.gz ends with .gz"),
        (["--choice", "zebra"], "the choice 'zebra' cannot be generated"),
        (["--dtype", "float8"], "there is no --dtype float8"),
        (["--engine", "nump"], "Did you mean 'numpy'"),
        (["--file", "in.txt"], "both a text and --file in.txt were given"),
        (["--skip-errors"], "--skip-errors is for a file that is processed line by line"),
        (["caf\udce9"], r"TEXT is not UTF-8: 'caf\udce9'"),
        (["--prefix", "caf\udce9"], r"--prefix is not UTF-8: 'caf\udce9'"),
        (["--choice", "a", "--choice", "\udce9"], "--choice is not UTF-8"),
    ],
)  # fmt: skip
def test_errors(home, arguments, message):
    assert message in fails(home, "translate", "translator", "a b", *arguments)


@pytest.mark.parametrize(
    "arguments",
    [("trace", "translator", "\udce9"), ("mask", "translator", "\udce9"), ("figures", "translator", "\udce9"),
     ("explore", "translator", "--export", "page.html", "--text", "\udce9"), ("embed", "translator", "\udce9")],
)  # fmt: skip
def test_text_that_is_not_utf_8_is_rejected(home, arguments):
    assert "is not UTF-8" in fails(home, *arguments)


def test_a_beam_that_cannot_be_streamed_prints_nothing(home):
    result = run_cutaway("generate", "writer", "a b", "--stream", *BEAM, cwd=home)
    assert (result.returncode, result.stdout) == (1, "")


def test_embed_rejects_file_options_without_a_file(home):
    message = fails(home, "embed", "translator", "a", "b", "--similar", "--workers", 2)
    assert "--workers is for a file" in message


def test_unknown_words_are_reported(home):
    (home / "odd.txt").write_text("a b\na zebra\nthe zebra b\n")
    for arguments, stdin in ((("--file", "odd.txt"), ""), ((), (home / "odd.txt").read_text())):
        result = run_cutaway("translate", "translator", *arguments, *GREEDY, cwd=home, stdin=stdin)
        assert "Note: 2 lines have words that are not in this model's vocabulary, such as zebra, the" in result.stderr
    lines = stdout_of(home, "translate", "translator", "--file", "odd.txt", "--json", *GREEDY).splitlines()
    assert [json.loads(line).get("unknown") for line in lines] == [None, ["zebra"], ["the", "zebra"]]
    assert "Note" not in run_cutaway("generate", "writer", "--file", "odd.txt", *GREEDY, cwd=home).stderr


def test_a_dash_means_standard_input_and_output(home):
    expected = stdout_of(home, "translate", "translator", "a b", *GREEDY)
    assert stdout_of(home, "translate", "translator", "--file", "-", "--out", "-", *GREEDY, stdin="a b\n") == expected
    assert not (home / "-").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")
@pytest.mark.parametrize("arguments", [("a b",), ("--file", "in.txt")])
def test_a_full_disk_is_reported(home, arguments):
    with open("/dev/full", "w") as full:
        work = subprocess.run(
            [sys.executable, "-m", "cutaway", "translate", "translator", *arguments],
            cwd=home, stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert work.returncode == 1
    assert " ".join(work.stderr.split()).startswith("error: the output cannot be written: No space left on device.")
    assert len(work.stderr.splitlines()) <= 2


def test_choices_of_a_sampling_run_use_beam_search(home):
    """With --strategy sample, each seed has its own choice."""
    made = untrained_pipeline("decoder")
    made.config = dataclasses.replace(made.config, decode=dataclasses.replace(made.config.decode, strategy="sample"))
    save_run(made, home / "sampling")
    choices = ("--choice", "a b", "--choice", "c", "--choice", "d e f")
    best = stdout_of(home, "generate", "sampling", "a", *choices, "--scores")
    likeliest = stdout_of(home, "generate", "writer", "a", *choices, *BEAM, "--length-penalty", 0, "--scores")
    assert best == likeliest
    sampled = {
        stdout_of(home, "generate", "sampling", "a", *choices, "--strategy", "sample", "--seed", i) for i in range(8)
    }
    assert len(sampled) > 1


def test_a_line_that_is_too_long_is_reported_or_skipped(home):
    (home / "long.txt").write_text("a b\n" + " ".join("a" * 40) + "\nc\n")
    message = fails(home, "generate", "writer", "--file", "long.txt", "--out", "long.out")
    assert "long.txt, line 2: the prompt has 41 tokens" in message
    assert "--skip-errors" in message
    result = run_cutaway("generate", "writer", "--file", "long.txt", "--out", "long.out", "--skip-errors", cwd=home)
    assert "1 line failed. The first, line 2:" in " ".join(result.stderr.split())
    lines = (home / "long.out").read_text().splitlines()
    assert [bool(line) for line in lines] == [True, False, True]


LONG = "a b\n" + " ".join("a" * 40) + "\nc\n"


def test_a_line_of_standard_input_that_is_too_long_is_reported_or_skipped(home):
    message = fails(home, "generate", "writer", stdin=LONG)
    assert "standard input, line 2: the prompt has 41 tokens" in message
    assert "--skip-errors" in message
    result = run_cutaway("generate", "writer", "--skip-errors", cwd=home, stdin=LONG)
    assert [bool(line) for line in result.stdout.splitlines()] == [True, False, True]
    assert "1 line failed. The first, line 2:" in " ".join(result.stderr.split())


@pytest.mark.parametrize("way", [pytest.param("file", marks=pytest.mark.slow), "standard input"])
def test_a_skipped_line_is_json_with_json(home, way):
    (home / "long.txt").write_text(LONG)
    arguments = ("--file", "long.txt") if way == "file" else ()
    lines = stdout_of(
        home, "generate", "writer", *arguments, "--json", "--skip-errors", *GREEDY, stdin=LONG
    ).splitlines()
    answers = [json.loads(line) for line in lines]
    assert [answer["line"] for answer in answers] == [1, 2, 3]
    assert list(answers[1]) == ["line", "error"]
    assert answers[1]["error"].startswith("the prompt has 41 tokens")
    best = stdout_of(home, "generate", "writer", *arguments, "--n-best", 2, "--skip-errors", *BEAM, stdin=LONG)
    assert [line.split("\t")[0] for line in best.splitlines()] == ["1", "1", "3", "3"]


def test_a_file_of_code_is_tagged_as_a_whole(home):
    made = untrained_pipeline("encoder", head="tags")
    made.config = dataclasses.replace(made.config, data=dataclasses.replace(made.config.data, corpus="python:tags"))
    save_run(made, home / "tagger")
    write_json(RunFolder(home / "tagger").labels, list(made.labels))
    RunFolder(home / "tagger").seal()
    assert stdout_of(home, "tag", "tagger", "--file", "in.txt")
    assert "--workers has no effect: a file of code is tagged as a whole" in fails(
        home, "tag", "tagger", "--file", "in.txt", "--workers", 2
    )
    assert "--colour is for a terminal" in fails(home, "tag", "tagger", "a b", "--colour", "--out", "tags")
    assert not (home / "tags").exists()


def test_the_rate_counts_lines_of_this_process(monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr("cutaway.cli.bulk_progress.time.monotonic", lambda: next(now) * 5.0)
    progress = BulkProgress("translate", hidden=True)
    progress(100, 1_000, 100)
    progress(460, 1_000, 400)  # 300 of them were finished by an earlier command
    (first, _), (last, _) = progress.recent[0], progress.recent[-1]
    assert progress.describe(460, 1_000).startswith(f"460 of 1,000 lines  {60 / (last - first):,.1f}/s")
    assert progress.done_here == 60


def test_an_interrupted_file_with_other_settings_is_rejected(home):
    write_text(home / "other.part", "")
    write_text(
        home / "other.journal", json.dumps({"lines": 0, "bytes": 0, "digest": "", "job": {"beam_size": 9}}) + "\n"
    )
    message = fails(home, "translate", "translator", "--file", "in.txt", "--out", "other")
    assert "other.part was started with other settings: beam_size was 9 and is" in message
    stdout_of(home, "translate", "translator", "--file", "in.txt", "--out", "other", "--fresh")
    assert not (home / "other.part").exists()


def process(home, *arguments, start=("-m", "cutaway"), **more):
    return subprocess.Popen(
        [sys.executable, *start, *map(str, arguments)],
        cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_pipe_ends_quietly(home, workers):
    (home / "many.txt").write_text("a b c d e f g\n" * 20_000)
    work = process(home, "translate", "translator", "--file", "many.txt", "--engine", "numpy", "--workers", workers)
    assert work.stdout.readline()
    work.stdout.close()
    assert work.wait(60) != 0
    text = work.stderr.read().decode()  # on a slow machine, progress lines
    assert not any(word in text for word in ("Traceback", "BrokenPipe", "error"))


@pytest.mark.slow
def test_ctrl_c_keeps_finished_lines(home):
    (home / "many.txt").write_text("a b c d e f g\n" * 100_000)
    command = (
        "translate",
        "translator",
        "--file",
        "many.txt",
        "--out",
        "many.out",
        "--engine",
        "numpy",
        "--workers",
        2,
    )
    work = process(home, *command)
    deadline = time.monotonic() + 30
    while not ((home / "many.out.part").exists() and (home / "many.out.part").stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(work.pid, signal.SIGINT)
    _, stderr = work.communicate(timeout=30)
    assert work.returncode == 130, stderr
    assert b"stopped. Finished lines are saved. Run the same command again to continue." in b" ".join(stderr.split())
    assert b"Traceback" not in stderr
    again = process(home, *command)
    while again.poll() is None and not (line := again.stderr.readline()):
        pass
    assert line.startswith(b"Resuming after the first ")
    again.kill()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0])
def test_ctrl_c_at_any_moment_gives_no_traceback(home, tmp_path, seconds):
    """The signal goes to the whole process group, as on a terminal. The time starts when our code is imported, because
    before that Python itself prints a traceback."""
    (tmp_path / "in.txt").write_text("a b c d e f g\n" * 100_000)
    arguments = ("--file", tmp_path / "in.txt", "--out", tmp_path / "out", "--workers", 2)
    begin = ("-c", "import cutaway; print('Python is up', flush=True); from cutaway.cli import main; main()")
    work = process(home, "translate", "translator", *arguments, start=begin, start_new_session=True)
    assert work.stdout.readline() == b"Python is up\n"
    time.sleep(seconds)
    os.killpg(work.pid, signal.SIGINT)
    _, stderr = work.communicate(timeout=30)
    assert b"Traceback" not in stderr, stderr
    assert work.returncode == 130
    assert not (tmp_path / "out").exists()
