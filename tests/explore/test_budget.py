"""The budget adds up, counts a shared matrix once, and adds time to the part that took it."""

import time

import pytest
import torch
from helpers import tiny_model
from untrained import untrained_pipeline

from cutaway.explore.budget import budget, part_of, time_parts
from cutaway.explore.inputs import collate_examples, encode_examples
from cutaway.models.build import count_parameters

IDS = torch.tensor([[4, 5, 6, 7]])


@pytest.mark.parametrize(
    ("changes", "inputs", "parts"),
    [
        ({}, (IDS, IDS), {"embeddings", "encoder self-attention", "decoder self-attention", "cross-attention", "head"}),
        ({"embeddings": "separate", "norm_placement": "sandwich"}, (IDS, IDS), {"norms", "feed-forward"}),
        ({"family": "decoder", "position": "relative_bias"}, (IDS,), {"positions", "decoder self-attention"}),
        ({"family": "decoder", "experts": 3, "block": "parallel"}, (IDS,), {"feed-forward"}),
        ({"family": "encoder", "embedding_norm": True}, (IDS,), {"encoder self-attention", "head"}),
        ({"family": "vision"}, (torch.rand(2, 1, 4, 4),), {"embeddings", "head"}),
    ],
)
def test_the_shares_add_up(changes, inputs, parts):
    model = tiny_model(**changes)
    found = budget(model, *inputs, runs=3)
    assert found.parameters == count_parameters(model)
    assert parts <= {share.part for share in found.shares}
    assert "the rest" not in {share.part for share in found.shares if share.parameters}
    assert all(share.seconds >= 0 for share in found.shares)
    *shares, whole = found.rows()
    for column in (2, 4):
        assert sum(float(row[column].rstrip("%")) for row in shares) == pytest.approx(100, abs=0.5)
        assert whole[column] == "100.0%"
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_shared_matrix_counts_once():
    by_part = {share.part: share.parameters for share in budget(tiny_model(), IDS, IDS, runs=1).shares}
    separate = tiny_model(embeddings="separate")
    apart = {share.part: share.parameters for share in budget(separate, IDS, IDS, runs=1).shares}
    assert by_part["head"] == 0
    assert apart["head"] == separate.head.weight.numel()
    assert apart["embeddings"] == 2 * by_part["embeddings"] == 2 * separate.source_embedding.tokens.weight.numel()


def test_time_counts_for_the_part_that_took_it():
    model = tiny_model()
    slow = model.encoder.layers[0].feed_forward
    slow.activation = lambda x, plain=slow.activation: (time.sleep(0.05), plain(x))[1]
    with time_parts(model) as watch:
        start = time.perf_counter()
        model(IDS, IDS)
        took = time.perf_counter() - start
    assert watch.seconds["feed-forward"] >= 0.05
    assert sum(watch.seconds.values()) == pytest.approx(took, abs=0.01)
    assert sum(watch.seconds.values()) - watch.seconds["feed-forward"] < 0.04


def test_part_names_and_notebook_output():
    assert part_of("encoder.layers.0.self_attention_residual") == "the rest"
    assert part_of("encoder.layers.0.self_attention_residual.norm") == "norms"
    assert part_of("decoder.layers.1.self_attention.query") == "decoder self-attention"
    pipeline = untrained_pipeline("decoder")
    found = budget(
        pipeline.model, *collate_examples(pipeline, encode_examples(pipeline, ["a b", "a b c"])).arguments, runs=1
    )
    assert found.tokens == 8
    assert found._repr_html_().count("<tr>") == len(found.shares) + 2
    assert found.as_json()["parameters"] == found.parameters
