"""Translators and text generators: requests in, texts out, whole or streamed."""

import dataclasses
import math
import threading

import numpy as np
import pytest
import torch
from helpers import is_close, perturbed_model, tiny_of
from untrained import untrained_pipeline

from cutaway.bulk.jobs import TextGenerationJob, TranslationJob
from cutaway.config import Config, DataConfig, DecodeConfig
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, DataError
from cutaway.explore.traced_example import prepare_example
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


def on_numpy(pipeline):
    """The same model on the NumPy engine."""
    twin = build_twin(pipeline.config.model)
    twin.load({name: p.detach().numpy() for name, p in pipeline.model.named_parameters()}, "float64")
    return type(pipeline)(NumpyEngine(twin), pipeline.tokenizer, pipeline.config)


@pytest.mark.usefixtures("double")
@every_family
@pytest.mark.parametrize("decode", SETTINGS, ids=range(len(SETTINGS)))
def test_both_engines_give_the_same_outputs_with_every_setting(family, decode):
    pipeline = untrained_pipeline(family, seed=6)
    has_source = family == "encoder_decoder"
    decode = decode if has_source else dataclasses.replace(decode, coverage_penalty=0.0)
    requests = [Request(text, "c d" if i % 2 else "", i) for i, text in enumerate(TEXTS)]
    n_best = 2 if decode.strategy == "beam" else 1
    ours, theirs = (
        one.search(requests, decode, n_best, with_alignment=has_source) for one in (pipeline, on_numpy(pipeline))
    )
    for text, other_text in zip(ours, theirs, strict=True):
        assert len(text) == n_best
        for one, other in zip(text, other_text, strict=True):
            assert one.tokens == other.tokens
            assert is_close(one.score, other.score)
            assert np.allclose(one.token_log_probs, other.token_log_probs, atol=1e-9)
            if has_source:
                assert np.allclose(one.alignment, other.alignment, atol=1e-9)
                assert np.allclose(np.sum(one.alignment, axis=1), 1)


@every_family
def test_a_request_has_its_own_prefix_length_number_and_seed(family):
    pipeline = untrained_pipeline(family, seed=6)
    no_end = dataclasses.replace(SAMPLE, suppress=(pipeline.tokenizer.eos,))
    requests = [
        Request("a b"), Request("a b", number=1), Request("a b", seed=9), Request("a b"), Request("a b", max_length=3),
        Request("a b", prefix="c d"),
    ]  # fmt: skip
    found = [best[0].tokens for best in pipeline.search(requests, no_end)]
    assert found[0] == found[3] != found[1]
    assert found[0] != found[2]
    assert found[4] == found[0][:3]
    assert len(found[5]) == 8  # the prefix is not part of the new tokens
    assert pipeline.output_text(requests[5], pipeline.search(requests[5:], no_end)[0][0]).lstrip().startswith("c d")


@every_family
@pytest.mark.parametrize("decode", [GREEDY, SAMPLE], ids=["greedy", "sample"])
@pytest.mark.parametrize("stop", [(), ("c", "f g")], ids=["no stop", "stop"])
def test_a_stream_equals_the_whole_output(family, decode, stop):
    pipeline = untrained_pipeline(family, seed=6)
    for engine in (pipeline, on_numpy(pipeline)):
        for prefix in ("", "b , a"):
            [answer] = engine.answers(["a b"], decode, prefix=prefix, stop=stop)
            pieces = list(engine.stream("a b", decode, prefix, stop))
            assert "".join(pieces) == answer
            assert all(pieces)
            assert not any(word in answer for word in stop)
    whole = pipeline.answers(["a b"], decode)[0]
    assert stop or len(list(pipeline.stream("a b", decode))) == len(whole.split())


