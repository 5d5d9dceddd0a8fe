"""Lists, comparisons, diagnoses and reports of runs, mostly of run folders that were not trained."""

import base64
import dataclasses
import gzip
import html
import json
import os
import re
import time
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
from helpers import small_recipe
from typer.testing import CliRunner

from cutaway.cli import app, summary
from cutaway.cli.evaluate import save_scores
from cutaway.cli.figures import FIGURES
from cutaway.cli.runs import sparkline
from cutaway.config import Config, DataConfig, ModelConfig, TrainConfig
from cutaway.errors import ConfigError, RunError
from cutaway.explore.charts import Scale, downsample, line_chart
from cutaway.explore.recording import answer_key
from cutaway.explore.run_report import write_run_report
from cutaway.inference.evaluation import class_figures
from cutaway.inference.pipelines import Translator
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes, write_json, write_text
from cutaway.runs.summary import count_parameters, read_scores, summarize
from cutaway.runs.weights import seal_weights


def make_run(folder, losses=(3.0, 2.0, 1.5), steps=300, planned=300, weights=True, **settings):
    """A run folder like that of a training, without training."""
    run = RunFolder(folder)
    config = Config(
        model=ModelConfig(vocab_size=30),
        data=DataConfig(corpus="reverse", size=50, heldout_size=10, tokenizer="word", max_tokens=64),
        train=TrainConfig(steps=planned, **{"warmup": 10, **settings}),
    )
    write_text(run.config, config.to_json())
    for i, loss in enumerate(losses):
        step = steps * (i + 1) // len(losses)
        run.append_metrics(
            {"step": step, "loss": loss, "nll": loss, "lr": 1e-3, "gradient_norm": 0.5, "tokens": 1000 * step,
             "seconds": step / 10}
        )  # fmt: skip
        sample = {"given": "a <b>", "written": f"b at {step}", "right": "<b> a"}
        run.append_metrics(
            {"step": step, "valid_loss": loss + 0.01, "valid_accuracy": 1 - loss / 10, "samples": [sample]}
        )
    if weights:
        write_bytes(run.weights, seal_weights(safetensors.numpy.save({"a": np.ones((3, 4)), "b": np.ones(5)})))
    return run


def cutaway(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def home(tmp_path, monkeypatch):
    """runs/ with one run in each state."""
    monkeypatch.chdir(tmp_path)
    make_run("runs/whole")
    stopped = make_run("runs/stopped", losses=(3.0, 2.5), planned=1000, steps=430)
    stopped.checkpoint(430).mkdir(parents=True)
    stopped.set_pointer("latest", stopped.checkpoint(430))
    make_run("runs/diverged", losses=(3.0, float("nan")), planned=1000)
    make_run("runs/patient", losses=(3.0, 1.0, 2.0, 2.0), planned=1000, patience=2)
    (tmp_path / "runs/broken").mkdir()
    (tmp_path / "runs/broken/config.json").write_text("{")
    cut = make_run("runs/cut")
    cut.weights.write_bytes(cut.weights.read_bytes()[:-8])
    (tmp_path / "runs/notes.txt").write_text("not a run")
    return tmp_path


def test_all_runs_with_their_state(home):
    table = json.loads(cutaway("runs", "--json").stdout)["runs"]
    states = {row["name"]: row["state"] for row in table}
    assert states == {
        "whole": "finished", "stopped": "stopped", "diverged": "diverged", "patient": "ended early", "broken": "damaged",
        "cut": "damaged",
    }  # fmt: skip
    whole = next(row for row in table if row["name"] == "whole")
    assert (whole["parameters"], whole["steps"], whole["best_step"]) == (17, 300, 300)
    assert whole["valid_loss"] == pytest.approx(1.51)
    assert whole["tokens_per_second"] == pytest.approx(10_000)
    text = cutaway("runs").output
    assert "stopped at 43%, resumable" in text
    assert "broken is damaged: runs/broken/config.json is damaged" in text
    assert "\x1b" not in text  # plain when piped
    assert "▁" not in text


def test_a_locked_run_is_running(home):
    run = RunFolder("runs/stopped")
    with run.lock():
        assert summarize(run).state_text == "running, at 43%"
    assert summarize(run).state == "stopped"


def test_a_run_without_a_lock_is_running_if_it_was_written_recently(home):
    run = make_run("runs/twin", planned=1000)
    assert summarize(run).state == "running"
    old = time.time() - 1000
    for file in (run.metrics, run.config):
        os.utime(file, (old, old))
    assert summarize(run).state == "stopped"


def test_sorted_and_filtered(home):
    by_loss = json.loads(cutaway("runs", "--json", "--sort", "loss", "--task", "translation").stdout)["runs"]
    assert [row["name"] for row in by_loss] == ["patient", "whole", "stopped", "diverged"]
    with pytest.raises(RunError, match=r"none of the 6 runs in 'runs' is for --task tagging. Tasks: translation"):
        cutaway("runs", "--task", "tagging")
    with pytest.raises(ConfigError, match="--sort sise is not a column. Did you mean 'size'"):
        cutaway("runs", "--sort", "sise")
    with pytest.raises(RunError, match="there is no run folder 'runs/hole'. Runs in 'runs': broken"):
        cutaway("runs", "hole")


def test_no_runs_at_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="there are no runs in 'runs'. Train one with `cutaway demo`"):
        cutaway("runs")


