"""The explorer as one file: with the model in it, or with all recorded answers, unchanged."""

import base64
import gzip
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
from helpers import small_recipe
from typer.testing import CliRunner

from cutaway.cli import app
from cutaway.errors import ConfigError, DataError
from cutaway.explore import web_export
from cutaway.explore.explorer import Explorer, ExplorerRequest
from cutaway.explore.export import (
    IMPORT,
    PAGE,
    answers_html,
    export_page,
    export_recorded_page,
    imported_modules,
    rewrite_imports,
)
from cutaway.explore.live import describe_run, part_names, stored_run, stored_snapshot
from cutaway.explore.recording import answer_key, choose_texts, drop_candidates
from cutaway.inference.training.setup import start_training
from cutaway.runs import RunFolder


@pytest.fixture(scope="module")
def explorer(tmp_path_factory):
    run = RunFolder(tmp_path_factory.mktemp("run") / "reverse")
    start_training(small_recipe(steps=4, snapshots=1), run).trainer.run()
    return Explorer([run.path], "cpu")


def unpack(page, name):
    return json.loads(gzip.decompress(base64.b64decode(re.search(rf'id="{name}">([^<]+)<', page)[1])))


def recorded_answers(page):
    return unpack(page, "recorded")


def weights_in(page, name):
    return safetensors.numpy.load(base64.b64decode(re.search(rf'id="{name}">([^<]+)<', page)[1]))


def test_a_page_has_the_model_and_what_the_browser_cannot_know(explorer, tmp_path):
    page = export_page(explorer, tmp_path / "p.html", ["a b c"], "float32", snapshots=True).read_text("utf-8")
    live, run = unpack(page, "live"), explorer.runs[0]
    [info], [described] = live["info"]["runs"], live["runs"]
    assert info["examples"] == ["a b c"]
    assert info["weights"] == "float32, exactly"
    assert page.index("This file is incomplete") < page.index("importmap")
    assert page.endswith('<i id="end" hidden></i></body></html>\n')
    names = list(part_names(info["parts"]))
    assert set(described["parts"]) == set(names)
    assert {"", "encoder.layers.0.self_attention.weights", "decoder.layers.0.cross_attention.k"} <= set(names)
    weights = described["parts"]["encoder.layers.0.self_attention.weights"]
    assert weights["equation"] == "weights = softmax(scores), 0 where masked"
    assert weights["outputs"] == [{"name": "result", "axes": ["B", "H", "Q", "K"]}]
    assert described["files"]["config.json"] == run.folder.config.read_text("utf-8")
    assert described["heads"]["rows"]
    original = safetensors.numpy.load_file(run.folder.weights)
    stored = weights_in(page, "weights-0")
    assert original.keys() == stored.keys()
    assert all(np.array_equal(stored[name], original[name]) for name in original)
    assert info["snapshots"] == run.snapshots
    for step in run.snapshots:
        earlier = safetensors.numpy.load_file(run.folder.snapshot(step))
        assert all(
            np.array_equal(earlier[name], array) for name, array in weights_in(page, f"weights-0-{step}").items()
        )
    without = page.replace('<script src="model.js">', "")  # in a message of the engine
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", without)


def test_a_page_without_snapshots_has_none(explorer, tmp_path):
    page = export_page(explorer, tmp_path / "p.html").read_text("utf-8")
    [info] = unpack(page, "live")["info"]["runs"]
    assert info["snapshots"] == []
    assert "weights-0-" not in page
    assert info["examples"] == explorer.runs[0].examples


def test_a_model_that_is_too_large_for_a_page(explorer, tmp_path, monkeypatch):
    monkeypatch.setattr(web_export, "MAX_WEIGHTS", 1000)
    with pytest.raises(ConfigError, match=r"a page can have 0 MB. Use --dtype int8, or --recorded for a page without"):
        export_page(explorer, tmp_path / "p.html")
    assert not (tmp_path / "p.html").exists()


def test_a_stored_snapshot_has_a_checksum(explorer):
    [step, *_] = explorer.runs[0].snapshots
    stored = stored_snapshot(explorer, 0, step, "int8")
    assert b'"sha256"' in stored[: 8 + int.from_bytes(stored[:8], "little")]


def test_gold_alignments_are_those_of_the_explorer(tmp_path):
    recipe, run = small_recipe(steps=2), RunFolder(tmp_path / "tiny")
    data = replace(recipe.data, corpus="tinyworld:en-fr", size=400, heldout_size=6, vocab_size=2000)
    start_training(replace(recipe, data=data), run).trainer.run()
    explorer = Explorer([run.path], "cpu")
    gold = describe_run(explorer, 0, stored_run(explorer, 0))["gold"]
    pairs = explorer.runs[0].gold.pairs
    assert gold.keys() == pairs.keys()
    traces = {
        source: explorer.trace(ExplorerRequest(source, target=pairs[source].target)) for source in list(pairs)[:9]
    }
    written = {source: trace for source, trace in traces.items() if trace["output"] == pairs[source].target}
    assert written  # the others have unknown words
    for source, trace in written.items():
        assert gold[source] == {name: trace[name] for name in ("reference", "gold", "syntax", "words")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--snapshots"], "--snapshots needs --export"),
        (["--recorded"], "--recorded needs --export"),
        (["--text", "a"], "--text needs --export"),
        (["--export", "x.html", "--recorded", "--dtype", "int8"], "Leave out --dtype and --snapshots"),
        (["--export", "x.html", "--dtype", "int4"], "--dtype int4 is unknown. Did you mean 'int8'?"),
        (["--export", "."], "is a folder. Give the name of a file."),
    ],
)
def test_options_that_do_not_fit(explorer, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["explore", str(explorer.runs[0].folder.path), *options])
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)
    assert not list(tmp_path.glob("*.html"))


