"""The Vision Transformer (Dosovitskiy et al. 2021) as a classifier of images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cutaway.config import ModelConfig
from cutaway.errors import ConfigError
from cutaway.interop.architecture import (
    ACTIVATIONS,
    NO_GROUPS,
    ONE_HEAD_WIDTH,
    Architecture,
    ForeignConfig,
    demands,
    their_name,
)
from cutaway.interop.names import NameRule, NameTable, in_layers, linear, norm, one, shaped
from cutaway.interop.tensors import Array, read_json

DEMANDS = demands(
    family=("vision",),
    head=("classes",),
    pooling=("cls",),
    bias=(True,),
    position=("learned",),
    norm=("layer",),
    norm_placement=("pre",),
    feed_forward=tuple(dict.fromkeys(ACTIVATIONS.values())),
    embeddings=("shared",),
    embedding_scale=("sqrt_d",),
    embedding_norm=(False,),
    output_bias=(False,),
    segments=(0,),
    d_head=ONE_HEAD_WIDTH,
    n_kv_heads=NO_GROUPS,
)

PATCHES = "vit.embeddings.patch_embeddings.projection"
PREPROCESSOR = "preprocessor_config.json"
RESIZES = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # in the order of Pillow's numbers

# What their version 5 calls the parts in memory; the files that it saves still have the names of old.
NEW_NAMES = [
    (r"^vit\.encoder\.layer\.", "vit.layers."),
    (r"(?<=^vit\.layers\.)(\d+)\.attention\.attention\.query\.", r"\1.attention.q_proj."),
    (r"(?<=^vit\.layers\.)(\d+)\.attention\.attention\.key\.", r"\1.attention.k_proj."),
    (r"(?<=^vit\.layers\.)(\d+)\.attention\.attention\.value\.", r"\1.attention.v_proj."),
    (r"(?<=^vit\.layers\.)(\d+)\.attention\.output\.dense\.", r"\1.attention.o_proj."),
    (r"(?<=^vit\.layers\.)(\d+)\.intermediate\.dense\.", r"\1.mlp.fc1."),
    (r"(?<=^vit\.layers\.)(\d+)\.output\.dense\.", r"\1.mlp.fc2."),
]


def config_from(s: ForeignConfig, weights: Mapping[str, Array]) -> ModelConfig:
    s.only("qkv_bias", True)
    s.only("problem_type", "single_label_classification")
    return ModelConfig(
        family="vision",
        head="classes",
        n_classes=len(s.labels()),
        d_model=s.get("hidden_size", 768),
        d_ff=s.get("intermediate_size", 3072),
        n_heads=s.get("num_attention_heads", 12),
        encoder_layers=s.get("num_hidden_layers", 12),
        dropout=s.get("hidden_dropout_prob", 0.0),
        attention_dropout=s.get("attention_probs_dropout_prob", 0.0),
        position="learned",
        norm_placement="pre",
        norm_epsilon=s.get("layer_norm_eps", 1e-12),
        feed_forward=s.choice("hidden_act", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        image_size=side(s, "image_size", 224),
        patch_size=side(s, "patch_size", 16),
        channels=s.get("num_channels", 3),
        resize=resize(s),  # type: ignore[arg-type]
    )


def preparation(s: ForeignConfig) -> dict[str, Any] | None:
    """What is done to an image before the model sees it; None: nobody says."""
    file = s.folder / PREPROCESSOR if s.folder else None
    return read_json(file) if file and file.is_file() else None


def resize(s: ForeignConfig) -> str:
    """How an image file is scaled. An array is given as it is, so that nothing else of this matters to it."""
    said, size = preparation(s) or {}, side(s, "image_size", 224)
    given = said.get("size", size)
    sides = set(given.values()) if isinstance(given, dict) else {given}
    if said.get("do_center_crop") or (said.get("do_resize", True) and sides != {size}):
        s.notes.append(
            f"the original scales an image to {given} and may cut its middle out ({PREPROCESSOR}); here the whole of "
            f"an image file is scaled to {size}×{size}."
        )
    code = said.get("resample", RESIZES.index("bilinear"))
    if code not in range(len(RESIZES)):
        raise ConfigError(f"resample = {code!r} in {PREPROCESSOR} is none of Pillow's filters. Expected 0 to 5.")
    return RESIZES[code]


def side(s: ForeignConfig, name: str, default: int) -> int:
    """The side of a square, which they may give as two equal numbers."""
    value = s.get(name, default)
    sides = value if isinstance(value, list) else [value]
    if len(set(sides)) != 1:
        raise ConfigError(s.refusal(name, value, "squares"))
    return int(sides[0])


def config_to(c: ModelConfig) -> dict[str, Any]:
    return {
        "architectures": ["ViTForImageClassification"],
        "hidden_size": c.d_model,
        "intermediate_size": c.d_ff,
        "num_attention_heads": c.n_heads,
        "num_hidden_layers": c.encoder_layers,
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "layer_norm_eps": c.norm_epsilon,
        "hidden_act": their_name(ACTIVATIONS, c.feed_forward),
        "image_size": c.image_size,
        "patch_size": c.patch_size,
        "num_channels": c.channels,
        "qkv_bias": True,
    }


def table(c: ModelConfig) -> NameTable:
    """Their patches go through a convolution whose stride is its width: a Linear on each patch laid out flat."""
    D, C, P, N = c.d_model, c.channels, c.patch_size, c.n_positions
    return NameTable(
        [
            one("embedding.class_token", "vit.embeddings.cls_token", (1, 1, D), shaped((1, D), (1, 1, D))),
            one("embedding.position.table", "vit.embeddings.position_embeddings", (1, N, D), shaped((N, D), (1, N, D))),
            one("embedding.project.weight", f"{PATCHES}.weight", (D, C, P, P), shaped((D, C * P * P), (D, C, P, P))),
            one("embedding.project.bias", f"{PATCHES}.bias", (D,)),
            *in_layers(c.encoder_layers, "encoder.layers", "vit.encoder.layer", lambda o, t: layer(c, o, t)),
            *norm("encoder.norm", "vit.layernorm", D),
            *linear("head.classify", "classifier", c.n_classes, D),
        ],
        spellings=NEW_NAMES,
        unused={
            r"vit\.pooler\.dense\.(weight|bias)": "the pooler, which a classifier does not look at",
            r"vit\.embeddings\.mask_token": "what hid patches in another training",
        },
    )


def layer(c: ModelConfig, ours: str, theirs: str) -> Iterable[NameRule]:
    D = c.d_model
    for part in ("query", "key", "value"):
        yield from linear(f"{ours}.self_attention.{part}", f"{theirs}.attention.attention.{part}", D, D)
    yield from linear(f"{ours}.self_attention.output", f"{theirs}.attention.output.dense", D, D)
    yield from norm(f"{ours}.self_attention_residual.norm", f"{theirs}.layernorm_before", D)
    yield from linear(f"{ours}.feed_forward.expand", f"{theirs}.intermediate.dense", c.d_ff, D)
    yield from linear(f"{ours}.feed_forward.contract", f"{theirs}.output.dense", D, c.d_ff)
    yield from norm(f"{ours}.feed_forward_residual.norm", f"{theirs}.layernorm_after", D)


def adjust(s: ForeignConfig, c: ModelConfig, weights: dict[str, Array]) -> dict[str, Array]:
    """Their images are shifted and scaled before the model sees them; ours go from 0 to 1. So the model does it itself:

    W ((a·x - mean) / std) + b  =  (a W / std) x  +  (b - W (mean / std)),    a, mean, std: of each channel
    """
    said = preparation(s)
    if said is None:
        s.notes.append(f"no {PREPROCESSOR} says how images are prepared: the model is given numbers from 0 to 1.")
        return weights
    brightest = 255 * (said.get("rescale_factor") or 1 / 255) if said.get("do_rescale", True) else 255.0
    mean, std = (np.zeros(c.channels), np.ones(c.channels))
    if said.get("do_normalize", True):
        mean, std = (per_channel(said, name, c.channels) for name in ("image_mean", "image_std"))
    if brightest == 1 and not mean.any() and (std == 1).all():
        return weights
    s.notes.append(
        f"the original is given images as (x - {mean.tolist()}) / {std.tolist()}, by {PREPROCESSOR}; that is part of "
        "the first projection now: give it bytes, or numbers from 0 to 1."
    )
    weight, bias = weights["embedding.project.weight"], weights["embedding.project.bias"]
    by_channel = weight.reshape(len(weight), c.channels, -1).astype(np.float64)
    scaled = by_channel * (brightest / std)[:, None]
    shift = (by_channel * (mean / std)[:, None]).sum(axis=(1, 2))
    return weights | {
        "embedding.project.weight": scaled.reshape(weight.shape).astype(weight.dtype),
        "embedding.project.bias": (bias - shift).astype(bias.dtype),
    }


def per_channel(said: Mapping[str, Any], name: str, channels: int) -> Array:
    value = said.get(name, 0.5)  # what both are in their library
    numbers = value if isinstance(value, list) else [value] * channels
    if (
        len(numbers) != channels
        or not all(isinstance(number, int | float) for number in numbers)
        or (name == "image_std" and 0 in numbers)
    ):
        raise ConfigError(
            f"{name} = {value!r} in {PREPROCESSOR} is not a number for each of {channels} channels. Mend it there."
        )
    return np.array(numbers, np.float64)


def files(c: ModelConfig) -> dict[str, Any]:
    """How an image is prepared: nothing but numbers from 0 to 1."""
    return {
        PREPROCESSOR: {
            "image_processor_type": "ViTImageProcessor",
            "do_resize": True,
            "resample": RESIZES.index(c.resize),
            "size": {"height": c.image_size, "width": c.image_size},
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": [0.0] * c.channels,
            "image_std": [1.0] * c.channels,
        }
    }


VIT = Architecture(
    "vit", "ViT", ("ViTForImageClassification",), DEMANDS, config_from, config_to, table, adjust=adjust, files=files
)
