"""Text piece by piece: together exactly the text, and never a piece that must be taken back."""

import itertools
import threading

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

from cutaway.data.tokenizer import SCHEMES, SPECIALS, Tokenizer
from cutaway.search.streaming import HALF, Stops, TextStream, ended, from_thread

TEXTS = ["Das Mädchen trinkt 2 € teuren Kaffee. <unk> ok", "naïve 日本語 text 🙂, don't", "  two  spaces\n\tand lines"]
PIECES = ["▁", "▁the", "s", "a", "▁a", "<", "unk", ">", ".", "##b", "##", "▁▁"]


def sentencepiece():
    """As Llama's and T5's: ▁ for a space, bytes for what is not in the vocabulary."""
    names = [*SPECIALS, *PIECES, *(f"<0x{byte:02X}>" for byte in range(256))]
    backend = tokenizers.Tokenizer(models.BPE(vocab={name: id for id, name in enumerate(names)}, merges=[]))
    backend.add_special_tokens(SPECIALS)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    return Tokenizer(backend)


def with_decoder(decoder):
    names = [*SPECIALS, *PIECES]
    backend = tokenizers.Tokenizer(models.WordLevel({name: id for id, name in enumerate(names)}, unk_token="<unk>"))
    backend.add_special_tokens(SPECIALS)
    if decoder:
        backend.decoder = decoder
    return Tokenizer(backend)


TOKENIZERS = {scheme: Tokenizer.train(TEXTS, scheme, 320) for scheme in SCHEMES}
TOKENIZERS |= {
    "sentencepiece": sentencepiece(),
    "words with a space between them": with_decoder(None),
    "metaspace": with_decoder(decoders.Metaspace()),
    "wordpiece": with_decoder(decoders.WordPiece()),
    "end of word": with_decoder(decoders.BPEDecoder(suffix="s")),
}
every_tokenizer = pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
ids = st.lists(st.integers(0, 10**6), max_size=4).flatmap(  # few, so that some come again
    lambda few: st.lists(st.sampled_from(few), max_size=12) if few else st.just([])
)


def check(tokenizer, before, tokens):
    stream, shown, whole = TextStream(tokenizer, before), "", tokenizer.decode([*before, *tokens])
    text = whole[len(tokenizer.decode(before)) :]
    for token in tokens:
        shown += stream.add(token)
        assert text.startswith(shown), f"{shown!r} is not how {text!r} begins"
    shown += stream.end()
    assert shown == text


@every_tokenizer
@given(ids)
def test_pieces_of_any_tokens_are_the_text(tokenizer, tokens):
    check(tokenizer, [], [token % tokenizer.vocab_size for token in tokens])


@every_tokenizer
@given(st.text(alphabet="ab ▁s.<unk>é€🙂日\n", max_size=15), st.text(alphabet="a <unk>é🙂.", max_size=8))
def test_pieces_of_any_text_are_the_text_also_after_another(tokenizer, text, before):
    check(tokenizer, tokenizer.encode(before), tokenizer.encode(text))
    check(tokenizer, [], tokenizer.encode(text))


def test_the_end_of_a_text_in_between_does_not_end_a_run_of_bytes():
    """Random tokens found it: a special token is not seen, so bytes before and after it are neighbours."""
    tokenizer = TOKENIZERS["sentencepiece"]
    check(
        tokenizer, [], [tokenizer.backend.token_to_id("<0x61>"), tokenizer.eos, tokenizer.backend.token_to_id("<0xFF>")]
    )


def test_half_a_character_waits_for_the_other_half():
    stream = TextStream(TOKENIZERS["byte"])
    pieces = [stream.add(token) for token in TOKENIZERS["byte"].encode("a€b")]
    assert pieces == ["a", "", "", "€", "b"]
    assert stream.end() == ""
    cut = TextStream(TOKENIZERS["byte"])
    assert [cut.add(token) for token in TOKENIZERS["byte"].encode("€")[:2]] == ["", ""]
    assert cut.end() == HALF  # this is what the text has become


def shown_by(stops, pieces):
    shown = []
    for piece in pieces:
        shown.append(stops.add(piece))
        if stops.is_over:
            break
    return "".join(shown) + stops.end()


@given(st.text(alphabet="abc", max_size=12), st.lists(st.text(alphabet="abc", max_size=3), max_size=3),
       st.lists(st.integers(0, 12), max_size=6))  # fmt: skip
@settings(max_examples=200)
def test_a_text_ends_before_the_stop_that_is_complete_first_however_it_is_cut(text, stops, cuts):
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    stops = [stop for stop in stops if stop]
    # read character by character: as soon as the text ends with a stop, it ends before that
    for end in range(len(text) + 1):
        if matching := [stop for stop in stops if text[:end].endswith(stop)]:
            expected = text[: end - max(map(len, matching))]
            break
    else:
        expected = text
    assert shown_by(Stops(stops), pieces) == expected == ended(text, stops)


def test_no_part_of_a_stop_is_shown_before_it_is_certain_to_be_none():
    stops = Stops(["\n\n"])
    assert [stops.add(piece) for piece in ["a\n", "b", "\n", "\nc"]] == ["a", "\nb", "", ""]
    assert stops.is_over
    assert stops.end() == ""


def test_what_a_thread_says_arrives_in_order_and_so_do_its_errors():
    def work(say):
        say("a")
        say("")
        say("b")
        raise ValueError("no c")

    pieces = from_thread(work)
    assert [next(pieces), next(pieces)] == ["a", "b"]
    with pytest.raises(ValueError, match="no c"):
        next(pieces)


def test_closing_ends_the_work():
    over = threading.Event()

    def work(say):
        while say("again"):
            pass
        over.set()

    pieces = from_thread(work)
    assert next(pieces) == "again"
    pieces.close()
    assert over.is_set()
    assert list(from_thread(lambda say: None)) == []
