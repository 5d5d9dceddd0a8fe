"""Probes: recorded values are the real ones, edits take effect, and a probe without watchers runs no operator."""

import threading

import pytest
import torch
from helpers import max_difference, random_ids, tiny_model
from torch import nn
from torch.profiler import profile

from cutaway.errors import ConfigError
from cutaway.nn.probe import Probe
from cutaway.nn.recording import edit_activations, probes, record_activations, without_head

SOURCE, TARGET = random_ids(2, 5), random_ids(2, 4, seed=1)


def test_recording_has_every_probe_in_the_order_of_computation():
    model = tiny_model()
    with record_activations(model) as seen:
        model(SOURCE, TARGET)
    assert set(seen) == set(probes(model))
    names = list(seen)
    assert names[0] == "source_embedding.embedded"
    assert names[-1] == "head.logits"
    assert names.index("encoder.layers.1.feed_forward.hidden") < names.index("decoder.layers.0.self_attention.scores")
    assert seen["decoder.layers.0.cross_attention.weights"].shape == (2, 2, 4, 5)


@pytest.mark.usefixtures("double")
def test_recording_changes_nothing():
    fused, exact = tiny_model(attention_kernel="fused"), tiny_model(attention_kernel="exact")
    plain = exact(SOURCE, TARGET)
    with record_activations(exact):
        assert torch.equal(exact(SOURCE, TARGET), plain)
    before = fused(SOURCE, TARGET)
    with record_activations(fused):
        assert max_difference(fused(SOURCE, TARGET), before) < 1e-10
    assert torch.equal(fused(SOURCE, TARGET), before)


def test_recording_with_the_fused_kernel_in_single_precision_changes_little():
    model = tiny_model(attention_kernel="fused")
    before = model(SOURCE, TARGET)
    with record_activations(model) as seen:
        assert max_difference(model(SOURCE, TARGET), before) < 1e-5
    assert "<td>head.logits</td><td>(2, 4, 11)</td>" in seen._repr_html_()
    exact = tiny_model(attention_kernel="exact")
    before = exact(SOURCE, TARGET)
    with record_activations(exact):
        assert torch.equal(exact(SOURCE, TARGET), before)


def test_recorded_weights_are_distributions_that_respect_the_masks():
    model = tiny_model()
    is_token = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    with record_activations(model, "*.weights") as seen:
        model(SOURCE, TARGET, is_token)
    for name, weights in seen.items():
        assert max_difference(weights.sum(-1), torch.ones(weights.shape[:-1])) < 1e-6, name
    assert (seen["encoder.layers.0.self_attention.weights"][1, :, :, 3:] == 0).all()
    assert (seen["decoder.layers.0.cross_attention.weights"][1, :, :, 3:] == 0).all()
    assert (seen["decoder.layers.0.self_attention.weights"].triu(1) == 0).all()


def test_a_probe_without_watchers_runs_no_operator():
    model, bare = tiny_model(), tiny_model()
    for name in probes(bare):
        parent, _, child = name.rpartition(".")
        setattr(bare.get_submodule(parent), child, NoProbe())

    def operators(m):
        with profile() as recorded:
            m(SOURCE, TARGET)
        return [event.name for event in recorded.events() if event.name.startswith("aten::")]

    operators(model)  # the first call may run one-time initialisation
    assert operators(model) == operators(bare)


class NoProbe(nn.Module):
    is_watched = False

    def forward(self, value):
        return value


def test_switching_a_head_off_equals_zeroing_its_output_weights():
    model, ablated = tiny_model(), tiny_model()
    with torch.no_grad():
        ablated.decoder.layers[1].cross_attention.output.weight[:, 4:] = 0  # the columns of head 1 of 2
    with edit_activations(model, {"decoder.layers.1.cross_attention.heads": without_head(1)}):
        edited = model(SOURCE, TARGET)
    assert max_difference(edited, ablated(SOURCE, TARGET)) < 1e-6
    assert max_difference(edited, model(SOURCE, TARGET)) > 1e-3


def test_patching_all_activations_from_another_run_gives_its_output():
    model = tiny_model()
    other = random_ids(2, 5, seed=9)
    with record_activations(model, "encoder.layers.1.feed_forward_residual.stream") as seen:
        expected = model(other, TARGET)
    with edit_activations(model, dict(seen)):
        assert max_difference(model(SOURCE, TARGET), expected) < 1e-6


def test_edits_end_with_the_with_statement_even_after_an_error():
    model = tiny_model()
    plain = model(SOURCE, TARGET)
    with pytest.raises(RuntimeError, match="on purpose"), edit_activations(model, {"*.stream": torch.zeros_like}):
        raise RuntimeError("on purpose")
    assert torch.equal(model(SOURCE, TARGET), plain)


def test_a_pattern_that_matches_nothing_is_an_error_with_a_suggestion():
    with (
        pytest.raises(ConfigError, match=r"no probe matches 'head.logit'. Did you mean 'head.logits'"),
        record_activations(tiny_model(), "head.logit"),
    ):
        pass


def test_a_patch_of_another_shape_names_both_shapes():
    model = tiny_model()
    with pytest.raises(ConfigError, match=r"shape \(2, 4, 11\) with one of shape \(1, 4, 11\)"):
        with edit_activations(model, {"head.logits": torch.zeros(1, 4, 11)}):
            model(SOURCE, TARGET)


def test_a_probe_has_no_state():
    assert not Probe().state_dict()


def test_calls_of_another_thread_are_not_recorded():
    model = tiny_model()
    with record_activations(model, "*.weights") as seen:
        other = threading.Thread(target=lambda: model(random_ids(1, 3), random_ids(1, 2)))
        other.start()
        other.join()
        assert not seen
        model(random_ids(2, 5), random_ids(2, 4))
    assert {len(weights) for weights in seen.values()} == {2}
