"""Leak checks: correct models have no leak, broken ones are found, and the closure is a product of masks."""

import dataclasses
import html

import numpy as np
import pytest
import torch
from untrained import untrained_pipeline

from cutaway.course.ablations import apply_ablations
from cutaway.data.examples import Pair
from cutaway.errors import DataError
from cutaway.explore.inputs import PADDING, encode_examples
from cutaway.explore.leaks import Leak, LeakReport, closure, find_leaks
from cutaway.explore.masks import AttentionCall, MaskView, describe_masks, mask_views, record_masks
from cutaway.nn import masks as nn_masks
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.masks import Causal, Mask
from cutaway.nn.sparse_masks import SlidingWindow, Strided

TEXT = "a b c d e"


def row_of(pipeline):
    translates = pipeline.config.model.task == "translation"
    return encode_examples(pipeline, [Pair(TEXT, "c b a")] if translates else [TEXT])[0]


def leaks_of(pipeline):
    return find_leaks(pipeline, row_of(pipeline))


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("decoder", {}),
        ("decoder", {"attention": "window"}),
        ("decoder", {"attention": "sparse", "position": "rope"}),
        ("decoder", {"attention": "linear"}),
        ("decoder", {"experts": 3, "norm_placement": "pre"}),
        ("decoder", {"position": "relative", "attention_kernel": "exact", "block": "parallel"}),
        ("encoder", {"attention": "window"}),
        ("encoder", {"head": "tags", "position": "alibi"}),
        ("encoder", {"head": "classes", "pooling": "max"}),
    ],
)
def test_nothing_leaks(family, changes):
    report = leaks_of(untrained_pipeline(family, **changes))
    assert report.ok, report.sentences()
    assert report.greatest_forbidden < 1e-12
    assert report.unmoved == 0
    assert report.smallest_allowed > 1e-9
    assert report.sentences()[-1] == "Nothing leaks."


def test_every_pair_is_checked():
    report = leaks_of(untrained_pipeline("decoder"))
    T = 6  # <s> and five letters
    later = T * (T - 1) // 2
    assert report.forbidden == later + later + PADDING * T + T  # alone; in a batch with padding and another text
    assert report.allowed == 2 * (T * T - later)


def test_both_sides_of_a_translator():
    pipeline = untrained_pipeline()
    report = leaks_of(pipeline)
    assert report.ok
    row = row_of(pipeline)
    S, T = len(row.encoder), len(row.decoder)
    later = T * (T - 1) // 2
    # the memory depends on no target token; in a batch, neither side on padding or on the other text
    assert report.forbidden == 2 * (later + S * T) + (2 * PADDING + 2) * (S + T)


def test_images_in_a_batch_are_independent():
    report = find_leaks(untrained_pipeline("vision"), np.random.default_rng(0).random((1, 4, 4), dtype=np.float32))
    assert report.ok
    assert report.forbidden == 4 + 1 + 1  # the other image: at four patches, at the class token, in the answer


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_a_decoder_without_its_mask_is_found(family):
    pipeline = untrained_pipeline(family)
    apply_ablations(pipeline.model, ["no-mask"])
    report = leaks_of(pipeline)
    T = len(row_of(pipeline).decoder)
    assert len(report.leaks) == T * (T - 1)  # all later tokens, alone and in a batch
    first = report.leaks[0]
    assert first.why == "which comes later and the mask allows"
    assert first.output == "the output at '<s>' (position 0)"
    assert "LEAK: the output at '<s>' (position 0) depends on" in html.unescape(report._repr_html_())
    assert not report.as_json()["ok"]


def test_an_attention_that_ignores_its_mask_is_found(monkeypatch):
    whole = MultiHeadAttention.attend
    monkeypatch.setattr(
        MultiHeadAttention, "attend", lambda self, q, k, v, mask, **rest: whole(self, q, k, v, None, **rest)
    )
    report = leaks_of(untrained_pipeline("encoder", attention="window"))
    reasons = {leak.why for leak in report.leaks}
    assert reasons == {"which the mask excludes", "which must be masked"}


def test_attention_to_padding_is_found(monkeypatch):
    monkeypatch.setattr(nn_masks, "padding_mask", lambda is_token: torch.ones_like(is_token)[:, None, None, :])
    report = leaks_of(untrained_pipeline("encoder"))
    assert {leak.on for leak in report.leaks} == {"the padding at position 7", "the padding at position 8"}
    assert len(report.leaks) == PADDING * 7


