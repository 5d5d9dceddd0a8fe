"""Properties that every model of build.py must have, for all choices.

The quick tier tries choices in which any two settings meet; the slow tier, the full product of the tables.
"""

import itertools

import pytest
import torch
from helpers import (
    AXES,
    TABLES,
    V,
    all_pairs,
    batch_for,
    is_possible,
    max_difference,
    name_of,
    perturbed_model,
    random_ids,
    tiny_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.errors import ConfigError
from cutaway.inference.fast.prepare import prepare_model
from cutaway.models.build import build_model
from cutaway.nn.recording import edit_activations, record_activations
from cutaway.train.objectives import OBJECTIVES, compute_loss

pytestmark = pytest.mark.usefixtures("double")
CHOICES, IMPOSSIBLE = all_pairs(AXES)
CLOSE = 1e-10


writing = [c for c in CHOICES if c["family"] in ("encoder_decoder", "decoder")]
reading_text = [c for c in CHOICES if c["family"] != "vision"]
with_loss = [c for c in CHOICES if c["head"] != "vectors"]  # vectors have no targets
every_answer = pytest.mark.parametrize("choice", with_loss, ids=name_of)
every_writer = pytest.mark.parametrize("choice", writing, ids=name_of)
every_reader = pytest.mark.parametrize("choice", reading_text, ids=name_of)


def test_the_choices_contain_every_possible_pair():
    seen = {frozenset(pair) for choice in CHOICES for pair in itertools.combinations(choice.items(), 2)}
    for (a, values), (b, others) in itertools.combinations(AXES.items(), 2):
        for pair in itertools.product(values, others):
            pair_as_set = frozenset({(a, pair[0]), (b, pair[1])})
            assert pair_as_set in seen or tuple(sorted(pair_as_set)) in {tuple(sorted(p)) for p in IMPOSSIBLE}, (
                pair_as_set
            )


@pytest.mark.parametrize("pair", sorted(IMPOSSIBLE, key=repr), ids=lambda p: "-".join(f"{k}={v}" for k, v in p))
def test_the_error_for_an_impossible_pair_has_both_values_and_a_remedy(pair):
    """For at least one family, head and kernel. With others, another error may come first."""
    messages = []
    for company in itertools.product(AXES["family"], AXES["head"], AXES["attention_kernel"]):
        choice = dict(zip(("family", "head", "attention_kernel"), company, strict=True)) | dict(pair)
        with pytest.raises(ConfigError) as caught:
            tiny_of(**choice)
        messages.append(str(caught.value))
    # pooling needs head = "classes", so it inherits the restrictions of that head
    of_writers = pair[0][0] in ("embeddings", "output_bias") and pair[1][0] == "pooling"
    known = dict([pair[0], ("head", "classes")]) if of_writers else dict(pair)
    named = [m for m in messages if all(f"model.{name} = {value!r}" in m for name, value in known.items())]
    assert named, messages
    assert all(any(remedy in m for remedy in ("Use ", "Remove it", "Leave ")) for m in named)


def train_ten_steps(config):
    """The losses of ten training steps on one batch."""
    torch.manual_seed(0)
    model, batch = build_model(config), batch_for(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        result = compute_loss(model, OBJECTIVES[config.task], batch, 0.0, balance=0.01)
        result.loss.backward()
        losses.append(result.nll.item())
        optimizer.step()
    return model, losses


def run(model, config, ids, seed=0):
    """Logits for any family. The source of an encoder-decoder is another random text."""
    if config.family == "encoder_decoder":
        return model(random_ids(len(ids), 5, seed=seed), ids)
    return model(ids)


def assert_learns(config):
    model, losses = train_ten_steps(config)
    assert losses[-1] < losses[0]
    for name, parameter in model.named_parameters():
        if ".experts." not in name:  # experts have a separate test
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name


def assert_causal(config, t=3):
    model = perturbed_model(config)
    ids = random_ids(2, 7)
    changed = ids.clone()
    changed[:, t:] = random_ids(2, 7 - t, seed=5)
    changed[:, t] = 4 + (ids[:, t] - 3) % (V - 4)  # certainly another token
    difference = (run(model, config, ids) - run(model, config, changed)).abs().amax(-1)
    # the number of tokens of an expert may change, and a matrix product of another size rounds differently
    assert (difference[:, :t] <= (1e-12 if config.experts else 0)).all()
    assert (difference[:, t] > 1e-9).all()  # a model that ignores its input would pass the line above


def assert_batch_equals_single(config, lengths=(6, 1, 4), seed=0):
    """A batch with padding gives the same as each text alone, for any token ids in the padding."""
    model = perturbed_model(config)
    mask = torch.arange(7)[None] < torch.tensor(lengths)[:, None]
    ids, source = random_ids(len(lengths), 7, seed=seed), random_ids(len(lengths), 7, seed=seed + 1)
    if config.family == "encoder_decoder":
        together = model(source, ids, mask, mask)
    else:
        together = model(ids, mask)
    for i, n in enumerate(lengths):
        alone = ids[i : i + 1, :n]
        expected = model(source[i : i + 1, :n], alone) if config.family == "encoder_decoder" else model(alone)
        found = together[i : i + 1] if config.head in ("classes", "vectors") else together[i : i + 1, :n]
        assert max_difference(found, expected) < CLOSE


def assert_cached_equals_uncached(config, pieces=(2, 1, 3, 1), seed=0):
    model = perturbed_model(config)
    ids, memory, mask = random_ids(3, sum(pieces), seed=seed), (), None
    if config.family == "encoder_decoder":
        mask = torch.arange(5)[None] < torch.tensor([5, 3, 1])[:, None]
        memory = (model.encode(random_ids(3, 5, seed=seed + 1), mask), mask)
    whole = model.decode(ids, *memory)
    cache, start = model.new_cache(), 0
    for length in pieces:
        part = model.decode(ids[:, start : start + length], *memory, cache=cache)
        assert max_difference(part, whole[:, start : start + length]) < CLOSE
        start += length
    assert cache.length == sum(pieces)


def assert_left_padding_equals_single(config, lengths=(7, 4, 1), new=2):
    """Texts of different lengths in one cache give the same as each text alone."""
    model = perturbed_model(config)
    ids, longest = random_ids(len(lengths), max(lengths) + new), max(lengths)
    source = random_ids(len(lengths), 5, seed=1) if config.family == "encoder_decoder" else None
    memory = () if source is None else (model.encode(source),)
    padding = longest - torch.tensor(lengths)
    cache, parts = model.new_cache(padding), []
    for part in ids.split([longest, *[1] * new], dim=1):
        parts.append(model.decode(part, *memory, cache=cache))
    together = torch.cat(parts, dim=1)
    assert cache.lengths.tolist() == [length + new for length in lengths]
    while cache.lengths[-1] < config.max_length:  # the shortest text continues until the last position
        if len(cache.padding) > 1:
            cache.reorder(torch.tensor([len(lengths) - 1]))
            memory_of_last = tuple(x[-1:] for x in memory)
        model.decode(ids[-1:, :1], *memory_of_last, cache=cache)
    for i, skipped in enumerate(padding.tolist()):
        alone = model.decode(ids[i : i + 1, skipped:], *(x[i : i + 1] for x in memory))
        assert max_difference(together[i : i + 1, skipped:], alone) < CLOSE


@every_answer
def test_the_model_learns_and_every_parameter_gets_a_gradient(choice):
    assert_learns(tiny_of(**choice))


@every_writer
def test_a_token_changes_later_outputs_but_no_earlier_ones(choice):
    assert_causal(tiny_of(**choice))


@every_reader
@settings(max_examples=4)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(0, 10**6))
def test_batch_equals_one_by_one_and_padding_changes_nothing(choice, lengths, seed):
    assert_batch_equals_single(tiny_of(**choice), lengths, seed)


@every_writer
@settings(max_examples=4)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 10**6))
def test_cached_equals_uncached(choice, pieces, seed):
    assert_cached_equals_uncached(tiny_of(**choice), pieces, seed)


