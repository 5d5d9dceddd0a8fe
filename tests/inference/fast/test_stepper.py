"""The fast stepper equals the plain stepper: texts encoded in groups, beams that share a memory."""

import pytest
import torch
from helpers import perturbed_model, random_ids, tiny_model, tiny_of

from cutaway.decode.beam import beam_search
from cutaway.decode.sampling import greedy
from cutaway.decode.stepper import TranslationStepper
from cutaway.inference.fast.prepare import prepare_model
from cutaway.inference.fast.stepper import FastTranslationStepper


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("choice", "shares"), [({}, True), ({"n_kv_heads": 1}, True), ({"attention": "linear"}, False)]
)
@pytest.mark.parametrize("strategy", ["greedy", "beam"])
@pytest.mark.parametrize("record_source_weights", [False, True])
def test_a_prepared_model_gives_the_same_outputs(choice, shares, strategy, record_source_weights):
    plain, fast = perturbed_model(tiny_of(**choice)), perturbed_model(tiny_of(**choice))
    prepare_model(fast)
    source, mask = random_ids(3, 6), torch.arange(6)[None] < torch.tensor([6, 4, 2])[:, None]
    first, limits = torch.full((3,), 4), [9, 12, 5]

    def run(stepper):
        weights = []
        if record_source_weights:
            step, stepper.step = stepper.step, lambda tokens: (step(tokens), weights.append(stepper.source_weights))[0]
        if strategy == "greedy":
            found = [[text] for text in greedy(stepper, first, limits, 5)]
        else:
            found = beam_search(stepper, first, limits, 5, beam_size=3, n_best=2)
        return [[(h.tokens, pytest.approx(h.score, abs=1e-9)) for h in texts] for texts in found], weights

    with torch.inference_mode():
        stepper = FastTranslationStepper(fast, source, mask, record_source_weights)
        ours, our_weights = run(stepper)
        theirs, their_weights = run(TranslationStepper(plain, source, mask, record_source_weights))
    assert stepper.can_share == shares
    assert ours == theirs
    for one, other in zip(our_weights, their_weights, strict=True):
        assert (one - other).abs().max() < 1e-9


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("lengths", "groups"), [([9, 1, 2, 3, 1] * 8, 3), ([9, 8] * 20, 1), ([9, 1] * 8, 1)])
def test_encoding_in_groups_gives_the_same_memory(lengths, groups):
    """Texts are grouped only if there are many texts and much padding."""
    model = tiny_model(seed=4).double()
    source, mask = random_ids(len(lengths), 9), torch.arange(9)[None] < torch.tensor(lengths)[:, None]
    read = []
    model.source_embedding.register_forward_hook(lambda module, inputs, x: read.append(inputs[0].numel()))
    with torch.inference_mode():
        ours = FastTranslationStepper(model, source, mask).memory
        assert len(read) == groups
        assert groups == 1 or sum(read) < 0.6 * source.numel()
        theirs = model.encode(source, mask)
    assert ours.shape == theirs.shape
    assert (ours - theirs)[mask].abs().max() < 1e-12
    assert ours.isfinite().all()
