"""Every format of docs/data.md can be read, and errors name the problem."""

import gzip
import json
import sys
import types

import numpy as np
import pytest

from cutaway.config import Config, DataConfig, ModelConfig
from cutaway.data import lines
from cutaway.data.corpus import read_pairs, read_texts, stream_texts
from cutaway.data.hub import HubDataset, load_named, load_saved
from cutaway.data.images import read_images
from cutaway.data.labels import read_labels, read_tags
from cutaway.data.lines import read_lines, read_parts
from cutaway.data.prepare import prepare
from cutaway.data.tasks import has_split, load_split
from cutaway.errors import ConfigError, DataError, MissingExtra


@pytest.fixture
def file(tmp_path):
    def write(name, content):
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path / name

    return write


# ---- Pairs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_pairs_from_tsv(file, name):
    path = file(name, "\ufeffone\tun\r\n\n  \ntwo\t\n")
    assert read_pairs(path) == [("one", "un"), ("two", "")]  # an empty side is skipped later, and counted
    assert read_pairs(file(name, "x\ta\tb\n"), columns=(2, 1)) == [("b", "a")]
    assert read_pairs(file(name, "x\ta\tb\n"), columns=(-1, 0)) == [("b", "x")]


def test_pairs_from_jsonl(file):
    path = file(
        "a.jsonl", '{"source": "one", "target": "un"}\n\n{"target": "deux\\nlignes", "source": "two", "id": 1}\n'
    )
    assert read_pairs(path) == [("one", "un"), ("two", "deux lignes")]
    path = file("b.jsonl.gz", '{"translation": {"de": "eins", "en": "one"}}\n')
    assert read_pairs(path) == [("eins", "one")]
    assert read_pairs(path, columns=("en", "de")) == [("one", "eins")]
    assert read_pairs(file("c.jsonl", '{"fr": "un", "en": "one"}'), columns=("en", "fr")) == [("one", "un")]
    assert read_pairs(path, file("c.jsonl", '{"source": "a", "target": "b"}')) == [("eins", "one"), ("a", "b")]


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("a.tsv", "no tab\n", (), "line 1 is 'no tab'. Expected a source, a tab and a target, but it has 1 columns"),
        ("a.tsv", "a\tb\tc\n", (), r"it has 3 columns. Select two with data.columns, as in \[0, 1\]"),
        ("a.tsv", "a\tb\n", (0, 2), r"line 1 has 2 columns.*data.columns = \[0, 2\] does not fit"),
        ("a.tsv", "a\tb\n", ("de", "en"), r"data.columns = \['de', 'en'\] does not fit"),
        ("a.jsonl", '{"source": "a"', (), r"line 1 is not JSON \(.*column 15\)"),
        ("a.jsonl", '{"source": "a"}', (), r'Expected {"source": ..., "target": ...} or .*For other field names, set data.columns'),
        ("a.jsonl", '{"translation": {"de": "a", "en": "b", "fr": "c"}}', (), "Expected .* with two strings"),
        ("a.jsonl", '{"de": "a"}', ("de", "en"), "Expected the fields 'de' and 'en' of data.columns"),
        ("a.jsonl", '{"de": "a"}', (0, 1), "data.columns = .* does not fit .*, because its fields have names"),
        ("a.jsonl", "[1, 2]", (), r"line 1 is '\[1, 2\]'"),
        ("a.jsonl", "[" * 100_000, (), "is not JSON"),
        ("a.tsv", "\n", (), "a.tsv is empty"),
    ],
)  # fmt: skip
def test_bad_pairs(file, name, content, columns, message):
    with pytest.raises(DataError, match=message):
        read_pairs(file(name, content), columns=columns)


def test_which_files_are_pairs():
    for files in [("a.tsv",), ("a.jsonl.gz", "b.jsonl"), ("hf:wmt/wmt14:de-en",), ("train.de", "train.en"), ()]:
        Config(data=DataConfig(train=files))
    for files in [("a.txt",), ("a.tsv", "b.txt"), ("a", "b", "c")]:
        with pytest.raises(ConfigError, match="must name two files whose lines correspond.*or files of pairs"):
            Config(data=DataConfig(train=files))


# ---- Lines and texts -----------------------------------------------------------------------------------------


def test_a_huge_line_is_refused_without_reading_all_of_it(tmp_path):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(5_000_000_000)  # a sparse file: no space on the disk, but 5 GB in memory
    with pytest.raises(DataError, match="huge, line 1 has more than 10 MB without a line end"):
        list(read_lines(tmp_path / "huge"))


def test_a_text_of_a_language_model_may_be_one_long_line(file, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 10)
    assert read_texts(file("a.txt", "word " * 100)) == ["word " * 100]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r\r\n"])