@every_writer
def test_a_forward_that_fails_leaves_the_cache_unchanged(choice):
    model, ids = perturbed_model(tiny_of(**choice)), random_ids(2, 4)
    memory = (model.encode(random_ids(2, 5, seed=1)),) if choice["family"] == "encoder_decoder" else ()
    cache, whole = model.new_cache(), model.decode(ids, *memory)
    first = model.decode(ids[:, :2], *memory, cache=cache)
    if choice.get("attention") != "linear":  # its sums have no length
        with (
            edit_activations(model, {"decoder.layers.1.*stream": torch.zeros(1)}),
            pytest.raises(ConfigError, match="cannot patch"),
        ):
            model.decode(ids[:, 2:], *memory, cache=cache)
    assert max_difference(torch.cat([first, model.decode(ids[:, 2:], *memory, cache=cache)], dim=1), whole) < CLOSE


@every_writer
def test_padding_on_the_left_changes_nothing(choice):
    assert_left_padding_equals_single(tiny_of(**choice))


@pytest.mark.parametrize("choice", [c for c in writing if not c.get("experts")], ids=name_of)
def test_every_tensor_is_created_on_the_device_of_the_model(choice):
    """The meta device refuses tensors of other devices, so this finds device errors without a GPU.

    Without experts: which of them a token goes to is a value, and there are none.
    """
    model = perturbed_model(tiny_of(**choice)).to("meta")
    ids, rows = torch.zeros(2, 5, dtype=torch.long, device="meta"), torch.zeros(3, dtype=torch.long, device="meta")
    mask, memory = torch.ones(2, 5, dtype=torch.bool, device="meta"), ()
    model(*(ids, ids, mask, mask) if choice["family"] == "encoder_decoder" else (ids, mask)).sum().backward()
    with torch.no_grad():
        if choice["family"] == "encoder_decoder":
            memory = (model.encode(ids, mask), mask)
        cache = model.new_cache()
        model.decode(ids, *memory, cache=cache)
        cache.reorder(rows)
        x = model.decode(ids[rows, :1], *(y[rows] for y in memory), cache=cache)
    assert x.device.type == "meta"


