"""Results of the lab in the book, and the sentence about a cell that fails."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USED = sorted(
    {
        name
        for page in (ROOT / "book").glob("*/*.md")
        for name in re.findall(r"^```\{lab\} (\S+)", page.read_text("utf-8"), re.MULTILINE)
    }
)


@pytest.fixture(autouse=True)
def extensions_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "book/_ext"))


@pytest.mark.parametrize("name", USED)
def test_a_page_shows_the_result_of_the_current_experiment(name):
    from lab_results import draw_results, read_results, result_table

    results = read_results(name)
    assert set(results["machine"]) == {"cpu", "cores", "torch", "python"}
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", results["date"])
    text = result_table(results).astext()
    for variant in results["variants"]:
        assert variant["name"] in text
    assert draw_results(results).axes


def test_the_pages_show_all_experiments():
    assert set(USED) == {path.stem for path in (ROOT / "experiments").glob("*.toml")}


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda results: results["seeds"].append(4), "seeds"),
        (lambda results: results["set"].update({"train.steps": 1}), "settings"),
        (lambda results: results["variants"].pop(), "variants"),
        (lambda results: results["variants"][1]["set"].update({"model.norm": "layer"}), "variants"),
    ],
)
def test_a_result_of_another_experiment_is_refused(tmp_path, monkeypatch, change, difference):
    import lab_results

    results = json.loads((ROOT / "book/results/lab/norms.json").read_text("utf-8"))
    change(results)
    (tmp_path / "norms.json").write_text(json.dumps(results), encoding="utf-8")
    monkeypatch.setattr(lab_results, "RESULTS", tmp_path)
    with pytest.raises(LookupError, match=rf"norms\.json has other {difference} than .* Run: cutaway lab norms"):
        lab_results.read_results("norms")
    with pytest.raises(LookupError, match="'no-mask' has no result in book/results/lab. Run: cutaway lab no-mask"):
        lab_results.read_results("no-mask")


def test_a_seed_that_diverged_has_no_value():
    from lab_results import mean_and_range

    runs = [
        {"diverged_at": None, "measures": {"cross-entropy": 0.5}},
        {"diverged_at": 30, "measures": {"cross-entropy": float("nan")}},
    ]
    assert mean_and_range({"runs": runs}, "cross-entropy") == "0.500 (0.500 to 0.500), 1 diverged"
    assert mean_and_range({"runs": runs[1:]}, "cross-entropy") == "diverged"


TRACEBACK = """nbclient.exceptions.CellExecutionError: An error occurred while executing the following cell:
------------------
a = 1
assert a == 2
------------------


\x1b[31m---------------------------------------------------------------------------\x1b[39m
\x1b[31mAssertionError\x1b[39m                            Traceback (most recent call last)
\x1b[36mCell\x1b[39m\x1b[36m \x1b[39m\x1b[32mIn[10]\x1b[39m\x1b[32m, line 2\x1b[39m
      1 a = 1
----> 2 assert a == 2

\x1b[31mAssertionError\x1b[39m: 
"""


def test_a_failing_cell_is_named_by_its_line():
    from failed_cells import describe_failure

    page = "# Page\n\n```{code-cell}\nb = 0\n```\n\n```{code-cell}\na = 1\nassert a == 2\n```\n"
    line, sentence = describe_failure(page, TRACEBACK)
    assert line == 9
    assert sentence.startswith("this cell fails: AssertionError at `assert a == 2`.")
    line, sentence = describe_failure(page, "nbclient.exceptions.DeadKernelError: Kernel died")
    assert (line, sentence) == (1, "a cell fails: nbclient.exceptions.DeadKernelError: Kernel died")