@pytest.mark.parametrize("part", [3, 7, 10**6])
@pytest.mark.parametrize("text", ["", "a", "a\n", "\n", "\n\na\n\n", "a b  c\n d\n\n\te " * 9, "é猫" * 20])
def test_the_parts_of_a_text_concatenate_to_the_text(file, monkeypatch, end, part, text):
    monkeypatch.setattr(lines, "PART_CHARACTERS", part)
    monkeypatch.setattr(lines, "MAX_LOOK_BACK", part // 2)
    path = file("a.txt", text.replace("\n", end))
    parts = list(read_parts(path))
    assert "".join(parts) == "\n".join(read_lines(path))
    assert all(len(one) <= part for one in parts)
    marked = list(stream_texts(path))
    assert [m.is_first for m in marked] == [True] + [False] * (len(marked) - 1)
    assert [m.is_last for m in marked] == [False] * (len(marked) - 1) + [True]


def test_texts_from_jsonl(file):
    path = file("a.jsonl", '{"text": "one\\ntwo"}\n{"text": ""}\n')
    assert read_texts(path) == ["one\ntwo", ""]
    assert read_texts(file("a.jsonl", '{"body": "one"}'), columns=("body",)) == ["one"]
    with pytest.raises(DataError, match=r'line 1 is .*"body".* Expected {"text": ...} with a string'):
        read_texts(path)


def test_other_bad_texts(file):
    with pytest.raises(DataError, match=r"line 2 is not UTF-8 \(byte 4: 0xe9\)"):
        read_texts(file("a.txt", b"fine\ncaf\xe9\n"))
    with pytest.raises(DataError, match="all texts are empty"):
        read_texts(file("a.txt", ""))
    path = file("a.gz", "some text " * 50)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match="a.gz is not a complete gzip file"):
        read_texts(path)
    path.write_bytes(b"plain")
    with pytest.raises(DataError, match="a.gz is not a complete gzip file"):
        list(read_lines(path))


# ---- Labels and tags -----------------------------------------------------------------------------------------


def test_columns_for_labels_and_tags(file):
    assert read_labels(file("a.tsv", "7\tgood\tx\n"), columns=(1, 0)) == [("good", "7")]
    path = file("a.jsonl", '{"sentence": "good", "sentiment": 1}')
    assert read_labels(path, columns=("sentence", "sentiment")) == [("good", "1")]
    path = file("b.jsonl", '{"tokens": ["a", "dog"], "tags": ["DET", 3], "ner": [0, 1]}')
    assert read_tags(path) == [(("a", "dog"), ("DET", "3"))]
    assert read_tags(path, columns=("tokens", "ner")) == [(("a", "dog"), ("0", "1"))]
    config = DataConfig(root=str(file("c.conll", "1\tle\tx\tDET\n").parent), train=("c.conll",), columns=(1, 3))
    assert load_split(config, "tagging", "train") == [(("le",), ("DET",))]
    with pytest.raises(DataError, match=r"data.columns = \['word', 'tag'\] does not fit .*c.conll"):
        read_tags(file("c.conll", "le DET\n"), columns=("word", "tag"))
    with pytest.raises(DataError, match="Expected .* and a tag for each word"):
        read_tags(file("d.jsonl", '{"words": ["a", "b"], "tags": ["X"]}'))


def test_a_validation_label_that_is_not_in_the_training_data(file):
    root = str(file("train.tsv", "good\tpos\nbad\tneg\n").parent)
    file("valid.tsv", "so so\tneutral\n")
    config = DataConfig(root=root, train=("train.tsv",), valid=("valid.tsv",), vocab_size=300)
    with pytest.raises(DataError, match="the label 'neutral' does not occur in the training data. Its labels are: neg"):
        prepare(config, "classification")


# ---- Images --------------------------------------------------------------------------------------------------


