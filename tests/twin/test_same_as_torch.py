"""The twin and the PyTorch modules agree on every value, every gradient and every training step."""

import numpy as np
import pytest
import torch
from helpers import batch_for, name_of, perturbed_model, small_recipe, tiny_of, twin_choices

from cutaway.config import TrainConfig
from cutaway.errors import ConfigError
from cutaway.nn.recording import probes, watch_probes
from cutaway.train.losses import smoothed_cross_entropy
from cutaway.train.objectives import OBJECTIVES, compute_loss
from cutaway.train.optimizers import make_optimizer
from cutaway.train.schedules import make_schedule
from cutaway.twin import build as twin
from cutaway.twin.batch import Batch, batches
from cutaway.twin.modules import record_activations
from cutaway.twin.ops import cross_entropy
from cutaway.twin.train import measure, train

pytestmark = pytest.mark.usefixtures("double")
FORWARD, BACKWARD = 1e-10, 1e-8
NAMED = {
    "paper": {},
    "pre-norm": {"norm_placement": "pre"},
    "gpt": {"family": "decoder", "norm_placement": "pre", "position": "learned", "feed_forward": "gelu_tanh"},
    "llama": {"family": "decoder", "norm_placement": "pre", "position": "rope", "feed_forward": "swiglu", "norm": "rms",
              "bias": False, "n_kv_heads": 1, "embeddings": "separate", "embedding_scale": "one"},
    "llama-3.1": {"family": "decoder", "norm_placement": "pre", "position": "rope", "feed_forward": "swiglu", "norm": "rms",
                  "rope_scaling": "llama3", "rope_factor": 8.0, "rope_original_length": 8, "rope_base": 30.0},
    "linear-rope": {"family": "decoder", "position": "rope", "rope_scaling": "linear", "rope_factor": 3.0},
    "t5": {"norm_placement": "pre", "position": "relative_bias", "norm": "rms", "bias": False, "embedding_scale": "one"},
}  # fmt: skip


def twin_of(model, config):
    """The twin of a PyTorch model, with the same weights."""
    other = twin.build_model(config)
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    assert other.parameters().keys() == weights.keys()
    other.load(weights)
    return other


def arrays(config, batch):
    """Convert a PyTorch batch to a batch of the twin."""
    if config.family == "encoder_decoder":
        inputs = (batch.source, batch.target_in, batch.source_mask, batch.target_mask)
        return Batch(tuple(x.numpy() for x in inputs), batch.target_out.numpy(), batch.target_mask.numpy())
    return Batch((batch.ids.numpy(), batch.mask.numpy()), batch.targets.numpy(), batch.target_mask.numpy())


def mask_and_targets(batch):
    return (batch.target_mask, batch.target_out) if hasattr(batch, "target_out") else (batch.target_mask, batch.targets)


def run_torch(model, config, batch):
    """-> loss, values and gradients of all probes. Gradients of parameters are in the model."""
    seen = {}

    def keep(name):
        def watch(value):
            value.retain_grad()
            seen[name] = value

        return watch

    with watch_probes({name: (probe, keep(name)) for name, probe in probes(model).items()}):
        logits = model(*(torch.from_numpy(x) for x in arrays(config, batch).inputs))
        mask, targets = mask_and_targets(batch)
        loss, _ = smoothed_cross_entropy(logits[mask], targets[mask], 0.1)
    loss.backward()
    return loss.item(), {n: v.detach().numpy() for n, v in seen.items()}, {n: v.grad.numpy() for n, v in seen.items()}


def run_twin(other, batch):
    with record_activations(other) as seen:
        logits, backward = other(*batch.inputs)
        loss, back_loss = cross_entropy(logits[batch.target_mask], batch.targets[batch.target_mask], 0.1)
        d_logits = np.zeros_like(logits)
        d_logits[batch.target_mask] = back_loss()
        backward(d_logits)
    return loss.smoothed, seen.values, seen.gradients


def assert_equal_to_torch(config):
    model, batch = perturbed_model(config), batch_for(config)
    other = twin_of(model, config)
    loss, values, gradients = run_torch(model, config, batch)
    twin_loss, twin_values, twin_gradients = run_twin(other, arrays(config, batch))
    assert loss == pytest.approx(twin_loss, abs=FORWARD)
    assert (
        values.keys() == twin_values.keys() == twin_gradients.keys()
    )  # the same probes, and the forward pass uses all of them
    for name in values:
        np.testing.assert_allclose(twin_values[name], values[name], rtol=0, atol=FORWARD, err_msg=name)
        np.testing.assert_allclose(twin_gradients[name], gradients[name], rtol=0, atol=BACKWARD, err_msg=name)
    for name, parameter in model.named_parameters():
        expected = np.zeros(parameter.shape) if parameter.grad is None else parameter.grad.numpy()
        found = other.parameters()[name].gradient
        found = np.zeros(parameter.shape) if found is None else found
        np.testing.assert_allclose(found, expected, rtol=0, atol=BACKWARD, err_msg=name)
    return values, gradients


@pytest.mark.parametrize("choice", twin_choices(), ids=name_of)
def test_every_value_and_gradient_is_equal(choice):
    assert_equal_to_torch(tiny_of(**choice))


