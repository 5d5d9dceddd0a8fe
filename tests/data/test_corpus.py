import gzip

import pytest

from cutaway.config import DataConfig
from cutaway.data.builtin import BUILTIN, load_builtin
from cutaway.data.corpus import read_lines, read_pairs
from cutaway.data.tasks import load_split
from cutaway.errors import DataError


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_parallel_files(tmp_path):
    a, b = write(tmp_path / "a", "one\r\ntwo\n"), write(tmp_path / "b", "\ufeffun\ndeux")
    assert read_pairs(a, b) == [("one", "un"), ("two", "deux")]


def test_a_line_ends_only_at_a_newline(tmp_path):
    """str.splitlines would split at these characters and misalign parallel files."""
    text = "a\u2028b\x0bc\x1cd\u0085e"
    assert list(read_lines(write(tmp_path / "a", text + "\nf\n"))) == [text, "f"]


def test_gz(tmp_path):
    path = tmp_path / "a.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("é\nb\n")
    assert list(read_lines(path)) == ["é", "b"]


def test_files_of_unequal_length(tmp_path):
    a, b = write(tmp_path / "a", "1\n2\n3\n"), write(tmp_path / "b", "1\n2\n")
    with pytest.raises(DataError, match=r"a has 3 lines, .*b has 2"):
        read_pairs(a, b)


def test_empty_files(tmp_path):
    a, b = write(tmp_path / "a", ""), write(tmp_path / "b", "")
    with pytest.raises(DataError, match="are empty"):
        read_pairs(a, b)


def test_not_utf8_names_the_line_and_the_byte(tmp_path):
    path = write(tmp_path / "a", b"fine\ncaf\xe9\n")
    with pytest.raises(DataError, match=r"line 2 is not UTF-8 \(byte 4: 0xe9\). Convert the file"):
        list(read_lines(path))


def test_missing_file():
    with pytest.raises(DataError, match="there is no file 'nowhere.txt'"):
        list(read_lines("nowhere.txt"))


def test_load_split_from_files_and_without_files(tmp_path):
    write(tmp_path / "a", "x\n")
    write(tmp_path / "b", "y\n")
    config = DataConfig(root=str(tmp_path), train=("a", "b"))
    assert load_split(config, "translation", "train") == [("x", "y")]
    with pytest.raises(DataError, match="has no test data"):
        load_split(config, "translation", "test")


@pytest.mark.parametrize("name", BUILTIN)
def test_builtin_corpora_are_reproducible_and_their_splits_disjoint(name):
    """Images are tested in test_digits.py, because arrays cannot be compared with ==."""
    if BUILTIN[name].kind == "images":
        return
    splits = {split: load_builtin(name, split, 300) for split in ("train", "valid", "test")}
    assert splits["train"] == load_builtin(name, "train", 300)
    assert splits["train"] != load_builtin(name, "train", 300, seed=1)
    texts = [first_text(example) for examples in splits.values() for example in examples]
    assert len(texts) == len(set(texts))
    assert len(texts) == 900 or name == "python"  # the library has fewer files


def first_text(example):
    return example if isinstance(example, str) else example[0] if isinstance(example, tuple) else example.source


def test_unknown_corpus_gets_a_suggestion():
    with pytest.raises(DataError, match="Did you mean 'tinyworld:en-fr'"):
        load_builtin("tinyworld:en-ft", "train", 1)
    with pytest.raises(DataError, match="'reverse' has no split 'trian'. Did you mean 'train'"):
        load_builtin("reverse", "trian", 1)


@pytest.mark.parametrize(("task", "expected"), [("copy", "c a b"), ("reverse", "b a c"), ("sort", "a b c")])
def test_the_algorithmic_tasks(task, expected):
    from cutaway.data.builtin.algorithmic import TASKS

    assert " ".join(TASKS[task](["c", "a", "b"])) == expected
