"""Texts that are too long (data.too_long): in training, in pipelines, in files and over HTTP."""

import dataclasses
import json
import warnings
from itertools import pairwise

import pytest
from helpers import run_cutaway as cutaway
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import ask, ask_json, serve_in_thread, write_run
from untrained import untrained_pipeline

from cutaway.cli.train import describe
from cutaway.config import SEAL, Config, DataConfig, ModelConfig, TrainConfig
from cutaway.data.encoded import NO_TAG
from cutaway.data.examples import Pair
from cutaway.data.filtering import word_parts
from cutaway.data.prepare import prepare
from cutaway.data.tokenizer import Tokenizer
from cutaway.diagnose.inspect import inspect_data
from cutaway.errors import ConfigError, DataError
from cutaway.inference.evaluation import evaluate_run
from cutaway.inference.training.setup import resume, start_training
from cutaway.runs import RunFolder

MAX_TOKENS = 32  # of the tiny models
LONG = " ".join("abcdefgh"[i * 5 % 8] for i in range(70))


def pipeline_with(too_long, **model):
    pipeline = untrained_pipeline("encoder", **model)
    pipeline.config = dataclasses.replace(
        pipeline.config, data=dataclasses.replace(pipeline.config.data, too_long=too_long)
    )
    return pipeline


# ---- The setting -----------------------------------------------------------------------------------------------------


def test_defaults_and_invalid_settings():
    encoder, language = ModelConfig(family="encoder", head="tags"), ModelConfig(family="decoder")
    assert Config(model=encoder).long_texts == "cut"
    assert Config(model=dataclasses.replace(encoder, head="classes")).long_texts == "cut"
    assert Config().long_texts == "skip"
    with pytest.raises(ConfigError, match="'cut' is not for translation"):
        Config(data=DataConfig(too_long="cut"))
    with pytest.raises(ConfigError, match="data.too_long = 'skip' would have no effect"):
        Config(model=language, data=DataConfig(too_long="skip"))
    with pytest.raises(ConfigError, match="max_tokens = 2 leaves no room between"):
        Config(model=encoder, data=DataConfig(max_tokens=2))


def test_a_run_without_the_setting_has_the_default(tmp_path):
    folder = write_run(tmp_path / "old", untrained_pipeline("encoder", head="classes"))
    config = json.loads((folder / "config.json").read_text())
    del config["data"]["too_long"]
    config.pop(SEAL, None)  # old runs have no seal either
    (folder / "config.json").write_text(json.dumps(config))
    assert RunFolder(folder).read_config().long_texts == "cut"


# ---- Training --------------------------------------------------------------------------------------------------------

TEXTS = ["a b c d e f g h", "a b", "h g f e d c b a a a", "c"]


def corpus(folder, task, **settings):
    if task == "classification":
        (folder / "train.tsv").write_text("".join(f"{text}\t{text[0]}\n" for text in TEXTS * 5))
    else:
        (folder / "train.tsv").write_text(
            "\n".join("".join(f"{w}\t{w.upper()}\n" for w in t.split()) for t in TEXTS * 5)
        )
    defaults = {"tokenizer": "word", "vocab_size": 30, "max_tokens": 6, "batch_tokens": 24, **settings}
    return DataConfig(root=str(folder), train=("train.tsv",), valid_share=0.2, **defaults)


def test_training_reads_the_start_of_a_text(tmp_path):
    prepared = prepare(corpus(tmp_path, "classification"), "classification")
    tokenizer = Tokenizer.from_json(prepared.tokenizer, prepared.roles)
    expected = [[tokenizer.bos, *tokenizer.encode(text)[:4], tokenizer.eos] for text in TEXTS * 4]
    assert [example.ids for example in prepared.train] == expected
    assert prepared.cut == {"too long": 8, "too long for validation": 2}
    assert prepared.left_out == {}
    skipped = prepare(corpus(tmp_path, "classification", too_long="skip"), "classification")
    assert [example.ids for example in skipped.train] == [expected[i] for i in range(16) if i % 4 in (1, 3)]
    assert skipped.left_out == {"too long": 8, "too long for validation": 2}
    with pytest.raises(DataError, match="8 examples are too long: longer than data.max_tokens = 6.*'refuse'"):
        prepare(corpus(tmp_path, "classification", too_long="refuse"), "classification")


