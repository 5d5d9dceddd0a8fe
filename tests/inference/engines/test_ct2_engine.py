"""The CTranslate2 engine finds what the PyTorch engine finds, in double precision, or says what it cannot do."""

import random
from dataclasses import replace
from functools import cache

import pytest
import torch
from helpers import AXES, V, all_pairs, is_possible, name_of, perturbed, tiny_of

from cutaway.config import Config, DataConfig, DecodeConfig
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, DataError
from cutaway.inference.engines import load_engine
from cutaway.inference.engines.ct2_engine import Ct2Engine, within_limits
from cutaway.inference.engines.ct2_model import SAYS, refuse
from cutaway.inference.engines.torch_engine import TorchEngine
from cutaway.inference.pipelines import TextGenerator, Translator
from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes, write_text
from cutaway.runs.weights import sealed
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


def lively(config, seed=0):
    """A model of random weights that are large enough for texts of all lengths, and few of them alike."""
    model = perturbed(config, seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(2)
    return model


def engines(seed=0, **choice):
    """The same model on both: here in CTranslate2, there in double precision."""
    return made(seed, tiny_of(**choice))


@cache
def made(seed, config):
    model, same = lively(config, seed), twin.build_model(config)
    same.load({name: p.detach().numpy() for name, p in model.named_parameters()}, "float32")
    return Ct2Engine.of(same, config), TorchEngine(model.double())


def rows(engine, n=12, seed=0, shortest=1, longest=9):
    draw = random.Random(seed)
    end = [EOS] if engine.config.family == "encoder_decoder" else []
    return [[draw.randrange(4, V) for _ in range(draw.randint(shortest, longest))] + end for _ in range(n)]


def search_for(decode, given, limits=None, **more):
    draw = random.Random(1)
    limits = limits or [draw.randint(1, 14) for _ in given]
    return Search(decode, limits, list(range(len(given))), BOS, EOS, **more)


def found_by(engine, given, search):
    is_translator = engine.config.family == "encoder_decoder" if hasattr(engine, "config") else is_reading(engine)
    return engine.translate(given, search) if is_translator else engine.generate(given, search)


def is_reading(engine):
    return hasattr(engine.model, "encoder")


def same(found, expected, tolerance=1e-4):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert [text.tokens for text in one] == [text.tokens for text in other]
        for a, b in zip(one, other, strict=True):
            assert a.finished == b.finished
            assert a.log_probability == pytest.approx(b.log_probability, abs=tolerance)
            assert a.score == pytest.approx(b.score, abs=tolerance)


# the same answers


@pytest.mark.parametrize("decode", [GREEDY, LIKELIEST, replace(LIKELIEST, beam_size=1)], ids=["greedy", "beam", "one"])
@pytest.mark.parametrize("choice", MODELS.values(), ids=MODELS)
def test_the_same_answers(choice, decode):
    lengths = set()
    for seed in range(3):
        ours, theirs = engines(seed, **choice)
        given = rows(ours, seed=seed)
        search = search_for(decode, given)
        found = found_by(ours, given, search)
        same(found, found_by(theirs, given, search))
        lengths |= {(len(text.tokens), text.finished) for [text] in found}
    assert len(lengths) > 5  # else there would be little to agree on


def expressible(**fixed):
    """Few choices in which any two settings meet that can be said to CTranslate2; those in `fixed` are always so."""
    fixed |= {"head": "language", "pooling": "cls", "init": "xavier"}
    says = {name: [v for v in SAYS[name] if fixed["family"] in SAYS[name][v]] for name in AXES.keys() & SAYS}
    axes = AXES | says | {name: [value] for name, value in fixed.items()}
    return [choice | fixed for choice in all_pairs(axes)[0]]


def can_be_said(choice):
    if not is_possible(choice):
        return False
    try:
        refuse(tiny_of(**choice))
    except ConfigError:
        return False
    return True


CHOICES = [
    *expressible(family="encoder_decoder"),
    *expressible(family="decoder", block="sequential"),
    *expressible(family="decoder", block="parallel", norm_placement="pre"),
]
CHOICES = [choice for choice in CHOICES if can_be_said(choice)]


def test_every_choice_is_met():
    """Each value that the table has, of each family that it has it for, is in one of the choices."""
    configs = [tiny_of(**choice) for choice in CHOICES]
    met = {(name, getattr(config, name), config.family) for config in configs for name in SAYS}
    wanted = {(name, value, family) for name, says in SAYS.items() for value in says for family in says[value]}
    unmet = {(name, value) for name, value, family in wanted - met if name != "family"}
    assert unmet == {("rope_scaling", "linear"), ("rope_scaling", "llama3")}  # below, since they need more


@pytest.mark.slow
@pytest.mark.parametrize("choice", CHOICES, ids=name_of)
def test_any_two_choices_together(choice):
    ours, theirs = engines(1, **choice)
    given = rows(ours)
    for decode in (GREEDY, LIKELIEST):
        search = search_for(decode, given)
        # in some of these, single precision differs by a ten-thousandth from double in torch, too
        same(found_by(ours, given, search), found_by(theirs, given, search), tolerance=5e-4)


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
    given = rows(ours)
    search = search_for(LIKELIEST, given)
    same(found_by(ours, given, search), found_by(theirs, given, search))


# what a text gets does not depend on its company


PENALIZED = DecodeConfig("beam", beam_size=3, length_penalty=0.6)


@pytest.mark.parametrize("n_best", [1, 5])
@pytest.mark.parametrize("decode", [GREEDY, LIKELIEST, PENALIZED], ids=["greedy", "likeliest", "penalized"])
@pytest.mark.parametrize("choice", MODELS.values(), ids=MODELS)
def test_an_answer_does_not_depend_on_the_others_and_their_limits(choice, decode, n_best):
    ours, _ = engines(2, **choice)
    given = rows(ours)
    search = search_for(decode, given, n_best=n_best)
    together = found_by(ours, given, search)
    alone = [
        found_by(ours, [row], search_for(decode, [row], [limit], n_best=n_best))[0]
        for row, limit in zip(given, search.limits, strict=True)
    ]
    same(together, alone)


def test_rows_that_are_done_are_not_searched_again():
    """Limits differ by a sentence's length in any batch: as long as nobody reaches the smallest, one call is enough."""
    ours, _ = engines()
    given, asked = rows(ours, 30), []

    def ask(rows, search, options):
        asked.append((len(rows), options["limit"]))
        return ours.ask_translator(rows, search, options)

    search = search_for(LIKELIEST, given, [20] * len(given))
    done = [row for row, [text] in zip(given, ours.translate(given, search), strict=True) if text.finished]
    mine = Ct2Engine(ours.model, ours.config)
    mine.found = lambda rows, search, alike, _: list(within_limits(rows, search, ask))
    mine.translate(done, search_for(LIKELIEST, done, [20 + len(row) % 3 for row in done]))
    assert len(done) > 5
    assert asked == [(len(done), 20)]


# penalties


def log_p(engine, source, text):
    """The log-probability of a hypothesis, by the model itself, in double precision."""
    asked = [*text.tokens, *([EOS] if text.finished else [])]
    if is_reading(engine):
        logits = engine.model(torch.tensor([source]), torch.tensor([[BOS, *asked[:-1]]]))[0]
    else:
        logits = engine.model(torch.tensor([[*source, *asked[:-1]]]))[0, len(source) - 1 :]
    return logits.log_softmax(-1)[torch.arange(len(asked)), asked].sum().item()


@pytest.mark.parametrize("choice", MODELS.values(), ids=MODELS)
def test_several_texts_are_ranked_by_our_formula(choice):
    ours, theirs = engines(3, **choice)
    given, k = rows(ours), 3
    decode = DecodeConfig("beam", beam_size=k, length_penalty=1.3)
    for source, texts in zip(given, found_by(ours, given, search_for(decode, given, n_best=k)), strict=True):
        assert 1 <= len(texts) <= k
        assert len({(tuple(text.tokens), text.finished) for text in texts}) == len(texts)
        assert texts == sorted(texts, key=lambda text: -text.score)
        for text in texts:
            length = len(text.tokens) + text.finished
            assert text.log_probability == pytest.approx(log_p(theirs, source, text), abs=1e-4)
            assert text.score == pytest.approx(text.log_probability / ((5 + length) / 6) ** 1.3)


def test_it_finds_nothing_better_than_our_search_but_for_what_that_prunes():
    """Both follow the same beginnings; ours goes on until nothing better can come."""
    decode = DecodeConfig("beam", beam_size=3, length_penalty=0.6)
    for seed in range(4):
        ours, theirs = engines(seed)
        given = rows(ours)
        search = search_for(decode, given, [14] * len(given))
        pairs = zip(ours.translate(given, search), theirs.translate(given, search), strict=True)
        assert all(one[0].score <= other[0].score + 1e-4 for one, other in pairs)


@pytest.mark.parametrize("decode", [GREEDY, LIKELIEST], ids=["greedy", "beam"])
@pytest.mark.parametrize("prefixed", [False, True])
def test_it_tells_where_the_model_looked(decode, prefixed):
    ours, theirs = engines()
    given = rows(ours)
    prefixes = [[4 + i % 5] * (i % 3) for i in range(len(given))] if prefixed else ()
    decode = replace(decode, min_length=1)  # or else a beam behaves differently right after a prefix
    search = search_for(decode, given, aligned=True, prefixes=prefixes)
    found, expected = ours.translate(given, search), theirs.translate(given, search)
    same(found, expected)
    for source, [one], [other] in zip(given, found, expected, strict=True):
        assert len(one.alignment) == len(one.tokens) + one.finished
        assert all(len(looks) == len(source) for looks in one.alignment)
        assert torch.tensor(one.alignment).sub(torch.tensor(other.alignment)).abs().max() < 1e-5


def test_coverage_is_the_same_formula():
    ours, theirs = engines(1)
    given = rows(ours)
    search = search_for(
        DecodeConfig("beam", beam_size=4, length_penalty=0.6, coverage_penalty=0.4), given, [3] * len(given)
    )
    known = {}
    for place, texts in enumerate(theirs.translate(given, search._replace(n_best=9))):
        known |= {(place, *text.tokens, text.finished): text.score for text in texts}
    compared = 0
    for place, texts in enumerate(ours.translate(given, search._replace(n_best=4))):
        for text in texts:
            if (key := (place, *text.tokens, text.finished)) in known:
                assert text.score == pytest.approx(known[key], abs=1e-4)
                compared += 1
    assert compared > len(given)


# rules, prefixes, listeners


RULES = {
    "suppress": {"suppress": (5, 7, 9)},
    "min_length": {"min_length": 6},
    "repetition_penalty": {"repetition_penalty": 1.7},
    "no_repeat_ngram": {"no_repeat_ngram": 2},
    "all": {"suppress": (5,), "min_length": 3, "repetition_penalty": 1.3, "no_repeat_ngram": 3},
}


@pytest.mark.parametrize("strategy", [GREEDY, LIKELIEST], ids=["greedy", "beam"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_rules(rule, strategy):
    ours, theirs = engines(2)
    given, decode = rows(ours), replace(strategy, **rule)
    search = search_for(decode, given)
    found = ours.translate(given, search)
    same(found, theirs.translate(given, search))
    assert found != ours.translate(given, search._replace(decode=strategy))


@pytest.mark.parametrize("rule", ["suppress", "min_length"])
def test_rules_of_generators(rule):
    ours, theirs = engines(2, **MODELS["llama"])
    given, decode = rows(ours), replace(GREEDY, **RULES[rule])
    search = search_for(decode, given)
    same(ours.generate(given, search), theirs.generate(given, search))


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
    given = rows(ours, 20)
    prefixes = [[4 + (i + j) % 7 for j in range(i % 4)] for i in range(len(given))]
    search = search_for(decode, given, prefixes=prefixes)
    same(found_by(ours, given, search), found_by(theirs, given, search))


@pytest.mark.parametrize("prefix", [[5, 5, 5], [5, 6, 5, 6]])
def test_a_prefix_may_repeat_itself(prefix):
    ours, theirs = engines()
    given = rows(ours)
    search = search_for(replace(GREEDY, no_repeat_ngram=2), given, prefixes=[prefix] * len(given))
    same(ours.translate(given, search), theirs.translate(given, search))


def test_who_has_no_prefix_is_searched_as_ever():
    """CTranslate2 drops ends at the first free step of a beam if anybody in the call has a prefix."""
    for seed in range(6):
        ours, theirs = engines(seed)
        given = rows(ours, 16)
        search = search_for(LIKELIEST, given, prefixes=[[5] * (i % 2) for i in range(len(given))])
        same(ours.translate(given, search)[::2], theirs.translate(given, search)[::2])


@pytest.mark.parametrize("choice", MODELS.values(), ids=MODELS)
def test_who_listens_hears_every_token_once(choice):
    ours, theirs = engines(1, **choice)
    given = rows(ours)
    prefixes = [[4 + i % 7] * (i % 2) for i in range(len(given))]
    told, stop_at = [[] for _ in given], [i % 5 + 2 for i in range(len(given))]

    def heard(row, token, log_p):
        told[row].append(token)
        return len(told[row]) < stop_at[row]

    search = search_for(GREEDY, given, prefixes=prefixes, heard=heard)
    found = found_by(ours, given, search)
    assert told == [text.tokens for [text] in found]
    for [text] in found:
        assert len(text.gains) == len(text.tokens) + text.finished
        assert sum(text.gains) == pytest.approx(text.log_probability, abs=1e-4)
    told = [[] for _ in given]
    same(found, found_by(theirs, given, search))


def test_what_a_listener_raises_comes_back():
    ours, _ = engines()

    def heard(row, token, log_p):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ours.translate([[5, EOS]], search_for(replace(GREEDY, min_length=1), [[5, EOS]], [5], heard=heard))


# what it cannot do


def test_what_cannot_be_asked_for_is_refused_by_name():
    translator, _ = engines()
    generator, _ = engines(family="decoder")
    for engine, change, message in [
        (translator, {"decode": DecodeConfig(strategy="sample")}, "cannot sample .* Use engine 'torch' or 'numpy'"),
        (translator, {"allowed": lambda row, tokens: [5]}, "cannot be restricted to some tokens .* Use engine"),
        (translator, {"watch": print}, "cannot be watched. Use engine"),
        (translator, {"heard": lambda *_: True, "decode": LIKELIEST}, "beam search follows several texts"),
        (generator, {"decode": replace(GREEDY, repetition_penalty=1.2)}, "decode.repetition_penalty = 1.2 for text"),
        (generator, {"decode": replace(GREEDY, no_repeat_ngram=2)}, "decode.no_repeat_ngram = 2 for text"),
        (generator, {"aligned": True}, "an alignment needs a source"),
    ]:
        with pytest.raises(ConfigError, match=message):
            found_by(engine, [[5, EOS]], search_for(GREEDY, [[5, EOS]], [5])._replace(**change))
    with pytest.raises(DataError, match="the text has 40 tokens; this model has positions for 32"):
        translator.translate([[5] * 39 + [EOS]], search_for(GREEDY, [[]], [5]))
    with pytest.raises(DataError, match="no token may come next"):
        everything = replace(GREEDY, suppress=tuple(range(V)))
        translator.translate([[5, EOS]], search_for(everything, [[5, EOS]], [5]))


def test_where_it_cannot_compute():
    for change, message in [
        ({"dtype": "float64"}, "computes in float32 or int8, not in 'float64'. Use engine 'torch' or 'numpy'"),
        ({"device": "mps"}, "runs on cpu or cuda, not on device 'mps'"),
        ({"device": "cuda:x"}, "not on device 'cuda:x'"),
    ]:
        config = tiny_of()
        with pytest.raises(ConfigError, match=message):
            Ct2Engine.of(twin.build_model(config), config, **change)


def test_a_model_that_says_no_numbers():
    config = tiny_of()
    model = twin.build_model(config)
    model.head.weight.value[:] = float("nan")
    engine = Ct2Engine.of(model, config)
    with pytest.raises(DataError, match="not finite numbers"):
        engine.translate([[5, EOS]], search_for(GREEDY, [[5, EOS]], [5]))


# from a run folder


def random_run(folder, **choice):
    run, tokenizer = RunFolder(folder), Tokenizer.train([" ".join(WORDS)], "word", 100)
    model = tiny_of(**choice)
    assert (tokenizer.vocab_size, tokenizer.bos, tokenizer.eos) == (V, BOS, EOS)
    write_text(run.config, Config(model=model, data=DataConfig(tokenizer="word", max_tokens=32)).to_json())
    write_text(run.tokenizer, tokenizer.to_json())
    write_bytes(run.weights, sealed(weights_to_bytes(lively(model))))
    return run.path


TEXTS = ["a b c d", "g", "", "b , a c", "f e d c b a", "  ", "a a a"]


def test_a_translator_and_a_generator(tmp_path):
    for kind, choice in ((Translator, {}), (TextGenerator, MODELS["gpt2"])):
        run = random_run(tmp_path / kind.__name__, **choice)
        ours, theirs = kind.load(run, engine="ct2"), kind.load(run, "cpu", engine="torch")
        for decode in (GREEDY, LIKELIEST):
            decode = replace(decode, max_length=9, batch_size=2)
            assert ours.answers(TEXTS, decode) == theirs.answers(TEXTS, decode)
            assert ours.answers(TEXTS, decode) == ours.answers(TEXTS, replace(decode, batch_size=64))
        greedy = replace(GREEDY, max_length=9)
        assert "".join(ours.stream("a b", greedy, "c")) == theirs.answers(["a b"], greedy, prefix="c")[0]
        with pytest.raises(ConfigError, match="cannot be restricted"):
            ours.answers(["a b"], greedy, choices=["a", "b"])


def test_int8_loads_and_nearly_agrees(tmp_path):
    run = random_run(tmp_path, d_model=32, d_ff=64)
    rounded, exact = (Translator.load(run, engine="ct2", dtype=dtype) for dtype in ("int8", "float32"))
    assert rounded.engine.model.compute_type == "int8_float32"
    texts = [" ".join(random.Random(i).choices(WORDS, k=i % 7 + 1)) for i in range(40)]
    decode = replace(GREEDY, max_length=2)
    found = [rounded.answers(texts, decode), exact.answers(texts, decode)]
    assert sum(a == b for a, b in zip(*found, strict=True)) > 20


def test_auto_never_chooses_it(tmp_path):
    run = RunFolder(random_run(tmp_path))
    found = load_engine("auto", ("ct2", "torch"), run, run.read_config(), run.weights, "cpu")
    assert isinstance(found, TorchEngine)
