"""`cutaway data inspect` on corpora with known faults."""

import json
import math
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from typer.testing import CliRunner

from cutaway.cli import app
from cutaway.config import DataConfig
from cutaway.data.encoded import NO_TAG
from cutaway.data.prepare import prepare
from cutaway.data.sampler import batches_by_tokens
from cutaway.data.tokenizer import Tokenizer
from cutaway.diagnose.inspect import AnswerReport, LengthReport, inspect_data
from cutaway.errors import DataError


def write(folder, **files):
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content, encoding="utf-8")
    return {"root": str(folder), "max_tokens": 12, "batch_tokens": 60, "vocab_size": 300}


def inspect_and_check(config, task):
    report = inspect_data(config, task)
    assert json.loads(json.dumps(report.to_dict()))["findings"] == report.findings
    return report, " ".join(report.findings)


def test_pairs(tmp_path):
    rows = [f"the number {n}\tle numéro {n}" for n in range(50)]
    train = [*rows, *rows[:10], "same\tsame", "empty\t", "x" + " a" * 30 + "\tb"]
    valid = [rows[3], "The  Number 4\tle numéro 4", "new\tneuf"]
    data = write(tmp_path, train_tsv="\n".join(train), valid_tsv="\n".join(valid))
    config = DataConfig(train=("train.tsv",), valid=("valid.tsv",), tokenizer="word", **data)
    report, findings = inspect_and_check(config, "translation")
    train, valid = report.splits["train"], report.splits["valid"]
    prepared = prepare(config, "translation")
    assert train.examples == prepared.examples == 63
    assert train.left_out == {"empty": 1, "too long": 1} == {k: prepared.left_out[k] for k in ("empty", "too long")}
    assert train.kept == len(prepared.train)
    assert train.tokens == sum(len(p.source) + len(p.target) for p in prepared.train)
    assert train.duplicates == 10
    assert train.same_sides == 1
    assert valid.overlap.exact == 1
    assert valid.overlap.alike == 2
    assert valid.overlap.compared == 3
    assert valid.unknown == pytest.approx(4 / 14)  # "The", "Number", "new", "neuf"
    order = batches_by_tokens(prepared.train, 60, 0, 0)
    places = sum(len(b) * max(prepared.train[i].lengths[k] for i in b) for b in order for k in (0, 1))
    used = sum(sum(pair.lengths) for pair in prepared.train)
    assert train.padding == pytest.approx(1 - used / places)
    assert train.lengths.longest == 32
    assert sum(one.examples for one in train.lengths.bins) == 62
    for part in (
        "There are only 61 examples to train on", "There are only 3 examples in the valid data",
        "1 of 63 (1.6%) train examples are longer than data.max_tokens = 12", "empty on at least one side",
        "28.6% of the valid tokens are not in the vocabulary", "10 of 63 (15.9%) training examples are copies",
        "1 of 3 (33.3%) valid examples also occur in the training data (2 if case and white space are ignored)",
        "1 of 63 (1.6%) training pairs have the same text on both sides",
    ):  # fmt: skip
        assert part in findings, findings
    assert train.samples[0].tokens


def test_labels(tmp_path):
    train = [f"text {n}\tpos" for n in range(30)] + ["text 1\tneg", "bad\tneg"]
    data = write(tmp_path, train_tsv="\n".join(train), test_tsv="fine\tpos\nso so\tneutral\n")
    report, findings = inspect_and_check(DataConfig(train=("train.tsv",), test=("test.tsv",), **data), "classification")
    assert report.splits["train"].labels == {"pos": 30, "neg": 2}
    assert report.splits["test"].unseen_labels == {"neutral": 1}
    assert report.splits["test"].kept == 1
    assert report.splits["train"].contradictions == 1
    for part in (
        "There is no validation data", "94% of the labels are 'pos'", "1 label has fewer than 10 training examples: 'neg'",
        "1 of 2 (50.0%) test examples have labels that the training data does not have", "1 training inputs occur with",
    ):  # fmt: skip
        assert part in findings, findings


