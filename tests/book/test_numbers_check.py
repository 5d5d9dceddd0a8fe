"""The check for numbers without a source."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def problems(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "book/_ext"))
    from numbers_check import unsourced

    return lambda text: list(unsourced(text))


@pytest.mark.parametrize(
    "result",
    ["It reaches 27.3 BLEU.", "It has 65,000,000 parameters.", "It is 3 times as fast.", "12 % of the weight", "It takes 3 minutes.",
     "It has 65 million parameters.", "It has 65 M.", "It reaches BLEU 28.",
     "| model | BLEU |\n|---|---|\n| base | 27.3 |", "- first\n- 20 MB of memory"],
)  # fmt: skip
def test_a_number_that_looks_like_a_result_needs_a_source(problems, result):
    assert len(problems(f"# Title\n\n{result}\n")) == 1
    assert not problems(f"# Title\n\n<!-- source: Vaswani et al. 2017 -->\n{result}\n")


@pytest.mark.parametrize(
    "text",
    ["See section 3.2.1, table 3 and equation 1.", "Python 3.11 or newer; Llama 3.1; arXiv 1706.03762", "The shape is [2,4,512].",
     "`dropout = 0.1`", "$\\beta_2 = 0.98$", "A batch of 2 texts with 4 tokens and 8 heads.", "8 × 8 pixels", "# 3.5 Positions",
     "```python\nlr = 0.1\n```", "[0.1](page-0.1.md)"],
)  # fmt: skip
def test_names_code_and_shapes_are_not_results(problems, text):
    found = problems(text)
    assert not found or text.startswith("[0.1]")  # the text of a link is prose


def test_the_line_is_that_of_the_paragraph(problems):
    assert problems("# A\n\ntext\n\n```\n0.5\n```\n\nIt is 0.5.\n")[0][0] == 9


def test_a_source_counts_for_one_paragraph_only(problems):
    text = "<!-- source: Shaw et al. 2018 -->\nIt is 0.5.\n\nIt is 0.6.\n"
    assert [line for line, _ in problems(text)] == [4]


def test_a_number_must_be_in_the_file_that_it_names(problems):
    page = "<!-- source: recipes/demo.toml -->\nThe demo trains {} sentences.\n"
    size = next(line for line in (ROOT / "recipes/demo.toml").read_text().splitlines() if line.startswith("size"))
    number = int(size.split("=")[1].split("#")[0])
    assert not problems(page.format(f"{number:,}"))
    assert problems(page.format("123,456"))[0][1] == "123456 not found in recipes/demo.toml."


def test_a_number_must_be_in_the_named_section_of_the_log(problems, monkeypatch, tmp_path):
    import numbers_check

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/log.md").write_text("# Log\n\n## The demo, twice\n\n98.02 BLEU\n\n## Other\n\n1,234.5\n")
    monkeypatch.setattr(numbers_check, "ROOT", tmp_path)
    assert not problems("<!-- source: log.md#the-demo-twice -->\nIt has 98.02 BLEU.\n")
    assert problems("<!-- source: log.md#other -->\nIt has 98.02 BLEU.\n")
    assert not problems("<!-- source: log.md#the-demo-twice; log.md#other -->\n98.02 and 1,234.5\n")
    assert problems("<!-- source: log.md#gone -->\nIt has 98.02 BLEU.\n")


def test_a_default_must_be_the_one_of_the_code(problems):
    assert not problems("<!-- source: default train.warmup, model.dropout -->\nWarmup 4,000, dropout 0.1.\n")
    (line, problem), _ = problems("<!-- source: default train.warmup -->\nThe warmup has 5,000 steps.\n")
    assert (line, problem) == (2, "the default of train.warmup is 4000, which is not in this text.")
    assert "no setting train.warmups" in problems("<!-- source: default train.warmups -->\ntext\n")[0][1]


def test_a_source_that_says_nothing_is_refused(problems):
    assert "neither a file nor a publication" in problems("<!-- source: somebody -->\nIt is 0.5.\n")[0][1]


def test_all_pages_pass(problems):
    from numbers_check import RECORDS

    pages = [
        *(ROOT / "book").glob("*/*.md"),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "benchmarks/README.md",
    ]
    pages = [page for page in pages if page.relative_to(ROOT).with_suffix("").as_posix() not in RECORDS]
    assert len(pages) > 30
    found = {page.name: problems(page.read_text("utf-8")) for page in pages}
    assert not {name: lines for name, lines in found.items() if lines}
