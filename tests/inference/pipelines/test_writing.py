"""Translators and text generators: requests in, texts out, at once or in pieces."""

import dataclasses
import math
import threading

import numpy as np
import pytest
import torch
from helpers import is_close, perturbed, tiny_of
from looking import untrained

from cutaway.bulk.jobs import Generating, Translating
from cutaway.config import Config, DataConfig, DecodeConfig
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, DataError
from cutaway.explore.traced_example import ask
from cutaway.inference.engines.numpy_engine import NumpyEngine
from cutaway.inference.engines.torch_engine import TorchEngine
from cutaway.inference.pipelines import TextGenerator, Translator
from cutaway.nn.recording import record_activations
from cutaway.search.request import Request, Search
from cutaway.twin.build import build_model as build_twin

GREEDY = DecodeConfig(strategy="greedy", max_length=8)
SAMPLE = DecodeConfig(strategy="sample", max_length=8, seed=1)
BEAM = DecodeConfig(strategy="beam", beam_size=3, max_length=8)
every_family = pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
TEXTS = ["a b c", "d", "e f g h a b c d e", "b a"]

SETTINGS = [
    GREEDY,
    SAMPLE,
    BEAM,
    dataclasses.replace(SAMPLE, temperature=0.8, top_k=7, top_p=0.9, min_p=0.05),
    dataclasses.replace(GREEDY, repetition_penalty=1.4, no_repeat_ngram=2, min_length=3),
    dataclasses.replace(BEAM, repetition_penalty=1.4, no_repeat_ngram=2, min_length=3, suppress=(5,)),
    dataclasses.replace(SAMPLE, repetition_penalty=0.7, min_length=8),
    dataclasses.replace(BEAM, length_penalty=1.0, coverage_penalty=0.3),
]


def on_numpy(writer):
    """The same weights on the other engine."""
    twin = build_twin(writer.config.model)
    twin.load({name: p.detach().numpy() for name, p in writer.model.named_parameters()}, "float64")
    return type(writer)(NumpyEngine(twin), writer.tokenizer, writer.config)


@pytest.mark.usefixtures("double")
@every_family
@pytest.mark.parametrize("decode", SETTINGS, ids=range(len(SETTINGS)))
def test_both_engines_write_the_same_with_every_setting(family, decode):
    writer = untrained(family, seed=6)
    has_source = family == "encoder_decoder"
    decode = decode if has_source else dataclasses.replace(decode, coverage_penalty=0.0)
    requests = [Request(text, "c d" if i % 2 else "", i) for i, text in enumerate(TEXTS)]
    n_best = 2 if decode.strategy == "beam" else 1
    ours, theirs = (one.search(requests, decode, n_best, aligned=has_source) for one in (writer, on_numpy(writer)))
    for text, other_text in zip(ours, theirs, strict=True):
        assert len(text) == n_best
        for one, other in zip(text, other_text, strict=True):
            assert one.tokens == other.tokens
            assert is_close(one.score, other.score)
            assert np.allclose(one.gains, other.gains, atol=1e-9)
            if has_source:
                assert np.allclose(one.alignment, other.alignment, atol=1e-9)
                assert np.allclose(np.sum(one.alignment, axis=1), 1)


@every_family
def test_a_wish_has_its_own_prefix_length_number_and_seed(family):
    writer = untrained(family, seed=6)
    no_end = dataclasses.replace(SAMPLE, suppress=(writer.tokenizer.eos,))
    requests = [
        Request("a b"), Request("a b", number=1), Request("a b", seed=9), Request("a b"), Request("a b", max_length=3),
        Request("a b", prefix="c d"),
    ]  # fmt: skip
    found = [best[0].tokens for best in writer.search(requests, no_end)]
    assert found[0] == found[3] != found[1]
    assert found[0] != found[2]
    assert found[4] == found[0][:3]
    assert len(found[5]) == 8  # a prefix is no part of what is written
    assert writer.text_of(requests[5], writer.search(requests[5:], no_end)[0][0]).lstrip().startswith("c d")


