"""Traces of every task have the model's numbers; everything derived from them is correct."""

import json
import math
from html import escape

import numpy as np
import pytest
import torch
from helpers import max_difference
from untrained import untrained_pipeline

from cutaway.config import DecodeConfig
from cutaway.errors import ConfigError, DataError
from cutaway.explore.ablation import ablate, ablation_targets, measure_ablations
from cutaway.explore.beam_tree import beam_tree
from cutaway.explore.candidates import candidates
from cutaway.explore.equations import formula_of
from cutaway.explore.lens import stream_probes
from cutaway.explore.parts import describe_part, part_tree
from cutaway.explore.steps import record_steps
from cutaway.explore.trace import Trace, pack_weights, trace, unpack_weights
from cutaway.explore.traced_example import prepare_example
from cutaway.explore.values import summarize_value
from cutaway.nn.recording import edit_activations, probes, record_activations, without_head

MODELS = {
    "translation": {},
    "translation, pre-norm": {"norm_placement": "pre", "attention_kernel": "exact"},
    "translation, parallel": {"block": "parallel", "norm_placement": "sandwich", "qk_norm": True},
    "language_model": {
        "family": "decoder",
        "n_kv_heads": 1,
        "position": "rope",
        "norm": "rms",
        "feed_forward": "swiglu",
    },
    "masked_language_model": {"family": "encoder", "position": "learned", "embedding_norm": True},
    "tagging": {"family": "encoder", "head": "tags", "position": "relative_bias"},
    "classification": {"family": "encoder", "head": "classes", "pooling": "attention", "experts": 3},
    "image_classification": {"family": "vision"},
}
TEXT = "a b c"
every_task = pytest.mark.parametrize("task", list(MODELS))


def pipeline_for(task):
    return untrained_pipeline(**MODELS[task])


def content(pipeline, task):
    return np.linspace(0, 1, 16).reshape(1, 4, 4) if task == "image_classification" else TEXT


@every_task
def test_a_trace_has_the_numbers_of_the_model(task):
    pipeline = pipeline_for(task)
    found = trace(pipeline, content(pipeline, task))
    example = prepare_example(pipeline, content(pipeline, task))
    with torch.no_grad():
        p = example.logits(pipeline.model).softmax(-1)
    assert len(found.steps) == len(p) == len(example.answers)
    for step, row, answer in zip(found.steps, p, example.answers, strict=True):
        assert step["p"] == pytest.approx(row[answer].item(), abs=1e-5)
        assert step["rank"] == (row > row[answer]).sum().item()
        assert step["tokens"][0] == example.names([row.argmax().item()])[0]
    answered = [math.log(row[a]) for row, a in zip(p, example.answers, strict=True)]
    assert found.log_p == pytest.approx(sum(answered[example.prompt :]), abs=1e-4)
    for kind in found.kinds():
        rows, columns = found.axes(kind)
        for layer in range(found.n_layers(kind)):
            weights = found.weights(kind, layer)
            assert weights.shape[1:] == (len(rows), len(columns))
            np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-2)  # four digits each
    assert Trace.from_json(found.to_json()) == found
    assert f"→ {escape(found.output)}</p>" in found._repr_html_()


@every_task
def test_the_last_row_of_the_lens_is_the_output(task):
    found = trace(pipeline_for(task), content(pipeline_for(task), task))
    assert found.lens["rows"][0] == "embedding"
    assert len(found.lens["rows"]) == len(found.lens["tokens"]) == 3  # the embedding and two layers
    assert found.lens["tokens"][-1] == [step["tokens"][0] for step in found.steps]
    assert found.lens["final"][-1] == pytest.approx([step["p"] for step in found.steps], abs=1e-5)
    assert len(found.lens["axis"]) == len(found.steps)


