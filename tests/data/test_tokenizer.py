import json
import unicodedata

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, normalizers

from cutaway.data.tasks import encode_words
from cutaway.data.tokenizer import SCHEMES, Tokenizer, show_whitespace
from cutaway.errors import ConfigError, DataError

TEXTS = ["L'arbre est grand.", "Le chat, petit et noir, dort.", "Ça va ? 1 + 2 = 3 !", "Der Käse ist weiß."] * 5


@pytest.fixture(scope="module")
def trained():
    return {scheme: Tokenizer.train(TEXTS, scheme, 400) for scheme in SCHEMES}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_round_trip_of_known_text(trained, scheme):
    for text in TEXTS:
        assert trained[scheme].decode(trained[scheme].encode(text)) == text


@given(text=st.text(max_size=40))
@pytest.mark.parametrize("scheme", ["bpe", "byte"])
def test_bpe_and_byte_encode_any_text(trained, scheme, text):
    expected = unicodedata.normalize("NFC", text) if scheme == "bpe" else text
    assert trained[scheme].decode(trained[scheme].encode(text)) == expected


any_text = st.text(max_size=30) | st.lists(st.sampled_from(" \t\n\u00a0Le.é日🙂"), max_size=12).map("".join)
any_text |= st.sampled_from(["", " ", "  ", "\n", "<unk>", " <unk>", "</s> a", "\u0301e", "Ġ", "a\u2028b"])


@given(first=any_text, then=any_text)
def test_bpe_restores_a_text_exactly_whole_or_in_two_parts(trained, first, then):
    bpe = trained["bpe"]
    first, then = (unicodedata.normalize("NFC", text) for text in (first, then))
    ids = bpe.encode(first)
    assert bpe.decode(ids) == first
    assert bpe.encode_batch([first, then]) == [ids, bpe.encode(then)]
    after = bpe.encode(then, continues=True)
    assert bpe.encode_batch([then], continues=True) == [after]
    if first:
        assert bpe.decode([*ids, *after]) == first + then
    inside = Tokenizer.from_json(bpe.to_json())  # the oracle: a tokenizer that never prepends a space
    inside.backend.normalizer = normalizers.NFC()
    assert after == inside.encode(then)
    assert ids == (inside.encode(" " + first) if first else [])


@pytest.mark.parametrize("scheme", ["bpe", "word"])
def test_the_first_word_is_the_same_token_as_inside_a_sentence(scheme):
    tokenizer = Tokenizer.train(["the cat sees the dog"] * 20, scheme, 300)
    [cat] = tokenizer.encode("cat")
    assert tokenizer.encode("the cat")[1:] == [cat]
    assert encode_words(tokenizer, [["the", "cat"]])[0].ids[1:-1] == tokenizer.encode("the cat")
    assert tokenizer.tokens(tokenizer.encode("cat")) == ["cat"]


def test_white_space_tokens_have_visible_names():
    tokenizer = Tokenizer.train(["        y x        y"] * 20, "bpe", 300)
    assert tokenizer.tokens(tokenizer.encode("x        y")) == ["x", "␣×7", "y"]
    assert tokenizer.tokens(tokenizer.encode("       y")) == ["␣×7", "y"]  # six of them are from the text


def test_the_prepended_space_has_an_empty_span(trained):
    for text in ("Zz", " Zz", "日"):
        spans = trained["bpe"].spans(text)
        assert spans[0] == (0, 0)
        assert "".join(dict.fromkeys(text[a:b] for a, b in spans)) == text.strip()


@given(text=st.text(max_size=40))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_saved_tokenizer_and_a_batch_give_the_same_ids(trained, scheme, text, tmp_path_factory):
    tokenizer = trained[scheme]
    path = tmp_path_factory.mktemp("t") / "tokenizer.json"
    path.write_text(tokenizer.to_json(), encoding="utf-8")
    again = Tokenizer.open(path)
    assert again.encode(text) == tokenizer.encode(text) == tokenizer.encode_batch([text, "x"])[0]
    assert (again.pad, again.bos, again.eos, again.unk) == (tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.unk)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_special_names_in_a_text_are_text(trained, scheme):
    tokenizer = trained[scheme]
    for text in ("a</s>b", "</s>", "l'</s>", "<pad> <s>"):
        assert not {tokenizer.pad, tokenizer.bos, tokenizer.eos} & set(tokenizer.encode(text))


def test_words_and_punctuation_are_split(trained):
    word = trained["word"]
    assert word.tokens(word.encode("L'arbre est grand.")) == ["L'", "arbre", "est", "grand", "."]
    assert [("L'arbre est."[a:b]) for a, b in word.spans("L'arbre est.")] == ["L'", "arbre", "est", "."]
    assert word.encode("xylophone") == [word.unk]
    assert word.decode(word.encode("Le xylophone dort.")) == "Le ⁇ dort."
    assert word.decode(word.encode("Xylophone dort.")) == "⁇ dort."
    assert word.unknown("Le xylophone dort, Zoé.") == ["xylophone", "Zoé"]


def test_word_ids_do_not_depend_on_white_space_or_position(trained):
    word = trained["word"]
    ids = word.encode("Le chat dort.")
    for text in ("  Le chat dort.", "Le  chat\tdort.  ", "Le\u00a0chat dort.\n"):
        assert word.encode(text) == ids
    assert word.encode("chat dort") == ids[1:3]
    assert word.encode(" \t ") == []


def test_bpe_merges_frequent_pairs():
    tokenizer = Tokenizer.train(["low lower lowest newest widest"] * 50, "bpe", 290)
    assert len(tokenizer.encode(" lowest")) < len(" lowest")
    assert tokenizer.vocab_size <= 290


@pytest.mark.parametrize("scheme", SCHEMES)
def test_spans_point_at_the_text(trained, scheme):
    text = "Le chat  dort."
    spans = trained[scheme].spans(text)
    assert len(spans) == len(trained[scheme].encode(text))
    assert "".join(text[a:b] for a, b in spans) == text.replace(" ", "")


def test_any_tokenizer_json_can_be_opened(tmp_path):
    backend = tokenizers.Tokenizer(models.WordLevel({"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, "hi": 4}, "[UNK]"))
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.open(tmp_path / "tokenizer.json")
    assert (tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.unk) == (0, 1, 2, 3)
    assert tokenizer.encode("hi") == [4]


def test_unusual_roles_come_from_an_argument_or_from_tokenizer_config(tmp_path):
    backend = tokenizers.Tokenizer(models.WordLevel({"P": 0, "B": 1, "E": 2, "U": 3}, "U"))
    path = tmp_path / "tokenizer.json"
    backend.save(str(path))
    with pytest.raises(DataError, match=r"no token for 'pad'.*roles=\{\"pad\""):
        Tokenizer.open(path)
    assert Tokenizer.open(path, {"pad": "P", "bos": "B", "eos": "E", "unk": "U"}).eos == 2
    settings = {"pad_token": "P", "bos_token": {"content": "B"}, "eos_token": "E", "unk_token": "U"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert Tokenizer.open(path).bos == 1


def test_errors(tmp_path):
    with pytest.raises(ConfigError, match="no tokenizer scheme 'bpr'. Did you mean 'bpe'"):
        Tokenizer.train(TEXTS, "bpr")
    with pytest.raises(ConfigError, match="a vocabulary of 100 is too small: 'bpe' needs at least 260"):
        Tokenizer.train(TEXTS, "bpe", 100)
    with pytest.raises(DataError, match="there is no tokenizer file"):
        Tokenizer.open(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(DataError, match=r"bad\.json is not a readable tokenizer\.json"):
        Tokenizer.open(tmp_path / "bad.json")


def test_spaces_at_the_start_of_a_text_are_text():
    """For example indentation. The tokenizer has <unk>, which decoding treats separately."""
    tokenizer = Tokenizer.train(["    return x\n" * 5], "bpe", 300)
    assert tokenizer.decode(tokenizer.encode("    return x")) == "    return x"


def test_show_whitespace():
    assert [show_whitespace(text) for text in (" ", "\n", "\n    ", "\t\t", "\r")] == ["␣", "⏎", "⏎␣×4", "⇥×2", "\\xd"]