def test_images(tmp_path):
    grey, labels = np.arange(4 * 6, dtype=np.uint8).reshape(2, 3, 4), np.array(["cat", "dog"])
    np.savez(tmp_path / "a.npz", images=grey, labels=labels)
    pictures = read_images(tmp_path / "a.npz")
    assert [p.label for p in pictures] == ["cat", "dog"]
    assert pictures[1].pixels.shape == (1, 3, 4)
    assert pictures[1].pixels.dtype == np.float32
    assert pictures[-1].pixels.max() == np.float32(23 / 255)
    np.savez_compressed(tmp_path / "b.npz", images=np.full((5, 3, 2, 2), 0.5), labels=np.array([2, 0, 2, 0, 2]))
    config = DataConfig(root=str(tmp_path), train=("b.npz",), valid_share=0.4)
    prepared = prepare(config, "image_classification")
    assert prepared.labels == ["0", "2"]
    assert [e.label for e in prepared.train] == [1, 0, 1]
    assert [e.label for e in prepared.valid] == [0, 1]
    assert prepared.train[0].pixels.shape == (3, 2, 2)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": [1]}, "contains labels, but no images"),
        ({"images": np.zeros((2, 3, 3), np.uint8)}, "contains images, but no labels"),
        ({"images": np.array([{}, {}]), "labels": [1, 2]}, "images contains Python objects. .*can run any code"),
        ({"images": np.zeros((2, 3), np.uint8), "labels": [1, 2]}, r"uint8 \[2, 3\]. Expected \[N, H, W\]"),
        ({"images": np.zeros((2, 3, 3), np.int32), "labels": [1, 2]}, "int32 .*Expected uint8 from 0 to 255"),
        ({"images": np.full((2, 3, 3), 7.0), "labels": [1, 2]}, "from 7 to 7. Expected uint8"),
        ({"images": np.zeros((2, 3, 3), np.uint8), "labels": [1]}, r"labels are int64 \[1\]. Expected \[2\]"),
        ({"images": np.zeros((2, 3, 3), np.uint8), "labels": [1.5, 2.0]}, "labels are float64"),
        ({"images": np.zeros((2, 8, 8, 3), np.uint8), "labels": [1, 2]}, "the channels are last"),
        ({"images": np.zeros((0, 3, 3), np.uint8), "labels": np.zeros(0, int)}, "is empty"),
    ],
)  # fmt: skip
def test_bad_images(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=message):
        read_images(tmp_path / "a.npz")


def test_other_bad_image_files(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        read_images(tmp_path / "none.npz")
    (tmp_path / "a.npz").write_bytes(b"\x80\x04 what a pickle begins with")
    with pytest.raises(DataError, match="is not an .npz file"):
        read_images(tmp_path / "a.npz")
    model = ModelConfig(family="vision", head="classes", image_size=4, patch_size=2)
    with pytest.raises(ConfigError, match=r'must name one file of arrays, as in \["train.npz"\]'):
        Config(model=model, data=DataConfig(train=("a.png",)))


# ---- Hugging Face datasets -----------------------------------------------------------------------------------


class FakeDataset(list):
    """Rows with the attributes of a `datasets` dataset."""

    def __init__(self, rows, **features):
        super().__init__(rows)
        self.features = {name: types.SimpleNamespace(**feature) for name, feature in features.items()}
        self.data = types.SimpleNamespace(nbytes=len(json.dumps(rows)))
        self._fingerprint = "abc"


@pytest.fixture
def fake_hub(monkeypatch):
    """A fake module `datasets` with a few datasets."""
    loaded = []
    module = types.ModuleType("datasets")
    module.__version__ = "4.1.0"
    known = {
        "imdb": FakeDataset(
            [{"text": "good", "label": 1}, {"text": "bad", "label": 0}], label={"names": ["neg", "pos"]}
        ),
        "wmt/wmt14": FakeDataset([{"translation": {"de": "eins", "en": "one"}}]),
        "conll": FakeDataset(
            [{"tokens": ["Ann"], "ner": [1]}], ner={"feature": types.SimpleNamespace(names=["O", "B-PER"])}
        ),
        "books": FakeDataset([{"text": "a"}, {"text": "b"}]),
    }

    def load_dataset(name, config=None, *, split):
        loaded.append((name, config, split))
        if name not in known:
            raise FileNotFoundError(f"{name} is not on the hub")
        return known[name]

    module.load_dataset = load_dataset
    module.load_from_disk = lambda path: {"train": known["books"], "test": known["books"]}
    monkeypatch.setitem(sys.modules, "datasets", module)
    load_named.cache_clear()
    load_saved.cache_clear()
    yield loaded
    load_named.cache_clear()
    load_saved.cache_clear()


def test_datasets_of_each_task(fake_hub):
    assert load_split(DataConfig(train=("hf:imdb",)), "classification", "train") == [("good", "pos"), ("bad", "neg")]
    config = DataConfig(train=("hf:wmt/wmt14:de-en@train[:10%]",), valid=("hf:wmt/wmt14:de-en",), columns=("en", "de"))
    assert load_split(config, "translation", "train") == load_split(config, "translation", "valid") == [("one", "eins")]
    config = DataConfig(train=("hf:conll",), columns=("tokens", "ner"))
    assert load_split(config, "tagging", "train") == [(("Ann",), ("B-PER",))]
    assert load_split(DataConfig(train=("hf:books", "hf:./my-books@test")), "language_model", "train") == list("abab")
    assert ("wmt/wmt14", "de-en", "train[:10%]") in fake_hub
    assert ("wmt/wmt14", "de-en", "validation") in fake_hub
    prepared = prepare(DataConfig(train=("hf:imdb",), vocab_size=300), "classification")
    assert prepared.labels == ["neg", "pos"]


def test_dataset_errors(fake_hub, monkeypatch):
    with pytest.raises(DataError, match="hf:none@train cannot be loaded: FileNotFoundError: none is not on the hub"):
        load_split(DataConfig(train=("hf:none",)), "language_model", "train")
    with pytest.raises(DataError, match="has no split 'trian'. Did you mean 'train'"):
        load_split(DataConfig(train=("hf:./books@trian",)), "language_model", "train")
    with pytest.raises(DataError, match=r"hf:imdb@train, row 1 is .* Expected {\"words\""):
        load_split(DataConfig(train=("hf:imdb",)), "tagging", "train")
    with pytest.raises(DataError, match="'hf::x' is not the name of a dataset"):
        HubDataset("hf::x")
    sys.modules["datasets"].__version__ = "3.6.0"
    load_named.cache_clear()
    with pytest.raises(DataError, match="datasets 3.6.0 is installed, which may run code from the hub"):
        load_split(DataConfig(train=("hf:imdb",)), "classification", "train")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"pip install 'cutaway\[hub\]'"):
        load_split(DataConfig(train=("hf:imdb",)), "classification", "train")


