"""Causes of a prediction, compared with Captum, with changed weights, and with equations written out by hand."""

import dataclasses
import json
import time
from html import escape

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients, Saliency
from matplotlib.colors import to_hex
from untrained import untrained_pipeline

from cutaway.data.tasks import load_split
from cutaway.errors import ConfigError, DataError
from cutaway.explore.ablation import ablation_targets
from cutaway.explore.causes import Margin, patch_texts, why
from cutaway.explore.causes.attribution import (
    LARGE_GAP,
    METHODS,
    Attribution,
    attention,
    attribute,
    embedded_inputs,
    gradient_x_input,
    integrated_gradients,
    occlusion,
    rollout,
)
from cutaway.explore.causes.direct import BIASES, direct_contributions
from cutaway.explore.causes.effects import margins_without, mean_outputs
from cutaway.explore.causes.figure import patching_figure, why_figure
from cutaway.explore.causes.margin import Term, find_margin
from cutaway.explore.causes.patching import patch_all, patched_output, path_patch, place_of, prepare_other
from cutaway.explore.figures import BLUE, ORANGE
from cutaway.explore.traced_example import prepare_example
from cutaway.explore.variants import run_variants
from cutaway.inference.pipelines import Translator
from cutaway.nn.recording import edit_activations, record_activations

MODELS = {
    "translation": {},
    "translation, pre-norm": {"norm_placement": "pre"},
    "translation, parallel sandwich": {"block": "parallel", "norm_placement": "sandwich", "qk_norm": True},
    "translation, sandwich": {"norm_placement": "sandwich", "embeddings": "separate", "output_bias": True},
    "translation, parallel post-norm": {"block": "parallel", "norm": "rms"},
    "language_model": {"family": "decoder", "n_kv_heads": 1, "position": "rope", "norm": "rms",
                       "norm_placement": "pre", "feed_forward": "swiglu"},
    "linear attention": {"family": "decoder", "attention": "linear", "bias": False},
    "masked_language_model": {"family": "encoder", "position": "learned", "embedding_norm": True},
    "tagging": {"family": "encoder", "head": "tags", "position": "relative_bias"},
    "classification": {"family": "encoder", "head": "classes", "pooling": "mean", "norm_placement": "pre"},
    "image_classification": {"family": "vision"},
}  # fmt: skip
every_model = pytest.mark.parametrize("name", list(MODELS))
linear_heads = pytest.mark.parametrize("name", [name for name in MODELS if name != "masked_language_model"])
MOST_TOKENS = 9
TEXT, OTHER, OUTPUT = "a b c d", "a h c d", "d c b"


def generates(name):
    return name.startswith("translation") or MODELS[name]["family"] == "decoder"


def subject(name, precision=torch.float64):
    """A pipeline in double precision, an example, and the margin of its last answer over another one."""
    pipeline = untrained_pipeline(**MODELS[name])
    pipeline.model.to(precision)
    content = np.linspace(0, 1, 16).reshape(1, 4, 4) if name == "image_classification" else TEXT
    example = prepare_example(pipeline, content, target=OUTPUT if generates(name) else None)
    return pipeline, example, find_margin(pipeline, example, step=len(example.answers) - 1)


def value_of(model, example, margin):
    with torch.no_grad():
        return margin.of(example.logits(model)[None]).item()


# ---- the margin ------------------------------------------------------------------------------------------


def test_a_margin_is_a_difference_of_log_probabilities():
    pipeline, example, _ = subject("translation")
    with torch.no_grad():
        logits = example.logits(pipeline.model)
    log_p = logits.log_softmax(-1)
    assert Margin.single(1, 5, 7).of(logits[None]).item() == pytest.approx((log_p[1, 5] - log_p[1, 7]).item())
    assert Margin.single(1, 5).of(logits[None]).item() == pytest.approx(log_p[1, 5].item())
    both = Margin((Term(0, 5, 7), Term(1, 6))).of(logits[None]).item()
    assert both == pytest.approx((log_p[0, 5] - log_p[0, 7] + log_p[1, 6]).item())