def test_training_reads_all_words_of_a_sentence_in_parts(tmp_path):
    prepared = prepare(corpus(tmp_path, "tagging"), "tagging")
    tokenizer = Tokenizer.from_json(prepared.tokenizer, prepared.roles)
    assert all(len(example.ids) == len(example.tags) <= 6 for example in prepared.train)
    assert all(example.ids[0] == tokenizer.bos and example.ids[-1] == tokenizer.eos for example in prepared.train)
    words = [tokenizer.tokens([id])[0] for example in prepared.train for id in example.ids[1:-1]]
    tags = [prepared.labels[tag] for example in prepared.train for tag in example.tags if tag != NO_TAG]
    assert words == " ".join(TEXTS * 4).split()
    assert tags == [word.upper() for word in words]
    assert prepared.cut == {"too long": 8, "too long for validation": 2}


def test_cut_examples_are_counted_before_training_and_in_data_inspect(tmp_path, capsys):
    data = corpus(tmp_path, "classification")
    training = start_training(recipe(data), RunFolder(tmp_path / "run"))
    describe(training)
    assert "16 examples (cut: 8 too long, 2 too long for validation)" in capsys.readouterr().err
    report = inspect_data(data, "classification")
    assert (report.splits["train"].cut, report.splits["train"].kept) == (8, 16)
    assert report.splits["train"].lengths.longest == 12
    assert any("are longer than data.max_tokens = 6 and are truncated" in finding for finding in report.findings)


def recipe(data, steps=2):
    model = ModelConfig(family="encoder", head="classes", d_model=8, d_ff=8, n_heads=2, encoder_layers=1, max_length=8)
    return Config(model, data, TrainConfig(steps=steps, warmup=2, valid_every=2, save_every=2))


def test_a_training_started_without_the_setting_resumes_without_long_texts(tmp_path):
    run = RunFolder(tmp_path / "run")
    start_training(recipe(corpus(tmp_path, "classification", too_long="skip")), run).trainer.run()
    config = json.loads(run.config.read_text())
    del config["data"]["too_long"]
    config.pop(SEAL, None)  # old runs have no seal either
    run.config.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match='data.too_long was "skip", now "cut"'):
        resume(recipe(corpus(tmp_path, "classification"), 4), run)
    training = resume(recipe(corpus(tmp_path, "classification", too_long="skip"), 4), run)
    assert training.trainer.run().step == 4


@settings(max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(3, 14), st.integers(0, 12))
def test_parts_contain_all_words_and_are_never_too_long(lengths, max_tokens, overlap):
    first = [1 + sum(lengths[:i]) for i in range(len(lengths))]
    end = 1 + sum(lengths)
    parts = word_parts(first, end, max_tokens, overlap)
    assert {word for part in parts for word in part.words} == set(range(len(lengths)))
    for part in parts:
        assert 0 < part.stop - part.start <= max_tokens - 2
        assert part.start == first[part.words.start]
        whole = first[part.words.stop] if part.words.stop < len(first) else end
        assert part.stop == whole or (len(part.words) == 1 and part.stop - part.start == max_tokens - 2)
    for before, after in pairwise(parts):
        assert before.words.start < after.words.start <= before.words.stop < after.words.stop
        assert first[before.words.stop] - after.start <= max(0, overlap)


# ---- Pipelines -------------------------------------------------------------------------------------------------------


