"""build_model: parameter counts, shared matrices, initialisation, saving and loading."""

import math

import pytest
import safetensors.torch
import torch
from helpers import TABLES, perturbed_model, random_ids, tiny_config, tiny_model, tiny_of

from cutaway.config import ModelConfig
from cutaway.config.checks import choices
from cutaway.config.presets import PRESETS, preset
from cutaway.errors import ConfigError, DataError, RunError
from cutaway.models import build
from cutaway.models.build import build_model, count_parameters
from cutaway.models.weights import load_weights, weights_to_bytes
from cutaway.nn.dropout import Dropout


@pytest.mark.parametrize(
    ("axis", "table"),
    [
        *TABLES.items(),
        ("head", build.HEADS),
        ("pooling", build.POOLINGS),
    ],
)
def test_the_config_and_the_tables_have_the_same_choices(axis, table):
    assert set(choices(ModelConfig, axis)) == set(table)


def expected_parameters(c: ModelConfig) -> int:
    """Counted from the paper's description, not from our modules."""
    attention = 4 * (c.d_model * c.d_model + c.d_model)
    feed_forward = 2 * c.d_model * c.d_ff + c.d_ff + c.d_model
    norm = 2 * c.d_model
    encoder = c.encoder_layers * (attention + feed_forward + 2 * norm)
    decoder = c.decoder_layers * (2 * attention + feed_forward + 3 * norm)
    return c.vocab_size * c.d_model + encoder + decoder


@pytest.mark.parametrize(("name", "count"), [("paper-base", 63_082_496), ("paper-big", 214_245_376)])
def test_the_papers_models_have_the_papers_size(name, count):
    assert size_of(preset(name)) == count == expected_parameters(preset(name))


def test_the_parts_of_paper_base():
    """The sums of docs/models.md: 37,000 · 512 and the rest."""
    with torch.device("meta"):
        base, big = build_model(preset("paper-base")), build_model(preset("paper-big"))
    encoder, decoder = base.encoder.layers[0], base.decoder.layers[0]
    parts = [base.head, encoder.self_attention, encoder.feed_forward, torch.nn.LayerNorm(512), encoder, base.encoder]
    sizes = [count_parameters(part) for part in [*parts, decoder, base.decoder]]
    assert sizes == [18_944_000, 1_050_624, 2_099_712, 1_024, 3_152_384, 18_914_304, 4_204_032, 25_224_192]
    for model, published, width, vocab in ((base, 65e6, 512, 40_700), (big, 213e6, 1024, 35_800)):
        assert round(37_000 + (published - count_parameters(model)) / width, -2) == vocab
    assert round(65 - count_parameters(base) / 1e6, 1) == 1.9
    assert round(count_parameters(big) / 1e6 - 213, 1) == 1.2
    biases = [p for name, p in base.named_parameters() if "_attention." in name and name.endswith("bias")]
    assert round(sum(p.numel() for p in biases) / 1e6, 2) == 0.04


def size_of(config: ModelConfig) -> int:
    with torch.device("meta"):
        return count_parameters(build.FAMILIES[config.family](config))


@pytest.mark.parametrize(
    ("name", "count"),
    [  # as published; test_huggingface.py counts the parameters of their models
        ("gpt2", 124_439_808),
        ("bert-base", 109_514_298),
        ("t5-small", 60_506_624),
        ("vit-b16", 86_567_656),
        ("smollm-135m", 134_515_008),
    ],
)
def test_presets_have_the_published_size(name, count):
    assert size_of(preset(name)) == count


@pytest.mark.parametrize("name", [name for name in PRESETS if name.startswith("tiny")])
def test_tiny_presets_are_tiny_and_run(name):
    config = preset(name)
    model = perturbed_model(config)
    assert count_parameters(model) < 5_000
    inputs = {
        "vision": (torch.rand(2, 1, 4, 4),),
        "encoder_decoder": (random_ids(2, 5), random_ids(2, 4)),
    }.get(config.family, (random_ids(2, 5),))
    assert model(*inputs).isfinite().all()


def test_presets_have_the_papers_settings():
    base, big = preset("paper-base"), preset("paper-big")
    assert (base.d_model, base.d_ff, base.n_heads, base.encoder_layers, base.dropout) == (512, 2048, 8, 6, 0.1)
    assert (big.d_model, big.d_ff, big.n_heads, big.encoder_layers, big.dropout) == (1024, 4096, 16, 6, 0.3)
    assert all(isinstance(config, ModelConfig) for config in PRESETS.values())
    with pytest.raises(ConfigError, match="no preset 'paper-bas'. Did you mean 'paper-base'"):
        preset("paper-bas")


def test_embeddings_are_one_two_or_three_matrices():
    for choice, count in (("shared", 1), ("tied", 2), ("separate", 3)):
        model = tiny_model(embeddings=choice)
        matrices = (model.source_embedding.tokens.weight, model.target_embedding.tokens.weight, model.head.weight)
        assert len({id(m) for m in matrices}) == count
        without = count_parameters(tiny_model(embeddings="shared")) - 11 * 8
        assert count_parameters(model) == without + count * 11 * 8