@every_family
def test_a_text_ends_before_a_stop_string(family):
    pipeline = untrained_pipeline(family, seed=6)
    for decode in (GREEDY, BEAM):
        [whole] = pipeline.answers(["a b"], decode)
        word = whole.split()[2]
        assert pipeline.answers(["a b"], decode, stop=[word]) == [whole[: whole.index(word)]]
    stopped = pipeline.search(
        [Request("a b", on_token=pipeline.stop_callback(Request("a b"), [whole.split()[0]]))], GREEDY
    )[0][0]
    assert len(stopped.tokens) <= len(whole.split())
    assert pipeline.answers(["a b"], GREEDY, stop=["nowhere", ""]) == pipeline.answers(["a b"], GREEDY)


def test_closing_a_stream_ends_the_search_and_errors_are_raised():
    pipeline = untrained_pipeline("decoder", seed=6)
    endless = dataclasses.replace(GREEDY, max_length=0, suppress=(pipeline.tokenizer.eos,))
    before = set(threading.enumerate())
    stream = pipeline.stream("a b", endless)
    next(stream)
    stream.close()
    assert not set(threading.enumerate()) - before
    too_long = " ".join(["a"] * (pipeline.config.longest_text + 1))
    with pytest.raises(DataError, match="no positions are left"):
        next(pipeline.stream(too_long, GREEDY))
    with pytest.raises(ConfigError, match="beam search extends several texts"):
        pipeline.stream("a b", BEAM)
    assert "".join(pipeline.stream("a b")) == pipeline.answers(["a b"])[0]  # it samples, like the run
    translator = untrained_pipeline(seed=6)
    greedy = dataclasses.replace(translator.config.decode, strategy="greedy")
    assert "".join(translator.stream("a b")) == translator.answers(["a b"], greedy)[0]  # a beam cannot be streamed
    assert list(untrained_pipeline().stream("  ", GREEDY)) == []


@every_family
def test_the_default_strategy_depends_on_the_task(family):
    pipeline = untrained_pipeline(family, seed=6)
    auto = DecodeConfig(max_length=8, seed=1)
    default = dataclasses.replace(auto, strategy="sample" if family == "decoder" else "beam")
    assert pipeline.answers(TEXTS, auto) == pipeline.answers(TEXTS, default)
    assert pipeline.answers(TEXTS) == pipeline.answers(TEXTS, pipeline.config.decode)
    job = (TextGenerationJob if family == "decoder" else TranslationJob)("a run", decode=auto)
    assert job.decode == default
    example = prepare_example(pipeline, "a b", decode=auto)
    assert example.output == pipeline.answers(["a b"], default)[0]
    with pytest.raises(ConfigError, match="'auto' depends on the task.*for_task, or name the strategy"):
        pipeline.run_search(pipeline.input_ids([Request("a")]), Search(auto, [8], [0], 1, 2))


def byte_pipeline(family):
    """An untrained pipeline with a byte-level tokenizer, so that any text can be a prompt."""
    tokenizer = Tokenizer.train(["the cat sees the dog", "def f(x):\n    return x"] * 9, "bpe", 290)
    model = tiny_of(family, vocab_size=tokenizer.vocab_size, max_length=64)
    config = Config(model=model, data=DataConfig(max_tokens=64))
    kind = TextGenerator if family == "decoder" else Translator
    return kind(TorchEngine(perturbed_model(model, 3)), tokenizer, config)


@pytest.mark.parametrize("prompt", ["", "cat", " cat", "  ", "\n", "\tx = 1\n", "the cat sees", "é日"])
@pytest.mark.parametrize("prefix", ["", "dog", " dog", "\n  y"])
def test_generated_text_continues_the_prompt_exactly(prompt, prefix):
    pipeline = byte_pipeline("decoder")
    [text] = pipeline.generate([prompt], GREEDY, prefix=prefix)
    assert text.startswith(prompt + prefix)
    assert "".join(pipeline.stream(prompt, GREEDY, prefix)) == text[len(prompt) :]
    ids = pipeline.tokenizer.encode(text[: len(prompt)])
    assert pipeline.input_ids([Request(prompt)])[0] == [pipeline.tokenizer.bos, *ids]
    found = prepare_example(pipeline, prompt, target="dog")
    assert found.answers[-len(found.answers) + found.prompt :] == pipeline.tokenizer.encode(
        "dog", continues=bool(prompt)
    )