def test_the_commands(explorer, tmp_path):
    run = str(explorer.runs[0].folder.path)
    result = CliRunner().invoke(app, ["explore", run, "--export", str(tmp_path / "p.html"), "--dtype", "int8"])
    assert result.exit_code == 0
    assert "It has the model in it" in result.output
    stored = r"int8, with a largest error of 0\.\d\d% of the row's largest weight"
    assert re.search(f"stored as {stored}\\.", " ".join(result.output.split()))
    assert re.fullmatch(stored, unpack((tmp_path / "p.html").read_text("utf-8"), "live")["info"]["runs"][0]["weights"])
    words = ["explore", run, "--export", str(tmp_path / "r.html"), "--recorded", "--text", "a b"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert recorded_answers((tmp_path / "r.html").read_text("utf-8"))["info"]["recorded"]


def test_a_page_has_every_view_of_its_texts(explorer, tmp_path):
    progress = []
    page = export_recorded_page(explorer, tmp_path / "p.html", ["a b c"], progress.append).read_text("utf-8")
    assert progress
    recorded = recorded_answers(page)
    found = recorded["answers"]
    request = {"text": "a b c"}
    assert found[answer_key("trace", request)]["output"] == explorer.trace(ExplorerRequest("a b c"))["output"]
    [run] = recorded["info"]["runs"]
    assert run["examples"] == ["a b c"]
    for switch in run["switches"]:
        assert answer_key("trace", {**request, "off": [switch["id"]]}) in found
    for step in run["snapshots"]:
        assert answer_key("trace", {**request, "snapshot": step}) in found
    names = [name for name, _ in explorer.runs[0].final.model.named_modules()]
    assert all(answer_key("part", {**request, "name": name}) in found for name in names)
    assert answer_key("heads", {"run": 0}) in found
    assert answer_key("ablations", request) in found
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)


def test_dropping_candidates_keeps_the_probabilities(explorer):
    [step, *_] = explorer.trace(ExplorerRequest("a b c"))["steps"]
    few = drop_candidates({**step, "tail": [[-3.0, 7]]})
    assert len(few["logits"]) == 12 < len(step["logits"])

    def total(step):
        return sum(map(math.exp, step["logits"])) + sum(count * math.exp(logit) for logit, count in step["tail"])

    assert total(few) == pytest.approx(total({**step, "tail": [[-3.0, 7]]}))


def test_every_import_of_the_page_can_be_rewritten():
    for file in PAGE.rglob("*.js"):
        code = file.read_text("utf-8")
        assert len(IMPORT.findall(code)) == len(re.findall(r"^(?:import|export \*) ", code, re.MULTILINE)), file.name
        assert '"./' not in re.sub(
            r'"\./\$', "", "".join(re.findall(r"^import .*", rewrite_imports(code, file), re.MULTILINE))
        )
    with pytest.raises(AssertionError, match="not on one line"):
        rewrite_imports('import {a,\n b} from "./x.js";', PAGE / "app.js")


def test_modules_are_named_by_their_path():
    code = 'import {h} from "../dom.js";\nimport {view} from "./map.js";\n'
    rewritten = rewrite_imports(code, PAGE / "views/heads.js")
    assert rewritten == 'import {h} from "cutaway/dom.js";\nimport {view} from "cutaway/views/map.js";\n'


def test_a_page_has_the_modules_that_it_needs():
    modules = set(imported_modules(PAGE / "app.js"))
    assert {PAGE / "app.js", PAGE / "dom.js", PAGE / "views/attention.js"} <= modules
    assert modules <= set(PAGE.rglob("*.js"))


def test_recorded_text_is_not_html_and_nan_becomes_null():
    page = answers_html({"x": "</script><script>alert(1)</script>", "y": math.nan})
    assert page.count("<script") == 1
    assert recorded_answers(page) == {"x": "</script><script>alert(1)</script>", "y": None}


def test_recording_needs_texts_or_examples():
    with pytest.raises(DataError, match="runs/x has no example texts. Give a text"):
        choose_texts({"path": "runs/x", "task": "translation", "examples": []}, [])
    with pytest.raises(DataError, match="runs/x: this run has no images"):
        choose_texts({"path": "runs/x", "task": "image_classification", "examples": []}, [])
