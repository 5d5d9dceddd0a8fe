"""Tokenizer files, read without the original libraries and compared with them, on small vocabularies."""

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported

import pytest

from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import DataError
from cutaway.interop.sentencepiece import read_model
from cutaway.interop.tokenizer_files import read_tokenizer, write_tokenizer

TEXTS = [
    "The small cat sleeps on the warm stone, and the dog watches it.",
    "A small dog barks at the moon; the cat does not care at all.",
    "Warm stones and cold water, small cats and large dogs.",
    "It is said that the moon is made of stone, not of cheese.",
]
ODD = [
    "The  cat\tsleeps ",
    "naïve café, ﬁne Ⅳ “quoted” — dash…",
    "unheard-of words: xylophone zebra 12345",
    "漢字 and emoji 🙂 and ẞ",
    " leading and trailing ",
    "",
    "a",
    "</s> is text here, and so is <pad>",
]


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")


@pytest.fixture(scope="module")
def spm(tmp_path_factory):
    """A function that trains a SentencePiece model with these options."""
    import sentencepiece

    folder = tmp_path_factory.mktemp("spm")

    def train(name, texts=TEXTS, **options):
        path = folder / f"{name}.model"
        if not path.exists():
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts * 20), model_prefix=str(folder / name), hard_vocab_limit=False,
                minloglevel=2, **{"vocab_size": 120, **options},
            )  # fmt: skip
        return path

    return train


def pieces_of(path, text):
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=str(path)).encode(text, out_type=str)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"add_dummy_prefix": False},
        {"normalization_rule_name": "identity"},
        {"byte_fallback": True, "vocab_size": 380},
    ],
    ids=["usual", "no-prefix", "identity", "bytes"],
)
def test_t5_is_equal_to_sentencepiece(spm, tmp_path, options):
    path = spm("t5" + "-".join(map(str, options.values())), pad_id=0, eos_id=1, unk_id=2, bos_id=-1, **options)
    (tmp_path / "spiece.model").write_bytes(path.read_bytes())
    tokenizer = read_tokenizer(tmp_path, {"model_type": "t5", "decoder_start_token_id": 0})
    import sentencepiece

    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    for text in TEXTS + ODD[:-1]:
        assert tokenizer.encode(text) == theirs.encode(text), text
    size = theirs.vocab_size()
    assert tokenizer.vocab_size == size + 100
    assert tokenizer.backend.token_to_id("<extra_id_0>") == size + 99
    assert (tokenizer.pad, tokenizer.bos, tokenizer.eos) == (0, 0, 1)
    assert tokenizer.decode(tokenizer.encode(TEXTS[0])) == TEXTS[0]


@pytest.mark.slow
def test_marian_is_equal_to_transformers(spm, tmp_path):
    from transformers import MarianTokenizer

    german = ["Die kleine Katze schläft auf dem warmen Stein.", "Der Mond ist aus Stein, nicht aus Käse.", "漢 ist neu"]
    source, target = spm("source"), spm("target", german, vocab_size=90)
    (tmp_path / "source.spm").write_bytes(source.read_bytes())
    (tmp_path / "target.spm").write_bytes(target.read_bytes())
    pieces = [piece.text for path in (source, target) for piece in read_model(path).pieces]
    names = [
        "</s>",
        "<unk>",
        *dict.fromkeys(p for p in pieces if p not in ("<s>", "</s>", "<unk>")),
        ">>deu<<",
        "<pad>",
    ]
    ids = {name: id for id, name in enumerate(names)}
    write(tmp_path / "vocab.json", ids)
    write(tmp_path / "tokenizer_config.json", {"source_lang": "eng", "target_lang": "deu"})
    theirs = MarianTokenizer.from_pretrained(str(tmp_path))
    ours = read_tokenizer(tmp_path, {"model_type": "marian", "decoder_start_token_id": ids["<pad>"]})
    neighbours = (ODD[1], ODD[3])  # adjacent characters that the source does not know, and the target knows in part
    for text in [*TEXTS, *(t for t in ODD[:-1] if t not in neighbours), ">>deu<< The cat sleeps."]:
        assert [*ours.encode(text), ours.eos] == theirs(text).input_ids, text
    assert [names[i] for i in ours.encode("漢字 a")] == ["▁", "漢", "<unk>", "▁", "a"]  # theirs: one <unk> for both
    assert (ours.bos, ours.eos, ours.pad) == (ids["<pad>"], 0, ids["<pad>"])
    for text in german:
        assert [*ours.for_target.encode(text), ours.eos] == theirs(text_target=text).input_ids
        assert ours.for_target.encode(text) != ours.encode(text)
    again = Tokenizer.from_json(ours.to_json(), ours.roles)  # one file has both
    assert again.for_target.encode(german[0]) == ours.for_target.encode(german[0])
    assert again.encode(TEXTS[0]) == ours.encode(TEXTS[0])
    written = theirs(text_target=german[0]).input_ids
    assert ours.decode(written) == theirs.decode(written, skip_special_tokens=True) == german[0]