def test_the_default_margin_is_the_least_certain_answer_against_the_next_best():
    pipeline, example, _ = subject("translation")
    term = find_margin(pipeline, example).terms[0]
    with torch.no_grad():
        p = example.logits(pipeline.model).softmax(-1)
    answered = [p[i, id].item() for i, id in enumerate(example.answers)]
    assert term.step == int(np.argmin(answered))
    assert term.token == example.answers[term.step]
    assert term.rival == next(id for id in p[term.step].argsort(descending=True).tolist() if id != term.token)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"token": "zebra"}, "'zebra' is not in the output: "),
        ({"token": "zebra", "step": 0}, "the model has no token 'zebra'"),
        ({"step": 99}, "no step 99"),
        ({"step": 0, "rival": 10**6}, "no token with the id 1000000"),
        ({"token": 10**6}, "token 1000000 is not in the output"),
        ({"step": 0, "rival": "zebra"}, "no token 'zebra'. A word can be several tokens"),
        ({"step": 0, "rival": "<unc>"}, r"Did you mean '<unk>'\? A word"),
        ({"step": [0, 1], "rival": ["a", "b", "c"]}, "0 tokens, 3 rivals and 2 steps"),
        ({"step": [1, 1]}, "two of the tokens are at the same step"),
        ({"step": 0, "token": "a", "rival": "a"}, "two different tokens"),
    ],
)
def test_a_margin_that_does_not_exist_is_refused(given, message):
    pipeline, example, _ = subject("translation")
    with pytest.raises(DataError, match=message):
        find_margin(pipeline, example, **given)


def test_a_sum_over_several_tokens():
    """Every number of the sum is that of its terms together."""
    pipeline, example, _ = subject("translation, pre-norm")
    single = [find_margin(pipeline, example, step=step) for step in (0, 2)]
    margin = find_margin(pipeline, example, step=[0, 2])
    assert margin.terms == (*single[0].terms, *single[1].terms)
    named = find_margin(pipeline, example, token=["d", "b"], rival=[each.terms[0].rival for each in single])
    assert named.terms == tuple(Term(step, example.answers[step], single[i].terms[0].rival)
                                for i, step in enumerate((0, 2)))  # fmt: skip
    alone = [why(pipeline, TEXT, step=step, target=OUTPUT) for step in (0, 2)]
    both = why(pipeline, TEXT, step=[0, 2], target=OUTPUT)
    assert both.margin == pytest.approx(sum(each.margin for each in alone))
    assert both.token == " ".join(each.token for each in alone)
    assert "a sum over 2 tokens" in both.sentence
    for method in ("occlusion", "integrated_gradients", "gradient_x_input"):
        wanted = np.sum([each.attribution(method).source for each in alone], axis=0)
        assert both.attribution(method).source == pytest.approx(wanted, abs=2e-2)
    assert sum(both.direct.values()) == pytest.approx(both.margin, abs=1e-8)
    for part, *parts in zip(both.parts, *(each.parts for each in alone), strict=True):
        assert part.effect == pytest.approx(sum(each.effect for each in parts))
    patched = patch_texts(pipeline, TEXT, OTHER, both)
    assert patched.margin == pytest.approx(both.margin)


def test_a_model_without_predictions_has_no_margin():
    pipeline = untrained_pipeline(family="encoder", head="vectors", pooling="mean")
    with pytest.raises(DataError, match="no predictions"):
        find_margin(pipeline, prepare_example(pipeline, TEXT))


# ---- attribution to tokens -------------------------------------------------------------------------------


def flat(*sides):
    return [value for side in sides for value in side]


class FromEmbedded(torch.nn.Module):
    """The margin as a function of the embedded inputs, for Captum."""

    def __init__(self, pipeline, example, margin, probes):
        super().__init__()
        self.model, self.example, self.margin, self.probes = pipeline.model, example, margin, probes

    def forward(self, *values):
        inputs = [ids.expand(len(values[0]), *ids.shape[1:]) for ids in self.example.inputs]
        with edit_activations(self.model, dict(zip(self.probes, values, strict=True))):
            logits = self.model(*inputs)
        term, place = self.margin.terms[0], self.margin.terms[0].step
        if logits.dim() == 3:
            logits = logits[:, place if self.example.places is None else self.example.places[place]]
        return logits[:, term.token] - logits[:, term.rival]