@pytest.mark.parametrize("family", TABLES["family"])
@pytest.mark.parametrize("position", [p for p in TABLES["position"] if p != "none"])
def test_order_matters(family, position):
    """Attention without positions ignores the order, so positions must make a difference for a permuted text."""
    kernel = "exact" if position == "relative" else "fused"
    config = tiny_of(family=family, position=position, attention_kernel=kernel)
    model, ids = perturbed_model(config), torch.tensor([[4, 5, 6, 7]])
    if family == "vision":
        images = torch.rand(1, 1, 4, 4)
        assert max_difference(model(images), model(images.flip(2))) > 1e-4
    elif family == "encoder_decoder":
        assert max_difference(model(ids, ids), model(ids[:, [1, 0, 2, 3]], ids)) > 1e-5
    else:
        assert max_difference(model(ids)[0, 2], model(ids[:, [1, 0, 2, 3]])[0, 2]) > 1e-5


def test_an_encoder_without_positions_ignores_the_order():
    model = perturbed_model(tiny_of(family="encoder", position="none"))
    ids = torch.tensor([[4, 5, 6, 7]])
    assert max_difference(model(ids).flip(1), model(ids.flip(1))) < CLOSE


def test_alibi_in_an_encoder_does_not_distinguish_left_from_right():
    """Distances have no sign, so a reversed text gives the same. A decoder attends to the past only, so it differs."""
    model = perturbed_model(tiny_of(family="encoder", position="alibi"))
    ids = torch.tensor([[4, 5, 6, 7]])
    assert max_difference(model(ids).flip(1), model(ids.flip(1))) < CLOSE


