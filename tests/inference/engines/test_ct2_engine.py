"""The CTranslate2 engine gives the same results as PyTorch in double precision, or an error."""

import random
from dataclasses import replace
from functools import cache

import pytest
import torch
from helpers import AXES, V, all_pairs, is_possible, name_of, perturbed_model, tiny_of

from cutaway.config import Config, DataConfig, DecodeConfig
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, DataError
from cutaway.inference.engines import load_engine
from cutaway.inference.engines.ct2_engine import Ct2Engine, search_within_limits
from cutaway.inference.engines.ct2_model import SUPPORTED, check_supported
from cutaway.inference.engines.torch_engine import TorchEngine
from cutaway.inference.pipelines import TextGenerator, Translator
from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes, write_text
from cutaway.runs.weights import seal_weights
from cutaway.search.request import Search
from cutaway.twin import build as twin

BOS, EOS = 1, 2
WORDS = ["a", "b", "c", "d", "e", "f", "g"]
GREEDY = DecodeConfig(strategy="greedy")
LIKELIEST = DecodeConfig("beam", beam_size=4, length_penalty=0.0)  # the best of a beam search without penalties
MODELS = {
    "paper": {},
    "gpt2": {"family": "decoder", "position": "learned", "norm_placement": "pre", "feed_forward": "gelu_tanh",
             "embedding_scale": "one"},
    "llama": {"family": "decoder", "position": "rope", "norm_placement": "pre", "norm": "rms", "bias": False,
              "feed_forward": "swiglu", "n_kv_heads": 1, "embeddings": "separate", "embedding_scale": "one"},
}  # fmt: skip