@every_model
def test_gradient_methods_are_those_of_captum(name):
    pipeline, example, margin = subject(name)
    inputs = embedded_inputs(pipeline.model, example)
    forward = FromEmbedded(pipeline, example, margin, [each.probe for each in inputs])
    x, without = tuple(each.x[None] for each in inputs), tuple(each.without[None] for each in inputs)
    captum = IntegratedGradients(forward).attribute(x, without, n_steps=400)
    wanted = [value[0].sum(-1).tolist() for value in captum]
    found = integrated_gradients(pipeline.model, example, margin, tolerance=2e-5)
    np.testing.assert_allclose(flat(found.source, found.target), flat(*wanted), atol=5e-3)
    gradients = Saliency(forward).attribute(x, abs=False)
    wanted = [((value - zero) * g)[0].sum(-1).tolist() for value, zero, g in zip(x, without, gradients, strict=True)]
    simple = gradient_x_input(pipeline.model, example, margin)
    np.testing.assert_allclose(flat(simple.source, simple.target), flat(*wanted), atol=1e-9)


@every_model
def test_integrated_gradients_sum_to_the_margin_minus_that_of_no_token(name):
    pipeline, example, margin = subject(name)
    found = integrated_gradients(pipeline.model, example, margin)
    inputs = embedded_inputs(pipeline.model, example)
    with edit_activations(pipeline.model, {each.probe: each.without[None] for each in inputs}):
        empty = value_of(pipeline.model, example, margin)
    assert found.total == pytest.approx(value_of(pipeline.model, example, margin) - empty, abs=1e-9)
    assert found.gap < 1e-3


def test_norms_that_make_tiny_vectors_large_need_steps_close_to_zero(monkeypatch):
    """Without position vectors, the way starts at 0. Four layers with RMS norms: the margin jumps beside it."""
    layout = {**MODELS["language_model"], "decoder_layers": 4, "bias": False}
    pipeline = untrained_pipeline(**layout)
    with torch.no_grad():
        for parameter in pipeline.model.parameters():
            parameter.mul_(2)
    example = prepare_example(pipeline, TEXT, target=OUTPUT)
    margin = find_margin(pipeline, example, step=len(example.answers) - 1)
    assert not any(each.without.any() for each in embedded_inputs(pipeline.model, example))
    assert integrated_gradients(pipeline.model, example, margin).gap < 1e-3
    monkeypatch.setattr(
        "cutaway.explore.causes.attribution.first_edges", lambda inputs: torch.linspace(0, 1, 9).double()
    )
    assert integrated_gradients(pipeline.model, example, margin).gap > LARGE_GAP


@every_model
def test_occlusion_is_the_change_without_the_tokens_vector(name):
    pipeline, example, margin = subject(name)
    found = occlusion(pipeline.model, example, margin)
    before = value_of(pipeline.model, example, margin)
    for each in embedded_inputs(pipeline.model, example):
        for t in range(len(each.x)):
            changed = each.x.clone()
            changed[t] = each.without[t]
            with edit_activations(pipeline.model, {each.probe: changed[None]}):
                wanted = before - value_of(pipeline.model, example, margin)
            assert getattr(found, each.side)[t] == pytest.approx(wanted, abs=1e-9)


def test_without_a_token_only_its_position_is_left():
    pipeline, example, _ = subject("translation")
    source, target = embedded_inputs(pipeline.model, example)
    tokens = pipeline.model.source_embedding.tokens
    with torch.no_grad():
        assert torch.allclose(source.x - source.without, tokens(example.inputs[0])[0])
        assert torch.allclose(target.x - target.without, tokens(example.inputs[1])[0])


def test_later_target_tokens_get_nothing():
    pipeline, example, _ = subject("translation")
    margin = find_margin(pipeline, example, step=1)
    for method in METHODS:
        found = attribute(pipeline.model, example, margin, method)
        assert found.target[2:] == pytest.approx([0, 0], abs=1e-9)
        assert any(abs(value) > 1e-6 for value in found.target[:2])


