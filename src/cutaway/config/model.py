"""[model]: the architecture, and which settings exclude each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from cutaway.config.checks import Conflict, check_types, divisors, refuse_unread, require
from cutaway.errors import ConfigError

PositionName = Literal["sinusoidal", "learned", "rope", "alibi", "relative_bias", "relative", "none"]


@dataclass(frozen=True)
class ModelConfig:
    """The architecture of a model. The defaults are the paper's base model (table 3)."""

    # The Transformer stacks: encoder and decoder, one of them, or an encoder of image patches.
    family: Literal["encoder_decoder", "encoder", "decoder", "vision"] = "encoder_decoder"
    # The output: tokens, one class for the whole input, one class for each token, or a vector.
    head: Literal["language", "classes", "tags", "vectors"] = "language"
    vocab_size: int = 0  # The number of tokens; 0: taken from the tokenizer when training starts.
    n_classes: int = 0  # The number of classes; 0: taken from the labels in the training data.
    # How head = "classes" or "vectors" turns the vectors of all tokens into one.
    pooling: Literal["cls", "cls_tanh", "mean", "max", "attention"] = "cls"

    d_model: int = 512  # The width of the vectors between layers.
    d_ff: int = 2048  # The hidden width of the feed-forward networks.
    encoder_layers: int = 6  # The number of encoder layers.
    decoder_layers: int = 6  # The number of decoder layers.
    dropout: float = 0.1  # Dropout on each sub-layer's output and on the embeddings, as in the paper (section 5.4).
    bias: bool = True  # Biases in the projections of attention and feed-forward; T5 and Llama have none.
    max_length: int = 1024  # The number of positions; data.too_long sets how longer texts are handled.

    n_heads: int = 8  # The number of attention heads.
    n_kv_heads: int = 0  # The number of key and value heads, each shared by a group of query heads; 0: n_heads.
    d_head: int = 0  # The width of a head; 0: d_model / n_heads.
    # Which tokens attend to which: all, near ones, near ones and some distant ones; or linear attention.
    attention: Literal["full", "window", "sparse", "linear"] = "full"
    # window, sparse: the distance below which tokens attend to each other; sparse: beyond it, the stride.
    attention_window: int = 128
    attention_kernel: Literal["fused", "exact"] = "fused"  # PyTorch's fused kernel, or the formula step by step.
    attention_dropout: float = 0.0  # Dropout on the attention weights; not in the paper, common elsewhere.
    attention_softcap: float = 0.0  # Above 0: scores are limited softly to the range from -cap to cap.
    qk_norm: bool = False  # Normalise queries and keys in each head.
    cross_attention: bool = False  # family = "decoder": also attend to a memory, as an encoder_decoder always does.

    position: PositionName = "sinusoidal"  # How the model represents the order of tokens.
    rope_base: float = 10_000.0  # rope: the base of the rotation frequencies.
    # rope, for longer texts: "linear" divides all frequencies by rope_factor, "llama3" only the low ones.
    rope_scaling: Literal["none", "linear", "llama3"] = "none"
    rope_factor: float = 1.0  # rope_scaling: the factor by which frequencies are divided.
    # llama3: frequencies with fewer rotations than this in rope_original_length are divided by rope_factor.
    rope_low_freq_factor: float = 1.0
    # llama3: frequencies with more rotations than this stay as they are; those between the two are interpolated.
    rope_high_freq_factor: float = 4.0
    rope_original_length: int = 8_192  # llama3: the context length of the first training.
    relative_buckets: int = 32  # relative_bias: the number of learned biases of a head.
    relative_distance: int = 128  # relative_bias: larger distances share the last bucket.
    relative_clip: int = 16  # relative: larger distances share one vector.

    norm: Literal["layer", "rms"] = "layer"  # LayerNorm or RMSNorm.
    # The place of the norm: after the residual sum, before a sub-layer, or both.
    norm_placement: Literal["post", "pre", "sandwich"] = "post"
    norm_epsilon: float = 1e-5  # The constant added to the variance.
    block: Literal["sequential", "parallel"] = "sequential"  # Attention, then feed-forward; or both on the same input.
    # The activation of the feed-forward networks; names that end in "glu" have a gate.
    feed_forward: Literal["relu", "gelu", "gelu_tanh", "silu", "relu2", "swiglu", "geglu", "geglu_tanh"] = "relu"
    experts: int = 0  # Above 0: a mixture of this number of feed-forward networks.
    experts_per_token: int = 2  # The number of experts that compute each token.
    expert_capacity: float = 0.0  # Above 0, in training: the most tokens of an expert, as a multiple of an even share.

    # Which of source embedding, target embedding and output projection are one matrix:
    # "shared" all three (the paper, section 3.4), "tied" the last two, "inputs" the first two, "separate" none.
    embeddings: Literal["shared", "tied", "inputs", "separate"] = "shared"
    output_bias: bool = False  # A learned bias for each token's logit, as in Marian.
    embedding_scale: Literal["sqrt_d", "one"] = "sqrt_d"  # The factor on embeddings: sqrt(d_model) or 1.
    embedding_norm: bool = False  # A norm after the embeddings, as in BERT.
    init: Literal["xavier", "gpt2"] = "xavier"  # The initialisation of the weights.
    segments: int = 0  # The number of segment embeddings, as in BERT.

    image_size: int = 0  # vision: the pixels along a side.
    patch_size: int = 0  # vision: the pixels along a side of a patch.
    channels: int = 1  # vision: 1 for grey images, 3 for colour.
    pixels: Literal["unit"] = "unit"  # vision: the range of pixel values, from 0 (black) to 1 (white).
    # vision: how image files of another size are scaled (Pillow's filters).
    resize: Literal["bilinear", "bicubic", "lanczos", "nearest", "box", "hamming"] = "bilinear"

    def __post_init__(self) -> None:
        check_types(self)
        check_model_numbers(self)
        check_widths(self)
        check_position_table(self)
        for conflict in CONFLICTS:
            conflict.check(self)
        refuse_unread_in_model(self)

    @property
    def head_width(self) -> int:
        return self.d_head or self.d_model // self.n_heads

    @property
    def kv_heads(self) -> int:
        return self.n_kv_heads or self.n_heads

    @property
    def sides(self) -> tuple[str, ...]:
        """The stacks that the model has: encoder, decoder or both."""
        return {"encoder_decoder": ("encoder", "decoder"), "decoder": ("decoder",)}.get(self.family, ("encoder",))

    @property
    def n_positions(self) -> int:
        """The longest sequence: tokens, or an image's patches and the class token."""
        if self.family != "vision":
            return self.max_length
        return (self.image_size // self.patch_size) ** 2 + (self.pooling == "cls")

    @property
    def task(self) -> str:
        """The task of this family with this head: a key of the tables in data and train."""
        return TASKS[self.family, self.head]


TASKS = {
    ("encoder_decoder", "language"): "translation",
    ("decoder", "language"): "language_model",
    ("encoder", "language"): "masked_language_model",
    ("encoder", "classes"): "classification",
    ("encoder", "tags"): "tagging",
    ("encoder", "vectors"): "embedding",
    ("vision", "classes"): "image_classification",
}
INPUT_POSITIONS = ("sinusoidal", "learned", "none")  # schemes that do not change attention
ATTENTION_POSITIONS = tuple(name for name in get_args(PositionName) if name not in INPUT_POSITIONS)
CONFLICTS = (
    Conflict(("attention", ("linear",)), ("position", ATTENTION_POSITIONS),
             "linear attention has no scores to add to, and its feature map undoes a rotation",
             'Use position = "sinusoidal" or "learned", or attention = "full"'),
    Conflict(("attention", ("linear",)), ("attention_kernel", ("exact",)), "linear attention has its own kernel",
             "Leave attention_kernel out"),
    Conflict(("position", ("relative",)), ("attention_kernel", ("fused",)),
             "relative values need the attention weights",
             'Use attention_kernel = "exact", or position = "relative_bias"'),
    Conflict(("family", ("encoder_decoder", "decoder")), ("head", ("classes", "tags", "vectors")),
             "a decoder generates text", 'Use family = "encoder", or head = "language"'),
    Conflict(("family", ("vision",)), ("head", ("language", "tags", "vectors")), "a vision model classifies images",
             'Use head = "classes"'),
)  # fmt: skip
# Far above any existing model. A larger value was mistyped or damaged, and building the model would hang.
LIMITS = {
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 1_000),
    **dict.fromkeys(("n_heads", "n_kv_heads", "experts", "channels", "patch_size"), 10_000),
    **dict.fromkeys(("d_model", "d_head", "segments", "image_size"), 1_000_000),
    **dict.fromkeys(("relative_buckets", "relative_distance", "relative_clip"), 1_000_000),
    **dict.fromkeys(("d_ff", "vocab_size", "n_classes"), 10_000_000),
}
LARGEST_TABLE = 2**27  # numbers in a position table


