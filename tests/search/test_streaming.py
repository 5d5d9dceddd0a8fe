"""Streaming: all pieces together are exactly the text, and no piece changes later."""

import itertools
import threading

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

from cutaway.data.tokenizer import SCHEMES, SPECIALS, Tokenizer
from cutaway.search.streaming import REPLACEMENT, StopStrings, TextStream, cut_at_stop, stream_from_thread

TEXTS = ["Das Mädchen trinkt 2 € teuren Kaffee. <unk> ok", "naïve 日本語 text 🙂, don't", "  two  spaces\n\tand lines"]
PIECES = ["▁", "▁the", "s", "a", "▁a", "<", "unk", ">", ".", "##b", "##", "▁▁"]


def sentencepiece():
    """A tokenizer like those of Llama and T5: ▁ for a space, bytes for unknown characters."""
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
ids = st.lists(st.integers(0, 10**6), max_size=4).flatmap(  # few, so that some are repeated
    lambda few: st.lists(st.sampled_from(few), max_size=12) if few else st.just([])
)


def check(tokenizer, before, tokens):
    stream, shown, whole = TextStream(tokenizer, before), "", tokenizer.decode([*before, *tokens])
    text = whole[len(tokenizer.decode(before)) :]
    for token in tokens:
        shown += stream.add(token)
        assert text.startswith(shown), f"{text!r} does not start with {shown!r}"
    shown += stream.end()
    assert shown == text


@every_tokenizer
@given(ids)
def test_all_pieces_together_are_the_text_for_any_tokens(tokenizer, tokens):
    check(tokenizer, [], [token % tokenizer.vocab_size for token in tokens])


@every_tokenizer
@given(st.text(alphabet="ab ▁s.<unk>é€🙂日\n", max_size=15), st.text(alphabet="a <unk>é🙂.", max_size=8))
def test_all_pieces_together_are_the_text_also_after_another_text(tokenizer, text, before):
    check(tokenizer, tokenizer.encode(before), tokenizer.encode(text))
    check(tokenizer, [], tokenizer.encode(text))


def test_a_special_token_does_not_end_a_run_of_bytes():
    """A special token decodes to nothing, so the bytes before and after it are neighbours."""
    tokenizer = TOKENIZERS["sentencepiece"]
    check(
        tokenizer, [], [tokenizer.backend.token_to_id("<0x61>"), tokenizer.eos, tokenizer.backend.token_to_id("<0xFF>")]
    )


def test_an_incomplete_character_is_held_back():
    stream = TextStream(TOKENIZERS["byte"])
    pieces = [stream.add(token) for token in TOKENIZERS["byte"].encode("a€b")]
    assert pieces == ["a", "", "", "€", "b"]
    assert stream.end() == ""
    cut = TextStream(TOKENIZERS["byte"])
    assert [cut.add(token) for token in TOKENIZERS["byte"].encode("€")[:2]] == ["", ""]
    assert cut.end() == REPLACEMENT


def streamed(stops, pieces):
    shown = []
    for piece in pieces:
        shown.append(stops.add(piece))
        if stops.is_over:
            break
    return "".join(shown) + stops.end()


@given(st.text(alphabet="abc", max_size=12), st.lists(st.text(alphabet="abc", max_size=3), max_size=3),
       st.lists(st.integers(0, 12), max_size=6))  # fmt: skip
@settings(max_examples=200)
def test_a_text_ends_before_the_stop_string_that_is_complete_first(text, stops, cuts):
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    stops = [stop for stop in stops if stop]
    # reading character by character, the text ends before the first stop string that is complete
    for end in range(len(text) + 1):
        if matching := [stop for stop in stops if text[:end].endswith(stop)]:
            expected = text[: end - max(map(len, matching))]
            break
    else:
        expected = text
    assert streamed(StopStrings(stops), pieces) == expected == cut_at_stop(text, stops)


def test_a_possible_part_of_a_stop_string_is_held_back():
    stops = StopStrings(["\n\n"])
    assert [stops.add(piece) for piece in ["a\n", "b", "\n", "\nc"]] == ["a", "\nb", "", ""]
    assert stops.is_over
    assert stops.end() == ""


def test_pieces_and_errors_of_the_thread_arrive_in_order():
    def work(send):
        send("a")
        send("")
        send("b")
        raise ValueError("no c")

    pieces = stream_from_thread(work)
    assert [next(pieces), next(pieces)] == ["a", "b"]
    with pytest.raises(ValueError, match="no c"):
        next(pieces)


def test_closing_the_stream_ends_the_thread():
    over = threading.Event()

    def work(send):
        while send("again"):
            pass
        over.set()

    pieces = stream_from_thread(work)
    assert next(pieces) == "again"
    pieces.close()
    assert over.is_set()
    assert list(stream_from_thread(lambda send: None)) == []