def test_rollout_and_attention_follow_their_equations():
    pipeline, example, margin = subject("translation")
    with record_activations(pipeline.model, "*_attention.weights") as seen, torch.no_grad():
        pipeline.model(*example.inputs)
    mean = {name: value[0].mean(0).numpy() for name, value in seen.items()}
    step = margin.terms[0].step
    cross = [mean[f"decoder.layers.{i}.cross_attention.weights"] for i in (0, 1)]
    assert attention(pipeline.model, example, margin).source == pytest.approx(((cross[0] + cross[1]) / 2)[step])
    S, T = len(example.source), len(example.target_in)
    memory = np.eye(S)
    for i in (0, 1):
        memory = (mean[f"encoder.layers.{i}.self_attention.weights"] + np.eye(S)) / 2 @ memory
    both = np.hstack([np.zeros((T, S)), np.eye(T)])  # [T, S + T]: what each target position has of every input
    for i in (0, 1):
        both = (mean[f"decoder.layers.{i}.self_attention.weights"] + np.eye(T)) / 2 @ both
        both = (both + np.hstack([cross[i] @ memory, np.zeros((T, T))])) / 2
    found = rollout(pipeline.model, example, margin)
    assert [*found.source, *found.target] == pytest.approx(both[step])
    assert sum(found.source) + sum(found.target) == pytest.approx(1)


def test_an_unknown_method_is_refused():
    pipeline, example, margin = subject("translation")
    with pytest.raises(DataError, match="integrated_gradients"):
        attribute(pipeline.model, example, margin, "magic")


# ---- direct contributions --------------------------------------------------------------------------------


@linear_heads
def test_direct_contributions_sum_to_the_margin(name):
    pipeline, example, margin = subject(name)
    found = direct_contributions(pipeline.model, example, margin)
    assert sum(found.values()) == pytest.approx(value_of(pipeline.model, example, margin), abs=1e-8)
    assert len(found) > 5


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_direct_contribution_is_that_part_through_the_frozen_final_norm(norm):
    """Pre-norm, one part at a time, with the equations written out."""
    pipeline = untrained_pipeline(norm_placement="pre", norm=norm)
    model = pipeline.model.double()
    example = prepare_example(pipeline, TEXT)
    margin = find_margin(pipeline, example, step=0)
    [term] = margin.terms
    with record_activations(model) as seen, torch.no_grad():
        model(*example.inputs)
    x = seen["decoder.layers.1.feed_forward_residual.stream"][0, 0].numpy()
    gain, eps = model.decoder.norm.weight.detach().numpy(), model.decoder.norm.eps or np.finfo(float).eps
    divisor = np.sqrt((x.var() if norm == "layer" else (x**2).mean()) + eps)
    direction = (model.head.weight[term.token] - model.head.weight[term.rival]).detach().numpy()

    def contribution(part):
        part = part - part.mean() if norm == "layer" else part
        return float((part / divisor * gain) @ direction)

    found = direct_contributions(model, example, margin)
    embedded = seen["target_embedding.embedded"][0, 0].numpy()
    assert found["embedding"] == pytest.approx(contribution(embedded), abs=1e-10)
    ffn = seen["decoder.layers.0.feed_forward_residual.update"][0, 0].numpy()
    assert found["decoder.layers.0.feed_forward"] == pytest.approx(contribution(ffn), abs=1e-10)
    matrix = model.decoder.layers[1].cross_attention.output.weight.detach().numpy()
    head = seen["decoder.layers.1.cross_attention.heads"][0, 1, 0].numpy()
    width = len(head)
    wanted = contribution(matrix[:, width : 2 * width] @ head)
    assert found["decoder.layers.1.cross_attention.heads.1"] == pytest.approx(wanted, abs=1e-10)


def test_post_norm_freezes_every_later_norm():
    """The contribution of the last feed-forward network passes only the last norm."""
    pipeline, example, margin = subject("translation")
    model, [term] = pipeline.model, margin.terms
    with record_activations(model) as seen, torch.no_grad():
        model(*example.inputs)
        update = seen["decoder.layers.1.feed_forward_residual.update"][0, term.step]
        x = seen["decoder.layers.1.cross_attention_residual.stream"][0, term.step] + update
        norm = model.decoder.layers[1].feed_forward_residual.norm
        part = (update - update.mean()) / (x.var(correction=0) + norm.eps).sqrt() * norm.weight
        wanted = (part @ (model.head.weight[term.token] - model.head.weight[term.rival])).item()
    found = direct_contributions(model, example, margin)
    assert found["decoder.layers.1.feed_forward"] == pytest.approx(wanted, abs=1e-10)
    assert abs(found[BIASES]) > 1e-6


