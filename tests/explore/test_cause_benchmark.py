"""The measures behind `cutaway why --benchmark` and `--heads`, against counts by hand and planted heads."""

import dataclasses
import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from untrained import AlignedExample, untrained_pipeline

from cutaway.data.builtin.tinyworld import DIRECTIONS, tinyworld
from cutaway.data.builtin.tinyworld.causes import causes
from cutaway.errors import DataError
from cutaway.explore.ablation import ablate, ablation_targets
from cutaway.explore.causes import benchmark as measures
from cutaway.explore.causes.attribution import embedded_inputs, occlusion
from cutaway.explore.causes.benchmark import (
    ALIGNED,
    BY_EFFECT,
    CHANCE,
    Question,
    Scores,
    average_precision,
    by_word,
    hiding_curve,
    score_heads,
    score_words,
    strongest_first,
    with_word,
)
from cutaway.explore.causes.effects import margins_without
from cutaway.explore.causes.head_effects import (
    HeadEffect,
    HeadEffects,
    bootstrap_interval,
    copying_score,
    head_effects,
    induction_score,
)
from cutaway.explore.causes.margin import find_margin
from cutaway.explore.traced_example import prepare_example
from cutaway.nn.recording import edit_activations


def question(text="a b c d", wanted=(1,)):
    pipeline = untrained_pipeline(norm_placement="pre")
    example = prepare_example(pipeline, text, target="d c b")
    margin = find_margin(pipeline, example, step=1)
    words = [*range(len(text.split())), None]
    return pipeline.model, Question(example.until(1), margin, "gender", frozenset(wanted), frozenset((0,)), words)


@pytest.mark.parametrize(
    ("order", "wanted", "expected"),
    [([2, 0, 1], {2}, 1), ([0, 1, 2], {2}, 1 / 3), ([0, 1, 2], {0, 2}, (1 + 2 / 3) / 2), ([0, 1], {0, 1}, 1)],
)
def test_average_precision_by_hand(order, wanted, expected):
    assert average_precision(order, frozenset(wanted)) == pytest.approx(expected)


def test_tokens_of_a_word_are_summed():
    assert by_word([1.0, 2.0, 4.0, 8.0], [0, 0, 1, None]) == [3.0, 4.0]


def test_equal_scores_come_in_random_order():
    firsts = {strongest_first([0.0, 1.0, 1.0], random.Random(seed))[0] for seed in range(20)}
    assert firsts == {1, 2}
    assert strongest_first([0.5, 3.0, -1.0], random.Random(0)) == [1, 0, 2]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_target_with_a_rival_differs_in_one_word(direction):
    for pair in tinyworld(direction, "test", 40):
        for cause in causes(direction, pair):
            text = with_word(pair, cause.target, cause.rival)
            plain = text.replace(" ", "")
            words = list(pair.target_words)
            words[cause.target] = cause.rival
            assert plain == "".join(words)
            assert "  " not in text
            follower = words[cause.target + 1] if cause.target + 1 < len(words) else "."
            if not cause.rival.endswith("'") and follower not in ",.?!":
                assert f"{cause.rival} " in text


def test_only_predictions_that_are_right_are_asked_about():
    pipeline = untrained_pipeline()
    pair = AlignedExample("a b c d", "d c b")
    cause = SimpleNamespace(target=1, feature="gender", sources=(2,), rival="a")
    example = prepare_example(pipeline, pair.source, pair.target)
    assert measures.ask(pipeline, pair, cause) is None  # a random model predicts something else
    sure = torch.full((1, 4, pipeline.model.head.weight.size(0)), -9.0)
    for t, id in enumerate(example.answers):
        sure[0, t, id] = 9.0
    with edit_activations(pipeline.model, {"head.logits": sure}):
        found = measures.ask(pipeline, pair, cause)
    assert found.causes == {2}
    assert found.margin.terms[0].step == 1
    assert example.names([found.margin.terms[0].token, found.margin.terms[0].rival]) == ["c", "a"]
    assert found.example.target_in == example.target_in[:2]
    assert found.words == [0, 1, 2, 3, None]