@every_family
@pytest.mark.parametrize("decode", [GREEDY, SAMPLE], ids=["greedy", "sample"])
@pytest.mark.parametrize("stop", [(), ("c", "f g")], ids=["to the end", "until"])
def test_a_stream_is_the_answer_in_pieces(family, decode, stop):
    writer = untrained(family, seed=6)
    for engine in (writer, on_numpy(writer)):
        for prefix in ("", "b , a"):
            [answer] = engine.answers(["a b"], decode, prefix=prefix, stop=stop)
            pieces = list(engine.stream("a b", decode, prefix, stop))
            assert "".join(pieces) == answer
            assert all(pieces)
            assert not any(word in answer for word in stop)
    whole = writer.answers(["a b"], decode)[0]
    assert stop or len(list(writer.stream("a b", decode))) == len(whole.split())


@every_family
def test_a_text_ends_before_a_stop_string(family):
    writer = untrained(family, seed=6)
    for decode in (GREEDY, BEAM):
        [whole] = writer.answers(["a b"], decode)
        word = whole.split()[2]
        assert writer.answers(["a b"], decode, stop=[word]) == [whole[: whole.index(word)]]
    shown = writer.search([Request("a b", heard=writer.stop_callback(Request("a b"), [whole.split()[0]]))], GREEDY)[0][
        0
    ]
    assert len(shown.tokens) <= len(whole.split())
    assert writer.answers(["a b"], GREEDY, stop=["nowhere", ""]) == writer.answers(["a b"], GREEDY)


def test_closing_a_stream_ends_the_search_and_an_error_reaches_the_reader():
    writer = untrained("decoder", seed=6)
    endless = dataclasses.replace(GREEDY, max_length=0, suppress=(writer.tokenizer.eos,))
    before = set(threading.enumerate())
    stream = writer.stream("a b", endless)
    next(stream)
    stream.close()
    assert not set(threading.enumerate()) - before
    too_long = " ".join(["a"] * (writer.config.longest_text + 1))
    with pytest.raises(DataError, match="no positions are left"):
        next(writer.stream(too_long, GREEDY))
    with pytest.raises(ConfigError, match="beam search follows several texts"):
        writer.stream("a b", BEAM)
    assert "".join(writer.stream("a b")) == writer.answers(["a b"])[0]  # it draws, as the run does
    translator = untrained(seed=6)
    greedy = dataclasses.replace(translator.config.decode, strategy="greedy")
    assert "".join(translator.stream("a b")) == translator.answers(["a b"], greedy)[0]  # a beam cannot be streamed
    assert list(untrained().stream("  ", GREEDY)) == []


@every_family
def test_a_strategy_that_nobody_names_is_that_of_the_task(family):
    writer = untrained(family, seed=6)
    nobody = DecodeConfig(max_length=8, seed=1)
    usual = dataclasses.replace(nobody, strategy="sample" if family == "decoder" else "beam")
    assert writer.answers(TEXTS, nobody) == writer.answers(TEXTS, usual)
    assert writer.answers(TEXTS) == writer.answers(TEXTS, writer.config.decode)
    job = (Generating if family == "decoder" else Translating)("a run", decode=nobody)
    assert job.decode == usual
    question = ask(writer, "a b", decode=nobody)
    assert question.output == writer.answers(["a b"], usual)[0]
    with pytest.raises(ConfigError, match="'auto' depends on the task.*for_task, or name the strategy"):
        writer.run_search(writer.rows([Request("a")]), Search(nobody, [8], [0], 1, 2))


def reading_bytes(family):
    """An untrained writer whose words are pieces of bytes, and what it is asked for: any beginning there is."""
    tokenizer = Tokenizer.train(["the cat sees the dog", "def f(x):\n    return x"] * 9, "bpe", 290)
    model = tiny_of(family, vocab_size=tokenizer.vocab_size, max_length=64)
    config = Config(model=model, data=DataConfig(max_tokens=64))
    kind = TextGenerator if family == "decoder" else Translator
    return kind(TorchEngine(perturbed(model, 3)), tokenizer, config)


