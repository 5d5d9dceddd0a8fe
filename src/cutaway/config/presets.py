"""Named configurations: plain data, with the tables of the papers that they come from."""

from __future__ import annotations

from dataclasses import replace

from cutaway.config import ModelConfig
from cutaway.errors import ConfigError, did_you_mean

PAPER_BASE = ModelConfig(
    vocab_size=37_000, d_model=512, d_ff=2048, n_heads=8, encoder_layers=6, decoder_layers=6, dropout=0.1
)

# Radford et al. 2019, table 2, the smallest (its "117M" is a misprint; the released model has 124 M).
GPT2 = ModelConfig(
    family="decoder",
    vocab_size=50_257,
    d_model=768,
    d_ff=3072,
    n_heads=12,
    decoder_layers=12,
    max_length=1024,
    position="learned",
    norm_placement="pre",
    feed_forward="gelu_tanh",
    embedding_scale="one",
    attention_dropout=0.1,
)

# Devlin et al. 2019, section 3; the vocabulary of the uncased English model.
BERT_BASE = ModelConfig(
    family="encoder",
    vocab_size=30_522,
    d_model=768,
    d_ff=3072,
    n_heads=12,
    encoder_layers=12,
    max_length=512,
    position="learned",
    norm_epsilon=1e-12,
    feed_forward="gelu",
    embedding_scale="one",
    embedding_norm=True,
    segments=2,
    attention_dropout=0.1,
)

# Raffel et al. 2020, "Small"; the vocabulary padded to 32,128 as released.
T5_SMALL = ModelConfig(
    vocab_size=32_128,
    d_model=512,
    d_ff=2048,
    n_heads=8,
    encoder_layers=6,
    decoder_layers=6,
    bias=False,
    max_length=512,
    position="relative_bias",
    norm="rms",
    norm_placement="pre",
    norm_epsilon=1e-6,
    feed_forward="relu",
    attention_dropout=0.1,
)

# Dosovitskiy et al. 2021, table 1, ViT-Base with patches of 16, for ImageNet at 224 pixels.
VIT_B16 = ModelConfig(
    family="vision",
    head="classes",
    n_classes=1000,
    d_model=768,
    d_ff=3072,
    n_heads=12,
    encoder_layers=12,
    dropout=0.0,
    position="learned",
    norm_placement="pre",
    norm_epsilon=1e-6,
    feed_forward="gelu",
    image_size=224,
    patch_size=16,
    channels=3,
)

# A small model of Llama's shape (Touvron et al. 2023): the sizes that Hugging Face published as SmolLM-135M.
SMOLLM_135M = ModelConfig(
    family="decoder",
    vocab_size=49_152,
    d_model=576,
    d_ff=1536,
    n_heads=9,
    n_kv_heads=3,
    decoder_layers=30,
    dropout=0.0,
    bias=False,
    max_length=2048,
    position="rope",
    norm="rms",
    norm_placement="pre",
    feed_forward="swiglu",
    embedding_scale="one",
)


def tiny(config: ModelConfig, **changes: object) -> ModelConfig:
    """The smallest model of this architecture, for tests and for inspecting every number."""
    sizes: dict[str, object] = {"d_model": 8, "d_ff": 16, "n_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    if config.family in ("encoder_decoder", "encoder", "vision"):
        sizes["encoder_layers"] = 2
    if config.family in ("encoder_decoder", "decoder"):
        sizes["decoder_layers"] = 2
    if config.family != "vision":
        sizes |= {"vocab_size": 11, "max_length": 32}
    return replace(config, **{**sizes, **changes})  # type: ignore[arg-type]


PRESETS: dict[str, ModelConfig] = {
    # Vaswani et al. 2017, table 3, rows "base" and "big"; the vocabulary of section 5.1 (WMT14 English-German).
    "paper-base": PAPER_BASE,
    "paper-big": replace(PAPER_BASE, d_model=1024, d_ff=4096, n_heads=16, dropout=0.3),
    "gpt2": GPT2,
    "bert-base": BERT_BASE,
    "t5-small": T5_SMALL,
    "vit-b16": VIT_B16,
    "smollm-135m": SMOLLM_135M,
    "tiny": tiny(PAPER_BASE),
    "tiny-gpt2": tiny(GPT2),
    "tiny-bert": tiny(BERT_BASE),
    "tiny-t5": tiny(T5_SMALL, relative_buckets=8, relative_distance=16),
    "tiny-vit": tiny(VIT_B16, n_classes=3, image_size=4, patch_size=2, channels=1),
    "tiny-llama": tiny(SMOLLM_135M, n_kv_heads=1),
}


def preset(name: str) -> ModelConfig:
    if name not in PRESETS:
        raise ConfigError(f"there is no preset {name!r}. {did_you_mean(name, PRESETS)}")
    return PRESETS[name]