def test_a_diverged_model_is_rejected():
    pipeline = untrained_pipeline("decoder")
    with torch.no_grad():
        pipeline.model.head.weight.fill_(float("nan"))
    with pytest.raises(DataError, match="not finite, so leaks cannot be checked"):
        leaks_of(pipeline)


def test_the_check_does_not_change_the_model():
    pipeline = untrained_pipeline("decoder")
    before = {name: value.clone() for name, value in pipeline.model.state_dict().items()}
    leaks_of(pipeline)
    for name, value in pipeline.model.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, before[name])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in pipeline.model.modules())


def call(kind, rules, n=9, layer=0):
    return AttentionCall(
        f"{kind}.layers.{layer}.self_attention", Mask(range(n), range(n), rules), (1, n, n), torch.device("cpu")
    )


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("rules", [(Causal(),), (SlidingWindow(2),), (SlidingWindow(3), Causal()), (Strided(4),)])
def test_the_closure_is_a_power_of_the_mask(rules, layers):
    reach = closure([call("decoder", rules)] * layers, {"decoder": 9})["decoder"]["decoder"]
    allowed = call("decoder", rules).allowed()[0].double().numpy()
    assert (reach.numpy() == (np.linalg.matrix_power(allowed, layers) > 0)).all()


def test_recorded_masks_are_the_arguments_of_attention():
    pipeline = untrained_pipeline(attention="window")
    with record_masks(pipeline.model) as calls:
        pipeline.model(torch.tensor([[4, 5, 6]]), torch.tensor([[1, 4, 5, 6]]))
    assert [c.name for c in calls] == [
        "encoder.layers.0.self_attention",
        "encoder.layers.1.self_attention",
        "decoder.layers.0.self_attention",
        "decoder.layers.0.cross_attention",
        "decoder.layers.1.self_attention",
        "decoder.layers.1.cross_attention",
    ]
    assert [c.kind for c in calls[2:4]] == ["decoder", "cross"]
    assert calls[2].allowed()[0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert calls[3].allowed().shape == (1, 4, 3)
    words = describe_masks(calls)
    assert words["encoder"] == "Window: a token attends to tokens that are fewer than 2 positions away."
    assert words["decoder"].startswith("Causal: a token attends to itself and to earlier tokens, never to later ones.")
    assert words["cross"] == "Every token attends to every token of the memory."


def test_descriptions_of_rules():
    assert "every 4th token" in describe_masks([call("encoder", (Strided(4),))])["encoder"]
    assert "This text is so short" in describe_masks([call("encoder", (SlidingWindow(40),))])["encoder"]
    assert "This text is so short" not in describe_masks([call("decoder", (Causal(),), n=1)])["decoder"]
    different = describe_masks([call("encoder", (), layer=0), call("encoder", (SlidingWindow(2),), layer=1)])["encoder"]
    assert different == (
        "Layer 0: Every token attends to every token, before and after it. "
        "Layer 1: Window: a token attends to tokens that are fewer than 2 positions away."
    )
    matrix = dataclasses.replace(call("encoder", ()), mask=torch.eye(9, dtype=torch.bool))
    assert torch.equal(matrix.allowed()[0], torch.eye(9, dtype=torch.bool))


def test_a_mask_as_text():
    pipeline = untrained_pipeline("decoder", attention="window")
    [view] = mask_views(pipeline, encode_examples(pipeline, ["a b"])[0])
    assert view.text_lines() == [
        "       0 1 2 3 4",
        "0 <s>  ■ · · · ·",
        "1 a    ■ ■ · · ·",
        "2 b    · ■ ■ · ·",
        "columns: 3 <pad>, 4 <pad>",
    ]
    assert view.as_json()["allowed"] == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 1, 0, 0]]
    crossed = MaskView("cross", 1, "", ["x"], ["y", "z"], np.array([[True, False]]))
    assert crossed.text_lines()[-1] == "columns: 0 y, 1 z"


def test_a_report_escapes_text():
    report = LeakReport(leaks=[Leak("the output at '<b>'", "x", "y", 1.0)] * 7, forbidden=7)
    assert "<b>" not in report._repr_html_()
    assert report.sentences()[-1] == "... and 2 more leaks."
    assert "nothing changed" in report.sentences()[1]