def test_texts(tmp_path):
    line = "it is a truth universally acknowledged\n"
    data = write(tmp_path, a_txt=line * 3 + "something else that is long enough\n" + "short\n" * 9, b_txt=line.upper())
    report, findings = inspect_and_check(DataConfig(train=("a.txt",), valid=("b.txt",), **data), "language_model")
    train = report.splits["train"]
    assert train.examples == 1
    assert (train.compared, train.duplicates) == (4, 2)
    assert report.splits["valid"].overlap.exact == 0
    assert report.splits["valid"].overlap.alike == 1
    assert report.splits["valid"].overlap.whole == 0  # as a whole text it differs
    assert "2 of 4 (50.0%) training lines are copies" in findings
    assert "0 of 1 (0.0%) valid lines also occur in the training data (1 if case" in findings
    masked, _ = inspect_and_check(DataConfig(train=("a.txt",), valid_share=0.2, **data), "masked_language_model")
    prepared = prepare(DataConfig(train=("a.txt",), valid_share=0.2, **data), "masked_language_model")
    assert masked.splits["train"].tokens == sum(len(piece.ids) - 2 for piece in prepared.train)
    assert (
        masked.splits["train"].characters + masked.splits["valid"].characters
        == len((tmp_path / "a.txt").read_text()) - 1
    )


def test_tags_and_images(tmp_path):
    data = write(tmp_path, a_conll="The DET\ncat NOUN\n\nThe DET\ncat NOUN\n")
    report, _ = inspect_and_check(DataConfig(train=("a.conll",), **data), "tagging")
    assert report.splits["train"].labels == {"DET": 2, "NOUN": 2}
    assert report.splits["train"].samples[0].texts == ["The/DET cat/NOUN"]
    assert report.splits["train"].duplicates == 1
    images = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    np.savez(tmp_path / "a.npz", images=images[[0, 1, 0]], labels=[1, 2, 2])
    np.savez(tmp_path / "b.npz", images=images[1:], labels=[1, 3])
    config = DataConfig(root=str(tmp_path), train=("a.npz",), valid=("b.npz",))
    report, _ = inspect_and_check(config, "image_classification")
    assert report.splits["valid"].overlap.exact == 1
    assert report.splits["valid"].unseen_labels == {"3": 1}
    assert report.splits["train"].contradictions == 1


LONG = " ".join(["word"] * 400)  # far beyond max_tokens = 12, and most of the corpus
# task -> the files, and the texts with known labels in the training and the test file
LEFT_OUT = {
    "translation": (
        {"train_tsv": f"two words\tdeux mots\n{LONG}\tun\nonly one side\t", "test_tsv": f"un\t{LONG}"},
        (["two words", "deux mots", LONG, "un", "only one side"], ["un", LONG]),
    ),
    "classification": (
        {"train_tsv": f"two words\tgood\n{LONG}\tgood", "test_tsv": f"{LONG}\tunknown\none word\tgood"},
        (["two words", LONG], ["one word"]),
    ),
    "tagging": (
        {"train_conll": "two X\nwords X\n\n" + "word X\n" * 40, "test_conll": "unknown Y\n\none X\n"},
        (["two", "words", *["word"] * 40], ["one"]),
    ),
    "language_model": ({"train_txt": f"two words\n{LONG}", "test_txt": "one"}, ([f"two words\n{LONG}"], ["one"])),
    "masked_language_model": ({"train_txt": f"two words\n{LONG}", "test_txt": "one"}, ([f"two words\n{LONG}"], ["one"])),
}  # fmt: skip


@pytest.mark.parametrize("task", LEFT_OUT)
def test_characters_and_tokens_are_counted_over_the_same_texts(tmp_path, task):
    """Also if examples are skipped: too long, empty, or with an unknown label."""
    files, texts = LEFT_OUT[task]
    data = write(tmp_path, **files)
    train, test = ((name.replace("_", "."),) for name in files)
    config = DataConfig(train=train, test=test, tokenizer="bpe", **data)
    report, _ = inspect_and_check(config, task)
    prepared = prepare(config, task)
    tokenizer = Tokenizer.from_json(prepared.tokenizer, prepared.roles)
    for split, contents in zip(("train", "test"), texts, strict=True):
        tokens = sum(len(tokenizer.encode(text)) for text in contents)
        found = report.splits[split]
        assert found.characters_per_token == pytest.approx(sum(map(len, contents)) / tokens)
        assert found.tokens_per_word == pytest.approx(tokens / sum(len(text.split()) for text in contents))