# ---- valid_share ---------------------------------------------------------------------------------------------


def test_a_share_of_the_examples_is_held_out(file):
    root = str(file("a.tsv", "".join(f"{n}\t{n % 2}\n" for n in range(10))).parent)
    config = DataConfig(root=root, train=("a.tsv",), valid_share=0.25, vocab_size=300)
    train, valid = (load_split(config, "classification", split) for split in ("train", "valid"))
    assert [e.text for e in train] == list("0123456")
    assert [e.text for e in valid] == list("789")
    assert has_split(config, "valid")
    assert not has_split(config, "test")


@pytest.mark.parametrize("part", [4, 10**6])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.5, 0.93])
def test_a_share_of_a_text_is_its_last_characters(file, monkeypatch, part, share):
    monkeypatch.setattr(lines, "PART_CHARACTERS", part)
    monkeypatch.setattr(lines, "MAX_LOOK_BACK", 2)
    text = "To be, or not to be.\n" * 4
    root = str(file("a.txt", text).parent)
    config = DataConfig(root=root, train=("a.txt",), valid_share=share)
    [whole] = read_texts(f"{root}/a.txt")
    at = int(len(whole) * (1 - share))
    assert load_split(config, "language_model", "train") == [whole[:at]]
    assert load_split(config, "language_model", "valid") == [whole[at:]]


def test_the_last_of_several_texts_are_held_out(file):
    root = str(file("a.jsonl", "".join(json.dumps({"text": t}) + "\n" for t in ["aaaa", "bbbb", "", "cc"])).parent)
    config = DataConfig(root=root, train=("a.jsonl",), valid_share=0.5)
    assert load_split(config, "language_model", "train") == ["aaaa", "b"]
    assert load_split(config, "language_model", "valid") == ["bbb", "", "cc"]
    config = DataConfig(root=root, train=("a.jsonl",), valid_share=0.2)
    assert load_split(config, "language_model", "train") == ["aaaa", "bbbb"]
    assert load_split(config, "language_model", "valid") == ["cc"]


def test_the_tokenizer_does_not_see_held_out_data(file):
    root = str(file("a.txt", "abcabcabc" * 9 + "xyz" * 3).parent)
    prepared = prepare(
        DataConfig(root=root, train=("a.txt",), valid_share=0.1, tokenizer="char", max_tokens=8), "language_model"
    )
    vocabulary = json.loads(prepared.tokenizer)["model"]["vocab"]
    assert {"a", "b", "c"} <= set(vocabulary)
    assert not {"x", "y", "z"} & set(vocabulary)
    assert prepared.valid


def test_impossible_shares(file):
    root = str(file("a.tsv", "a\tb\n").parent)
    with pytest.raises(DataError, match=r"valid_share = 0.5 of 1 examples leaves none to train on"):
        load_split(DataConfig(root=root, train=("a.tsv",), valid_share=0.5), "translation", "train")
    for other in ({"corpus": "copy"}, {"train": ("a.tsv",), "valid": ("b.tsv",)}):
        with pytest.raises(ConfigError, match="valid_share = 0.1 and data.* are both given"):
            DataConfig(valid_share=0.1, **other)
    for wrong in (1.0, -0.1):
        with pytest.raises(ConfigError, match="must be at least 0 and below 1"):
            DataConfig(train=("a.tsv",), valid_share=wrong)
    with pytest.raises(ConfigError, match="columns = .* would have no effect"):
        DataConfig(corpus="copy", columns=(0, 1))


def test_a_missing_extra_error_can_be_pickled():
    import pickle

    error = MissingExtra("datasets", "hub", what="it")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
