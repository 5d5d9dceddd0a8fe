"""The page in one file: what it holds, and that nothing is lost on the way."""

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
    choose_texts,
    drop_candidates,
    embedded,
    export_page,
    named_imports,
)
from cutaway.inference.training.setup import start_training
from cutaway.runs import RunFolder


@pytest.fixture(scope="module")
def explorer(tmp_path_factory):
    run = RunFolder(tmp_path_factory.mktemp("run") / "reverse")
    start_training(small_recipe(steps=4, snapshots=1), run).trainer.run()
    return Explorer([run.path], "cpu")


def unpacked(page):
    return json.loads(gzip.decompress(base64.b64decode(re.search(r'id="recorded">([^<]+)<', page)[1])))


def test_a_page_holds_every_view_of_its_texts(explorer, tmp_path):
    told = []
    page = export_page(explorer, tmp_path / "p.html", ["a b c"], told.append).read_text("utf-8")
    assert told
    recorded = unpacked(page)
    found = recorded["answers"]
    asked = {"text": "a b c"}
    assert found[answer_key("trace", asked)]["output"] == explorer.trace(ExplorerRequest("a b c"))["output"]
    [run] = recorded["info"]["runs"]
    assert run["examples"] == ["a b c"]
    for switch in run["switches"]:
        assert answer_key("trace", {**asked, "off": [switch["id"]]}) in found
    for step in run["snapshots"]:
        assert answer_key("trace", {**asked, "snapshot": step}) in found
    names = [name for name, _ in explorer.runs[0].final.model.named_modules()]
    assert all(answer_key("part", {**asked, "name": name}) in found for name in names)
    assert answer_key("heads", {"run": 0}) in found
    assert answer_key("ablations", asked) in found
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)


def test_fewer_candidates_are_as_likely_as_before(explorer):
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
        assert '"./' not in re.sub(r'"\./\$', "", "".join(re.findall(r"^import .*", named_imports(code), re.MULTILINE)))
    with pytest.raises(AssertionError, match="a line of its own"):
        named_imports('import {a,\n b} from "./x.js";')


def test_no_text_can_break_out_and_no_nan_gets_in():
    page = embedded({"x": "</script><script>alert(1)</script>", "y": math.nan})
    assert page.count("<script") == 1
    assert unpacked(page) == {"x": "</script><script>alert(1)</script>", "y": None}


def test_without_texts_and_examples_there_is_nothing_to_record():
    with pytest.raises(DataError, match="no example sentences at hand"):
        choose_texts({"path": "runs/x", "task": "translation", "examples": []}, [])
    with pytest.raises(DataError, match="runs/x: this run has no pictures at hand"):
        choose_texts({"path": "runs/x", "task": "image_classification", "examples": []}, [])