def test_empty_files_raise_as_in_training(tmp_path):
    data = write(tmp_path, a_txt="", b_txt="")
    with pytest.raises(DataError, match="are empty"):
        inspect_data(DataConfig(train=("a.txt", "b.txt"), **data), "translation")
    with pytest.raises(DataError, match="all texts are empty"):
        inspect_data(DataConfig(train=("a.txt",), **data), "language_model")
    with pytest.raises(DataError, match="has no train data"):
        inspect_data(DataConfig(), "translation")


def test_lengths():
    report = LengthReport.of(np.array([3, 5, 5, 9, 100]))
    assert (report.median, report.most, report.longest) == (5, 100, 100)
    assert [(b.low, b.high, b.examples) for b in report.bins] == [
        (3, 4, 1), (5, 8, 2), (9, 16, 1), (17, 32, 0), (33, 64, 0), (65, 100, 1)
    ]  # fmt: skip
    assert [(b.low, b.high) for b in LengthReport.of(np.array([1, 1])).bins] == [(1, 1)]
    assert LengthReport.of(np.array([])) is None


# task -> a corpus, and the answers of an encoded example
ANSWERS = {
    "translation": ("reverse", lambda pair: [*pair.target, "</s>"]),
    "language_model": ("python", lambda piece: piece.ids[1:]),
    "masked_language_model": ("python", lambda text: text.ids[1:-1]),
    "classification": ("python:expressions", lambda example: [example.label]),
    "tagging": ("python:tags", lambda example: [tag for tag in example.tags if tag != NO_TAG]),
    "image_classification": ("digits", lambda example: [example.label]),
}


@pytest.mark.parametrize("task", ANSWERS)
def test_counts_agree_with_training(task):
    corpus, answers_of = ANSWERS[task]
    config = DataConfig(corpus=corpus, size=30, heldout_size=10, vocab_size=300, max_tokens=40, batch_tokens=400)
    prepared, report = prepare(config, task), inspect_data(config, task)
    assert report.splits["train"].fingerprint == prepared.fingerprint
    for examples, split in ((prepared.train, report.splits["train"]), (prepared.valid, report.splits["valid"])):
        assert split.in_batches == len(examples)
        answers = Counter(chain.from_iterable(map(answers_of, examples)))
        first = task == "language_model"  # the very first token is counted, but never predicted
        assert split.answers.count == answers.total() + first
        shares = [n / answers.total() for n in answers.values()]
        assert split.answers.entropy == pytest.approx(-sum(p * math.log(p) for p in shares), rel=1e-3)
        if split.answers.majority:
            label, share = split.answers.majority
            assert share == pytest.approx(max(shares))
            assert answers[prepared.labels.index(label)] == max(answers.values())
        assert bool(split.answers.majority) == bool(prepared.labels)


def test_the_tokenizer_of_a_run_can_be_given(tmp_path):
    data = write(tmp_path, train_tsv="a b\tc d\n", other_tsv="c d\te f\n")
    (tmp_path / "tokenizer.json").write_text(
        prepare(DataConfig(train=("other.tsv",), tokenizer="word", **data), "translation").tokenizer
    )
    config = DataConfig(train=("train.tsv",), tokenizer="word", **data)
    assert inspect_data(config, "translation").splits["train"].unknown == 0
    report = inspect_data(config, "translation", tokenizer_file=tmp_path / "tokenizer.json")
    assert report.splits["train"].unknown == 0.5


def test_answers():
    assert AnswerReport.of(np.array([2, 0, 2]), []) == AnswerReport(4, pytest.approx(math.log(2)), None)
    assert AnswerReport.of(np.array([1, 3]), ["no", "yes"]).majority == ("yes", 0.75)
    assert AnswerReport.of(np.array([0, 0]), ["no", "yes"]) is None


def test_the_command(tmp_path):
    small = ["--set", "data.size=60", "--set", "data.heldout_size=20"]
    result = CliRunner().invoke(app, ["data", "inspect", "python-tagger", *small])
    assert result.exit_code == 0, result.output
    for part in (
        "sentences with tags",
        "vocabulary:",
        "Labels",
        "█",
        "Examples of the train data",
        "Findings",
    ):
        assert part in result.output
    result = CliRunner().invoke(app, ["data", "inspect", "reverse", *small, "--json"])
    assert json.loads(result.output)["splits"]["train"]["examples"] == 60