def test_the_lens_reads_the_stream_through_norm_and_head():
    pipeline = pipeline_for("translation, pre-norm")
    example, model = prepare_example(pipeline, TEXT), pipeline.model
    names = list(stream_probes(model).values())
    assert names[1] == "decoder.layers.0.feed_forward_residual.stream"
    with record_activations(model, names[1]) as seen, torch.no_grad():
        example.logits(model)
        x = seen[names[1]][0]
        normed = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        normed = normed * model.decoder.norm.weight + model.decoder.norm.bias
        p = (normed @ model.head.weight.T).softmax(-1)
    found = trace(pipeline, TEXT).lens
    assert found["p"][1] == pytest.approx(p.max(-1).values.tolist(), abs=1e-3)


@pytest.mark.parametrize("t", [0.3, 1.0, 1.7])
def test_bins_give_the_right_probability_at_any_temperature(t):
    example = prepare_example(pipeline_for("translation, pre-norm"), TEXT)
    torch.manual_seed(0)
    logits = 3 * torch.randn(len(example.answers), 1000, dtype=torch.float64)
    whole = (logits / t).softmax(-1)
    for step, row in zip(candidates(example, logits), whole, strict=True):
        assert len(step["ids"]) == 128
        assert sum(count for _, count in step["tail"]) == 1000 - 128
        named = [math.exp(v / t) for v in step["logits"]]
        rest = sum(count * math.exp(v / t) for v, count in step["tail"])
        assert named[0] / (sum(named) + rest) == pytest.approx(row.max().item(), rel=0.01)


def test_long_texts_keep_the_largest_weights():
    torch.manual_seed(0)
    weights = {f"w{i}": (4 * torch.randn(2, 300, 300)).softmax(-1) for i in range(2)}
    packed, kept = pack_weights(weights)
    assert kept["per_row"] == 250
    assert 0 < kept["least"] <= kept["mean"] <= 1
    for name, matrix in weights.items():
        back = unpack_weights(packed[name])
        assert (np.count_nonzero(back, axis=-1) <= 250).all()
        np.testing.assert_allclose(back[back > 0], matrix.double().numpy()[back > 0], atol=1e-4)
        dropped = np.where(back > 0, 0, matrix.double().numpy())
        smallest = np.where(back > 0, back, 1).min(-1)
        assert (dropped.max(-1) <= smallest + 1e-4).all()  # no larger weight was dropped
    assert pack_weights({"w": weights["w0"][:, :20, :20]})[1] is None


@every_task
def test_recorded_steps_cover_every_probe_and_name_its_axes(task):
    pipeline = pipeline_for(task)
    example = prepare_example(pipeline, content(pipeline, task))
    with record_steps(pipeline.model) as steps:
        logits = example.logits(pipeline.model)
    assert max_difference(logits, example.logits(pipeline.model)) < 1e-4
    names = [step.name for step in steps]
    assert set(probes(pipeline.model)) <= set(names)
    assert names[-1] == "head.logits"
    for step in steps:
        assert step.equation, step.name
        assert all(name != "·" for name, _ in step.summary.axes), step.name
        assert not step.summary.flags
    assert "<table>" in steps._repr_html_()


def test_summaries_of_values():
    value = torch.tensor([[1.0, 2.0, 3.0, math.nan]])
    found = summarize_value(value, "B D")
    assert (found.shape, found.mean, found.min, found.max) == ("B 1 × D 4", 2.0, 1.0, 3.0)
    assert found.std == pytest.approx(math.sqrt(2 / 3))
    assert found.flags == ["NaN in 1 of 4 values"]
    assert summarize_value(torch.tensor([math.inf]), "D").flags == ["infinite in 1 of 1 values"]
    assert summarize_value(torch.tensor([2e4]), "D").flags == ["values beyond 10,000"]
    sharp = torch.tensor([[[[1.0, 0, 0], [0.9999, 0.0001, 0], [0.99999, 0.00001, 0]]]])
    assert summarize_value(sharp, "B H Q K", is_softmax=True).flags == ["softmax saturated in 2 of 2 rows"]
    assert not summarize_value(torch.full((1, 1, 2, 2), 0.5), "B H Q K", is_softmax=True).flags