def test_choices_continue_the_prompt_alone_and_in_a_batch():
    pipeline, requests, choices = (
        byte_pipeline("decoder"),
        [Request(text) for text in ("", "the", "\n")],
        [" cat", "dog", "\n"],
    )
    together = pipeline.search(requests, BEAM, n_best=3, choices=choices)
    for request, found in zip(requests, together, strict=True):
        assert {pipeline.output_text(request, one) for one in found} == set(choices)
        [alone] = pipeline.search([request], BEAM, n_best=3, choices=choices)
        assert [one.tokens for one in alone] == [one.tokens for one in found]


def test_a_translation_does_not_continue_its_source():
    translator = byte_pipeline("encoder_decoder")
    assert translator.translate(["the cat"], GREEDY, prefix="dog")[0].startswith("dog")
    assert translator.translate(["the cat"], BEAM, choices=["dog", " cat"])[0] in ("dog", " cat")
    request = Request("the cat", prefix="dog")
    assert translator.prefixes([request]) == [translator.tokenizer.encode("dog")]


@every_family
@pytest.mark.parametrize("decode", [GREEDY, BEAM, SAMPLE], ids=lambda d: d.strategy)
def test_an_output_is_one_of_the_choices(family, decode):
    pipeline, choices = untrained_pipeline(family, seed=6), ["a b", "h", "c d e f g h a b c d e"]
    for engine in (pipeline, on_numpy(pipeline)):
        answers = engine.answers(TEXTS, decode, choices=choices)
        assert {answer.strip() for answer in answers} <= set(choices)
    assert pipeline.answers(["a"], decode, choices=choices, prefix="c")[0].strip() == choices[2]
    best = pipeline.hypotheses(["a"], BEAM, n_best=3, choices=choices)[0]
    assert sorted(len(one.tokens) for one in best) == [1, 2, 11]  # a choice may be longer than max_length
    with pytest.raises(DataError, match="the settings forbid every next token"):
        pipeline.answers(["a"], decode, choices=choices, prefix="g")
    with pytest.raises(DataError, match="cannot be generated.*xyz"):
        pipeline.answers(["a"], decode, choices=["xyz"])
    with pytest.raises(DataError, match="list of choices is empty"):
        pipeline.answers(["a"], decode, choices=[])
    with pytest.raises(DataError, match="the longest choice needs .* positions are left"):
        pipeline.answers(["a"], decode, choices=[" ".join(["a"] * (pipeline.config.longest_text + 1))])


@every_family
def test_allowed_receives_the_index_of_a_request(family):
    pipeline = untrained_pipeline(family, seed=6)
    letters = [pipeline.tokenizer.for_target.encode(f"a {letter}")[-1] for letter in "abcd"]
    found = pipeline.search([Request(text) for text in TEXTS], GREEDY, allowed=lambda index, tokens: [letters[index]])
    assert [best[0].tokens for best in found] == [[letter] * 8 for letter in letters]


@every_family
def test_a_prefix_that_is_too_long_is_an_error(family):
    pipeline = untrained_pipeline(family)
    longest = pipeline.config.longest_text
    long = " ".join(["a"] * longest)
    with pytest.raises(DataError, match=f"positions for {longest}"):
        pipeline.answers(["a"], GREEDY, prefix=long)
    unlimited = dataclasses.replace(GREEDY, max_length=10**6, suppress=(pipeline.tokenizer.eos,))
    prefix = " ".join(["a"] * 5)
    [[found]] = pipeline.search([Request("b c", prefix)], unlimited)
    prompt = len(pipeline.input_ids([Request("b c")])[0]) - 1 if isinstance(pipeline, TextGenerator) else 0
    assert len(found.tokens) == longest - 5 - prompt


