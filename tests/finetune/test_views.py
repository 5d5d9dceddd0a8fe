"""Traces and figures of fine-tuned models: they show only the text, with the numbers of the model."""

import numpy as np
import pytest
import torch
from untrained import untrained_pipeline

from cutaway.config import FinetuneConfig
from cutaway.data.examples import Pair
from cutaway.explore.ablation import measure_ablations
from cutaway.explore.beam_tree import beam_tree
from cutaway.explore.equations import formula_of
from cutaway.explore.heads import head_statistics
from cutaway.explore.inputs import encode_examples
from cutaway.explore.leaks import find_leaks
from cutaway.explore.masks import mask_views
from cutaway.explore.parts import describe_part, part_tree
from cutaway.explore.steps import record_steps
from cutaway.explore.trace import trace
from cutaway.explore.traced_example import prepare_example
from cutaway.finetune.adapt import adapt
from cutaway.models.weights import trainable_parameters

MODELS = {
    "translation": {},
    "language_model": {"family": "decoder", "position": "rope", "attention": "window"},
    "classification": {"family": "encoder", "head": "classes", "attention": "sparse"},
}
SETTINGS = {
    "lora": {"rank": 2, "target_modules": ("*_attention.*",)},
    "prefix": {"prompt_length": 3},
    "prompt": {"prompt_length": 3, "target_modules": ("*coder",)},
}
TEXT = "a b c"

every_method = pytest.mark.parametrize("method", list(SETTINGS))
every_model = pytest.mark.parametrize("task", list(MODELS))


def pipeline_of(task, method):
    pipeline = untrained_pipeline(**MODELS[task])
    adapt(pipeline.model, FinetuneConfig(base="x", method=method, **SETTINGS[method]))
    with torch.no_grad():
        for weight in trainable_parameters(pipeline.model).values():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    return pipeline


@every_method
@every_model
def test_a_trace_shows_only_the_text(task, method):
    pipeline = pipeline_of(task, method)
    traced = trace(pipeline, TEXT)
    with torch.no_grad():
        example = prepare_example(pipeline, TEXT)
        logits = example.logits(pipeline.model)
    assert traced.log_p == pytest.approx(example.total_log_p(logits), abs=1e-5)
    assert len(traced.lens["p"][-1]) == len(example.answers)
    assert traced.lens["p"][-1] == pytest.approx(logits.softmax(-1).amax(-1).tolist(), abs=1e-3)  # of the last layer
    for kind in traced.kinds():
        rows, columns = traced.axes(kind)
        for layer in range(traced.n_layers(kind)):
            weights = traced.weights(kind, layer)
            assert weights.shape[1:] == (len(rows), len(columns))
            total = weights.sum(-1)
            assert (total < 1.001).all()
            # the rest of a row belongs to the adapter; in the base, the first token of a decoder has weight 1 on itself
            assert (total > 0.999).all() == (method == "lora" or (method == "prompt" and kind == "cross"))


@pytest.mark.parametrize("method", ["prefix", "prompt"])
@every_model
def test_masks_and_leaks_are_the_same_as_in_the_base(task, method):
    """A prompt takes positions of a stack, but the masks show only the text, and nothing leaks."""
    plain, pipeline = untrained_pipeline(**MODELS[task]), pipeline_of(task, method)
    example = encode_examples(plain, [Pair("a b c d e", "c b a") if task == "translation" else "a b c d e"])[0]
    before, after = mask_views(plain, example), mask_views(pipeline, example)
    assert [view.title for view in before] == [view.title for view in after]
    for one, other in zip(before, after, strict=True):
        assert (one.rows, one.columns, one.words) == (other.rows, other.columns, other.words)
        assert np.array_equal(one.allowed, other.allowed)
    report = find_leaks(pipeline, example)
    assert report.ok, report.sentences()


@pytest.mark.parametrize("method", ["prompt", *(pytest.param(m, marks=pytest.mark.slow) for m in ("lora", "prefix"))])
def test_the_other_views_work(method):
    pipeline = pipeline_of("translation", method)
    with record_steps(pipeline.model) as steps:
        prepare_example(pipeline, TEXT).logits(pipeline.model)
    assert all(step.equation for step in steps)
    names = [name for name, _ in pipeline.model.named_modules() if "attention" in name and not name.endswith("norm")]
    assert all(
        formula_of(pipeline.model, name).equation for name in names if not name.endswith(("position", "dropout"))
    )
    example = prepare_example(pipeline, TEXT)
    shown = describe_part(pipeline.model, example, "decoder.layers.0.self_attention.weights")
    assert shown["outputs"][0]["rows"] == example.target_in
    assert describe_part(pipeline.model, example, "encoder")["equation"]
    assert part_tree(pipeline.model)["parameters"] == sum(p.numel() for p in pipeline.model.parameters())
    assert all(np.isfinite(value) for value in measure_ablations(pipeline.model, example).values())
    assert beam_tree(pipeline, TEXT, 2, 0.6)
    table = head_statistics(pipeline, [Pair("a b c d", "d c b a"), Pair("a b", "b a")])
    assert len(table) == 2 * 2 * 3