@pytest.mark.slow
@pytest.mark.parametrize("lower", [True, False])
def test_bert_is_equal_to_transformers(tmp_path, lower):
    from transformers import BertTokenizer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "The", "small", "cat", "##s", "sleep", "dog", ",", ".",
             "on", "warm", "stone", "naive", "caf", "##e", "a", "##n", "漢", "字", "and", "is", "text", "here", "<", "/", ">", "s"]  # fmt: skip
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    write(tmp_path / "tokenizer_config.json", {"do_lower_case": lower, "tokenizer_class": "BertTokenizer"})
    theirs = BertTokenizer.from_pretrained(str(tmp_path))
    ours = read_tokenizer(tmp_path, {"model_type": "bert", "pad_token_id": 0})
    for text in TEXTS + ODD:
        assert [ours.bos, *ours.encode(text), ours.eos] == theirs(text).input_ids, text
    assert [ours.pad, ours.unk, ours.bos, ours.eos, ours.mask] == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_gpt2_is_equal_to_transformers(tmp_path):
    from transformers import GPT2Tokenizer

    learned = Tokenizer.train(TEXTS, "bpe", 320)
    model = json.loads(learned.to_json())["model"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    names = [name for name in model["vocab"] if not name.startswith("<")]
    write(tmp_path / "vocab.json", {name: id for id, name in enumerate([*names, "<|endoftext|>"])})
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n", encoding="utf-8")
    theirs = GPT2Tokenizer.from_pretrained(str(tmp_path))
    ours = read_tokenizer(tmp_path, {"model_type": "gpt2", "bos_token_id": len(names), "eos_token_id": len(names)})
    for text in TEXTS + ODD:
        assert ours.encode(text) == theirs(text).input_ids, text
    assert not ours.adds_bos
    assert ours.add_bos(ours.encode("cat")) == ours.encode("cat")
    assert ours.add_bos([]) == [len(names)]
    assert ours.decode(ours.encode(ODD[1])) == ODD[1]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder_decoder"])
@pytest.mark.parametrize("scheme", ["bpe", "word", "char", "byte"])
def test_written_tokenizers_work_in_transformers(tmp_path, family, scheme):
    """Their tokenizer adds the special tokens that our batching adds."""
    from transformers import AutoTokenizer

    ours = Tokenizer.train(TEXTS, scheme, 300, has_mask=family == "encoder")
    ids = write_tokenizer(ours, tmp_path, family, 64)
    theirs = AutoTokenizer.from_pretrained(str(tmp_path))
    for text in [*TEXTS, " the cat", "  cat", ""]:
        found, inner = theirs(text).input_ids, ours.encode(text)
        wanted = {
            "decoder": [ours.bos, *inner],
            "encoder": [ours.bos, *inner, ours.eos],
            "encoder_decoder": [*inner, ours.eos],
        }[family]
        assert found == wanted
        assert theirs.decode(inner, skip_special_tokens=True) == ours.decode(inner)
    assert (
        (theirs.pad_token_id, theirs.eos_token_id) == (ours.pad, ours.eos) == (ids["pad_token_id"], ids["eos_token_id"])
    )
    assert theirs.model_max_length == 64
    assert family == "encoder" or "token_type_ids" not in theirs(TEXTS[0])
    back = read_tokenizer(
        tmp_path, {"model_type": {"decoder": "gpt2", "encoder": "bert", "encoder_decoder": "t5"}[family], **ids}
    )
    assert back.encode(TEXTS[0]) == ours.encode(TEXTS[0])
    assert back.roles["eos"] == ours.roles["eos"]
    assert (back.bos, back.pad, back.mask) == (ours.bos, ours.pad, ours.mask)
    assert family != "decoder" or back.adds_bos


def save(tokenizer, folder, **settings):
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    write(folder / "tokenizer_config.json", settings)


def test_roles_come_from_the_files_then_from_the_ids(tmp_path):
    ours = Tokenizer.train(TEXTS, "word", 60)
    save(ours, tmp_path, bos_token="<s>", eos_token={"content": "</s>"})
    found = read_tokenizer(tmp_path, {"model_type": "llama", "pad_token_id": None})
    assert (found.bos, found.eos, found.pad) == (
        ours.bos,
        ours.eos,
        ours.eos,
    )  # without a padding token, the end token is used
    found = read_tokenizer(tmp_path, {"model_type": "t5", "pad_token_id": ours.pad, "decoder_start_token_id": ours.unk})
    assert (found.bos, found.pad) == (ours.unk, ours.pad)
    save(ours, tmp_path)
    found = read_tokenizer(tmp_path, {"model_type": "llama", "bos_token_id": 5, "eos_token_id": [6, 7]})
    assert (found.bos, found.eos) == (5, 6)


@pytest.mark.parametrize(("given", "adds_bos"), [(None, False), (True, True), (False, False)])
def test_whether_a_text_starts_with_bos(tmp_path, given, adds_bos):
    ours = Tokenizer.train(TEXTS, "word", 60)
    save(ours, tmp_path, **({} if given is None else {"add_bos_token": given}), bos_token="<s>")
    found = read_tokenizer(tmp_path, {"model_type": "llama"})
    assert found.adds_bos is adds_bos
    again = Tokenizer.from_json(found.to_json(), found.roles)  # the file contains it
    assert again.adds_bos is adds_bos
    assert again.add_bos([9]) == ([again.bos, 9] if adds_bos else [9])


def test_a_folder_without_a_tokenizer(tmp_path):
    with pytest.raises(DataError, match=r"none of tokenizer.json, vocab.json and merges.txt.*save_pretrained"):
        read_tokenizer(tmp_path, {"model_type": "gpt2"})
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"tokenizer.json is not a readable tokenizer.json"):
        read_tokenizer(tmp_path, {"model_type": "gpt2"})