@pytest.mark.usefixtures("double")
def test_embeddings_are_scaled_by_the_root_of_the_width():
    model = tiny_model()
    ids = random_ids(1, 3)
    embedded = model.source_embedding(ids)
    expected = model.source_embedding.tokens.weight[ids] * math.sqrt(8) + model.source_embedding.position.table[:3]
    assert torch.allclose(embedded, expected, atol=1e-12)


def test_xavier():
    torch.manual_seed(0)
    model = build_model(ModelConfig(vocab_size=500, d_model=256, d_ff=1024, encoder_layers=1, decoder_layers=1))
    weight = model.encoder.layers[0].feed_forward.expand.weight
    bound = math.sqrt(6 / (256 + 1024))
    assert weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)  # uniform in ±bound
    assert all((p == 0).all() for name, p in model.named_parameters() if name.endswith("bias"))


def test_gpt2_init_is_smaller_for_the_last_matrix_of_a_sublayer():
    torch.manual_seed(0)
    sizes = {"d_model": 256, "d_ff": 1024, "decoder_layers": 3, "vocab_size": 500}
    model = build_model(ModelConfig(family="decoder", init="gpt2", position="learned", max_length=64, **sizes))
    layer = model.decoder.layers[1]
    for weight, spread in (
        (layer.feed_forward.expand.weight, 0.02),
        (layer.self_attention.query.weight, 0.02),
        (model.embedding.tokens.weight, 0.02),
        (layer.feed_forward.contract.weight, 0.02 / math.sqrt(6)),
        (layer.self_attention.output.weight, 0.02 / math.sqrt(6)),
    ):
        assert weight.std().item() == pytest.approx(spread, rel=0.02)
    assert all((p == 0).all() for name, p in model.named_parameters() if name.endswith("bias"))


def test_dropout_is_where_the_paper_puts_it():
    """After each sub-layer and after the embeddings: 2 · 2 encoder + 2 · 3 decoder sub-layers + 2 embeddings."""
    model = tiny_model(dropout=0.25)
    places = [name for name, m in model.named_modules() if isinstance(m, Dropout) and m.p == 0.25]
    assert len(places) == 12
    assert all(name.endswith("residual.dropout") or name.endswith("embedding.dropout") for name in places)
    model.train()
    assert not torch.equal(model(random_ids(1, 4), random_ids(1, 4)), model(random_ids(1, 4), random_ids(1, 4)))


@pytest.mark.parametrize("position", build.POSITIONS)
@pytest.mark.parametrize("embeddings", choices(ModelConfig, "embeddings"))
def test_saved_equals_loaded(position, embeddings):
    """A shared matrix or position scheme is stored once."""
    choice = {"position": position, "embeddings": embeddings, "attention_kernel": "exact", "experts": 2}
    model, other = tiny_model(seed=1, **choice), tiny_model(seed=2, **choice)
    load_weights(other, weights_to_bytes(model))
    source, target = random_ids(2, 5), random_ids(2, 4)
    assert torch.equal(model(source, target), other(source, target))


@pytest.mark.parametrize("family", build.FAMILIES)
def test_the_names_of_the_weights_do_not_depend_on_the_order_of_sharing(family):
    names = [name for name, _ in perturbed_model(tiny_of(family=family, position="relative_bias")).named_parameters()]
    expected = ["source_embedding", "target_embedding"] if family == "encoder_decoder" else ["embedding"]
    assert [n for n in names if "position" in n] == [f"{e}.position.table" for e in expected]


def test_weights_that_do_not_fit_are_named_in_the_error():
    data = weights_to_bytes(tiny_model())
    with pytest.raises(RunError, match=r"source_embedding.tokens.weight has the shape \(11, 8\) instead of \(12, 8\)"):
        load_weights(tiny_model(vocab_size=12), data)
    with pytest.raises(RunError, match=r"missing head.weight, target_embedding.tokens.weight, unknown nothing"):
        load_weights(tiny_model(embeddings="separate"), data)
    before = tiny_model()
    with pytest.raises(RunError, match="unknown x"):
        load_weights(before, safetensors.torch.save({**safetensors.torch.load(data), "x": torch.zeros(1)}))


def test_a_text_longer_than_the_positions_is_refused():
    model = tiny_model(max_length=6)
    with pytest.raises(DataError, match="the text has 7 tokens; this model has positions for 6"):
        model.encode(random_ids(1, 7))
    cache = model.new_cache()
    memory = model.encode(random_ids(1, 6))
    model.decode(random_ids(1, 6), memory, cache=cache)
    with pytest.raises(DataError, match="the text has 7 tokens"):
        model.decode(random_ids(1, 1), memory, cache=cache)


def test_a_model_needs_a_vocabulary_and_a_classifier_classes():
    with pytest.raises(ConfigError, match="vocab_size is not set"):
        build_model(tiny_config(vocab_size=0))
    with pytest.raises(ConfigError, match="n_classes is not set"):
        build_model(tiny_of(family="encoder", head="tags", n_classes=0))


@pytest.mark.gpu
def test_the_same_numbers_on_a_gpu():
    model = tiny_model()
    source, target = random_ids(2, 5), random_ids(2, 4)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    expected = model(source, target, mask)
    on_gpu = model.cuda()(source.cuda(), target.cuda(), mask.cuda()).cpu()
    assert torch.allclose(on_gpu, expected, atol=1e-4)