def check_model_numbers(c: ModelConfig) -> None:
    for name, limit in LIMITS.items():
        require(getattr(c, name) <= limit, c, name, f"is above the limit of {limit:,}")
    sizes = ("d_model", "d_ff", "n_heads", "encoder_layers", "decoder_layers", "max_length", "channels")
    for name in (*sizes, "attention_window", "relative_distance", "relative_clip"):
        require(getattr(c, name) >= 1, c, name, "must be at least 1")
    for name in ("vocab_size", "n_classes", "n_kv_heads", "d_head", "experts", "segments", "image_size", "patch_size"):
        require(getattr(c, name) >= 0, c, name, "must not be negative")
    for name in ("attention_softcap", "expert_capacity"):
        require(getattr(c, name) >= 0, c, name, "must not be negative (0 switches it off)")
    for name in ("dropout", "attention_dropout"):
        require(0 <= getattr(c, name) < 1, c, name, "must be at least 0 and below 1")
    for name in ("norm_epsilon", "rope_base", "rope_low_freq_factor"):
        require(getattr(c, name) > 0, c, name, "must be positive")
    require(c.rope_factor >= 1, c, "rope_factor", "must be at least 1")
    above_low = f"must be above model.rope_low_freq_factor = {c.rope_low_freq_factor}"
    require(c.rope_high_freq_factor > c.rope_low_freq_factor, c, "rope_high_freq_factor", above_low)
    require(c.rope_original_length >= 1, c, "rope_original_length", "must be at least 1")
    require(c.relative_buckets >= 4 and c.relative_buckets % 4 == 0, c, "relative_buckets", "must be a multiple of 4")
    require(c.relative_distance > c.relative_buckets // 2, c, "relative_distance", "must be above half the buckets")
    if c.experts:
        require(c.experts >= 2, c, "experts", "is not a mixture; set at least 2, or 0 for none")
        between = f"must be at least 2, because the router weighs several experts, and at most experts = {c.experts}"
        require(2 <= c.experts_per_token <= c.experts, c, "experts_per_token", between)


def check_widths(c: ModelConfig) -> None:
    """Check which widths must divide which."""
    if not c.d_head and c.d_model % c.n_heads:
        raise ConfigError(
            f"model.d_model = {c.d_model} is not divisible by model.n_heads = {c.n_heads}, so the heads "
            f"would have unequal widths. Choose n_heads from {divisors(c.d_model)}, another d_model, or set d_head."
        )
    if c.n_heads % c.kv_heads:
        raise ConfigError(
            f"model.n_heads = {c.n_heads} is not divisible by model.n_kv_heads = {c.n_kv_heads}, so the groups would "
            f"be of unequal size. Choose n_kv_heads from {divisors(c.n_heads)}."
        )
    if c.position == "sinusoidal" and c.d_model % 2:
        raise ConfigError(
            f"model.position = 'sinusoidal' pairs a sine with a cosine, so model.d_model = {c.d_model} must be "
            f"even. Choose {c.d_model + 1}, or position = 'learned'."
        )
    if c.position == "rope" and c.head_width % 2:
        raise ConfigError(
            f"model.position = 'rope' rotates pairs of numbers, so the width of a head, {c.head_width}, must be even. "
            "Set d_head to an even number, or choose another position."
        )
    if c.family == "vision" and (not c.patch_size or not c.image_size or c.image_size % c.patch_size):
        raise ConfigError(
            f"model.image_size = {c.image_size} cannot be cut into patches of model.patch_size = {c.patch_size}. "
            "A vision model needs both, and the second must divide the first."
        )


def check_position_table(c: ModelConfig) -> None:
    width = {"sinusoidal": c.d_model, "learned": c.d_model, "rope": c.head_width}.get(c.position, 1)
    if c.n_positions * width > LARGEST_TABLE:
        length = "image_size" if c.family == "vision" else "max_length"
        raise ConfigError(
            f"model.position = {c.position!r} stores {width} numbers for each of {c.n_positions:,} positions, more "
            f"than the limit of {LARGEST_TABLE:,} in all. Lower model.{length}."
        )


def refuse_unread_in_model(c: ModelConfig) -> None:
    """Raise an error for a setting that this model does not use."""
    if c.family != "vision":
        refuse_unread(c, ("image_size", "patch_size", "channels", "resize"), f"model.family = {c.family!r} reads text")
    else:
        texts = ("vocab_size", "max_length", "embeddings", "embedding_scale", "embedding_norm", "segments")
        refuse_unread(c, ("output_bias",), "model.family = 'vision' reads images")
        refuse_unread(c, texts, "model.family = 'vision' reads images")
    if c.family not in ("encoder_decoder", "decoder"):
        refuse_unread(c, ("decoder_layers",), f"model.family = {c.family!r} has no decoder")
    if c.family == "decoder":
        refuse_unread(c, ("encoder_layers",), "model.family = 'decoder' has no encoder")
    else:
        refuse_unread(c, ("cross_attention",), f"it is for model.family = 'decoder', and this is {c.family!r}")
    if c.family != "encoder":
        refuse_unread(c, ("segments",), "only model.family = 'encoder' has segments")
    if c.head == "language":
        no_classes = f"model.family = {c.family!r} with model.head = 'language' has no classes"
        refuse_unread(c, ("n_classes", "pooling"), no_classes)
    else:
        refuse_unread(c, ("embeddings",), f"model.head = {c.head!r} has no output matrix to share")
    if c.head == "tags":
        refuse_unread(c, ("pooling",), "model.head = 'tags' gives a class to every token")
    if c.head == "vectors":
        refuse_unread(c, ("n_classes",), "model.head = 'vectors' has no classes")
    if c.head != "language":
        refuse_unread(c, ("output_bias",), f"model.head = {c.head!r} predicts no tokens")
    if c.family == "encoder":
        refuse_unread(c, ("output_bias",), "model.family = 'encoder' always has this bias")
    if c.family != "encoder_decoder" and c.embeddings == "inputs":
        raise ConfigError(
            f"model.embeddings = 'inputs' and model.family = {c.family!r} cannot be combined: this family has one "
            'input, so no two inputs can share a matrix. Use embeddings = "separate" for a separate output matrix.'
        )
    if c.attention not in ("window", "sparse"):
        refuse_unread(c, ("attention_window",), f"model.attention = {c.attention!r} has no window")
    if c.attention == "linear":
        refuse_unread(
            c, ("attention_dropout", "attention_softcap"), "model.attention = 'linear' has neither weights nor scores"
        )
    if c.attention_kernel == "fused" and c.attention_softcap:
        raise ConfigError(
            f"model.attention_softcap = {c.attention_softcap} and model.attention_kernel = 'fused' cannot be combined: "
            'the fused kernel does not expose its scores. Use attention_kernel = "exact".'
        )
    if c.rope_scaling == "none":
        refuse_unread(c, ("rope_factor",), "model.rope_scaling = 'none' does not scale frequencies")
    if c.rope_scaling != "llama3":
        llama3_settings = ("rope_low_freq_factor", "rope_high_freq_factor", "rope_original_length")
        refuse_unread(c, llama3_settings, f"model.rope_scaling = {c.rope_scaling!r} does not use it")
    for position, names in POSITION_SETTINGS.items():
        if c.position != position:
            refuse_unread(c, names, f"model.position = {c.position!r} does not use it")
    if not c.experts:
        refuse_unread(c, ("experts_per_token", "expert_capacity"), "model.experts = 0 has no experts")


POSITION_SETTINGS = {
    "rope": (
        "rope_base", "rope_scaling", "rope_factor",
        "rope_low_freq_factor", "rope_high_freq_factor", "rope_original_length",
    ),
    "relative_bias": ("relative_buckets", "relative_distance"),
    "relative": ("relative_clip",),
}  # fmt: skip