@pytest.mark.parametrize("prompt", ["", "cat", " cat", "  ", "\n", "\tx = 1\n", "the cat sees", "é日"])
@pytest.mark.parametrize("prefix", ["", "dog", " dog", "\n  y"])
def test_a_text_goes_on_exactly_where_it_ended(prompt, prefix):
    writer = reading_bytes("decoder")
    [text] = writer.generate([prompt], GREEDY, prefix=prefix)
    assert text.startswith(prompt + prefix)
    assert "".join(writer.stream(prompt, GREEDY, prefix)) == text[len(prompt) :]
    ids = writer.tokenizer.encode(text[: len(prompt)])
    assert writer.rows([Request(prompt)])[0] == [writer.tokenizer.bos, *ids]
    found = ask(writer, prompt, target="dog")
    assert found.answers[-len(found.answers) + found.prompt :] == writer.tokenizer.encode("dog", continues=bool(prompt))


def test_choices_go_on_where_the_prompt_ended_alone_and_in_company():
    writer, requests, choices = (
        reading_bytes("decoder"),
        [Request(text) for text in ("", "the", "\n")],
        [" cat", "dog", "\n"],
    )
    together = writer.search(requests, BEAM, n_best=3, choices=choices)
    for request, found in zip(requests, together, strict=True):
        assert {writer.text_of(request, one) for one in found} == set(choices)
        [alone] = writer.search([request], BEAM, n_best=3, choices=choices)
        assert [one.tokens for one in alone] == [one.tokens for one in found]


def test_a_translation_is_a_text_of_its_own():
    translator = reading_bytes("encoder_decoder")
    assert translator.translate(["the cat"], GREEDY, prefix="dog")[0].startswith("dog")
    assert translator.translate(["the cat"], BEAM, choices=["dog", " cat"])[0] in ("dog", " cat")
    request = Request("the cat", prefix="dog")
    assert translator.prefixes([request]) == [translator.tokenizer.encode("dog")]


@every_family
@pytest.mark.parametrize("decode", [GREEDY, BEAM, SAMPLE], ids=lambda d: d.strategy)
def test_an_answer_is_one_of_the_choices(family, decode):
    writer, choices = untrained(family, seed=6), ["a b", "h", "c d e f g h a b c d e"]
    for engine in (writer, on_numpy(writer)):
        answers = engine.answers(TEXTS, decode, choices=choices)
        assert {answer.strip() for answer in answers} <= set(choices)
    assert writer.answers(["a"], decode, choices=choices, prefix="c")[0].strip() == choices[2]
    best = writer.hypotheses(["a"], BEAM, n_best=3, choices=choices)[0]
    assert sorted(len(one.tokens) for one in best) == [1, 2, 11]  # one was longer than the limit: it is let through
    with pytest.raises(DataError, match="no token may come next"):
        writer.answers(["a"], decode, choices=choices, prefix="g")
    with pytest.raises(DataError, match="cannot be generated.*xyz"):
        writer.answers(["a"], decode, choices=["xyz"])
    with pytest.raises(DataError, match="nothing to choose from"):
        writer.answers(["a"], decode, choices=[])
    with pytest.raises(DataError, match="there is room for"):
        writer.answers(["a"], decode, choices=[" ".join(["a"] * (writer.config.longest_text + 1))])


@every_family
def test_allowed_is_asked_by_the_place_of_a_wish(family):
    writer = untrained(family, seed=6)
    letters = [writer.tokenizer.for_target.encode(f"a {letter}")[-1] for letter in "abcd"]
    found = writer.search([Request(text) for text in TEXTS], GREEDY, allowed=lambda place, tokens: [letters[place]])
    assert [best[0].tokens for best in found] == [[letter] * 8 for letter in letters]