def test_compared_side_by_side(home):
    make_run("runs/longer", losses=(3.0, 1.0), steps=600, planned=600)
    text = cutaway("runs", "whole", "longer").stdout  # names are enough
    lines = {line.split("  ")[0]: line.split()[-2:] for line in text.splitlines() if line.strip()}
    assert lines["train.steps"] == ["300", "600"]
    assert lines["valid loss"] == ["1.5100", "1.0100"]
    assert "train.warmup" not in lines  # the same in both
    found = json.loads(cutaway("runs", "runs/whole", "runs/longer", "--json").stdout)
    assert found["differing"] == {"train.steps": [300, 600]}
    one = cutaway("runs", "whole").output
    assert "compared" not in one
    assert re.search(r"data.corpus +reverse", one)


def test_losses_of_other_data_cannot_be_compared(home):
    other = RunFolder("runs/other")
    config = RunFolder("runs/whole").read_config()
    write_text(
        other.config, dataclasses.replace(config, data=dataclasses.replace(config.data, corpus="sort")).to_json()
    )
    assert "the losses cannot be compared" in cutaway("runs", "whole", "other").output


@pytest.mark.slow
def test_curves_of_several_runs_in_one_figure(home):
    cutaway("runs", "whole", "stopped", "--plot", "compare.svg")
    assert "<svg" in (home / "compare.svg").read_text("utf-8")


def test_an_unknown_format_of_a_figure(home):
    with pytest.raises(ConfigError, match=r"Use .png, .svg or .pdf"):
        cutaway("runs", "whole", "--plot", "compare.docx")


def test_a_sparkline():
    assert sparkline([3, 2, 1]) == "█▅▁" or sparkline([3, 2, 1]) == "█▄▁"
    assert sparkline([]) == ""
    assert sparkline([1, 1]) == "▁▁"
    assert len(sparkline(range(1000), width=24)) == 24


def test_doctor_prints_problems_and_exits_with_3(home):
    make_run("runs/heart", losses=(3.0, 1.0, 0.5))
    run = RunFolder("runs/heart")
    run.append_metrics({"step": 300, "valid_loss": 5.3})
    result = cutaway("doctor", "runs/heart", code=3)
    assert "problem  Overfitting: the model memorizes the training data." in result.stdout
    assert "validation loss 5.300" in result.stdout
    found = json.loads(cutaway("doctor", "runs/heart", "--json", "--no-data", code=3).stdout)
    assert "overfitting" in [finding["check"] for finding in found["findings"]]
    assert found["valid_loss"] == pytest.approx(0.51)
    fine = cutaway("doctor", "runs/whole", "--no-data")
    assert "Passed: " in fine.stdout
    assert "Not checked: leakage, small validation, unknown tokens" in fine.stdout
    assert ", because the data was not read." in fine.stdout
    with pytest.raises(RunError, match="there is no run folder 'runs/no'"):
        cutaway("doctor", "runs/no")


def test_the_report_is_one_page_with_escaped_text(home):
    run = make_run("runs/paged", weights=False)
    write_json(run.scores, {"bleu": 31.5, "bleu_signature": "case:mixed|tok:13a"})
    page = write_run_report(run, []).read_text("utf-8")
    assert "<b> a" not in page
    assert "&lt;b&gt; a" in page
    assert "b at 100" in page
    assert "BLEU on the test data" in page
    assert page.count("<svg") == 5  # loss, accuracy, rate, gradient norm, speed
    assert not re.search(r'(src|href)="?http|@import|<script', page)
    assert "prefers-color-scheme: dark" in page


def test_the_report_of_a_trained_run_contains_the_explorer(tmp_path):
    from cutaway.inference.training.setup import start_training

    run = RunFolder(tmp_path / "run")
    start_training(small_recipe(steps=4, samples=2), run).trainer.run()
    page = cutaway("runs", run.path, "--report")
    assert f"The report: {run.report}" in page.output
    page = run.report.read_text("utf-8")
    packed = re.search(r'<script type="application/gzip" id="recorded">([^<]+)</script>', page)[1]
    recorded = json.loads(gzip.decompress(base64.b64decode(packed)))
    [shown] = recorded["info"]["runs"]
    assert len(shown["examples"]) == 2
    for text in shown["examples"]:
        trace = recorded["answers"][answer_key("trace", {"text": text})]
        assert trace["output"] == Translator.load(run.path, "cpu").translate([text])[0]
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)  # no external resources
    assert summarize(run).parameters == count_parameters(run) > 1000


def test_an_error_in_the_report_is_a_note(home, monkeypatch, capsys):
    def fails(run, diagnosis):
        raise ValueError("no space")

    monkeypatch.setattr(summary, "write_report", fails)
    summary.summarize_training(RunFolder("runs/whole"))
    assert "the run is trained and saved, but its report could not be written: ValueError('no space')" in (
        capsys.readouterr().err
    )


