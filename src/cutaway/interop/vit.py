"""The Vision Transformer (Dosovitskiy et al. 2021) as an image classifier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cutaway.config import ModelConfig
from cutaway.errors import ConfigError
from cutaway.interop.architecture import (
    ACTIVATIONS,
    DEFAULT_HEAD_WIDTH,
    NO_KV_GROUPS,
    Architecture,
    HuggingFaceConfig,
    hf_name,
    requirements,
)
from cutaway.interop.names import NameRule, NameTable, layer_rules, linear_rules, norm_rules, rename_rule, reshape
from cutaway.interop.tensors import Array, read_json

REQUIREMENTS = requirements(
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
    d_head=DEFAULT_HEAD_WIDTH,
    n_kv_heads=NO_KV_GROUPS,
)

PATCHES = "vit.embeddings.patch_embeddings.projection"
PREPROCESSOR = "preprocessor_config.json"
RESIZES = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # the index is Pillow's number

# names of transformers 5 in memory; it still saves files with the old names
NEW_NAMES = [
    (r"^vit\.encoder\.layer\.", "vit.layers."),
    (r"(?<=^vit\.layers\.)(\d+)\.attention\.attention\.query\.", r"\1.attention.q_proj."),
    (r"(?<=^vit\.layers\.)(\d+)\.attention\.attention\.key\.", r"\1.attention.k_proj."),
    (r"(?<=^vit\.layers\.)(\d+)\.attention\.attention\.value\.", r"\1.attention.v_proj."),
    (r"(?<=^vit\.layers\.)(\d+)\.attention\.output\.dense\.", r"\1.attention.o_proj."),
    (r"(?<=^vit\.layers\.)(\d+)\.intermediate\.dense\.", r"\1.mlp.fc1."),
    (r"(?<=^vit\.layers\.)(\d+)\.output\.dense\.", r"\1.mlp.fc2."),
]


def config_from(hf: HuggingFaceConfig, weights: Mapping[str, Array]) -> ModelConfig:
    hf.require("qkv_bias", True)
    hf.require("problem_type", "single_label_classification")
    return ModelConfig(
        family="vision",
        head="classes",
        n_classes=len(hf.labels()),
        d_model=hf.get("hidden_size", 768),
        d_ff=hf.get("intermediate_size", 3072),
        n_heads=hf.get("num_attention_heads", 12),
        encoder_layers=hf.get("num_hidden_layers", 12),
        dropout=hf.get("hidden_dropout_prob", 0.0),
        attention_dropout=hf.get("attention_probs_dropout_prob", 0.0),
        position="learned",
        norm_placement="pre",
        norm_epsilon=hf.get("layer_norm_eps", 1e-12),
        feed_forward=hf.choice("hidden_act", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        image_size=side(hf, "image_size", 224),
        patch_size=side(hf, "patch_size", 16),
        channels=hf.get("num_channels", 3),
        resize=resize(hf),  # type: ignore[arg-type]
    )


def read_preprocessor(hf: HuggingFaceConfig) -> dict[str, Any] | None:
    """The preprocessing settings. None: there is no file."""
    file = hf.folder / PREPROCESSOR if hf.folder else None
    return read_json(file) if file and file.is_file() else None


def resize(hf: HuggingFaceConfig) -> str:
    """The filter that scales image files. Arrays are not scaled, so no other setting matters."""
    settings, size = read_preprocessor(hf) or {}, side(hf, "image_size", 224)
    given = settings.get("size", size)
    sides = set(given.values()) if isinstance(given, dict) else {given}
    if settings.get("do_center_crop") or (settings.get("do_resize", True) and sides != {size}):
        hf.notes.append(
            f"the original scales an image to {given} and may crop its centre ({PREPROCESSOR}). Cutaway scales the "
            f"whole image to {size}×{size}."
        )
    code = settings.get("resample", RESIZES.index("bilinear"))
    if code not in range(len(RESIZES)):
        raise ConfigError(f"resample = {code!r} in {PREPROCESSOR} is not a filter of Pillow. Expected 0 to 5.")
    return RESIZES[code]


def side(hf: HuggingFaceConfig, name: str, default: int) -> int:
    """The side of a square. A config may have it as two equal numbers."""
    value = hf.get(name, default)
    sides = value if isinstance(value, list) else [value]
    if len(set(sides)) != 1:
        raise ConfigError(hf.unsupported(name, value, "squares"))
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
        "hidden_act": hf_name(ACTIVATIONS, c.feed_forward),
        "image_size": c.image_size,
        "patch_size": c.patch_size,
        "num_channels": c.channels,
        "qkv_bias": True,
    }


def table(c: ModelConfig) -> NameTable:
    """Their patch embedding is a convolution with stride = width, which is a linear map of each flattened patch."""
    D, C, P, N = c.d_model, c.channels, c.patch_size, c.n_positions
    return NameTable(
        [
            rename_rule("embedding.class_token", "vit.embeddings.cls_token", (1, 1, D), reshape((1, D), (1, 1, D))),
            rename_rule(
                "embedding.position.table", "vit.embeddings.position_embeddings", (1, N, D), reshape((N, D), (1, N, D))
            ),
            rename_rule(
                "embedding.project.weight", f"{PATCHES}.weight", (D, C, P, P), reshape((D, C * P * P), (D, C, P, P))
            ),
            rename_rule("embedding.project.bias", f"{PATCHES}.bias", (D,)),
            *layer_rules(c.encoder_layers, "encoder.layers", "vit.encoder.layer", lambda o, t: layer(c, o, t)),
            *norm_rules("encoder.norm", "vit.layernorm", D),
            *linear_rules("head.classify", "classifier", c.n_classes, D),
        ],
        spellings=NEW_NAMES,
        unused={
            r"vit\.pooler\.dense\.(weight|bias)": "the pooler, which the classifier does not use",
            r"vit\.embeddings\.mask_token": "the mask token of masked-image training",
        },
    )


def layer(c: ModelConfig, ours: str, theirs: str) -> Iterable[NameRule]:
    D = c.d_model
    for part in ("query", "key", "value"):
        yield from linear_rules(f"{ours}.self_attention.{part}", f"{theirs}.attention.attention.{part}", D, D)
    yield from linear_rules(f"{ours}.self_attention.output", f"{theirs}.attention.output.dense", D, D)
    yield from norm_rules(f"{ours}.self_attention_residual.norm", f"{theirs}.layernorm_before", D)
    yield from linear_rules(f"{ours}.feed_forward.expand", f"{theirs}.intermediate.dense", c.d_ff, D)
    yield from linear_rules(f"{ours}.feed_forward.contract", f"{theirs}.output.dense", D, c.d_ff)
    yield from norm_rules(f"{ours}.feed_forward_residual.norm", f"{theirs}.layernorm_after", D)


def adjust(hf: HuggingFaceConfig, c: ModelConfig, weights: dict[str, Array]) -> dict[str, Array]:
    """Their preprocessing normalises images; ours are numbers from 0 to 1. Move it into the first projection:

    W ((a·x - mean) / std) + b  =  (a W / std) x  +  (b - W (mean / std)),    a, mean, std: for each channel
    """
    settings = read_preprocessor(hf)
    if settings is None:
        hf.notes.append(f"there is no {PREPROCESSOR}: the model gets pixels from 0 to 1.")
        return weights
    brightest = 255 * (settings.get("rescale_factor") or 1 / 255) if settings.get("do_rescale", True) else 255.0
    mean, std = (np.zeros(c.channels), np.ones(c.channels))
    if settings.get("do_normalize", True):
        mean, std = (per_channel(settings, name, c.channels) for name in ("image_mean", "image_std"))
    if brightest == 1 and not mean.any() and (std == 1).all():
        return weights
    hf.notes.append(
        f"the original normalises images to (x - {mean.tolist()}) / {std.tolist()} ({PREPROCESSOR}). This is now part "
        "of the first projection: give the model bytes, or numbers from 0 to 1."
    )
    weight, bias = weights["embedding.project.weight"], weights["embedding.project.bias"]
    by_channel = weight.reshape(len(weight), c.channels, -1).astype(np.float64)
    scaled = by_channel * (brightest / std)[:, None]
    shift = (by_channel * (mean / std)[:, None]).sum(axis=(1, 2))
    return weights | {
        "embedding.project.weight": scaled.reshape(weight.shape).astype(weight.dtype),
        "embedding.project.bias": (bias - shift).astype(bias.dtype),
    }


def per_channel(settings: Mapping[str, Any], name: str, channels: int) -> Array:
    value = settings.get(name, 0.5)  # the default of transformers for both
    numbers = value if isinstance(value, list) else [value] * channels
    if (
        len(numbers) != channels
        or not all(isinstance(number, int | float) for number in numbers)
        or (name == "image_std" and 0 in numbers)
    ):
        raise ConfigError(
            f"{name} = {value!r} in {PREPROCESSOR} is not one number for each of {channels} channels. Correct it."
        )
    return np.array(numbers, np.float64)


def files(c: ModelConfig) -> dict[str, Any]:
    """The preprocessing settings: scale the image, no normalisation."""
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
    "vit",
    "ViT",
    ("ViTForImageClassification",),
    REQUIREMENTS,
    config_from,
    config_to,
    table,
    adjust=adjust,
    files=files,
)