@every_family
def test_what_has_no_room_is_refused(family):
    writer = untrained(family)
    longest = writer.config.longest_text
    long = " ".join(["a"] * longest)
    with pytest.raises(DataError, match=f"positions for {longest}"):
        writer.answers(["a"], GREEDY, prefix=long)
    unlimited = dataclasses.replace(GREEDY, max_length=10**6, suppress=(writer.tokenizer.eos,))
    prefix = " ".join(["a"] * 5)
    [[found]] = writer.search([Request("b c", prefix)], unlimited)
    prompt = len(writer.rows([Request("b c")])[0]) - 1 if isinstance(writer, TextGenerator) else 0
    assert len(found.tokens) == longest - 5 - prompt


def test_coverage_is_refused_for_text_generators():
    with pytest.raises(ConfigError, match="coverage_penalty = 0.2 needs a source"):
        untrained("decoder").answers(["a"], dataclasses.replace(BEAM, coverage_penalty=0.2))
    with pytest.raises(ConfigError, match="an alignment needs a source"):
        untrained("decoder").search([Request("a")], BEAM, aligned=True)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    "decode", [GREEDY, SAMPLE, dataclasses.replace(BEAM, coverage_penalty=0.4)], ids=lambda d: d.strategy
)
def test_an_alignment_is_what_a_whole_forward_pass_looks_at_and_the_penalty_follows_from_it(decode):
    """Sources of different lengths in a batch, and each again alone, without a cache."""
    writer = untrained(seed=6, decoder_layers=2)
    tokenizer = writer.tokenizer
    for text, found in zip(TEXTS, writer.hypotheses(TEXTS, decode, n_best=3, aligned=True), strict=True):
        for best in found:
            source = torch.tensor([[*tokenizer.encode(text), tokenizer.eos]])
            read = torch.tensor([[tokenizer.bos, *best.tokens]])[:, : len(best.gains)]
            with torch.no_grad(), record_activations(writer.model, "decoder.layers.1.cross_attention.weights") as seen:
                writer.model(source, read)
            [weights] = seen.values()
            assert np.allclose(best.alignment, weights[0].mean(0), atol=1e-12)
            covered = np.minimum(np.sum(best.alignment, axis=0), 1)
            length = ((5 + len(best.gains)) / 6) ** decode.length_penalty if decode.strategy == "beam" else 1
            penalty = decode.coverage_penalty * np.log(covered).sum()
            assert is_close(best.score, best.log_probability / length + penalty)


@pytest.mark.parametrize("engine", ["torch", "numpy"])
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_a_model_that_has_diverged_is_refused_and_writes_no_empty_text(engine, strategy):
    writer = untrained()
    with torch.no_grad():
        writer.model.head.weight[0, 0] = math.nan
    writer = writer if engine == "torch" else on_numpy(writer)
    with pytest.raises(DataError, match="diverged"):
        writer.translate(["a b c"], DecodeConfig(strategy=strategy))


def test_a_stream_of_nothing_is_the_translation_of_nothing():
    writer, greedy = untrained(), DecodeConfig(strategy="greedy")
    assert "".join(writer.stream(" ", greedy, prefix="a b")) == writer.translate([" "], greedy, prefix="a b")[0] == ""


def test_settings_that_cannot_be_are_refused_by_name():
    with pytest.raises(ConfigError, match="suppress contains the token 999"):
        untrained().translate(["a"], DecodeConfig(suppress=(1, 999)))
    with pytest.raises(ConfigError, match="seed -1"):
        Request("a", seed=-1)
    with pytest.raises(ConfigError, match="temperature = inf"):
        DecodeConfig(temperature=math.inf)


def test_one_text_is_not_taken_for_a_list_of_characters():
    with pytest.raises(DataError, match=r"got one text, 'a b c'; expected a list of texts. Put it into a list"):
        untrained().translate("a b c")
    with pytest.raises(DataError, match="got one text"):
        untrained("decoder").generate("a b c")
    with pytest.raises(DataError, match="got one text"):
        untrained("encoder", head="classes").classify("a b c")
    with pytest.raises(DataError, match="got one text, 'a b c'; expected .* each a list of words"):
        untrained("encoder", head="tags").tag(["a b c"])