@pytest.mark.slow
def test_damaged_sentencepiece_files(spm, tmp_path):
    content = spm("source").read_bytes()
    for name, damaged in {"cut": content[:1000], "empty": b"", "text": b"hello there, this is text"}.items():
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(DataError, match=f"{name} is not a readable SentencePiece model"):
            read_model(tmp_path / name)
    (tmp_path / "bpe").write_bytes(spm("bpe", model_type="bpe").read_bytes())
    with pytest.raises(DataError, match=r"only Unigram is supported.*save_pretrained"):
        read_model(tmp_path / "bpe")


def test_a_vocabulary_is_split_only_at_line_feeds(tmp_path):
    """The vocabulary of Chinese BERT contains U+2028, where splitlines() would split."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2028", "\x85", "cat", "dog"]
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(words).encode() + b"\r\n")
    found = read_tokenizer(tmp_path, {"model_type": "bert"})
    assert found.vocab_size == len(words)
    assert found.encode("dog cat") == [8, 7]
    (tmp_path / "vocab.txt").write_text("\n".join([*words, "cat"]), encoding="utf-8")
    with pytest.raises(DataError, match="has the word 'cat' twice"):
        read_tokenizer(tmp_path, {"model_type": "bert"})


def test_one_token_for_all_roles_is_not_the_unknown_token(tmp_path):
    """In SmolLM, <|endoftext|> is the start, end, padding and unknown token."""
    ours = Tokenizer.train(TEXTS, "bpe", 300)
    save(ours, tmp_path, bos_token="</s>", eos_token="</s>", pad_token="</s>", unk_token="</s>")
    found = read_tokenizer(tmp_path, {"model_type": "llama"})
    assert found.unk != found.eos
    after = found.encode(" sleeps", continues=True)
    assert found.decode([*found.encode("the cat"), found.eos, *after, found.pad]) == "the cat sleeps"


@pytest.mark.parametrize(
    "settings", [{"strip_accents": "yes"}, {"cls_token": ["a"]}, {"do_lower_case": {}, "strip_accents": []}]
)
def test_invalid_settings(tmp_path, settings):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ncat\n", encoding="utf-8")
    write(tmp_path / "tokenizer_config.json", settings)
    with pytest.raises(DataError, match="is invalid"):
        read_tokenizer(tmp_path, {"model_type": "bert"})


def test_a_missing_role_names_the_file_to_edit(tmp_path):
    (tmp_path / "vocab.txt").write_text("cat\ndog\n[UNK]\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"no token for.*special_tokens_map.json"):
        read_tokenizer(tmp_path, {"model_type": "bert"})


def test_only_the_source_tokenizer_is_written(tmp_path):
    source, target = Tokenizer.train(TEXTS, "word", 60), Tokenizer.train(TEXTS, "word", 60)
    both = Tokenizer(source.backend, source.roles, target.backend)
    assert Tokenizer.from_json(both.to_json(), both.roles).for_target.encode(TEXTS[0]) == target.encode(TEXTS[0])
    write_tokenizer(both, tmp_path, "encoder_decoder", 64)
    found = read_tokenizer(tmp_path, {"model_type": "marian", "decoder_start_token_id": source.bos})
    assert found.for_target is found
    assert found.encode(TEXTS[0]) == source.encode(TEXTS[0])