def test_chance_and_the_aligned_word_have_their_expected_values(monkeypatch):
    monkeypatch.setattr(measures, "METHODS", {"occlusion": occlusion})
    model, asked = question(wanted=(1, 2))
    scores = {name: Scores() for name in ("occlusion", CHANCE, ALIGNED)}
    for seed in range(30):
        score_words(model, asked, scores, random.Random(seed))
    assert np.mean(scores[CHANCE].top) == pytest.approx(2 / 4, abs=0.08)  # 600 draws
    assert np.mean(scores[CHANCE].precision) == pytest.approx(average_over_orders(), abs=0.05)
    assert scores[ALIGNED].top == [0.0] * 30  # word 0 is aligned, and no cause
    for each in scores.values():
        assert all(0 <= value <= 1 for values in vars(each).values() for value in np.hstack(values))
    assert all(len(each.insertion) == 30 for each in scores.values())


def average_over_orders():
    """The average precision of two wanted words, over all orders of four."""
    return np.mean([average_precision(order, frozenset((1, 2))) for order in itertools.permutations(range(4))])


def test_a_hiding_curve_is_the_mean_margin_while_words_are_hidden():
    model, asked = question()
    [source, _] = embedded_inputs(model, asked.example)
    margins = []
    for n in range(5):
        value = source.x.clone()
        for word in [2, 0, 1, 3][:n]:
            value[word] = source.without[word]
        with torch.no_grad(), edit_activations(model, {source.probe: value[None]}):
            margins.append(asked.margin.of(asked.example.logits(model)[None]).item())
    whole = max(margins[0], margins[-1], 1e-6)
    expected = np.clip(np.array(margins) / whole, 0, 1)
    assert hiding_curve(model, asked, [2, 0, 1, 3]) == pytest.approx(expected, abs=1e-5)
    backwards = hiding_curve(model, asked, [3, 1, 0, 2], inserted=True)  # shows in this order what the other hides last
    assert backwards[::-1] == pytest.approx(expected, abs=1e-5)


def test_heads_are_switched_off_by_their_effect():
    model, asked = question()
    scores = {name: Scores() for name in (BY_EFFECT, measures.BY_CONTRIBUTION, measures.RANDOM_HEADS)}
    score_heads(model, asked, scores, random.Random(0))
    margins = margins_without(model, asked.example, asked.margin)
    heads = sorted((id for id, target in ablation_targets(model).items() if target.head is not None), key=margins.get)
    off = [measures.together(model, heads[:n]) for n in range(measures.HEADS + 1)]
    wanted = measures.shares(asked.margin.of(measures.run_variants(model, asked.example, off)))
    assert scores[BY_EFFECT].deletion == [pytest.approx(wanted)]
    assert off[1].keys() == {ablation_targets(model)[heads[0]].probe}
    insertion = measures.shares(torch.tensor([value_without(model, asked, heads[n:]) for n in range(len(heads) + 1)]))
    assert scores[BY_EFFECT].insertion == [pytest.approx(insertion, abs=1e-5)]


def value_without(model, asked, heads):
    with ablate(model, heads), torch.no_grad():
        return asked.margin.of(asked.example.logits(model)[None]).item()


def test_curves_of_different_lengths_have_one_mean():
    scores = Scores(deletion=[[1.0, 0.0], [1.0, 1.0, 0.0]])
    wanted = [(1 - x + min(1, 2 - 2 * x)) / 2 for x in np.linspace(0, 1, 11)]
    assert scores.curves() == {"deletion": pytest.approx(wanted)}
    assert scores.means()["deletion"] == pytest.approx((1 / 2 + 2 / 3) / 2)  # of the curves as they are


def test_other_corpora_have_no_known_causes():
    with pytest.raises(DataError, match="tinyworld only"):
        measures.benchmark(untrained_pipeline(), [])


# ---- heads -----------------------------------------------------------------------------------------------


