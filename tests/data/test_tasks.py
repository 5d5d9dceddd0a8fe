"""Encoding and batches of each task."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway.config import DataConfig
from cutaway.config.checks import choices
from cutaway.config.model import TASKS as TASK_NAMES
from cutaway.data.batching import COLLATE, MASKED_SHARE, BatchStream, collate_chunks, collate_masked, collate_tagged
from cutaway.data.builtin import BUILTIN, load_builtin
from cutaway.data.encoded import EncodedText
from cutaway.data.examples import LabelledText, TaggedText
from cutaway.data.prepare import prepare
from cutaway.data.tasks import (
    NO_TAG,
    TASKS,
    Encoding,
    encode_chunked_texts,
    encode_labelled,
    encode_masked,
    encode_tagged,
    encode_words,
    labels_of,
    load_split,
    word_splitter,
)
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import DataError
from cutaway.inference.evaluation import EVALUATE
from cutaway.inference.pipelines import COMMANDS, KINDS, Embedder
from cutaway.train.objectives import OBJECTIVES

TEXTS = ["the cat sleeps", "a dog", "the dog sleeps and the cat sleeps"]
TOKENIZER = Tokenizer.train(TEXTS, "word", 40, has_mask=True)
BPE = Tokenizer.train(TEXTS * 3, "bpe", 270)


def test_every_task_is_in_every_table():
    names = set(TASK_NAMES.values())
    assert names == set(COMMANDS)
    assert names - {"embedding"} == set(TASKS) == set(COLLATE) == set(OBJECTIVES)  # embeddings have no target
    assert names - {"embedding"} == set(EVALUATE) | {"translation"}
    # each task has one pipeline; the Embedder also works with models for other tasks
    assert sorted(task for kind in KINDS if kind is not Embedder for task in kind.tasks) == sorted(
        names - {"embedding"}
    )
    assert KINDS[-1] is Embedder
    assert set(Embedder.tasks) == names - {"image_classification"}
    assert {corpus.kind for corpus in BUILTIN.values()} <= {task.kind for task in TASKS.values()}


@given(st.integers(1, 12))
def test_chunks_predict_every_token_except_the_first_once(size):
    encoded = encode_chunked_texts(TEXTS, Encoding(TOKENIZER, max_tokens=size))
    row = [i for text in TEXTS for i in (TOKENIZER.bos, *TOKENIZER.encode(text), TOKENIZER.eos)]
    assert [i for p in encoded for i in p.ids[1:]] == row[1:]
    assert all(1 <= len(p.ids) - 1 <= size for p in encoded)
    batch = collate_chunks(encoded, TOKENIZER)
    assert batch.tokens == len(row) - 1 == batch.target_mask.sum()
    for i, p in enumerate(encoded):
        n = len(p.ids) - 1
        assert batch.ids[i, :n].tolist() == p.ids[:-1]
        assert batch.targets[i, :n].tolist() == p.ids[1:]
        assert not batch.mask[i, n:].any()


@given(st.integers(3, 12))
def test_masked_texts_are_divided_into_chunks_that_fit(size):
    encoded = encode_masked(TEXTS, Encoding(TOKENIZER, max_tokens=size))
    assert all(len(text.ids) <= size for text in encoded)
    assert [i for text in encoded for i in text.ids[1:-1]] == [i for text in TEXTS for i in TOKENIZER.encode(text)]


def test_masked_tokens_are_targets_and_the_others_stay():
    draw = np.random.default_rng(0)
    texts = [
        EncodedText([TOKENIZER.bos, *draw.integers(5, TOKENIZER.mask, 60).tolist(), TOKENIZER.eos]) for _ in range(200)
    ]
    batch = collate_masked(texts, TOKENIZER, np.random.default_rng(1))
    original = torch.tensor([text.ids for text in texts])
    target_mask = batch.target_mask
    assert torch.equal(batch.targets[target_mask], original[target_mask])
    assert torch.equal(batch.ids[~target_mask], original[~target_mask])
    assert not target_mask[:, 0].any()
    assert not target_mask[:, -1].any()
    n = target_mask.sum().item()
    assert n == batch.tokens
    assert n / (200 * 60) == pytest.approx(MASKED_SHARE, abs=0.02)
    masked = (batch.ids[target_mask] == TOKENIZER.mask).float().mean()
    kept = (batch.ids[target_mask] == original[target_mask]).float().mean()
    assert masked == pytest.approx(0.8, abs=0.05)
    assert kept == pytest.approx(0.1 + 0.1 / TOKENIZER.vocab_size, abs=0.03)
    again = collate_masked(texts, TOKENIZER, np.random.default_rng(1))
    assert torch.equal(again.ids, batch.ids)


def test_at_least_one_token_is_masked():
    text = [EncodedText([TOKENIZER.bos, 7, TOKENIZER.eos])]
    for seed in range(20):
        batch = collate_masked(text, TOKENIZER, np.random.default_rng(seed))
        assert batch.target_mask.tolist() == [[False, True, False]]


def test_a_resumed_stream_masks_the_same_tokens():
    texts = encode_masked(TEXTS * 20, Encoding(TOKENIZER, max_tokens=6))

    def stream():
        return BatchStream(texts, "masked_language_model", TOKENIZER, 60, seed=3)

    one, other = stream(), stream()
    first = next(one)
    for _ in range(len(one.order) + 2):
        next(one)
    other.set_position(one.position())
    assert torch.equal(next(one).ids, next(other).ids)
    assert torch.equal(first.ids, next(stream()).ids)


def test_a_tag_is_at_the_first_token_of_its_word():
    example = TaggedText(("sleeping", "cat"), ("verb", "noun"))
    encoding = Encoding(BPE, labels_of("tagging", [example]), 100)
    [encoded] = encode_tagged([example], encoding)
    first = len(BPE.encode("sleeping"))
    assert encoded.ids == [BPE.bos, *BPE.encode("sleeping"), *BPE.encode("cat"), BPE.eos]
    assert first > 1
    assert [i for i, tag in enumerate(encoded.tags) if tag != NO_TAG] == [1, 1 + first]
    assert [encoding.labels[tag] for tag in encoded.tags if tag != NO_TAG] == ["verb", "noun"]
    batch = collate_tagged([encoded], BPE)
    assert batch.tokens == 2
    assert batch.target_mask[0].nonzero()[:, 0].tolist() == [1, 1 + first]


def test_a_word_without_tokens_becomes_unk():
    [row] = encode_words(TOKENIZER, [["the", " ", "cat"]])
    assert len(row.first) == 3
    assert row.ids[row.first[1]] == TOKENIZER.unk


def test_labels():
    examples = [LabelledText("the cat", "b"), LabelledText("a dog", "a"), LabelledText("", "b")]
    encoding = Encoding(TOKENIZER, labels_of("classification", examples), 10)
    assert encoding.labels == ["a", "b"]
    encoded = encode_labelled(examples, encoding)
    assert [e.label for e in encoded] == [1, 0, 1]
    assert encoded[0].ids == [TOKENIZER.bos, *TOKENIZER.encode("the cat"), TOKENIZER.eos]
    assert encoded[2].ids == []  # skipped later, and counted
    with pytest.raises(DataError, match=r"the label 'c' does not occur in the training data. Its labels are: a, b"):
        encoding.label_id("c")


CORPUS_FOR = {
    "translation": "reverse",
    "language_model": "python",
    "masked_language_model": "python",
    "classification": "python:expressions",
    "tagging": "python:tags",
    "image_classification": "digits",
}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_prepares_its_built_in_corpus(task):
    size = 200 if TASKS[task].kind in ("tags", "images") else 12  # enough for every label to occur
    config = DataConfig(corpus=CORPUS_FOR[task], size=size, heldout_size=6, vocab_size=300, max_tokens=96)
    prepared = prepare(config, task)
    assert prepared.train
    assert prepared.valid
    assert bool(prepared.tokenizer) == (task != "image_classification")
    assert bool(prepared.labels) == (TASKS[task].kind in ("labels", "tags", "images"))
    assert prepared.fingerprint == prepare(config, task).fingerprint
    other = DataConfig(corpus=CORPUS_FOR[task], size=size - 1, heldout_size=6, vocab_size=300, max_tokens=96)
    assert prepared.fingerprint != prepare(other, task).fingerprint


def test_a_corpus_of_the_wrong_kind_is_refused():
    with pytest.raises(DataError, match=r"'digits' contains images, but the task 'tagging' needs tags"):
        load_split(DataConfig(corpus="digits"), "tagging", "train")


def test_files_of_each_task(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.tsv").write_text("good film\tpos\nbad film\tneg\n")
    (tmp_path / "c.conll").write_text("The DET\ncat NOUN\n\nIt PRON\n")
    config = DataConfig(root=str(tmp_path), train=("a.txt",))
    assert load_split(config, "language_model", "train") == ["one\ntwo"]
    config = DataConfig(root=str(tmp_path), train=("b.tsv",))
    assert load_split(config, "classification", "train") == [("good film", "pos"), ("bad film", "neg")]
    config = DataConfig(root=str(tmp_path), train=("c.conll",))
    assert load_split(config, "tagging", "train")[0] == (("The", "cat"), ("DET", "NOUN"))
    with pytest.raises(DataError, match="c.conll is not an .npz file"):
        load_split(config, "image_classification", "train")
    with pytest.raises(DataError, match="has no valid data.*a file of words with tags"):
        load_split(config, "tagging", "valid")


def test_word_splitter():
    assert word_splitter(DataConfig(corpus="python:tags"))("f(x)") == ["f", "(", "x", ")"]
    assert word_splitter(DataConfig(train=("a",)))("f(x) y") == ["f(x)", "y"]


def test_only_a_masked_language_model_has_a_mask():
    assert Tokenizer.train(TEXTS, "word", 40).mask is None
    assert TOKENIZER.tokens([TOKENIZER.mask]) == ["<mask>"]
    assert TOKENIZER.encode("the <mask>") == [*TOKENIZER.encode("the"), TOKENIZER.unk]  # in a text, it is text
    for scheme in choices(DataConfig, "tokenizer"):
        if scheme != "file":
            tokenizer = Tokenizer.train(TEXTS, scheme, 300, has_mask=True)
            assert tokenizer.vocab_size <= 300
            assert tokenizer.mask == Tokenizer.from_json(tokenizer.to_json()).mask is not None


def test_load_builtin_returns_the_kind_of_the_corpus():
    assert isinstance(load_builtin("python", "test", 1)[0], str)
    assert load_builtin("digits", "test", 1)[0].pixels.shape == (1, 8, 8)