def test_the_beam_tree_is_in_the_json_on_request():
    pipeline = pipeline_for("translation")
    decode = pipeline.config.decode
    found = json.loads(trace(pipeline, TEXT, with_beam=True).to_json())
    assert found["beam"] == beam_tree(pipeline, TEXT, decode.beam_size, decode.length_penalty)
    assert trace(pipeline_for("tagging"), TEXT, with_beam=True).beam is None


def test_a_diverged_model_is_rejected():
    pipeline = pipeline_for("translation")
    with torch.no_grad():
        pipeline.model.head.weight[0, 0] = math.nan
    with pytest.raises(DataError, match="logits are not finite: its training diverged"):
        trace(pipeline, TEXT)


def test_a_diverged_model_is_flagged_at_the_first_bad_value():
    pipeline = pipeline_for("translation")
    with torch.no_grad():
        pipeline.model.encoder.layers[1].feed_forward.contract.weight[0, 0] = math.nan
    example = prepare_example(pipeline, "a b c", target="c b a")
    with record_steps(pipeline.model) as steps:
        example.logits(pipeline.model)
    first = next(step for step in steps if step.summary.flags)
    assert first.name == "encoder.layers.1.feed_forward_residual.update"
    assert first.summary.flags[0].startswith("NaN in")


@every_task
def test_an_ablation_equals_editing_the_activation(task):
    pipeline = pipeline_for(task)
    model, example = pipeline.model, prepare_example(pipeline, content(pipeline, task))
    known = ablation_targets(model)
    head = next(s for s in known.values() if s.kind == "head" and s.head == 1)
    sublayer = next(s for s in known.values() if s.kind == "sublayer")
    with torch.no_grad():
        with ablate(model, [head.id, sublayer.id]):
            found = example.logits(model)
        with edit_activations(model, {head.probe: without_head(1), sublayer.probe: torch.zeros_like}):
            expected = example.logits(model)
        assert torch.equal(found, expected)
        assert not torch.equal(found, example.logits(model))
        one_by_one = measure_ablations(model, example)
        with ablate(model, [head.id]):
            assert one_by_one[head.id] == pytest.approx(example.total_log_p(example.logits(model)))
    assert set(one_by_one) == set(known)


def test_an_unknown_ablation_target_is_rejected():
    with pytest.raises(
        ConfigError,
        match=r"no head or sub-layer 'encoder.layers.0.feed_forwar'. Did you mean 'encoder.layers.0.feed_forward'",
    ):
        ablate(pipeline_for("translation").model, ["encoder.layers.0.feed_forwar"])


def test_the_beam_tree_equals_the_search():
    pipeline = pipeline_for("translation")
    for size, alpha in ((1, 0.0), (3, 0.6), (5, 1.5)):
        tree = beam_tree(pipeline, "a b c", size, alpha)
        decode = DecodeConfig(strategy="beam", beam_size=size, length_penalty=alpha)
        [[best]] = pipeline.hypotheses(["a b c"], decode)
        winner = tree["found"][0]
        assert winner["score"] == pytest.approx(best.score, abs=1e-5)
        assert winner["log_p"] == pytest.approx(best.log_probability, abs=1e-5)
        assert winner["text"] == pipeline.tokenizer.decode(best.tokens)
        for text in tree["found"]:
            assert text["penalty"] == pytest.approx(((5 + text["length"]) / 6) ** alpha)
            assert text["score"] == pytest.approx(text["log_p"] / text["penalty"])
        nodes = tree["nodes"]
        for node in nodes[1:]:
            parent = nodes[node["parent"]]
            assert node["depth"] == parent["depth"] + 1
            assert parent["state"] in ("root", "alive")
            assert node["log_p"] == pytest.approx(parent["log_p"] + math.log(node["p"]), abs=1e-3)
        for depth in range(1, tree["steps"] + 1):
            level = [node for node in nodes if node["depth"] == depth]
            alive = [node["log_p"] for node in level if node["state"] in ("alive", "cut")]
            assert len(alive) == min(size, len(alive))
            pruned = [node["log_p"] for node in level if node["state"] == "pruned"]
            assert not pruned or max(pruned) <= min(alive) + 1e-6