def test_direct_contributions_need_a_linear_head_and_a_rival():
    pipeline, example, margin = subject("masked_language_model")
    with pytest.raises(ConfigError, match="MaskedLanguageHead"):
        direct_contributions(pipeline.model, example, margin)
    pipeline, example, _ = subject("translation")
    with pytest.raises(ConfigError, match="rival"):
        direct_contributions(pipeline.model, example, Margin.single(0, 5))


# ---- parts that are switched off -------------------------------------------------------------------------


@every_model
def test_the_margin_without_a_head_is_that_of_weights_without_it(name):
    """The columns of the output matrix that read the head are set to zero."""
    pipeline, example, margin = subject(name)
    found = margins_without(pipeline.model, example, margin)
    for target in ablation_targets(pipeline.model).values():
        if target.head is None:
            continue
        attention = pipeline.model.get_submodule(target.probe.removesuffix(".heads"))
        columns = slice(target.head * attention.d_head, (target.head + 1) * attention.d_head)
        kept = attention.output.weight[:, columns].detach().clone()
        with torch.no_grad():
            attention.output.weight[:, columns] = 0
        wanted = value_of(pipeline.model, example, margin)
        with torch.no_grad():
            attention.output.weight[:, columns] = kept
        assert found[target.id] == pytest.approx(wanted, abs=1e-9)


def test_the_mean_of_a_head_replaces_it():
    """Hooks as other tools have them: the input of the output matrix is changed."""
    pipeline, example, margin = subject("translation")
    model, texts = pipeline.model, ["a b", "c d e"]
    means = mean_outputs(pipeline, texts)
    attention = model.encoder.layers[1].self_attention
    inputs = []
    hook = attention.output.register_forward_pre_hook(lambda module, given: inputs.append(given[0][0]))
    for text in texts:
        other = prepare_example(pipeline, text)
        inputs.clear()
        with torch.no_grad():
            model(*other.inputs)
        texts[texts.index(text)] = inputs[-1]
    hook.remove()
    mean = torch.cat(texts).mean(0)
    width = attention.d_head

    def replace(module, given):
        changed = given[0].clone()
        changed[..., width : 2 * width] = mean[width : 2 * width]
        return (changed,)

    hook = attention.output.register_forward_pre_hook(replace)
    wanted = value_of(model, example, margin)
    hook.remove()
    found = margins_without(model, example, margin, means)
    assert found["encoder.layers.1.self_attention.heads.1"] == pytest.approx(wanted, abs=1e-9)


def test_variants_in_a_batch_are_those_one_by_one():
    pipeline, example, margin = subject("translation")
    edits = [{}, {"encoder.layers.0.self_attention.heads": lambda value: value * 0.5}]
    edits.append({"decoder.layers.1.feed_forward_residual.update": lambda value: value * 2, **edits[1]})
    together = run_variants(pipeline.model, example, edits)
    alone = torch.cat([run_variants(pipeline.model, example, [edit]) for edit in edits])
    assert torch.allclose(together, alone, atol=1e-12)
    assert len({round(value, 6) for value in margin.of(together).tolist()}) == 3


# ---- patching --------------------------------------------------------------------------------------------


def two_texts(name="translation, pre-norm"):
    pipeline, example, margin = subject(name)
    other = prepare_example(pipeline, OTHER, target=OUTPUT if generates(name) else None)
    return pipeline.model, example, other, margin


@pytest.mark.parametrize("name", ["translation", "translation, pre-norm", "language_model", "tagging"])
def test_patching_everything_gives_the_other_texts_output(name):
    model, example, other, _ = two_texts(name)
    probes = [each.probe for each in embedded_inputs(model, other)]
    with record_activations(model, *probes) as seen, torch.no_grad():
        wanted = other.logits(model)
    everything = {probe: lambda value, new=new[0]: new for probe, new in seen.items()}
    assert torch.allclose(run_variants(model, example, [everything])[0], wanted, atol=1e-12)
    assert torch.allclose(run_variants(model, example, [{}])[0], example.logits(model), atol=1e-12)