def random_model(config, seed=0):
    """A model whose random weights are large enough for texts of many lengths."""
    model = perturbed_model(config, seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(2)
    return model


def engines(seed=0, **choice):
    """The same model in CTranslate2 and in PyTorch with double precision."""
    return build_engines(seed, tiny_of(**choice))


@cache
def build_engines(seed, config):
    model, twin_model = random_model(config, seed), twin.build_model(config)
    twin_model.load({name: p.detach().numpy() for name, p in model.named_parameters()}, "float32")
    return Ct2Engine.from_twin(twin_model, config), TorchEngine(model.double())


def random_inputs(engine, n=12, seed=0, shortest=1, longest=9):
    draw = random.Random(seed)
    end = [EOS] if engine.config.family == "encoder_decoder" else []
    return [[draw.randrange(4, V) for _ in range(draw.randint(shortest, longest))] + end for _ in range(n)]


def search_for(decode, inputs, limits=None, **more):
    draw = random.Random(1)
    limits = limits or [draw.randint(1, 14) for _ in inputs]
    return Search(decode, limits, list(range(len(inputs))), BOS, EOS, **more)


def run_engine(engine, inputs, search):
    is_translator = (
        engine.config.family == "encoder_decoder" if hasattr(engine, "config") else is_encoder_decoder(engine)
    )
    return engine.translate(inputs, search) if is_translator else engine.generate(inputs, search)


def is_encoder_decoder(engine):
    return hasattr(engine.model, "encoder")


def assert_same(found, expected, tolerance=1e-4):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert [text.tokens for text in one] == [text.tokens for text in other]
        for a, b in zip(one, other, strict=True):
            assert a.finished == b.finished
            assert a.log_probability == pytest.approx(b.log_probability, abs=tolerance)
            assert a.score == pytest.approx(b.score, abs=tolerance)


# the same outputs


@pytest.mark.parametrize("decode", [GREEDY, LIKELIEST, replace(LIKELIEST, beam_size=1)], ids=["greedy", "beam", "one"])
@pytest.mark.parametrize("choice", MODELS.values(), ids=MODELS)
def test_outputs_equal_torch(choice, decode):
    lengths = set()
    for seed in range(3):
        ours, theirs = engines(seed, **choice)
        inputs = random_inputs(ours, seed=seed)
        search = search_for(decode, inputs)
        found = run_engine(ours, inputs, search)
        assert_same(found, run_engine(theirs, inputs, search))
        lengths |= {(len(text.tokens), text.finished) for [text] in found}
    assert len(lengths) > 5  # otherwise the comparison would prove little


def supported_pairs(**fixed):
    """A few choices that contain every pair of supported settings. `fixed` settings are the same in all of them."""
    fixed |= {"head": "language", "pooling": "cls", "init": "xavier"}
    values = {n: [v for v in SUPPORTED[n] if fixed["family"] in SUPPORTED[n][v]] for n in AXES.keys() & SUPPORTED}
    axes = AXES | values | {name: [value] for name, value in fixed.items()}
    return [choice | fixed for choice in all_pairs(axes)[0]]


def is_supported(choice):
    if not is_possible(choice):
        return False
    try:
        check_supported(tiny_of(**choice))
    except ConfigError:
        return False
    return True


CHOICES = [
    *supported_pairs(family="encoder_decoder"),
    *supported_pairs(family="decoder", block="sequential"),
    *supported_pairs(family="decoder", block="parallel", norm_placement="pre"),
]
CHOICES = [choice for choice in CHOICES if is_supported(choice)]


def test_the_choices_contain_every_supported_value():
    """Each supported value, for each family, is in one of the choices."""
    configs = [tiny_of(**choice) for choice in CHOICES]
    tested = {(name, getattr(config, name), config.family) for config in configs for name in SUPPORTED}
    supported = {(name, v, family) for name, values in SUPPORTED.items() for v in values for family in values[v]}
    missing = {(name, value) for name, value, family in supported - tested if name != "family"}
    assert missing == {("rope_scaling", "linear"), ("rope_scaling", "llama3")}  # in test_rotations


@pytest.mark.slow
@pytest.mark.parametrize("choice", CHOICES, ids=name_of)
def test_every_pair_of_settings(choice):
    ours, theirs = engines(1, **choice)
    inputs = random_inputs(ours)
    for decode in (GREEDY, LIKELIEST):
        search = search_for(decode, inputs)
        # for some of these, float32 and float64 differ by 1e-4 in torch too
        assert_same(run_engine(ours, inputs, search), run_engine(theirs, inputs, search), tolerance=5e-4)


ROTATIONS = [
    {"rope_base": 100.0},
    {"rope_scaling": "linear", "rope_factor": 4.0},
    {"rope_scaling": "llama3", "rope_factor": 8.0, "rope_original_length": 16},
]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
@pytest.mark.parametrize("choice", ROTATIONS)
def test_rotations(family, choice):
    ours, theirs = engines(family=family, position="rope", **choice)
    inputs = random_inputs(ours)
    search = search_for(LIKELIEST, inputs)
    assert_same(run_engine(ours, inputs, search), run_engine(theirs, inputs, search))


# outputs do not depend on the batch


PENALIZED = DecodeConfig("beam", beam_size=3, length_penalty=0.6)


@pytest.mark.parametrize("n_best", [1, 5])
@pytest.mark.parametrize("decode", [GREEDY, LIKELIEST, PENALIZED], ids=["greedy", "likeliest", "penalized"])
@pytest.mark.parametrize("choice", MODELS.values(), ids=MODELS)
def test_an_output_does_not_depend_on_other_texts_and_their_limits(choice, decode, n_best):
    ours, _ = engines(2, **choice)
    inputs = random_inputs(ours)
    search = search_for(decode, inputs, n_best=n_best)
    together = run_engine(ours, inputs, search)
    alone = [
        run_engine(ours, [row], search_for(decode, [row], [limit], n_best=n_best))[0]
        for row, limit in zip(inputs, search.limits, strict=True)
    ]
    assert_same(together, alone)


def test_complete_rows_are_not_searched_again():
    """Limits differ in a batch. If no row reaches the smallest limit, one call is enough."""
    ours, _ = engines()
    inputs, calls = random_inputs(ours, 30), []

    def call(rows, search, options):
        calls.append((len(rows), options["max_length"]))
        return ours.call_translator(rows, search, options)

    search = search_for(LIKELIEST, inputs, [20] * len(inputs))
    done = [row for row, [text] in zip(inputs, ours.translate(inputs, search), strict=True) if text.finished]
    counting = Ct2Engine(ours.model, ours.config)
    counting.search_in_groups = lambda rows, search, key, _: list(search_within_limits(rows, search, call))
    counting.translate(done, search_for(LIKELIEST, done, [20 + len(row) % 3 for row in done]))
    assert len(done) > 5
    assert calls == [(len(done), 20)]


# penalties


def log_p(engine, source, text):
    """The log-probability of a hypothesis, computed by the PyTorch model in double precision."""
    targets = [*text.tokens, *([EOS] if text.finished else [])]
    if is_encoder_decoder(engine):
        logits = engine.model(torch.tensor([source]), torch.tensor([[BOS, *targets[:-1]]]))[0]
    else:
        logits = engine.model(torch.tensor([[*source, *targets[:-1]]]))[0, len(source) - 1 :]
    return logits.log_softmax(-1)[torch.arange(len(targets)), targets].sum().item()


@pytest.mark.parametrize("choice", MODELS.values(), ids=MODELS)
def test_several_outputs_are_ranked_by_our_formula(choice):
    ours, theirs = engines(3, **choice)
    inputs, k = random_inputs(ours), 3
    decode = DecodeConfig("beam", beam_size=k, length_penalty=1.3)
    for source, texts in zip(inputs, run_engine(ours, inputs, search_for(decode, inputs, n_best=k)), strict=True):
        assert 1 <= len(texts) <= k
        assert len({(tuple(text.tokens), text.finished) for text in texts}) == len(texts)
        assert texts == sorted(texts, key=lambda text: -text.score)
        for text in texts:
            length = len(text.tokens) + text.finished
            assert text.log_probability == pytest.approx(log_p(theirs, source, text), abs=1e-4)
            assert text.score == pytest.approx(text.log_probability / ((5 + length) / 6) ** 1.3)


def test_beam_search_finds_nothing_better_than_our_search():
    """Both extend the same prefixes; ours continues until no better text is possible."""
    decode = DecodeConfig("beam", beam_size=3, length_penalty=0.6)
    for seed in range(4):
        ours, theirs = engines(seed)
        inputs = random_inputs(ours)
        search = search_for(decode, inputs, [14] * len(inputs))
        pairs = zip(ours.translate(inputs, search), theirs.translate(inputs, search), strict=True)
        assert all(one[0].score <= other[0].score + 1e-4 for one, other in pairs)


@pytest.mark.parametrize("decode", [GREEDY, LIKELIEST], ids=["greedy", "beam"])
@pytest.mark.parametrize("has_prefix", [False, True])
def test_alignments_equal_torch(decode, has_prefix):
    ours, theirs = engines()
    inputs = random_inputs(ours)
    prefixes = [[4 + i % 5] * (i % 3) for i in range(len(inputs))] if has_prefix else ()
    decode = replace(decode, min_length=1)  # because its beam search differs right after a prefix
    search = search_for(decode, inputs, with_alignment=True, prefixes=prefixes)
    found, expected = ours.translate(inputs, search), theirs.translate(inputs, search)
    assert_same(found, expected)
    for source, [one], [other] in zip(inputs, found, expected, strict=True):
        assert len(one.alignment) == len(one.tokens) + one.finished
        assert all(len(weights) == len(source) for weights in one.alignment)
        assert torch.tensor(one.alignment).sub(torch.tensor(other.alignment)).abs().max() < 1e-5


def test_coverage_penalty_equals_torch():
    ours, theirs = engines(1)
    inputs = random_inputs(ours)
    search = search_for(
        DecodeConfig("beam", beam_size=4, length_penalty=0.6, coverage_penalty=0.4), inputs, [3] * len(inputs)
    )
    known = {}
    for number, texts in enumerate(theirs.translate(inputs, search._replace(n_best=9))):
        known |= {(number, *text.tokens, text.finished): text.score for text in texts}
    n_compared = 0
    for number, texts in enumerate(ours.translate(inputs, search._replace(n_best=4))):
        for text in texts:
            if (key := (number, *text.tokens, text.finished)) in known:
                assert text.score == pytest.approx(known[key], abs=1e-4)
                n_compared += 1
    assert n_compared > len(inputs)


# rules, prefixes, callbacks


RULES = {
    "suppress": {"suppress": (5, 7, 9)},
    "min_length": {"min_length": 6},
    "repetition_penalty": {"repetition_penalty": 1.7},
    "no_repeat_ngram": {"no_repeat_ngram": 2},
    "all": {"suppress": (5,), "min_length": 3, "repetition_penalty": 1.3, "no_repeat_ngram": 3},
}


@pytest.mark.parametrize("strategy", [GREEDY, LIKELIEST], ids=["greedy", "beam"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_rules_of_translators(rule, strategy):
    ours, theirs = engines(2)
    inputs, decode = random_inputs(ours), replace(strategy, **rule)
    search = search_for(decode, inputs)
    found = ours.translate(inputs, search)
    assert_same(found, theirs.translate(inputs, search))
    assert found != ours.translate(inputs, search._replace(decode=strategy))


@pytest.mark.parametrize("rule", ["suppress", "min_length"])
def test_rules_of_generators(rule):
    ours, theirs = engines(2, **MODELS["llama"])
    inputs, decode = random_inputs(ours), replace(GREEDY, **RULES[rule])
    search = search_for(decode, inputs)
    assert_same(ours.generate(inputs, search), theirs.generate(inputs, search))


@pytest.mark.parametrize(
    "decode",
    [GREEDY, replace(GREEDY, min_length=3, no_repeat_ngram=2), replace(LIKELIEST, min_length=1)],
    ids=["greedy", "rules", "beam"],
)
@pytest.mark.parametrize("choice", MODELS.values(), ids=MODELS)
def test_prefixes(choice, decode):
    ours, theirs = engines(4, **choice)
    if ours.config.family == "decoder":
        decode = replace(decode, no_repeat_ngram=0)
    inputs = random_inputs(ours, 20)
    prefixes = [[4 + (i + j) % 7 for j in range(i % 4)] for i in range(len(inputs))]
    search = search_for(decode, inputs, prefixes=prefixes)
    assert_same(run_engine(ours, inputs, search), run_engine(theirs, inputs, search))


@pytest.mark.parametrize("prefix", [[5, 5, 5], [5, 6, 5, 6]])
def test_a_prefix_may_repeat_itself(prefix):
    ours, theirs = engines()
    inputs = random_inputs(ours)
    search = search_for(replace(GREEDY, no_repeat_ngram=2), inputs, prefixes=[prefix] * len(inputs))
    assert_same(ours.translate(inputs, search), theirs.translate(inputs, search))


def test_rows_without_a_prefix_are_searched_separately():
    """If a row in a call has a prefix, CTranslate2's beam search forbids </s> at the first step after it."""
    for seed in range(6):
        ours, theirs = engines(seed)
        inputs = random_inputs(ours, 16)
        search = search_for(LIKELIEST, inputs, prefixes=[[5] * (i % 2) for i in range(len(inputs))])
        assert_same(ours.translate(inputs, search)[::2], theirs.translate(inputs, search)[::2])


@pytest.mark.parametrize("choice", MODELS.values(), ids=MODELS)
def test_the_callback_gets_every_token_once(choice):
    ours, theirs = engines(1, **choice)
    inputs = random_inputs(ours)
    prefixes = [[4 + i % 7] * (i % 2) for i in range(len(inputs))]
    received, stop_at = [[] for _ in inputs], [i % 5 + 2 for i in range(len(inputs))]

    def on_token(row, token, log_p):
        received[row].append(token)
        return len(received[row]) < stop_at[row]

    search = search_for(GREEDY, inputs, prefixes=prefixes, on_token=on_token)
    found = run_engine(ours, inputs, search)
    assert received == [text.tokens for [text] in found]
    for [text] in found:
        assert len(text.token_log_probs) == len(text.tokens) + text.finished
        assert sum(text.token_log_probs) == pytest.approx(text.log_probability, abs=1e-4)
    received = [[] for _ in inputs]
    assert_same(found, run_engine(theirs, inputs, search))


def test_an_exception_in_the_callback_is_raised():
    ours, _ = engines()

    def on_token(row, token, log_p):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ours.translate([[5, EOS]], search_for(replace(GREEDY, min_length=1), [[5, EOS]], [5], on_token=on_token))


# errors


def test_unsupported_searches_are_errors():
    translator, _ = engines()
    generator, _ = engines(family="decoder")
    for engine, change, message in [
        (
            translator,
            {"decode": DecodeConfig(strategy="sample")},
            "cannot sample reproducibly.* Use engine 'torch' or 'numpy'",
        ),
        (
            translator,
            {"allowed": lambda row, tokens: [5]},
            "does not support a restriction to some tokens .* Use engine",
        ),
        (translator, {"on_step": print}, "does not support a step callback. Use engine"),
        (translator, {"on_token": lambda *_: True, "decode": LIKELIEST}, "beam search extends several texts"),
        (generator, {"decode": replace(GREEDY, repetition_penalty=1.2)}, "decode.repetition_penalty = 1.2 for text"),
        (generator, {"decode": replace(GREEDY, no_repeat_ngram=2)}, "decode.no_repeat_ngram = 2 for text"),
        (generator, {"with_alignment": True}, "an alignment needs a source"),
    ]:
        with pytest.raises(ConfigError, match=message):
            run_engine(engine, [[5, EOS]], search_for(GREEDY, [[5, EOS]], [5])._replace(**change))
    with pytest.raises(DataError, match="the text has 40 tokens; this model has positions for 32"):
        translator.translate([[5] * 39 + [EOS]], search_for(GREEDY, [[]], [5]))
    with pytest.raises(DataError, match="the settings forbid every next token"):
        everything = replace(GREEDY, suppress=tuple(range(V)))
        translator.translate([[5, EOS]], search_for(everything, [[5, EOS]], [5]))


def test_unsupported_devices_and_dtypes_are_errors():
    for change, message in [
        ({"dtype": "float64"}, "computes in float32 or int8, not in 'float64'. Use engine 'torch' or 'numpy'"),
        ({"device": "mps"}, "runs on cpu or cuda, not on device 'mps'"),
        ({"device": "cuda:x"}, "not on device 'cuda:x'"),
    ]:
        config = tiny_of()
        with pytest.raises(ConfigError, match=message):
            Ct2Engine.from_twin(twin.build_model(config), config, **change)


def test_nan_logits_are_an_error():
    config = tiny_of()
    model = twin.build_model(config)
    model.head.weight.value[:] = float("nan")
    engine = Ct2Engine.from_twin(model, config)
    with pytest.raises(DataError, match="not finite"):
        engine.translate([[5, EOS]], search_for(GREEDY, [[5, EOS]], [5]))


# from a run folder


def random_run(folder, **choice):
    run, tokenizer = RunFolder(folder), Tokenizer.train([" ".join(WORDS)], "word", 100)
    model = tiny_of(**choice)
    assert (tokenizer.vocab_size, tokenizer.bos, tokenizer.eos) == (V, BOS, EOS)
    write_text(run.config, Config(model=model, data=DataConfig(tokenizer="word", max_tokens=32)).to_json())
    write_text(run.tokenizer, tokenizer.to_json())
    write_bytes(run.weights, seal_weights(weights_to_bytes(random_model(model))))
    return run.path


TEXTS = ["a b c d", "g", "", "b , a c", "f e d c b a", "  ", "a a a"]


def test_translator_and_generator_equal_torch(tmp_path):
    for kind, choice in ((Translator, {}), (TextGenerator, MODELS["gpt2"])):
        run = random_run(tmp_path / kind.__name__, **choice)
        ours, theirs = kind.load(run, engine="ct2"), kind.load(run, "cpu", engine="torch")
        for decode in (GREEDY, LIKELIEST):
            decode = replace(decode, max_length=9, batch_size=2)
            assert ours.answers(TEXTS, decode) == theirs.answers(TEXTS, decode)
            assert ours.answers(TEXTS, decode) == ours.answers(TEXTS, replace(decode, batch_size=64))
        greedy = replace(GREEDY, max_length=9)
        assert "".join(ours.stream("a b", greedy, "c")) == theirs.answers(["a b"], greedy, prefix="c")[0]
        with pytest.raises(ConfigError, match="does not support a restriction"):
            ours.answers(["a b"], greedy, choices=["a", "b"])


def test_int8_outputs_are_mostly_equal(tmp_path):
    run = random_run(tmp_path, d_model=32, d_ff=64)
    rounded, exact = (Translator.load(run, engine="ct2", dtype=dtype) for dtype in ("int8", "float32"))
    assert rounded.engine.model.compute_type == "int8_float32"
    texts = [" ".join(random.Random(i).choices(WORDS, k=i % 7 + 1)) for i in range(40)]
    decode = replace(GREEDY, max_length=2)
    found = [rounded.answers(texts, decode), exact.answers(texts, decode)]
    assert sum(a == b for a, b in zip(*found, strict=True)) > 20


def test_auto_never_selects_ct2(tmp_path):
    run = RunFolder(random_run(tmp_path))
    found = load_engine("auto", ("ct2", "torch"), run, run.read_config(), run.weights, "cpu")
    assert isinstance(found, TorchEngine)
