import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.data.labels import read_labels, read_tags
from cutaway.errors import DataError


@pytest.fixture
def file(tmp_path):
    def write(content, name="data.txt"):
        path = tmp_path / name
        data = content.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


# ---- Labelled texts ------------------------------------------------------------------------------------------


def test_labels_from_tsv(file):
    path = file("a good one\tpos\r\n\n  \na\ttab inside\tneg\n")
    assert read_labels(path) == [("a good one", "pos"), ("a\ttab inside", "neg")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_labels_from_jsonl(file, name):
    path = file('{"text": "a\\nb", "label": "x", "id": 7}\n\n{"text": "c", "label": 0}\n', name)
    assert read_labels(path) == [("a\nb", "x"), ("c", "0")]


@pytest.mark.parametrize("line", ["no label", "no label\t", "\tno text", "  \t x"])
def test_a_tsv_line_without_text_or_label(file, line):
    with pytest.raises(DataError, match=r"data.txt, line 3 is '.*'. Expected a text, a tab and a label"):
        read_labels(file(f"a\tb\n\n{line}\n"))


@pytest.mark.parametrize(
    "entry", [{"text": "a"}, {"label": "a"}, {"text": 1, "label": "a"}, {"text": "a", "label": True}, ["a", "b"],
              {"text": "a", "label": None}, {"text": " ", "label": 1}, {"text": "a", "label": ""}, "a", 1.5],
)  # fmt: skip
def test_a_jsonl_line_with_wrong_fields(file, entry):
    with pytest.raises(DataError, match=r"a.jsonl, line 1 is .*Expected {\"text\": ..., \"label\": ...}"):
        read_labels(file(json.dumps(entry), "a.jsonl"))


def test_other_label_errors(file):
    with pytest.raises(DataError, match=r"a.jsonl, line 2 is not JSON \(.*column 1\): 'nonsense'"):
        read_labels(file('{"text": "a", "label": 1}\nnonsense\n', "a.jsonl"))
    with pytest.raises(DataError, match="is empty"):
        read_labels(file("\n"))
    with pytest.raises(DataError, match=r"is 'x{57}\.\.\.'"):
        read_labels(file("x" * 500))


# ---- Tagged words --------------------------------------------------------------------------------------------


def test_tags_from_two_columns(file):
    expected = [(("Ann", "sleeps"), ("B-per", "O")), (("Yes",), ("O",))]
    assert read_tags(file("Ann\tB-per\nsleeps\tO\n\n\nYes\tO")) == expected
    assert read_tags(file("\nAnn  B-per\r\nsleeps O \r\n\r\nYes O\r\n\r\n")) == expected
    assert read_tags(file("Ann B-per\nsleeps O\n \nYes O\n", "a.gz")) == expected


def test_conll_2003(file):
    path = file("-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n")
    assert read_tags(path) == [(("EU", "rejects"), ("B-ORG", "O"))]
    assert read_tags(path, columns=(0, 1)) == [(("EU", "rejects"), ("NNP", "VBZ"))]


def test_conll_u(file):
    def row(number, word, tag):
        return "\t".join([number, word, "_", tag] + ["_"] * 6) + "\n"

    rows = row("1-2", "du", "_") + row("1", "de", "ADP") + row("2", "le", "DET") + row("2.1", "vu", "VERB")
    path = file(
        "# newdoc\n# text = du 1-2\n" + rows + row("3", "3-4", "NUM") + "\n# sent_id = 2\n" + row("1", "#", "SYM")
    )
    assert read_tags(path, columns=(1, 3)) == [(("de", "le", "3-4"), ("ADP", "DET", "NUM")), (("#",), ("SYM",))]
    assert read_tags(path, columns=(-9, -7)) == read_tags(path, columns=(1, 3))


def test_a_range_is_a_word_in_a_file_without_ids(file):
    assert read_tags(file("1-2 NUM\n3.5 NUM\n")) == [(("1-2", "3.5"), ("NUM", "NUM"))]


@pytest.mark.parametrize("separator", ["\t", " "])
def test_comments_and_hashes(file, separator):
    text = "# a comment with words\n#comment\n# SYM\n1 NUM\n#tag NOUN\n# SYM\n# another one here\n\n# SYM\n"
    rows = "\n".join(line if line.count(" ") != 1 else line.replace(" ", separator) for line in text.split("\n"))
    assert read_tags(file(rows)) == [(("#", "1", "#tag", "#"), ("SYM", "NUM", "NOUN", "SYM")), (("#",), ("SYM",))]


def test_tag_errors(file):
    with pytest.raises(DataError, match=r"data.txt, line 2 has 1 columns, the lines before have 2: 'b'"):
        read_tags(file("a O\nb\n"))
    with pytest.raises(DataError, match=r"data.txt: 'a' has 1 column, so .* cannot be in columns \(0, -1\)"):
        read_tags(file("a\nb\n"))
    with pytest.raises(DataError, match=r"'a O' has 2 columns, .* in columns \(0, 2\)"):
        read_tags(file("a O\n"), columns=(0, 2))
    with pytest.raises(DataError, match="line 2 has no word or no tag"):
        read_tags(file("a\tO\n\tO\n"))
    with pytest.raises(DataError, match="contains no tagged words"):
        read_tags(file("# only a comment\n\n"))


words = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1)
sentences = st.lists(st.lists(st.tuples(words, words), min_size=1), min_size=1)


@given(sentences)
def test_reading_restores_what_was_written(tmp_path_factory, sentences):
    text = "\n\n".join("\n".join(f"{word}\t{tag}" for word, tag in sentence) for sentence in sentences)
    path = tmp_path_factory.mktemp("tags") / "a.conll"
    path.write_text("0\t0\n\n" + text, encoding="utf-8", newline="")
    expected = [tuple(zip(*sentence, strict=True)) for sentence in sentences if sentence]
    assert read_tags(path)[1:] == expected