def test_only_the_changed_word_differs_in_the_embedding():
    model, example, other, margin = two_texts()
    found = patch_all(model, example, other, margin)
    encoder, decoder = found.grids
    assert found.margin == pytest.approx(value_of(model, example, margin))
    assert found.other_margin == pytest.approx(value_of(model, other, margin))
    assert encoder.rows == ["embedding", "layer 0", "layer 1"]
    assert encoder.tokens[1] == "b"
    assert encoder.others[1] == "h"
    assert encoder.shares[0] == pytest.approx([0, 1, 0, 0, 0], abs=1e-9)
    assert decoder.shares[0] == pytest.approx([0] * 4, abs=1e-9)
    assert decoder.shares[-1] == pytest.approx([0, 0, 0, 1], abs=1e-9)  # the predicting position has everything


def test_probabilities_with_a_patch_belong_to_its_share():
    model, example, other, margin = two_texts()
    found = patch_all(model, example, other, margin)
    for grid in found.grids:
        shown = np.log(grid.token_p) - np.log(grid.rival_p)
        wanted = found.margin + (found.other_margin - found.margin) * np.array(grid.shares)
        assert shown == pytest.approx(wanted, abs=1e-9)


@every_model
def test_another_text_gets_the_output_of_the_first(name):
    pipeline, example, margin = subject(name)
    content = np.linspace(1, 0, 16).reshape(1, 4, 4) if name == "image_classification" else OTHER
    other = prepare_other(pipeline, example, content)
    forced = prepare_example(pipeline, content, target=OUTPUT if generates(name) else None)
    assert all(torch.equal(a, b) for a, b in zip(other.inputs, forced.inputs, strict=True))
    assert other.target_in == forced.target_in
    found = patch_all(pipeline.model, example, other, margin)
    assert found.other_margin == pytest.approx(value_of(pipeline.model, forced, margin))
    assert found.best[:2] != (
        found.grids[-1].stack,
        found.grids[-1].rows[-1],
    )  # there the predicting position has everything


def test_a_patched_head_is_that_of_the_other_text():
    model, example, other, margin = two_texts()
    name = "decoder.layers.1.cross_attention.heads"
    with record_activations(model, name) as there, torch.no_grad():
        other.logits(model)

    def patch(value):
        value = value.clone()
        value[:, 1] = there[name][:, 1]
        return value

    with edit_activations(model, {name: patch}):
        patched = value_of(model, example, margin)
    found = patch_all(model, example, other, margin)
    wanted = (patched - found.margin) / (found.other_margin - found.margin)
    assert found.share_of(f"{name}.1") == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "place", "position"),
    [
        ("translation", "encoder layer 0", 1),
        ("translation, pre-norm", "decoder layer 0", 2),
        ("translation", "decoder embedding", 1),
        ("translation, pre-norm", "encoder.layers.1.self_attention.heads.1", None),
        ("translation", "decoder.layers.0.cross_attention.heads.0", None),
        ("translation, pre-norm", "decoder.layers.1.feed_forward", None),
        ("language_model", "decoder layer 0", 2),
        ("language_model", "decoder.layers.1.self_attention.heads.1", None),
        ("tagging", "encoder layer 0", 1),
        ("classification", "encoder.layers.0.self_attention.heads.0", None),
        ("masked_language_model", "encoder layer 0", 1),
    ],
)
def test_the_output_with_a_patch_is_that_of_passes_without_a_cache(name, place, position):
    """The search reads one token after the other. Here the patched model reads the whole text for every token."""
    pipeline, example, _ = subject(name)
    decode = dataclasses.replace(pipeline.config.decode, strategy="greedy", max_length=MOST_TOKENS)
    pipeline.config = dataclasses.replace(pipeline.config, decode=decode)
    model, other = pipeline.model, prepare_other(pipeline, example, OTHER)
    probe, head = place_of(model, place, position)
    with record_activations(model, probe) as seen, torch.no_grad():
        model(*other.inputs)
    value = seen[probe][0]
    at = slice(position, position + 1) if position is not None else slice(None)

    def patch(computed):
        row, new = (computed[0], value) if head is None else (computed[0, head], value[head])
        count = len(row[: len(new)][at])
        row[: len(new)][at] = new[at][:count]
        return computed

    def logits_of(ids):
        inputs = (*example.inputs[:-1], torch.tensor([ids])) if generates(name) else example.inputs
        with edit_activations(model, {probe: lambda computed: patch(computed.clone())}), torch.no_grad():
            return example.select_logits(model(*inputs))

    found = patched_output(pipeline, TEXT, example, other, place, position)
    if not generates(name):
        assert all(name in found for name in example.names(logits_of([]).argmax(-1).tolist()))
        return
    ids = example.inputs[-1][0, : example.prompt + 1].tolist()
    written = []
    while len(written) < MOST_TOKENS and (not written or written[-1] != pipeline.tokenizer.eos):
        written.append(int(logits_of([*ids, *written])[-1].argmax()))
    written = [id for id in written if id != pipeline.tokenizer.eos]
    wanted = pipeline.tokenizer.decode(written) if example.source else pipeline.continuation(TEXT, written)
    assert found == wanted
    assert found