def test_an_output_can_be_forced():
    pipeline = pipeline_for("translation")
    ids = pipeline.tokenizer.encode("c c")
    forced = prepare_example(pipeline, "a b c", prefix=ids)
    assert forced.answers[:2] == ids
    again = prepare_example(pipeline, "a b c", target=forced.output) if forced.finished else None
    assert again is None or again.answers == forced.answers
    ended = prepare_example(pipeline, "a b c", prefix=[*ids, pipeline.tokenizer.eos])
    assert (ended.output, ended.finished) == ("c c", True)
    uncached = ids.copy()  # greedy search without a cache after this prefix
    with torch.no_grad():
        for _ in forced.answers[2:]:
            source, _ = forced.inputs
            logits = pipeline.model(source, torch.tensor([[pipeline.tokenizer.bos, *uncached]]))
            uncached.append(logits[0, -1].argmax().item())
    assert uncached == forced.answers
    assert len(uncached) > 2
    writer = pipeline_for("language_model")
    ids = writer.tokenizer.encode(" c d")
    assert prepare_example(writer, "a b", prefix=ids).output.startswith(" c d")
    with pytest.raises(DataError, match="generates no text, so it takes no target and no prefix"):
        prepare_example(pipeline_for("tagging"), "a b", target="a")


def test_masked_tokens():
    pipeline = pipeline_for("masked_language_model")
    example = prepare_example(pipeline, "a b c", hidden=[1, 2])
    assert example.source[1:3] == ["<mask>", "<mask>"]
    assert len(example.answers) == 2
    written = prepare_example(pipeline, "a <mask> c", hidden=[1])
    assert written.source == ["<s>", "<mask>", "<mask>", "c", "</s>"]
    assert written.hidden == [1, 2]
    with pytest.raises(DataError, match="token 99 cannot be masked"):
        prepare_example(pipeline, "a b c", hidden=[99])
    with pytest.raises(DataError, match="there is no token to mask"):
        prepare_example(pipeline, "")


def test_a_text_that_is_too_long_is_rejected():
    with pytest.raises(DataError, match=r"the text has 201 tokens; this model has positions for 32"):
        prepare_example(pipeline_for("translation"), "a " * 200)


@every_task
def test_every_part_can_be_described(task):
    pipeline = pipeline_for(task)
    example, model = prepare_example(pipeline, content(pipeline, task)), pipeline.model
    json.dumps(part_tree(model))

    def names(tree):
        yield tree["name"]
        for child in tree["parts"]:
            yield from names(child)

    all_names = list(names(part_tree(model)))
    assert set(probes(model)) <= set(all_names)
    for name in [all_names[0], *all_names[1::7]]:
        part = describe_part(model, example, name)
        json.dumps(part)
        kind = type(model.get_submodule(name)).__name__
        assert part["kind"] == kind
        if part["source"]:
            owner = kind if kind != "Probe" else type(model.get_submodule(name.rpartition(".")[0])).__name__
            assert part["source"]["code"].startswith(f"class {owner}")
    with pytest.raises(ConfigError, match="this model has no part 'nowhere'"):
        describe_part(model, example, "nowhere")


