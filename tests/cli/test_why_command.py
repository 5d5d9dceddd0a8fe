"""cutaway why from the command line, on tiny runs: a translator of tinyworld, a language model, a tagger."""

import dataclasses
import json
from importlib import import_module

import pytest
from helpers import run_cutaway as cutaway
from helpers import small_recipe, tiny_config, tiny_of

from cutaway.config import DataConfig
from cutaway.explore.ablation import ablation_targets
from cutaway.explore.causes import why
from cutaway.explore.causes.attribution import METHODS
from cutaway.explore.causes.benchmark import benchmark
from cutaway.explore.causes.grammar import tinyworld_pairs
from cutaway.explore.causes.probing import probe_grammar
from cutaway.inference.pipelines import Translator
from cutaway.inference.training.setup import start_training
from cutaway.runs import RunFolder

TINY = "runs/tinyworld"
TEXT, OTHER = "The small cat sleeps.", "The small dog sleeps."
TARGET = "Le petit chat dort."
SIZES = {"vocab_size": 0, "d_model": 16, "d_ff": 32, "max_length": 64}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    tinyworld = {
        "corpus": "tinyworld:en-fr",
        "tokenizer": "word",
        "size": 300,
        "heldout_size": 140,
        "batch_tokens": 1024,
    }
    runs = {
        "tinyworld": (tiny_config(**{**SIZES, "d_model": 32}, norm_placement="pre"), DataConfig(**tinyworld, max_tokens=64), 60),
        "generator": (tiny_of("decoder", **SIZES),
                      DataConfig(corpus="python", size=2, heldout_size=1, vocab_size=300, max_tokens=64, batch_tokens=256), 4),
        "tagger": (dataclasses.replace(tiny_of("encoder", **SIZES, head="tags"), n_classes=0),
                   DataConfig(corpus="python:tags", size=40, heldout_size=6, vocab_size=300, max_tokens=64,
                              batch_tokens=256), 4),
    }  # fmt: skip
    for name, (model, data, steps) in runs.items():
        recipe = small_recipe(steps=steps, valid_every=steps, save_every=steps, label_smoothing=0.0)
        config = dataclasses.replace(recipe, model=model, data=data)
        start_training(config, RunFolder(folder / "runs" / name)).trainer.run()
    return folder


@pytest.fixture(autouse=True)
def small_differences(monkeypatch):
    """These models hardly read their source yet."""
    monkeypatch.setattr("cutaway.explore.causes.patching.MIN_DIFFERENCE", 1e-7)


@pytest.fixture(scope="module")
def translator(home):
    return Translator.load(home / TINY, "cpu")


def explain(home, *arguments):
    result = cutaway("why", *arguments, cwd=home)
    assert result.returncode == 0, result.stderr
    return result


def test_a_text_is_explained_in_a_sentence_and_tables(home, translator):
    result = explain(home, TINY, TEXT, "--target", TARGET, "--token", "chat", "--not", "chien")
    lines = result.stdout.splitlines()
    found = why(translator, TEXT, "chat", "chien", target=TARGET)
    assert lines[0] == found.sentence
    assert lines[0].startswith("The model ")
    assert lines[2].split() == [
        "input",
        "token",
        "occlusion",
        "integr.",
        "grad.",
        "grad.",
        "×",
        "input",
        "attention",
        "rollout",
    ]
    first = found.attribution("occlusion").source[0]
    assert lines[3].split()[:2] == ["The", f"{first:+.2f}"]
    assert [line for line in lines if line.startswith("output so far")]
    assert lines[-1].split() == ["output", f"{found.margin:+.2f}"]
    assert "integrated gradients misses its target by" in result.stderr
    assert "Warning" not in result.stderr
    assert explain(home, TINY).stdout.startswith("The model ")  # an example of the data