def test_a_patch_that_changes_nothing_keeps_the_output():
    pipeline, example, _ = subject("translation")
    whole = prepare_example(pipeline, TEXT)
    assert patched_output(pipeline, TEXT, example, example, "encoder layer 0", 1) == whole.output


def test_a_patch_at_a_place_that_does_not_exist_is_refused():
    pipeline, example, _ = subject("translation")
    for place, position, message in (("encoder layer 9", 0, "no residual stream"), ("encoder layer 0", 99, "no token 99"),
                                     ("encoder.layers.9", None, "no part 'encoder.layers.9'")):  # fmt: skip
        with pytest.raises((ConfigError, DataError), match=message):
            patched_output(pipeline, TEXT, example, example, place, position)


def test_a_path_leads_from_a_head_through_the_feed_forward_network():
    """Pre-norm, the last layer: the feed-forward network reads the stream with the head of the other text."""
    model, example, other, margin = two_texts()
    layer, path = model.decoder.layers[1], "decoder.layers.1"
    with record_activations(model) as here, torch.no_grad():
        example.logits(model)
    with record_activations(model) as there, torch.no_grad():
        other.logits(model)
    with torch.no_grad():
        heads = here[f"{path}.cross_attention.heads"].clone()
        heads[:, 0] = there[f"{path}.cross_attention.heads"][:, 0]
        update = layer.cross_attention.output(layer.cross_attention.merge(heads))
        stream = here[f"{path}.self_attention_residual.stream"] + update
        new = layer.feed_forward(layer.feed_forward_residual.norm(stream))
        final = here[f"{path}.cross_attention_residual.stream"] + new
        patched = margin.of(model.head(model.decoder.norm(final))).item()
    this, that = value_of(model, example, margin), value_of(model, other, margin)
    found = path_patch(model, example, other, margin, f"{path}.cross_attention.heads.0", f"{path}.feed_forward")
    assert found.share == pytest.approx((patched - this) / (that - this), abs=1e-9)
    titles = "decoder layer 1, cross-attention, head 0 to decoder layer 1, feed-forward"
    assert found.sentence.endswith(f"of the difference moves directly from {titles}.")


def test_no_path_leads_backwards():
    model, example, other, margin = two_texts()
    later, earlier = "decoder.layers.1.cross_attention.heads.0", "encoder.layers.0.self_attention.heads.0"
    assert path_patch(model, example, other, margin, later, earlier).share == pytest.approx(0, abs=1e-9)
    assert path_patch(model, example, other, margin, earlier, later).share != pytest.approx(0, abs=1e-9)
    # the feed-forward network of the decoder reads the encoder only through cross-attention, which is frozen
    found = path_patch(model, example, other, margin, earlier, "decoder.layers.1.feed_forward")
    assert found.share == pytest.approx(0, abs=1e-9)


def test_patching_refuses_what_it_cannot_compare():
    model, example, other, margin = two_texts()
    pipeline = untrained_pipeline(norm_placement="pre")
    with pytest.raises(DataError, match="5 and 3 tokens"):
        patch_all(model, example, prepare_example(pipeline, "a b", target=OUTPUT), margin)
    with pytest.raises(DataError, match="no difference to explain"):
        patch_all(model, example, example, margin)
    with pytest.raises(ConfigError, match="no part 'decoder.layers.9'"):
        path_patch(model, example, other, margin, "decoder.layers.9", "decoder.layers.1.feed_forward")


# ---- all of it -------------------------------------------------------------------------------------------