def test_a_part_has_its_inputs_and_outputs():
    pipeline = pipeline_for("translation")
    example, model = prepare_example(pipeline, "a b c", target="c b a"), pipeline.model
    seen = []
    hook = model.encoder.layers[0].feed_forward.register_forward_hook(lambda m, i, o: seen.append((i[0], o)))
    with torch.no_grad():
        example.logits(model)
    hook.remove()
    part = describe_part(model, example, "encoder.layers.0.feed_forward")
    assert part["inputs"][0]["name"] == "x"
    assert part["inputs"][0]["rows"] == example.source
    np.testing.assert_allclose(part["inputs"][0]["slices"][""], seen[0][0][0], atol=1e-3)
    np.testing.assert_allclose(part["outputs"][0]["slices"][""], seen[0][1][0], atol=1e-3)
    assert part["outputs"][0]["axes"] == [["B", 1], ["S", 4], ["D", 8]]
    assert part["outputs"][0]["mean"] == pytest.approx(seen[0][1].mean().item(), abs=1e-5)
    weights = describe_part(model, example, "decoder.layers.0.cross_attention.weights")["outputs"][0]
    assert weights["rows"] == example.target_in
    assert weights["columns"] == example.source
    assert list(weights["slices"]) == ["head 0", "head 1"]


@pytest.mark.parametrize(
    ("changes", "name", "axes"),
    [
        ({}, "decoder.layers.0.cross_attention.key", ["B", "S", "D"]),
        ({}, "decoder.layers.0.cross_attention.weights", ["B", "H", "Q", "K"]),
        ({}, "decoder.layers.0.feed_forward.contract", ["B", "T", "F"]),
        ({}, "head.logits", ["B", "T", "V"]),
        ({"experts": 2}, "encoder.layers.0.feed_forward.experts.0", ["N", "D"]),
        ({"family": "encoder", "head": "classes"}, "head", ["B", "T", "D"]),
        ({"family": "encoder", "head": "classes"}, "head.logits", ["B", "C"]),
        ({"family": "vision"}, "embedding", ["B", "C", "height", "width"]),
    ],
)
def test_inputs_have_named_axes(changes, name, axes):
    pipeline = untrained_pipeline(**changes)
    example = prepare_example(
        pipeline, content(pipeline, "image_classification" if "vision" in changes.values() else "")
    )
    [first, *_] = describe_part(pipeline.model, example, name)["inputs"]
    assert [axis for axis, _ in first["axes"]] == axes
    if name.endswith("cross_attention.key"):
        assert first["rows"] == example.source


@pytest.mark.parametrize(
    ("changes", "name", "equation"),
    [
        ({}, "encoder", "layer_2( ... layer_1(x))"),
        ({"norm_placement": "pre"}, "encoder", "norm(layer_2( ... layer_1(x)))"),
        ({"bias": False}, "encoder.layers.0.feed_forward", "FFN(x) = relu(x W₁) W₂"),
        ({}, "encoder.layers.0.feed_forward", "FFN(x) = relu(x W₁ + b₁) W₂ + b₂"),
        ({"feed_forward": "swiglu"}, "encoder.layers.0.feed_forward", "FFN(x) = (silu(x W + b) ⊙ (x V + c)) W₂ + b₂"),
        ({"block": "parallel"}, "encoder.layers.0", "norm(x + attention(x) + feed_forward(x))"),
        (
            {"block": "parallel", "norm_placement": "pre"},
            "decoder.layers.0",
            "x + attention(norm(x)) + feed_forward(norm(x)) + cross_attention(norm(x))",
        ),
        (
            {"block": "parallel"},
            "decoder.layers.0.residual.update",
            "update = self-attention + feed-forward + cross-attention",
        ),
        (
            {"position": "rope", "qk_norm": True},
            "encoder.layers.0.self_attention.q",
            "q = rotate(norm(x W_Q + b_Q), t)",
        ),
        ({"position": "alibi"}, "decoder.layers.0.self_attention.scores", "scores = q kᵀ / √E - m_h · |i - j|"),
        ({"attention": "linear"}, "decoder.layers.0.cross_attention.k", "k = elu(memory W_K + b_K) + 1"),
    ],
)
def test_an_equation_describes_the_part_as_built(changes, name, equation):
    assert formula_of(untrained_pipeline(**changes).model, name).equation == equation