def test_integrated_gradients_that_do_not_add_up_are_not_to_be_trusted(home, monkeypatch):
    monkeypatch.setattr("cutaway.explore.causes.attribution.MAX_PARTS", 0)
    monkeypatch.setattr("cutaway.explore.causes.attribution.LARGE_GAP", 1e-12)
    result = explain(home, TINY, TEXT)
    assert "do not trust the column of the integrated gradients" in result.stderr


def test_several_tokens_are_explained_together(home):
    terms = ["--token", "petit", "--token", "chat", "--not", "petite", "--not", "chien"]
    found = json.loads(explain(home, TINY, TEXT, "--target", TARGET, *terms, "--json").stdout)
    assert [term["step"] for term in found["terms"]] == [1, 2]
    assert (found["token"], found["rival"]) == ("petit chat", "petite chien")
    steps = ["--step", 1, "--step", 2, "--not", "petite", "--not", "chien"]
    assert json.loads(explain(home, TINY, TEXT, "--target", TARGET, *steps, "--json").stdout) == found


def test_json_has_what_the_library_has(home, translator):
    printed = json.loads(explain(home, TINY, TEXT, "--target", TARGET, "--step", 0, "--json").stdout)
    assert printed.pop("run") == TINY
    assert printed == json.loads(why(translator, TEXT, step=0, target=TARGET).to_json())


def test_parts_are_replaced_by_their_means(home, monkeypatch):
    monkeypatch.setattr(import_module("cutaway.cli.why"), "MEAN_TEXTS", 4)
    found = json.loads(explain(home, TINY, TEXT, "--mean", "--json").stdout)
    assert all(isinstance(part["mean_effect"], float) for part in found["parts"])
    result = explain(home, TINY, TEXT, "--mean")
    assert "with its mean" in result.stdout
    assert "With its mean over other texts in its place" in found["sentence"] or "No single head" in found["sentence"]
    assert "with its mean" not in explain(home, TINY, TEXT).stdout


def test_another_text_and_a_path(home, translator):
    parts = list(ablation_targets(translator.model))
    sender, receiver = parts[0], parts[-1]
    arguments = [TINY, TEXT, "--target", TARGET, "--token", "chat", "--not", "chien", "--other", OTHER]
    found = json.loads(explain(home, *arguments, "--path", sender, receiver, "--json").stdout)
    assert found["patching"]["margin"] == pytest.approx(found["margin"])
    assert [part["id"] for part in found["patching"]["parts"]] == parts
    result = explain(home, *arguments, "--path", sender, receiver)
    assert found["patching"]["sentence"] in result.stdout.splitlines()
    assert found["path"]["sentence"] in result.stdout.splitlines()
    assert "encoder: share restored" in result.stdout
    assert "cat→dog" in result.stdout
    assert "only from the first to the second" in result.stdout


@pytest.mark.parametrize("other", [(), ("--other", OTHER)])
def test_figures(home, other, tmp_path):
    result = explain(home, TINY, TEXT, *other, "--plot", tmp_path / "why.png")
    assert "Wrote" in result.stderr
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")


def test_heads(home):
    result = explain(home, TINY, "--heads", "--size", 10)
    found = json.loads(explain(home, TINY, "--heads", "--size", 10, "--json").stdout)
    assert result.stdout.splitlines()[0] == found["sentence"]
    assert "tokens lost" in result.stdout
    assert len(found["heads"]) == 12


def test_the_benchmark_from_end_to_end(home, translator, monkeypatch):
    found = benchmark(translator, tinyworld_pairs(translator), predictions=5)
    assert found._repr_html_().count("<table>") == 2
    results = found.as_json()
    assert results["predictions"] == sum(results["features"].values()) == 5
    for name in (*METHODS, "chance", "aligned word", "heads by effect"):
        assert len(results["curves"][name]["deletion"]) == len(results["curves"][name]["insertion"]) == 11
        assert 0 <= results["methods"][name]["insertion"] <= 1
    asked = []
    monkeypatch.setattr(
        "cutaway.explore.causes.benchmark.benchmark", lambda *given, **_: asked.append(given[2]) or found
    )
    printed = json.loads(explain(home, TINY, "--benchmark", "--size", 12, "--json").stdout)
    assert printed == {"run": TINY, **json.loads(json.dumps(results))}
    result = explain(home, TINY, "--benchmark")
    assert asked == [12, 300]
    assert result.stdout.startswith("5 predictions with known causes")
    assert result.stdout.count("top word is a cause") == 2