def test_lost_tokens_are_counted_with_weights_that_lack_the_head():
    pipeline = untrained_pipeline()
    pairs = [AlignedExample(), AlignedExample("d e f", "f e d"), AlignedExample("a b", "b a")]
    found = head_effects(pipeline, pairs)
    assert {row.id for row in found} == {id for id, t in ablation_targets(pipeline.model).items() if t.head is not None}
    assert [row.lost for row in found] == sorted((row.lost for row in found), reverse=True)
    assert found[0].total == sum(len(pair.target_words) + 1 for pair in pairs)

    def correct():
        count = 0
        for pair in pairs:
            example = prepare_example(pipeline, pair.source, pair.target)
            with torch.no_grad():
                count += (example.logits(pipeline.model).argmax(-1) == torch.tensor(example.answers)).sum().item()
        return count

    before = correct()
    row = next(row for row in found if row.id == "decoder.layers.1.cross_attention.heads.1")
    output = pipeline.model.decoder.layers[1].cross_attention.output
    with torch.no_grad():
        output.weight[:, 4:] = 0  # two heads of width 4
    assert row.lost == before - correct()
    assert row.low <= row.lost <= row.high
    assert "No head copies here." in found.sentence
    assert "<table>" in found._repr_html_()


def test_heads_without_an_effect_are_not_called_important():
    row = HeadEffect("a", "layer 0, head 0", 0, 255, 0.0, 0.0, "no clear role", 0.0, None)
    found = HeadEffects([row, dataclasses.replace(row, lost=-2, low=-4.0)])
    assert found.sentence.startswith(
        "No head alone has an effect: without it, none of the 255 tokens is lost. For 2 of 2 "
    )


def test_the_interval_of_equal_losses_is_a_point():
    assert bootstrap_interval(np.array([2, 2, 2]), seed=0) == (6.0, 6.0)
    low, high = bootstrap_interval(np.array([0, 0, 0, 8]), seed=0)
    assert low == 0
    assert 8 < high <= 32


def test_a_planted_head_copies():
    """Value and output matrices that pass the embedding on make every token raise its own logit."""
    pipeline = untrained_pipeline(family="decoder", norm_placement="post")
    model = pipeline.model
    target = ablation_targets(model)["decoder.layers.0.self_attention.heads.1"]
    attention = model.decoder.layers[0].self_attention
    torch.manual_seed(0)
    with torch.no_grad():
        model.embedding.tokens.weight.copy_(torch.nn.functional.normalize(torch.randn_like(model.head.weight), dim=1))
        model.embedding.tokens.weight[:, :4] = 0  # the head has four dimensions
        model.embedding.tokens.weight.div_(model.embedding.tokens.weight.norm(dim=1, keepdim=True))
        for matrix in (attention.value.weight, attention.output.weight):
            matrix.zero_()
            matrix[4:, 4:] = torch.eye(4)
    assert copying_score(model, target, seed=0) == 1
    writes_nothing = ablation_targets(model)["decoder.layers.0.self_attention.heads.0"]
    assert copying_score(model, writes_nothing, seed=0) == 0


def test_a_planted_pattern_is_induction():
    pipeline = untrained_pipeline(family="decoder")
    target = ablation_targets(pipeline.model)["decoder.layers.1.self_attention.heads.0"]
    length = min(24, pipeline.config.longest_text // 2 - 1)

    def plant(weights_BHQK):
        planted = torch.zeros_like(weights_BHQK)
        for q in range(length + 1, 2 * length):
            planted[:, 0, q, q - length + 1] = 1
        return planted

    assert induction_score(pipeline, target, seed=0) < 0.5
    with edit_activations(pipeline.model, {"decoder.layers.1.self_attention.weights": plant}):
        assert induction_score(pipeline, target, seed=0) == pytest.approx(1)
    encoder = ablation_targets(untrained_pipeline().model)["encoder.layers.0.self_attention.heads.0"]
    assert induction_score(untrained_pipeline(), encoder, seed=0) is None


def test_labels_are_no_lost_tokens():
    with pytest.raises(DataError, match="a model for tagging"):
        head_effects(untrained_pipeline(family="encoder", head="tags"), ["a b"])