@pytest.mark.parametrize("choice", NAMED.values(), ids=NAMED)
def test_known_models_are_equal(choice):
    values, gradients = assert_equal_to_torch(tiny_of(**choice))
    assert all(np.abs(g).max() > 0 for g in gradients.values())  # otherwise equal gradients would prove nothing
    assert len(values) >= 16


def test_the_twin_supports_every_position_norm_and_feed_forward():
    positions = "sinusoidal learned rope alibi relative_bias relative none"
    feed_forwards = "relu gelu gelu_tanh relu2 swiglu geglu"
    assert set(twin.SUPPORTED["position"]) >= set(positions.split())
    assert set(twin.SUPPORTED["feed_forward"]) >= set(feed_forwards.split())
    assert set(twin.SUPPORTED["norm"]) >= {"layer", "rms"}
    assert set(twin.SUPPORTED["norm_placement"]) >= {"post", "pre", "sandwich"}


def test_a_value_missing_in_the_tables_of_the_twin_is_an_error(monkeypatch):
    monkeypatch.delitem(twin.POSITIONS, "rope")
    with pytest.raises(
        ConfigError, match="engine 'numpy' does not support model.position = 'rope'; it supports sinusoidal, learned"
    ):
        twin.build_model(tiny_of(position="rope"))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"attention": "linear"}, "does not support model.attention = 'linear'; it supports full, window, sparse."),
        ({"experts": 3}, "engine 'numpy' does not support model.experts = 3. Use engine 'torch'."),
        ({"family": "encoder"}, "does not support model.family = 'encoder'; it supports encoder_decoder, decoder."),
        ({"family": "decoder", "cross_attention": True}, "does not support model.cross_attention = True"),
    ],
)
def test_unsupported_settings_are_errors(choice, message):
    with pytest.raises(ConfigError, match=message):
        twin.build_model(tiny_of(**choice))


@pytest.mark.parametrize("choice", [NAMED["paper"], NAMED["pre-norm"], NAMED["gpt"]], ids=["paper", "pre-norm", "gpt"])
@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
def test_ten_training_steps_are_equal(choice, clip_norm):
    """With the same weights, batches and Adam settings, without dropout."""
    config = tiny_of(**choice)
    settings = TrainConfig(steps=10, warmup=4, lr=0.5, clip_norm=clip_norm)
    model, data = perturbed_model(config), [batch_for(config, seed) for seed in range(10)]
    other = twin_of(model, config)
    steps = list(train(other, [arrays(config, batch) for batch in data], settings))
    optimizer, schedule = make_optimizer(model, settings), make_schedule(settings, config.d_model)
    model.train()
    for step, batch in zip(steps, data, strict=True):
        optimizer.zero_grad()
        result = compute_loss(model, OBJECTIVES[config.task], batch, settings.label_smoothing)
        (result.loss / batch.tokens).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm or float("inf"))
        optimizer.param_groups[0]["lr"] = schedule(step.step, 0.0)
        optimizer.step()
        assert step.loss == pytest.approx(result.loss.item() / batch.tokens, abs=1e-9)
        assert step.nll == pytest.approx(result.nll.item() / batch.tokens, abs=1e-9)
        assert step.gradient_norm == pytest.approx(norm.item(), abs=1e-9)
        assert step.lr == schedule(step.step, 0.0)
    assert steps[-1].loss < steps[0].loss
    # not 1e-9: the bias of a key has no effect, so its gradient is only rounding noise, which Adam amplifies
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(other.parameters()[name].value, parameter.detach().numpy(), rtol=0, atol=1e-6)


def test_batches_equal_those_of_the_trainer(tmp_path):
    from cutaway.inference.training.setup import start_training
    from cutaway.runs import RunFolder

    config = small_recipe()
    training = start_training(config, RunFolder(tmp_path / "run"))
    trainer, tokenizer = training.trainer, training.tokenizer
    examples, seed = trainer.batches.examples, config.train.seed
    ours = batches(examples, "translation", tokenizer.bos, tokenizer.eos, config.data.batch_tokens, seed)
    for _, batch in zip(range(5), ours, strict=False):
        theirs = next(trainer.batches)
        where = theirs.target_mask.numpy()
        assert (batch.inputs[0][theirs.source_mask.numpy()] == theirs.source[theirs.source_mask].numpy()).all()
        assert (batch.inputs[1][where] == theirs.target_in[theirs.target_mask].numpy()).all()
        assert (batch.targets[where] == theirs.target_out[theirs.target_mask].numpy()).all()
        assert (batch.target_mask == where).all()
    other = twin_of(trainer.model, training.config.model)
    valid = batches(
        encoded_validation_set(config, tokenizer), "translation", tokenizer.bos, tokenizer.eos, 256, 0, epochs=1
    )
    assert measure(other, valid) == pytest.approx(tuple(trainer.validate()[:2]), abs=1e-9)


def encoded_validation_set(config, tokenizer):
    from cutaway.data.tasks import Encoding, encode_pairs, load_split

    return encode_pairs(load_split(config.data, "translation", "valid"), Encoding(tokenizer, (), 64))
