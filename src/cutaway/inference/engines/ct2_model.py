"""Convert a model to CTranslate2's names and arrays, and write its file `model.bin`.

The table `SUPPORTED` lists the settings that CTranslate2 supports, for each model family. A supported setting is
converted exactly. Any other setting raises an error that names it.

A model.bin is a list of named arrays. Writing it needs neither torch nor CTranslate2.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.config import ModelConfig
from cutaway.config.obstacle import Obstacle
from cutaway.errors import ConfigError
from cutaway.twin.attention import MultiHeadAttention
from cutaway.twin.basics import FeedForward, GatedFeedForward, InputEmbedding, LayerNorm, Linear
from cutaway.twin.layers import Layer, ParallelLayer, Residual, SandwichNorm, Stack
from cutaway.twin.model import EncoderDecoder, Model
from cutaway.twin.positions import Position, RelativeBiasPosition, RelativePosition, t5_bucket

Value = NDArray[Any] | np.generic  # np.generic: a setting, stored as a single number
Variables = dict[str, Value]

# The versions of the file format and of the two model types. Newer versions of CTranslate2 read older files.
BINARY_VERSION = 6
KINDS = {"encoder_decoder": ("TransformerSpec", 7), "decoder": ("TransformerDecoderSpec", 8)}
TYPES = ("float32", "int8", "int16", "int32")  # the index is the number of the type in the file

ACTIVATIONS = {"relu": 0, "gelu_tanh": 1, "silu": 2, "gelu": 3, "swiglu": 2, "geglu": 3, "geglu_tanh": 1}
ROPE_SCALINGS = {"linear": 0, "llama3": 2}

BOTH, TRANSLATOR, GENERATOR = ("encoder_decoder", "decoder"), ("encoder_decoder",), ("decoder",)
# setting -> supported values -> families
SUPPORTED: dict[str, dict[Any, tuple[str, ...]]] = {
    "family": {"encoder_decoder": BOTH, "decoder": BOTH},
    "attention": {"full": BOTH},
    "attention_softcap": {0.0: BOTH},
    "qk_norm": {False: BOTH, True: GENERATOR},
    "cross_attention": {False: BOTH},
    "position": {
        "sinusoidal": BOTH,  # stored as a table
        "learned": BOTH,
        "none": BOTH,  # a table of zeros
        "rope": BOTH,  # with interleaved pairs
        "alibi": GENERATOR,
        "relative_bias": TRANSLATOR,  # with one bucket for each distance
        "relative": BOTH,
    },
    "rope_scaling": {"none": BOTH, "linear": BOTH, "llama3": BOTH},
    "norm": {"layer": BOTH, "rms": BOTH},
    "norm_placement": {"post": BOTH, "pre": BOTH, "sandwich": BOTH},
    "block": {"sequential": BOTH, "parallel": GENERATOR},
    "feed_forward": dict.fromkeys(ACTIVATIONS, BOTH),
    "experts": {0: BOTH},
}
# setting or value -> why CTranslate2 does not support it
REASONS = {
    "family": "this engine is only for models that generate text",
    "attention": "its attention windows are not exact for long prompts, and it has no sparse or linear attention",
    "attention_softcap": "it has no soft cap",
    "qk_norm": "in cross-attention, it normalizes all heads of a query together",
    "cross_attention": "it has cross-attention only in encoder-decoders",
    "alibi": "its encoders have no ALiBi",
    "relative_bias": "it computes wrong distances when it reads a whole prompt",
    "block": "it has parallel layers only in decoder-only models",
    "feed_forward": "it has no such activation",
    "experts": "it has no mixture of experts",
}


def check_supported(config: ModelConfig) -> None:
    """Raise an error for the first setting that CTranslate2 does not support."""
    for obstacle in obstacles(config):
        raise ConfigError(obstacle.why)


def obstacles(config: ModelConfig) -> list[Obstacle]:
    found = []
    for name, supported in SUPPORTED.items():
        value = getattr(config, name)
        if config.family not in supported.get(value, ()):
            values = [repr(v) for v, families in supported.items() if config.family in families or name == "family"]
            reason = REASONS.get(value, REASONS.get(name, "")) if isinstance(value, str) else REASONS[name]
            reason = f": {reason}" if reason else ""
            family = "" if name == "family" else f" with model.family = {config.family!r}"
            message = (
                f"CTranslate2 does not support model.{name} = {value!r}{family}{reason}. It supports "
                f"{', '.join(values)}. Use engine 'torch', or export to another format."
            )
            found.append(Obstacle(name, value, message))
    if config.block == "parallel" and config.norm_placement != "pre":
        message = (
            f"CTranslate2 does not support model.block = 'parallel' with model.norm_placement = "
            f"{config.norm_placement!r}: its parallel layers are pre-norm. It supports 'pre'. Use engine 'torch', or "
            "export to another format."
        )
        found.append(Obstacle("norm_placement", config.norm_placement, message))
    return found


def model_variables(model: Model, config: ModelConfig) -> Variables:
    """All arrays of a model by their CTranslate2 names. A shared array has several names."""
    found: Variables = {}
    if isinstance(model, EncoderDecoder):
        found |= stack("encoder", model.encoder, config)
        found |= embedding("encoder", "embeddings_0", model.source_embedding, config)
        found["encoder/embeddings_merge"] = np.int8(0)
        target = model.target_embedding
    else:
        target = model.embedding
    found |= stack("decoder", model.decoder, config)
    found |= embedding("decoder", "embeddings", target, config)
    found["decoder/projection/weight"] = model.head.weight.value
    if model.head.bias:
        found["decoder/projection/bias"] = model.head.bias.value
    found["decoder/alibi"] = np.int8(config.position == "alibi")
    found["decoder/alibi_use_positive_positions"] = found["decoder/scale_alibi"] = np.int8(False)
    found["decoder/start_from_zero_embedding"] = np.int8(False)
    # the alignment that CTranslate2 returns: last layer, mean over heads
    found["decoder/alignment_layer"], found["decoder/alignment_heads"] = np.int16(-1), np.int16(0)
    return found


def embedding(scope: str, name: str, part: InputEmbedding, config: ModelConfig) -> Variables:
    found: Variables = {
        f"{scope}/{name}/weight": part.tokens.weight.value,
        f"{scope}/scale_embeddings": np.int8(config.embedding_scale == "sqrt_d"),
    }
    if config.position in ("sinusoidal", "learned"):
        found[f"{scope}/position_encodings/encodings"] = part.position.table.value  # type: ignore[attr-defined]
    elif config.position == "none":  # CTranslate2's default would be sinusoids
        found[f"{scope}/position_encodings/encodings"] = np.zeros((config.max_length, config.d_model), np.float32)
    return found | norm(f"{scope}/layernorm_embedding", part.norm)


def stack(scope: str, part: Stack, config: ModelConfig) -> Variables:
    found: Variables = {
        f"{scope}/num_heads": np.int16(config.n_heads),
        f"{scope}/pre_norm": np.int8(config.norm_placement != "post"),
        f"{scope}/activation": np.int8(ACTIVATIONS[config.feed_forward]),
        **norm(f"{scope}/layer_norm", part.norm),
    }
    first = part.layers[0].self_attention.position
    shared_position = relative_bias(first, config) if isinstance(first, RelativeBiasPosition) else {}
    for i, module in enumerate(part.layers):
        layer_scope = f"{scope}/layer_{i}"
        found |= layer(layer_scope, module) if isinstance(module, Layer) else parallel_layer(layer_scope, module)
        position = shared_position or relative(module.self_attention.position) or rotary(config)
        found |= {f"{layer_scope}/self_attention/{name}": value for name, value in position.items()}
        for attention in ("self_attention", "attention")[: 1 + (module.cross_attention is not None)]:
            found[f"{layer_scope}/{attention}/num_heads_kv"] = np.int32(config.kv_heads)
            found[f"{layer_scope}/{attention}/head_dim"] = np.int32(config.head_width)
    return found


def layer(scope: str, part: Layer) -> Variables:
    found = self_attention(f"{scope}/self_attention", part.self_attention)
    found |= feed_forward(f"{scope}/ffn", part.feed_forward)
    names = SANDWICH_NORMS if isinstance(part.self_attention_residual, SandwichNorm) else SINGLE_NORMS
    found |= norms(scope, part.self_attention_residual, *names["self_attention"])
    found |= norms(scope, part.feed_forward_residual, *names["feed_forward"])
    if part.cross_attention and part.cross_attention_residual:
        found |= cross_attention(f"{scope}/attention", part.cross_attention)
        found |= norms(scope, part.cross_attention_residual, *names["cross_attention"])
    return found


SINGLE_NORMS: dict[str, tuple[str, ...]] = {
    "self_attention": ("self_attention/layer_norm",),
    "cross_attention": ("attention/layer_norm",),
    "feed_forward": ("ffn/layer_norm",),
}
# the norms before and after a sub-layer
SANDWICH_NORMS: dict[str, tuple[str, ...]] = {
    "self_attention": ("input_layer_norm", "post_attention_layer_norm"),
    "cross_attention": ("external_pre_encoder_attention_layer_norm", "external_post_encoder_attention_layer_norm"),
    "feed_forward": ("pre_feedforward_layer_norm", "post_feedforward_layer_norm"),
}


def parallel_layer(scope: str, part: ParallelLayer) -> Variables:
    found = self_attention(f"{scope}/self_attention", part.self_attention)
    return found | feed_forward(f"{scope}/ffn", part.feed_forward) | norms(scope, part.residual, "shared_layer_norm")


def norms(scope: str, part: Residual, before: str, after: str = "") -> Variables:
    found = norm(f"{scope}/{before}", part.norm)
    return found | norm(f"{scope}/{after}", part.norm_after) if isinstance(part, SandwichNorm) else found


def self_attention(scope: str, part: MultiHeadAttention) -> Variables:
    found = linear(f"{scope}/linear_0", part.query, part.key, part.value) | linear(f"{scope}/linear_1", part.output)
    return found | norm(f"{scope}/q_norm", part.query_norm) | norm(f"{scope}/k_norm", part.key_norm)


def cross_attention(scope: str, part: MultiHeadAttention) -> Variables:
    found = linear(f"{scope}/linear_0", part.query) | linear(f"{scope}/linear_1", part.key, part.value)
    return found | linear(f"{scope}/linear_2", part.output)


def feed_forward(scope: str, part: FeedForward | GatedFeedForward) -> Variables:
    found = linear(f"{scope}/linear_1", part.contract)
    if isinstance(part, GatedFeedForward):  # linear_0 has the activation
        return found | linear(f"{scope}/linear_0", part.gate) | linear(f"{scope}/linear_0_noact", part.expand)
    return found | linear(f"{scope}/linear_0", part.expand)


def linear(scope: str, *parts: Linear) -> Variables:
    """One projection, or several projections of the same input as one matrix."""
    found: Variables = {f"{scope}/weight": np.concatenate([part.weight.value for part in parts])}
    if parts[0].bias:
        found[f"{scope}/bias"] = np.concatenate([part.bias.value for part in parts if part.bias])
    return found


def norm(scope: str, part: Any) -> Variables:
    if part is None:
        return {}
    found = {f"{scope}/gamma": part.weight.value}
    return found | {f"{scope}/beta": part.bias.value} if isinstance(part, LayerNorm) else found


def rotary(config: ModelConfig) -> Variables:
    if config.position != "rope":
        return {}
    found: Variables = {
        "rotary_dim": np.int32(config.head_width),
        "rotary_interleave": np.int8(True),
        "rotary_base": np.float32(config.rope_base),
    }
    if config.rope_scaling != "none":
        found["rotary_scaling_type"] = np.int8(ROPE_SCALINGS[config.rope_scaling])
        found["rotary_scaling_factor"] = np.float32(config.rope_factor)
    if config.rope_scaling == "llama3":
        found["rotary_low_freq_factor"] = np.float32(config.rope_low_freq_factor)
        found["rotary_high_freq_factor"] = np.float32(config.rope_high_freq_factor)
        found["original_max_position_embeddings"] = np.int32(config.rope_original_length)
    return found


def relative(part: Position | None) -> Variables:
    if not isinstance(part, RelativePosition):
        return {}
    return {"relative_position_keys": part.for_keys.value, "relative_position_values": part.for_values.value}


def relative_bias(part: RelativeBiasPosition, config: ModelConfig) -> Variables:
    """T5's bias with one bucket for each distance, because CTranslate2 rounds logarithmic buckets differently.

    In each direction, half of the buckets hold a single distance. With twice as many buckets as positions, every
    distance has its own bucket, and no logarithm is needed.
    """
    P, buckets = config.max_length, len(part.table.value)
    past = part.table.value[t5_bucket(-np.arange(P), buckets, part.max_distance, part.causal)]
    unused = np.zeros_like(past)
    rows = [past, unused]
    if not part.causal:
        future = part.table.value[t5_bucket(np.arange(P), buckets, part.max_distance, part.causal)]
        rows += [future, unused]
    return {
        "relative_attention_bias": np.concatenate(rows),
        "relative_attention_max_distance": np.int32(2 * P),
    }


def model_file(config: ModelConfig, found: Variables, dtype: str = "float32") -> bytes:
    """The content of a model.bin: names, shapes, types and values, then the aliases of shared arrays."""
    kind, revision = KINDS[config.family]
    first = {id(value): name for name, value in sorted(found.items(), reverse=True) if value.ndim}
    aliases = {name: first[id(value)] for name, value in found.items() if value.ndim and first[id(value)] != name}
    stored = {name: value for name, value in sorted(found.items()) if name not in aliases}
    if dtype == "int8":
        stored = dict(sorted(quantize(stored)))
    file = io.BytesIO()
    file.write(struct.pack("I", BINARY_VERSION) + encode_name(kind) + struct.pack("II", revision, len(stored)))
    for name, value in stored.items():
        value = np.ascontiguousarray(value, np.float32 if value.dtype.kind == "f" else value.dtype).reshape(value.shape)
        file.write(encode_name(name) + struct.pack(f"=B{value.ndim}I", value.ndim, *value.shape))
        file.write(struct.pack("=BI", TYPES.index(value.dtype.name), value.nbytes))
        file.write(value.data if value.ndim else value.tobytes())
    file.write(struct.pack("I", len(aliases)))
    for name, other in sorted(aliases.items()):
        file.write(encode_name(name) + encode_name(other))
    return file.getvalue()


def encode_name(name: str) -> bytes:
    return struct.pack("H", len(name.encode()) + 1) + name.encode() + b"\0"


# Not 127: on processors without VNNI, CTranslate2 adds two products of 8-bit numbers in 16 bits, with saturation. That
# costs more accuracy than one bit of the weights (docs/ctranslate2.md).
INT8_MAX = 64


def quantize(found: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    """Round the matrices of embeddings and projections to int8, with a scale for each row."""
    for name, value in found.items():
        if not name.endswith("/weight"):
            yield name, value
            continue
        matrix = np.asarray(value, np.float32)
        largest = np.abs(matrix).max(axis=1, keepdims=True)
        scale = INT8_MAX / np.where(largest > 0, largest, np.float32(INT8_MAX))
        yield name, np.rint(matrix * scale).astype(np.int8)
        yield f"{name}_scale", scale[:, 0].astype(np.float32)


def model_settings(config: ModelConfig, names: Mapping[str, str | None]) -> dict[str, Any]:
    """The content of CTranslate2's config.json. `names`: of the special tokens."""
    content: dict[str, Any] = {
        "bos_token": names["bos"],
        "eos_token": names["eos"],
        "unk_token": names["unk"],
        "layer_norm_epsilon": config.norm_epsilon,
        "multi_query_attention": config.kv_heads != config.n_heads,
    }
    if config.family == "encoder_decoder":
        content |= {"decoder_start_token": names["start"], "add_source_bos": False, "add_source_eos": False}
    return content