def test_coverage_and_alignment_are_errors_for_text_generators():
    with pytest.raises(ConfigError, match="coverage_penalty = 0.2 needs a source"):
        untrained_pipeline("decoder").answers(["a"], dataclasses.replace(BEAM, coverage_penalty=0.2))
    with pytest.raises(ConfigError, match="an alignment needs a source"):
        untrained_pipeline("decoder").search([Request("a")], BEAM, with_alignment=True)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    "decode", [GREEDY, SAMPLE, dataclasses.replace(BEAM, coverage_penalty=0.4)], ids=lambda d: d.strategy
)
def test_alignment_and_coverage_penalty_equal_an_uncached_forward_pass(decode):
    """Sources of different lengths in a batch, compared with each alone, without a cache."""
    pipeline = untrained_pipeline(seed=6, decoder_layers=2)
    tokenizer = pipeline.tokenizer
    for text, found in zip(TEXTS, pipeline.hypotheses(TEXTS, decode, n_best=3, with_alignment=True), strict=True):
        for best in found:
            source = torch.tensor([[*tokenizer.encode(text), tokenizer.eos]])
            read = torch.tensor([[tokenizer.bos, *best.tokens]])[:, : len(best.token_log_probs)]
            with (
                torch.no_grad(),
                record_activations(pipeline.model, "decoder.layers.1.cross_attention.weights") as seen,
            ):
                pipeline.model(source, read)
            [weights] = seen.values()
            assert np.allclose(best.alignment, weights[0].mean(0), atol=1e-12)
            covered = np.minimum(np.sum(best.alignment, axis=0), 1)
            length = ((5 + len(best.token_log_probs)) / 6) ** decode.length_penalty if decode.strategy == "beam" else 1
            penalty = decode.coverage_penalty * np.log(covered).sum()
            assert is_close(best.score, best.log_probability / length + penalty)


@pytest.mark.parametrize("engine", ["torch", "numpy"])
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_a_diverged_model_is_an_error(engine, strategy):
    pipeline = untrained_pipeline()
    with torch.no_grad():
        pipeline.model.head.weight[0, 0] = math.nan
    pipeline = pipeline if engine == "torch" else on_numpy(pipeline)
    with pytest.raises(DataError, match="diverged"):
        pipeline.translate(["a b c"], DecodeConfig(strategy=strategy))


def test_the_stream_of_an_empty_text_is_empty():
    pipeline, greedy = untrained_pipeline(), DecodeConfig(strategy="greedy")
    assert (
        "".join(pipeline.stream(" ", greedy, prefix="a b")) == pipeline.translate([" "], greedy, prefix="a b")[0] == ""
    )


def test_invalid_settings_are_errors():
    with pytest.raises(ConfigError, match="suppress contains the token 999"):
        untrained_pipeline().translate(["a"], DecodeConfig(suppress=(1, 999)))
    with pytest.raises(ConfigError, match="the seed is -1"):
        Request("a", seed=-1)
    with pytest.raises(ConfigError, match="temperature = inf"):
        DecodeConfig(temperature=math.inf)


def test_a_single_string_instead_of_a_list_is_an_error():
    with pytest.raises(DataError, match=r"got one text, 'a b c'; expected a list of texts. Put it into a list"):
        untrained_pipeline().translate("a b c")
    with pytest.raises(DataError, match="got one text"):
        untrained_pipeline("decoder").generate("a b c")
    with pytest.raises(DataError, match="got one text"):
        untrained_pipeline("encoder", head="classes").classify("a b c")
    with pytest.raises(DataError, match="got one text, 'a b c'; expected .* each a list of words"):
        untrained_pipeline("encoder", head="tags").tag(["a b c"])