def test_the_start_of_a_long_text_is_classified():
    classifier = pipeline_with("auto", head="classes")
    start_of_text = " ".join(LONG.split()[: MAX_TOKENS - 2])
    with pytest.warns(UserWarning, match="1 of 2 texts are longer than the 32 tokens that this model reads"):
        predicted = classifier.classify([LONG, "a b"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert predicted == classifier.classify([start_of_text, "a b"])
    assert classifier.read([LONG, start_of_text])[1] == [True, False]


@pytest.mark.parametrize("too_long", ["skip", "refuse"])
def test_a_long_text_that_may_not_be_cut_is_an_error(too_long):
    with pytest.raises(DataError, match="has 72 tokens; the model reads at most 32"):
        pipeline_with(too_long, head="classes").classify(["a", LONG])
    with pytest.raises(DataError, match="has 72 tokens; the model reads at most 32"):
        pipeline_with(too_long, head="tags").tag([["a"], LONG.split()])


def test_every_word_of_a_long_sentence_gets_a_tag():
    tagger = pipeline_with("auto", head="tags")
    words = LONG.split()  # one token each: parts of 30 words with an overlap of 8, of which each part tags 4
    [tags] = tagger.tag([words])
    first, second, third = (tagger.tag([words[start : start + 30]])[0] for start in (0, 22, 44))
    assert tags == [*first[:26], *second[4:26], *third[4:]]
    assert tagger.tag([["a"], words, [], words[:5]]) == [*tagger.tag([["a"]]), tags, [], *tagger.tag([words[:5]])]


@pytest.fixture
def home(tmp_path):
    for setting in ("auto", "skip", "refuse"):
        for head in ("classes", "tags"):
            write_run(tmp_path / setting / head, pipeline_with(setting, head=head))
    (tmp_path / "in.txt").write_text(f"a b\n{LONG}\nc\n{LONG} d\n")
    (tmp_path / "test.tsv").write_text(f"a b\tlabel 0\n{LONG}\tlabel 1\nc\tlabel 1\n")
    (tmp_path / "test.conll").write_text("".join(f"{word}\tlabel 0\n" for word in LONG.split()) + "\na\tlabel 1\n")
    return tmp_path


def test_long_lines_of_a_file_are_cut(home):
    found = cutaway("classify", "auto/classes", "--file", "in.txt", "--json", cwd=home)
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    assert [line.get("cut", False) for line in lines] == [False, True, False, True]
    assert all("label" in line for line in lines)
    said = "Note: 2 texts are longer than the 32 tokens that this model reads at once: only the beginning"
    assert said in found.stderr
    piped = cutaway("classify", "auto/classes", "--json", cwd=home, stdin=(home / "in.txt").read_text())
    given = cutaway("classify", "auto/classes", *(home / "in.txt").read_text().splitlines(), "--json", cwd=home)
    for other in (piped, given):  # batches of other shapes round differently
        assert [(j["label"], "cut" in j) for j in map(json.loads, other.stdout.splitlines())] == [
            (line["label"], "cut" in line) for line in lines
        ]
    assert said in piped.stderr
    assert said in given.stderr
    tagged = cutaway("tag", "auto/tags", "--file", "in.txt", "--json", cwd=home)
    assert [json.loads(line).get("parts", 1) for line in tagged.stdout.splitlines()] == [1, 3, 1, 3]
    assert "2 texts are longer than the 32 tokens" in tagged.stderr


def test_long_lines_of_a_file_are_skipped_or_errors(home):
    skipped = cutaway("classify", "skip/classes", "--file", "in.txt", cwd=home)
    assert [bool(line) for line in skipped.stdout.split("\n")] == [True, False, True, False, False]
    assert "2 lines failed. The first, line 2: " in skipped.stderr
    refused = cutaway("tag", "refuse/tags", "--file", "in.txt", cwd=home)
    assert refused.returncode == 1
    assert "in.txt, line 4: " in refused.stderr  # the longest line is processed first


def test_evaluate_counts_long_texts(home):
    def evaluate(setting, head, file):
        found = cutaway("evaluate", f"{setting}/{head}", "--data", file, "--no-baseline", "--json", cwd=home)
        assert found.returncode == 0, found.stderr
        return json.loads(found.stdout)

    numbers = evaluate("auto", "classes", "test.tsv")
    assert (numbers["examples"], numbers["cut"], sum(map(sum, numbers["confusion"]["counts"]))) == (3, 1, 3)
    numbers = evaluate("skip", "classes", "test.tsv")
    assert (numbers["examples"], numbers["left_out"], sum(map(sum, numbers["confusion"]["counts"]))) == (3, 1, 2)
    numbers = evaluate("auto", "tags", "test.conll")
    assert (numbers["cut"], sum(map(sum, numbers["confusion"]["counts"]))) == (1, 71)
    text = cutaway("evaluate", "auto/tags", "--data", "test.conll", "--no-baseline", cwd=home).stdout
    assert "2 examples: test.conll (1 too long for the model, read in chunks)" in text
    refused = cutaway("evaluate", "refuse/classes", "--data", "test.tsv", "--no-baseline", cwd=home)
    assert refused.returncode == 1
    assert "1 of 3 examples are longer than the 32 tokens that this model reads. The longest has 72" in refused.stderr


def test_evaluation_leaves_out_sources_that_are_too_long():
    numbers = evaluate_run(untrained_pipeline(), [Pair("a b c", "c b a"), Pair(LONG, "a")])
    assert numbers["left_out"] == 1


def test_long_texts_over_http(home):
    with serve_in_thread([home / "auto/classes", home / "auto/tags"]) as server:
        short, long = ask_json(server.port, "/classify", {"text": ["a b", LONG]})["results"]
        assert long["cut"] is True
        assert "cut" not in short
        start_of_text = " ".join(LONG.split()[: MAX_TOKENS - 2])
        [same] = ask_json(server.port, "/classify", {"text": start_of_text})["results"]
        assert same["probability"] == pytest.approx(long["probability"], rel=1e-9)
        short, long = ask_json(server.port, "/tag", {"text": ["a b", LONG]})["results"]
        assert (long["parts"], len(long["tags"])) == (3, 70)
        assert "parts" not in short
    with serve_in_thread([home / "skip/classes", home / "refuse/tags"]) as server:
        for path in ("/classify", "/tag"):
            assert ask(server.port, path, {"text": LONG})[0].status == 422