def test_the_probes_from_end_to_end(home, translator, monkeypatch):
    monkeypatch.setattr("cutaway.explore.causes.probing.ITERATIONS", 3)
    found = probe_grammar(translator, tinyworld_pairs(translator))
    assert {each.role for each in found} >= {"determiner", "noun"}
    assert found._repr_html_().count("<tr>") == len(found) + 1
    counts = []
    monkeypatch.setattr(
        "cutaway.explore.causes.probing.probe_grammar", lambda _, pairs: counts.append(len(pairs)) or found
    )
    printed = json.loads(explain(home, TINY, "--probes", "--json", "--size", 20).stdout)
    assert printed["probes"] == json.loads(json.dumps(found.as_json()))
    header, *rows = explain(home, TINY, "--probes").stdout.splitlines()[2:]
    assert header.split() == [
        "word",
        "feature",
        "embedding",
        "layer",
        "0",
        "layer",
        "1",
        "most",
        "frequent",
        "value",
        "test",
        "words",
    ]
    assert len(rows) == len(found)
    assert counts == [20, 140]


def test_other_tasks(home):
    code = "def f(x):\n    return x"
    assert explain(home, "runs/generator", code).stdout.startswith("The model ")
    assert "attention, head" in explain(home, "runs/generator", "--heads", "--size", 10).stdout
    assert explain(home, "runs/tagger", "def f", "--step", 1).stdout.startswith("The model ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs/nothing"], "there is no run folder 'runs/nothing'"),
        ([TINY, TEXT, "--not", "zzz"], "the model has no token 'zzz'. A word can be several tokens"),
        (
            [TINY, TEXT, "--target", TARGET, "--token", "grand"],
            "'grand' is not in the output: Le petit chat dort . </s>.",
        ),
        ([TINY, TEXT, "--target", TARGET, "--step", "9"], "there is no step 9. The output has the steps 0 to 5"),
        ([TINY, TEXT, "--target", TARGET, "--token", "chat", "--not", "chat"], "token and rival are both 'chat'"),
        ([TINY, TEXT, "--token", "a", "--token", "b", "--not", "c"], "2 tokens, 1 rivals and 0 steps"),
        ([TINY, TEXT, "--other", "The dog."], "Patching compares position by position"),
        ([TINY, TEXT, "--other", TEXT], "no difference to explain"),
        ([TINY, TEXT, "--path", "a", "b"], "Give the second one with --other"),
        ([TINY, TEXT, "--other", OTHER, "--path", "a", "b"], "this model has no part 'a'"),
        ([TINY, TEXT, "--plot", "why.txt"], "--plot why.txt has no known format"),
        ([TINY, TEXT, "--heads"], "--heads, --benchmark and --probes stand alone"),
        ([TINY, "--heads", "--probes"], "--heads, --benchmark and --probes stand alone"),
        ([TINY, "--probes", "--size", "10"], "10 sentences are too few to test a probe"),
        (["runs/generator", "--benchmark"], "translators of tinyworld only. This run has the task 'language_model'"),
        (["runs/generator", "--probes"], "translators of tinyworld only"),
        (["runs/tagger", "--benchmark"], "This run has the task 'tagging' and the corpus 'python:tags'"),
        (["runs/tagger", "--heads"], "tokens are lost by models that generate text"),
        (["runs/tagger", "def f", "--target", "x"], "generates no text, so it takes no target"),
    ],
)
def test_errors(home, arguments, message):
    result = cutaway("why", *arguments, cwd=home)
    assert result.returncode == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) <= 2
    assert len(result.stderr) < 500
    assert "Traceback" not in result.stderr