def test_the_end_of_a_training_prints_problems(home, capsys):
    run = make_run("runs/heart", losses=(3.0, 1.0, 0.5))
    run.append_metrics({"step": 300, "valid_loss": 5.3})
    run.weights.unlink()
    summary.summarize_training(run)
    printed = capsys.readouterr().err
    assert "problem: Overfitting: the model memorizes the training data. Training loss" in printed
    assert "More:  cutaway doctor runs/heart" in printed
    assert "The report: runs/heart/report.html" in printed


def leaking_run(path: str) -> RunFolder:
    """A run with half of its validation sentences in the training data."""
    run = make_run(path, losses=(3.0, 1.0, 0.9))
    files = {"train": [f"cat number {i}" for i in range(40)], "valid": ["cat number 1", "a new one"]}
    for name, lines in files.items():
        for side in ("a", "b"):
            (run.path.parent / f"{name}.{side}").write_text("\n".join(lines), encoding="utf-8")
    config = run.read_config()
    files = {"train": ("train.a", "train.b"), "valid": ("valid.a", "valid.b")}
    data = DataConfig(root=str(run.path.parent), tokenizer="word", max_tokens=64, **files)
    write_text(run.config, dataclasses.replace(config, data=data).to_json())
    run.weights.unlink()
    return run


def test_report_and_doctor_have_the_same_findings(home, capsys):
    """The end of a training prints them as well."""
    run = leaking_run("runs/leaks")
    summary.summarize_training(run)
    assert "problem: Held-out examples are in the training data. 1 of 2 validation" in capsys.readouterr().err
    page = html.unescape(re.sub("<[^>]+>", "", run.report.read_text("utf-8")))
    found = json.loads(cutaway("doctor", "runs/leaks", "--json", code=3).stdout)
    assert "leakage" in [finding["check"] for finding in found["findings"]]
    for finding in found["findings"]:
        assert finding["title"] in page
        assert finding["evidence"] in page
    for sentence in (*found["in_order"], *(why.rstrip(".") for why in found["not_checked"].values())):
        assert sentence in page


def test_the_report_names_a_large_corpus_that_was_not_read(home, capsys, monkeypatch):
    run = leaking_run("runs/large")
    monkeypatch.setattr("cutaway.data.store.IN_MEMORY", 10)
    summary.summarize_training(run)
    assert "Held-out" not in capsys.readouterr().err
    page = html.unescape(run.report.read_text("utf-8"))
    assert "Not checked: leakage" in page
    assert "because the data is large. `cutaway doctor runs/large` reads it." in page
    cutaway("runs", "runs/large", "--report")  # reads the data
    assert "Held-out examples are in the training data" in html.unescape(run.report.read_text("utf-8"))


def test_findings_are_printed_even_if_the_report_fails(home, capsys, monkeypatch):
    def fails(run, diagnosis):
        raise OSError("disk full")

    monkeypatch.setattr(summary, "write_report", fails)
    summary.summarize_training(leaking_run("runs/full"))
    printed = capsys.readouterr().err
    assert "problem: Held-out examples" in printed
    assert "disk full" in printed


def test_the_confusion_matrix_is_in_the_report_and_in_a_figure(home):
    run = make_run("runs/classes", weights=False)
    found = class_figures(["<a>", "b", "b"], ["<a>", "<a>", "b"])
    save_scores(run, "test", 3, found)
    page = write_run_report(run, []).read_text("utf-8")
    assert page.count("<svg") == 6
    assert "Confusion matrix" in page
    assert "66.7%" in page
    assert "<a>" not in page.replace("&lt;a&gt;", "")
    assert "counts" not in cutaway("runs", "runs/classes").stdout
    subject = SimpleNamespace(run=run)
    assert len(FIGURES["confusion"].draw(subject).axes) == 2
    write_json(run.scores, {"accuracy": 0.5})
    assert FIGURES["confusion"].draw(subject) is None
    run.scores.unlink()


def test_scores_of_several_splits_are_saved(home):
    run = RunFolder("runs/whole")
    save_scores(run, "test", 10, {"bleu": 30.0})
    save_scores(run, "valid", 20, {"bleu": 31.0})
    assert read_scores(run) == {"examples": 10, "bleu": 30.0, "valid_examples": 20, "valid_bleu": 31.0}
    assert "30.0 BLEU" in cutaway("runs").stdout


def test_charts_of_unusual_numbers():
    assert Scale([1, 900], 0, 100, logarithmic=True).ticks() == [1, 10, 100]
    assert Scale([0.21, 0.24], 0, 100, logarithmic=True).ticks() == pytest.approx([0.21, 0.22, 0.23, 0.24])
    assert Scale([5], 0, 100)(5) == 50
    assert "NaN" not in line_chart([], "nothing")
    spike = [(i, 9.0 if i == 5000 else 1.0) for i in range(10_000)]
    assert len(downsample(spike)) <= 400
    assert (5000, 9.0) in downsample(spike)