@pytest.mark.parametrize("family", TABLES["family"])
def test_an_expert_with_tokens_gets_a_gradient(family):
    config = tiny_of(family=family, experts=3)
    torch.manual_seed(0)
    model, batch = build_model(config), batch_for(config)
    with record_activations(model, "*.load") as seen:
        compute_loss(model, OBJECTIVES[config.task], batch, 0.0, balance=0.01).loss.backward()
    assert len(seen) == sum(1 for name, _ in model.named_modules() if name.endswith("feed_forward"))
    for name, share in seen.items():
        for expert, module in enumerate(model.get_submodule(name.removesuffix(".load")).experts):
            for parameter in module.parameters():
                assert (parameter.grad is not None) == (share[expert] > 0)
                assert parameter.grad is None or parameter.grad.abs().sum() > 0


@pytest.mark.usefixtures("double")
def test_decoder_only_with_cross_attention_equals_the_decoder_of_an_encoder_decoder():
    both = perturbed_model(tiny_of(embeddings="tied"))
    alone = build_model(tiny_of(family="decoder", embeddings="tied", cross_attention=True)).eval()
    theirs = dict(both.named_parameters())
    with torch.no_grad():
        for name, parameter in alone.named_parameters():
            parameter.copy_(theirs[name.replace("embedding.", "target_embedding.", 1)])
    source, target = random_ids(3, 5), random_ids(3, 6, seed=1)
    mask = torch.arange(5)[None] < torch.tensor([5, 3, 1])[:, None]
    memory = both.encode(source, mask)
    assert max_difference(alone(target, memory=memory, memory_mask=mask), both(source, target, mask)) < CLOSE


ONE_LAYER = {  # to save time; the quick tests have two
    "encoder_decoder": {"encoder_layers": 1, "decoder_layers": 1},
    "encoder": {"encoder_layers": 1},
    "decoder": {"decoder_layers": 1},
    "vision": {"encoder_layers": 1},
}
# The other feed-forward networks differ only in the activation, and the pairs above have them.
OTHERS = {**TABLES, "feed_forward": ["relu", "swiglu"]}
PRODUCT = {
    (family, position): [
        dict(zip(TABLES, values, strict=True))
        for values in itertools.product(*({**OTHERS, "family": [family], "position": [position]}).values())
    ]
    for family in TABLES["family"]
    for position in TABLES["position"]
}


@pytest.mark.slow
@pytest.mark.parametrize("group", PRODUCT, ids="-".join)
def test_the_full_product_of_the_tables(group):
    tried = 0
    for choice in PRODUCT[group]:
        if not is_possible(choice):
            continue
        config = tiny_of(**choice, **ONE_LAYER[choice["family"]])
        assert_learns(config)
        if config.family in ("encoder_decoder", "decoder"):
            assert_causal(config)
            assert_cached_equals_uncached(config)
            assert_left_padding_equals_single(config)
        if config.family != "vision":
            assert_batch_equals_single(config)
        tried += 1
    assert tried >= len(PRODUCT[group]) / 4


@every_reader
def test_a_prepared_model_computes_the_same(choice):
    """Laid, side by side, in reach; under the same names, and as visible as before."""
    config = tiny_of(**choice)
    model, ready, ids = perturbed_model(config), perturbed_model(config), random_ids(2, 5)
    prepare_model(ready)
    assert [*dict(ready.named_parameters())] == [*dict(model.named_parameters())]
    assert all(torch.equal(a, b) for a, b in zip(ready.parameters(), model.parameters(), strict=True))
    with torch.inference_mode(), record_activations(ready) as seen, record_activations(model) as expected:
        assert max_difference(run(ready, config, ids), run(model, config, ids)) < CLOSE
    assert [*seen] == [*expected]
    with torch.inference_mode():
        assert max_difference(run(ready, config, ids), run(model, config, ids)) < CLOSE
