"""The explorer as one file: it has all recorded answers, unchanged."""

import base64
import gzip
import json
import math
import re

import pytest
from helpers import small_recipe

from cutaway.errors import DataError
from cutaway.explore.explorer import Explorer, ExplorerRequest
from cutaway.explore.export import (
    IMPORT,
    PAGE,
    answer_key,
    answers_html,
    choose_texts,
    drop_candidates,
    export_page,
    imported_modules,
    rewrite_imports,
)
from cutaway.inference.training.setup import start_training
from cutaway.runs import RunFolder


@pytest.fixture(scope="module")
def explorer(tmp_path_factory):
    run = RunFolder(tmp_path_factory.mktemp("run") / "reverse")
    start_training(small_recipe(steps=4, snapshots=1), run).trainer.run()
    return Explorer([run.path], "cpu")


def recorded_answers(page):
    return json.loads(gzip.decompress(base64.b64decode(re.search(r'id="recorded">([^<]+)<', page)[1])))


def test_a_page_has_every_view_of_its_texts(explorer, tmp_path):
    progress = []
    page = export_page(explorer, tmp_path / "p.html", ["a b c"], progress.append).read_text("utf-8")
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
        assert len(IMPORT.findall(code)) == len(re.findall(r"^import ", code, re.MULTILINE)), file.name
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