@every_model
def test_why_has_every_method_for_every_task(name):
    pipeline, example, margin = subject(name, precision=torch.float32)
    content = np.linspace(0, 1, 16).reshape(1, 4, 4) if name == "image_classification" else TEXT
    target = OUTPUT if generates(name) else None
    found = why(pipeline, content, step=len(example.answers) - 1, target=target)
    assert found.margin == pytest.approx(value_of(pipeline.model, example, margin), abs=1e-5)
    assert [each.method for each in found.attributions] == list(METHODS)
    for each in found.attributions:
        assert len(each.source) == len(found.source)
        assert len(each.target) == len(found.target)
    assert {part.id for part in found.parts} == set(ablation_targets(pipeline.model))
    assert found.lens[-1] == ("output", found.margin)
    assert found.lens[-2][1] == pytest.approx(found.margin, abs=1e-4)
    assert found.token in found.sentence
    assert escape(found.rival) in found._repr_html_()
    assert json.loads(found.to_json())["sentence"] == found.sentence


def test_a_token_of_the_output_is_not_the_cause_in_the_text(monkeypatch):
    """Of a translator, the sentence names a source token. A stronger token of the output comes after it."""
    found = why(untrained_pipeline(), TEXT, step=2, target=OUTPUT)
    assert found.target == ["<s>", "d", "c"]

    def sentence(source, target):
        planted = Attribution("occlusion", source, target)
        return dataclasses.replace(found, margin=4.0, attributions=[planted]).sentence_about_tokens()

    cause = "The cause in the text is “b”: without it, the margin is +3.00."
    assert sentence([0, 1, 0, 0, 9], [9, 0, 3]) == (
        f"{cause} In the output so far, “c” matters more: without it, the margin is +1.00."
    )
    assert sentence([0, 1, 0, 0, 9], [9, 0.5, 0]) == cause
    assert sentence([0, 0.1, 0, 0, 9], [9, -3, 0]) == "No single token of the input matters for it."


def test_the_sentence_names_the_strongest_token_and_head():
    found = why(untrained_pipeline(), TEXT, step=0, target=OUTPUT)
    side, i, effect = found.main_token
    others = [value for value, name in zip(found.attribution("occlusion").source, found.source, strict=True)
              if name not in ("<s>", "</s>")]  # fmt: skip
    assert effect == max(others)
    assert side == "source"
    assert found.main_head.effect == min(part.effect for part in found.parts if part.kind == "head")
    if effect > 0.05 * abs(found.margin):
        assert f"“{found.source[i]}”" in found.sentence
    if -found.main_head.effect > 0.05 * abs(found.margin):
        assert found.main_head.title in found.sentence


def test_figures_draw_what_speaks_for_a_token_blue_as_the_page_does():
    found = why(untrained_pipeline(norm_placement="pre"), TEXT, step=2, target=OUTPUT)
    _, below, *_ = why_figure(found).axes
    drawn = below.images[0]
    assert to_hex(drawn.cmap(1.0)) == BLUE.lower()
    assert to_hex(drawn.cmap(0.0)) == ORANGE.lower()
    assert {-part.effect for part in found.parts} <= set(drawn.get_array().data.flatten().tolist())
    model, example, other, margin = two_texts()
    patching = patch_all(model, example, other, margin)
    *_, parts, _ = patching_figure(patching).axes
    values = parts.images[0].get_array()
    shown = {value for value in values.data.flatten().tolist() if value == value}
    assert shown == {part.share for part in patching.parts}
    assert "layer 1, cross-attention, head 1" in patching._repr_html_()


# ---- the demo --------------------------------------------------------------------------------------------

SENTENCE = "We think that he dances on the small beach."
TRANSLATION = "Nous pensons qu'il danse sur la petite plage."


@pytest.mark.slow
def test_integrated_gradients_of_the_demo_sum_to_their_target(home):
    translator = Translator.load(home / "runs/demo", "cpu")
    pairs = load_split(translator.config.data, "translation", "test")[:20]
    questions = [(SENTENCE, "la", "le", None, TRANSLATION), *((pair.source,) for pair in pairs)]
    for question in questions:
        found = why(translator, *question, methods=["integrated_gradients"])
        assert found.attribution("integrated_gradients").gap < 1e-3


@pytest.mark.slow
def test_all_causes_of_the_demo_take_less_than_a_second(home):
    """Every method but path patching; the best of three."""
    translator = Translator.load(home / "runs/demo", "cpu")
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        patch_texts(translator, SENTENCE, SENTENCE.replace("beach", "garden"), why(translator, SENTENCE))
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 1
