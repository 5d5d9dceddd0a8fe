"""Named configurations: plain data, with the table that they come from."""

from __future__ import annotations

from cutaway.config import ModelConfig
from cutaway.errors import ConfigError, did_you_mean

PRESETS: dict[str, ModelConfig] = {
    # Vaswani et al. 2017, table 3, rows "base" and "big"; the vocabulary of section 5.1 (WMT14 English-German).
    "paper-base": ModelConfig(
        vocab_size=37_000, d_model=512, d_ff=2048, n_heads=8, encoder_layers=6, decoder_layers=6, dropout=0.1
    ),
    "paper-big": ModelConfig(
        vocab_size=37_000,
        d_model=1024,
        d_ff=4096,
        n_heads=16,
        encoder_layers=6,
        decoder_layers=6,
        dropout=0.3,
    ),
    # Ours: as small as a Transformer can be, for tests and for looking at every number.
    "tiny": ModelConfig(
        vocab_size=11,
        d_model=8,
        d_ff=16,
        n_heads=2,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        max_length=32,
    ),
}


def preset(name: str) -> ModelConfig:
    if name not in PRESETS:
        raise ConfigError(f"there is no preset {name!r}. {did_you_mean(name, PRESETS)}")
    return PRESETS[name]
