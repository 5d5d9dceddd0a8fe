"""Head statistics: compared with plain loops, and for heads with constructed weights."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from untrained import AlignedExample, untrained_pipeline

from cutaway.data.examples import Pair
from cutaway.explore.head_patterns import RARE, is_punctuation, rare_tokens
from cutaway.explore.heads import ROLES, HeadStatistics, HeadTable, Statistic, head_statistics
from cutaway.nn.recording import edit_activations, record_activations

LENGTH = 5  # source length of AlignedExample(), with </s>


def attending_to(*targets):
    """Weights [Q, K] of a head whose query q attends only to targets[q]; None: equally to all."""
    weights = torch.zeros(len(targets), LENGTH)
    for query, target in enumerate(targets):
        weights[query] = 1 / LENGTH
        if target is not None:
            weights[query] = torch.nn.functional.one_hot(torch.tensor(target), LENGTH)
    return weights


# source a b c , </s>: the weights of eight encoder heads, by their expected role
CONSTRUCTED = {
    "previous token": attending_to(0, 0, 1, 2, 3),
    "next token": attending_to(1, 2, 3, 4, 4),
    "current token": attending_to(0, 1, 2, 3, 4),
    "first token": attending_to(0, 0, 0, 0, 0),
    "last token": attending_to(4, 4, 4, 4, 4),
    "punctuation": attending_to(3, 3, 3, 3, 3),
    "uniform": attending_to(None, None, None, None, None),
    "no clear role": attending_to(2, 4, 0, 1, 2),
}


@pytest.fixture(scope="module")
def translator():
    return untrained_pipeline(n_heads=8, d_model=16)


def statistics_with_weights(translator, name, weights_BHQK, pairs):
    with edit_activations(translator.model, {f"{name}.weights": weights_BHQK}):
        heads = head_statistics(translator, pairs)
    return [head for head in heads if head.name == name]


def test_roles_of_constructed_heads(translator):
    pairs = [
        Pair(AlignedExample().source, AlignedExample().target)
    ]  # without heads: "next" would be the syntactic head too
    heads = statistics_with_weights(
        translator, "encoder.layers.1.self_attention", torch.stack(list(CONSTRUCTED.values()))[None], pairs
    )
    assert [head.role for head in heads] == list(CONSTRUCTED)
    previous, even = heads[0], heads[6]
    assert previous.statistics["previous"] == Statistic(1.0, pytest.approx(1 / 5), pytest.approx(4 / 5))
    assert previous.share == 1
    assert previous.explanation == ("100% of its weight goes to the token before; by chance it would be 20%.")
    assert previous.statistics["entropy"].value == 0
    assert previous.statistics["distance"].value == pytest.approx(4 / 5)  # the first token attends to itself
    assert even.statistics["entropy"].value == pytest.approx(math.log(5))
    assert even.evenness == pytest.approx(1)
    for name in ROLES.keys() & even.statistics.keys():
        assert even.statistics[name].gain == pytest.approx(0, abs=1e-6)


def test_syntax_and_alignment_if_known(translator):
    syntax = torch.stack([attending_to(1, 2, 3, 0, 0)] * 8)[None]
    [head, *_] = statistics_with_weights(translator, "encoder.layers.0.self_attention", syntax, [AlignedExample()])
    assert head.statistics["syntax"].value == 1
    assert head.statistics["syntax"].counted == pytest.approx(3 / 5)  # the root and </s> have no head
    # target c b a </s>, source a b c , </s>; heads 1 to 7 attend to </s>
    right, wrong = attending_to(2, 1, 0, 4), attending_to(4, 4, 4, 4)
    crossing = torch.stack([right, *[wrong] * 7])[None]
    first, second, *_ = statistics_with_weights(
        translator, "decoder.layers.1.cross_attention", crossing, [AlignedExample()]
    )
    assert first.role == "word alignment"
    assert first.statistics["alignment"] == Statistic(1.0, pytest.approx(1 / 5), pytest.approx(3 / 4))
    assert first.agreement == 1
    assert second.role == "last token"
    assert second.agreement == 0
    assert {"distance", "previous", "syntax"}.isdisjoint(first.statistics)


def test_a_decoder_has_no_next_token_and_its_first_query_no_choice(translator):
    decoding = torch.zeros(1, 8, 4, 4)  # input <s> c b a
    decoding[..., 0] = 1
    [head, *_] = statistics_with_weights(translator, "decoder.layers.0.self_attention", decoding, [AlignedExample()])
    assert head.role == "first token"
    assert {"next", "last"}.isdisjoint(head.statistics)
    chance = np.mean([1 / 2, 1 / 3, 1 / 4])  # <s> can attend only to itself, so it does not count
    assert head.statistics["first"] == Statistic(1.0, pytest.approx(chance), 1.0)


def shares_by_loops(translator, pairs):
    """The oracle: one sentence and one number at a time."""
    sums = {}
    for pair in pairs:
        source = [*translator.tokenizer.encode(pair.source), translator.tokenizer.eos]
        target = [translator.tokenizer.bos, *translator.tokenizer.encode(pair.target)]
        with torch.no_grad(), record_activations(translator.model, "*_attention.weights") as seen:
            translator.model(torch.tensor([source]), torch.tensor([target]))
        for name, weights in seen.items():
            causal, crossed = name.startswith("decoder") and "self" in name, "cross" in name
            for head, query in np.ndindex(weights.shape[1:3]):
                allowed = [k for k in range(weights.size(3)) if not causal or k <= query]
                keys = source if "encoder" in name or crossed else target
                meant = {"first": [k for k in allowed if k == 0]}
                if not crossed:
                    meant["previous"] = [k for k in allowed if k == query - 1]
                    meant["itself"] = [k for k in allowed if k == query]
                    meant["same"] = [k for k in allowed if k != query and keys[k] == keys[query]]
                    meant["continuation"] = [k for k in allowed if k and k - 1 != query and keys[k - 1] == keys[query]]
                if crossed or name.startswith("encoder"):
                    meant["last"] = [k for k in allowed if k == len(keys) - 1]
                for what, chosen in meant.items():
                    if 0 < len(chosen) < len(allowed):
                        row = sums.setdefault((name.removesuffix(".weights"), head, what), [])
                        row.append((sum(weights[0, head, query, k].item() for k in chosen), len(chosen) / len(allowed)))
    return {key: np.mean(rows, axis=0) for key, rows in sums.items()}


def test_statistics_equal_plain_loops_and_ignore_padding(translator):
    pairs = [Pair("a b a c", "b a"), Pair("d", "a b c a b"), Pair("e f g h , a .", "h")]
    expected = shares_by_loops(translator, pairs)
    heads = head_statistics(translator, pairs, batch_size=3)
    checked = 0
    for head in heads:
        for what in {"first", "previous", "itself", "same", "continuation", "last"} & head.statistics.keys():
            value, chance = expected[head.name, head.head, what]
            assert head.statistics[what].value == pytest.approx(value, abs=1e-5), (head.name, what)
            assert head.statistics[what].chance == pytest.approx(chance, abs=1e-6)
            checked += 1
    assert checked == len(expected)
    for one, other in zip(heads, head_statistics(translator, pairs, batch_size=1), strict=True):
        assert one.statistics.keys() == other.statistics.keys()
        for what, measure in one.statistics.items():
            assert measure.value == pytest.approx(other.statistics[what].value, abs=1e-5)


@pytest.mark.parametrize(
    ("family", "changes", "kinds"),
    [
        ("decoder", {}, {"decoder"}),
        ("decoder", {"attention": "window"}, {"decoder"}),
        ("encoder", {}, {"encoder"}),
        ("encoder", {"head": "tags"}, {"encoder"}),
        ("encoder", {"head": "classes", "pooling": "mean"}, {"encoder"}),
    ],
)
def test_every_text_model(family, changes, kinds):
    heads = head_statistics(untrained_pipeline(family, **changes), ["a b c d a b", "e f , g"])
    assert {head.kind for head in heads} == kinds
    assert len(heads) == 4
    assert all(
        0 <= head.statistics[name].value <= 1 for head in heads for name in ROLES.keys() & head.statistics.keys()
    )
    windowed = changes.get("attention") == "window"  # of width 2: the token itself and the one before
    assert (heads[0].statistics["itself"].chance == pytest.approx(0.5)) == windowed


def test_image_models():
    heads = head_statistics(
        untrained_pipeline("vision"), list(np.random.default_rng(0).random((3, 1, 4, 4), dtype=np.float32))
    )
    assert len(heads) == 4
    assert {"entropy", "distance", "first", "previous"} <= heads[0].statistics.keys()
    assert "punctuation" not in heads[0].statistics


def test_json_and_notebook_output(translator):
    heads = head_statistics(translator, [AlignedExample(), AlignedExample("d e", "e d")])
    row = heads.as_json()[0]
    assert (row["kind"], row["layer"], row["head"], row["name"]) == ("encoder", 0, 0, "encoder.layers.0.self_attention")
    assert {"role", "share", "explanation", "statistics"} <= row.keys()
    assert {"entropy", "distance", "previous", "next", "itself", "first", "last", "syntax"} <= row["statistics"].keys()
    assert {"alignment", "agreement"} <= heads.as_json()[-1]["statistics"].keys()
    assert row["statistics"].keys() - {"agreement"} == row["chance"].keys()
    assert [head.kind for head in heads] == ["encoder"] * 16 + ["decoder"] * 16 + ["cross"] * 16
    strange = HeadTable(
        [HeadStatistics("<b>", 0, 0, "x", {"entropy": Statistic(0.1, 1.0), "<i>": Statistic(0.5, 0.1)})]
    )
    assert "<b>" not in strange._repr_html_()
    assert "&lt;i&gt;" in strange._repr_html_()


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_rare_tokens_are_the_rarest_tenth(counts):
    count_V = np.array(counts)
    rare = rare_tokens(count_V)
    if not count_V.sum():
        assert not rare.any()
        return
    assert count_V[rare].sum() >= RARE * count_V.sum()
    most = count_V[rare].max()
    assert count_V[rare & (count_V < most)].sum() < RARE * count_V.sum()  # without the most frequent, less than a tenth
    assert (rare == ((count_V > 0) & (count_V <= most))).all()  # tokens with equal counts are treated alike


def test_punctuation():
    assert [is_punctuation(token) for token in (",", "...", "+=", "␣", "a", "l'", "</s>x")] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip
