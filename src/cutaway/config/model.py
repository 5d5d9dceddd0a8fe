"""[model]: what is built, and which settings exclude each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from cutaway.config.checks import Refusal, check_types, divisors, refuse_unread, require
from cutaway.errors import ConfigError

PositionName = Literal["sinusoidal", "learned", "rope", "alibi", "relative_bias", "relative", "none"]


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a model. The defaults are the paper's base model (table 3)."""

    family: Literal["encoder_decoder", "encoder", "decoder", "vision"] = "encoder_decoder"
    # What it answers: the next or the hidden token, one class for the whole, one for each token; or a vector.
    head: Literal["language", "classes", "tags", "vectors"] = "language"
    vocab_size: int = 0  # 0: taken from the tokenizer when training starts
    n_classes: int = 0  # 0: taken from the labels in the training data
    # head = "classes" or "vectors": what stands for the whole
    pooling: Literal["cls", "cls_tanh", "mean", "max", "attention"] = "cls"

    d_model: int = 512
    d_ff: int = 2048
    encoder_layers: int = 6
    decoder_layers: int = 6
    dropout: float = 0.1  # on each sub-layer's output and on the embeddings, as in the paper (section 5.4)
    bias: bool = True  # in the projections of attention and feed-forward; T5 and Llama have none
    max_length: int = 1024  # positions there are; what is done with a longer text: data.too_long

    n_heads: int = 8
    n_kv_heads: int = 0  # heads of keys and values, shared by the others in groups; 0: as many as n_heads
    d_head: int = 0  # the width of a head; 0: d_model / n_heads
    attention: Literal["full", "window", "sparse", "linear"] = "full"
    attention_window: int = 128  # window: tokens that are less far away; sparse: and every so-many-th beyond
    attention_kernel: Literal["fused", "exact"] = "fused"
    attention_dropout: float = 0.0  # on the attention weights: not in the paper, common elsewhere
    attention_cap: float = 0.0  # above 0, scores stay softly between -cap and cap
    qk_norm: bool = False  # norm queries and keys, head by head
    cross_attention: bool = False  # a decoder alone that also looks at a memory; an encoder_decoder always does

    position: PositionName = "sinusoidal"
    rope_base: float = 10_000.0
    # rope, for texts longer than those of the first training: "linear" turns all pairs `rope_factor` times slower;
    # "llama3" those that turn fewer than `rope_slow` times in `rope_original_length` tokens, but none that turn more
    # often than `rope_fast` times; between the two, by degrees.
    rope_scaling: Literal["none", "linear", "llama3"] = "none"
    rope_factor: float = 1.0
    rope_slow: float = 1.0
    rope_fast: float = 4.0
    rope_original_length: int = 8_192
    relative_buckets: int = 32  # relative_bias: how many numbers a head learns
    relative_distance: int = 128  # relative_bias: distances beyond share the last bucket
    relative_clip: int = 16  # relative: distances beyond share one vector

    norm: Literal["layer", "rms"] = "layer"
    norm_placement: Literal["post", "pre", "sandwich"] = "post"
    norm_epsilon: float = 1e-5
    block: Literal["sequential", "parallel"] = "sequential"  # attention, then feed-forward; or both at once
    feed_forward: Literal["relu", "gelu", "gelu_tanh", "silu", "relu2", "swiglu", "geglu", "geglu_tanh"] = "relu"
    experts: int = 0  # above 0: a mixture of so many feed-forward networks
    experts_per_token: int = 2
    expert_capacity: float = 0.0  # above 0, in training: an expert takes at most so many times its even share

    # Which of source embedding, target embedding and output projection are one matrix:
    # "shared" all three (the paper, section 3.4), "tied" the last two, "inputs" the first two, "separate" none.
    embeddings: Literal["shared", "tied", "inputs", "separate"] = "shared"
    output_bias: bool = False  # a number for each token on top of its logit, as in Marian
    embedding_scale: Literal["sqrt_d", "one"] = "sqrt_d"  # what embeddings are multiplied by
    embedding_norm: bool = False  # a norm after the embeddings, as in BERT
    init: Literal["xavier", "gpt2"] = "xavier"  # how weights begin
    segments: int = 0  # kinds of sentence that are told apart by an embedding of their own, as in BERT

    image_size: int = 0  # vision: pixels along a side
    patch_size: int = 0
    channels: int = 1
    pixels: Literal["unit"] = "unit"  # vision: the numbers that it reads, from 0 (black) to 1 (white)
    # vision: how an image file of another size is scaled (Pillow's filters)
    resize: Literal["bilinear", "bicubic", "lanczos", "nearest", "box", "hamming"] = "bilinear"

    def __post_init__(self) -> None:
        check_types(self)
        check_model_numbers(self)
        check_widths(self)
        check_table_of_positions(self)
        for refusal in REFUSALS:
            refusal.check(self)
        refuse_unread_in_model(self)

    @property
    def head_width(self) -> int:
        return self.d_head or self.d_model // self.n_heads

    @property
    def kv_heads(self) -> int:
        return self.n_kv_heads or self.n_heads

    @property
    def sides(self) -> tuple[str, ...]:
        """Which of encoder and decoder it has."""
        return {"encoder_decoder": ("encoder", "decoder"), "decoder": ("decoder",)}.get(self.family, ("encoder",))

    @property
    def n_positions(self) -> int:
        """How long a sequence can be: of tokens, or of an image's patches and the class token."""
        if self.family != "vision":
            return self.max_length
        return (self.image_size // self.patch_size) ** 2 + (self.pooling == "cls")

    @property
    def task(self) -> str:
        """What a model of this family with this head is trained to do: a row of the tables in data and train."""
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
AT_THE_INPUT = ("sinusoidal", "learned", "none")  # schemes that do nothing inside attention
INSIDE = tuple(name for name in get_args(PositionName) if name not in AT_THE_INPUT)
REFUSALS = (
    Refusal(("attention", ("linear",)), ("position", INSIDE),
            "linear attention has no scores to add to, and its feature map undoes a rotation",
            'Use position = "sinusoidal" or "learned", or attention = "full"'),
    Refusal(("attention", ("linear",)), ("attention_kernel", ("exact",)), "linear attention is a kernel of its own",
            "Leave attention_kernel out"),
    Refusal(("position", ("relative",)), ("attention_kernel", ("fused",)), "relative values need the attention weights",
            'Use attention_kernel = "exact", or position = "relative_bias"'),
    Refusal(("family", ("encoder_decoder", "decoder")), ("head", ("classes", "tags", "vectors")), "it writes text",
            'Use family = "encoder", or head = "language"'),
    Refusal(("family", ("vision",)), ("head", ("language", "tags", "vectors")), "an image is given a class",
            'Use head = "classes"'),
)  # fmt: skip
# Far above any model there is. What is larger was mistyped or damaged, and would hang whoever builds it.
LIMITS = {
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 1_000),
    **dict.fromkeys(("n_heads", "n_kv_heads", "experts", "channels", "patch_size"), 10_000),
    **dict.fromkeys(("d_model", "d_head", "segments", "image_size"), 1_000_000),
    **dict.fromkeys(("relative_buckets", "relative_distance", "relative_clip"), 1_000_000),
    **dict.fromkeys(("d_ff", "vocab_size", "n_classes"), 10_000_000),
}
LARGEST_TABLE = 2**27  # numbers in a table of positions


def check_model_numbers(c: ModelConfig) -> None:
    for name, limit in LIMITS.items():
        require(getattr(c, name) <= limit, c, name, f"is above the limit of {limit:,}")
    sizes = ("d_model", "d_ff", "n_heads", "encoder_layers", "decoder_layers", "max_length", "channels")
    for name in (*sizes, "attention_window", "relative_distance", "relative_clip"):
        require(getattr(c, name) >= 1, c, name, "must be at least 1")
    for name in ("vocab_size", "n_classes", "n_kv_heads", "d_head", "experts", "segments", "image_size", "patch_size"):
        require(getattr(c, name) >= 0, c, name, "must not be negative")
    for name in ("attention_cap", "expert_capacity"):
        require(getattr(c, name) >= 0, c, name, "must not be negative (0 switches it off)")
    for name in ("dropout", "attention_dropout"):
        require(0 <= getattr(c, name) < 1, c, name, "must be at least 0 and below 1")
    for name in ("norm_epsilon", "rope_base", "rope_slow"):
        require(getattr(c, name) > 0, c, name, "must be positive")
    require(c.rope_factor >= 1, c, "rope_factor", "must be at least 1")
    require(c.rope_fast > c.rope_slow, c, "rope_fast", f"must be above model.rope_slow = {c.rope_slow}")
    require(c.rope_original_length >= 1, c, "rope_original_length", "must be at least 1")
    require(c.relative_buckets >= 4 and c.relative_buckets % 4 == 0, c, "relative_buckets", "must be a multiple of 4")
    require(c.relative_distance > c.relative_buckets // 2, c, "relative_distance", "must be above half the buckets")
    if c.experts:
        require(c.experts >= 2, c, "experts", "is no mixture; set at least 2, or 0 for none")
        between = f"must be at least 2, or the router has nothing to weigh, and at most experts = {c.experts}"
        require(2 <= c.experts_per_token <= c.experts, c, "experts_per_token", between)


def check_widths(c: ModelConfig) -> None:
    """What must divide what."""
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
            f"model.position = 'rope' turns pairs of numbers, so the width of a head, {c.head_width}, must be even. "
            "Set d_head to an even number, or choose another position."
        )
    if c.family == "vision" and (not c.patch_size or not c.image_size or c.image_size % c.patch_size):
        raise ConfigError(
            f"model.image_size = {c.image_size} cannot be cut into patches of model.patch_size = {c.patch_size}. "
            "A vision model needs both, and the second must divide the first."
        )


def check_table_of_positions(c: ModelConfig) -> None:
    width = {"sinusoidal": c.d_model, "learned": c.d_model, "rope": c.head_width}.get(c.position, 1)
    if c.n_positions * width > LARGEST_TABLE:
        length = "image_size" if c.family == "vision" else "max_length"
        raise ConfigError(
            f"model.position = {c.position!r} keeps {width} numbers for each of {c.n_positions:,} positions, more than "
            f"the limit of {LARGEST_TABLE:,} in all. Lower model.{length}."
        )


def refuse_unread_in_model(c: ModelConfig) -> None:
    """Settings that this model does not look at."""
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
        refuse_unread(c, ("segments",), "model.family = 'encoder' alone has segments")
    if c.head == "language":
        of_classes = f"model.family = {c.family!r} with model.head = 'language' has no classes"
        refuse_unread(c, ("n_classes", "pooling"), of_classes)
    else:
        refuse_unread(c, ("embeddings",), f"model.head = {c.head!r} has no output matrix to share")
    if c.head == "tags":
        refuse_unread(c, ("pooling",), "model.head = 'tags' gives a class to every token")
    if c.head == "vectors":
        refuse_unread(c, ("n_classes",), "model.head = 'vectors' has no classes")
    if c.head != "language":
        refuse_unread(c, ("output_bias",), f"model.head = {c.head!r} says no tokens")
    if c.family == "encoder":
        refuse_unread(c, ("output_bias",), "model.family = 'encoder' always has one")
    if c.family != "encoder_decoder" and c.embeddings == "inputs":
        raise ConfigError(
            f"model.embeddings = 'inputs' and model.family = {c.family!r} cannot go together: it has one input, not "
            'two to share a matrix. Use embeddings = "separate" for an output matrix of its own.'
        )
    if c.attention not in ("window", "sparse"):
        refuse_unread(c, ("attention_window",), f"model.attention = {c.attention!r} has no window")
    if c.attention == "linear":
        refuse_unread(
            c, ("attention_dropout", "attention_cap"), "model.attention = 'linear' has neither weights nor scores"
        )
    if c.attention_kernel == "fused" and c.attention_cap:
        raise ConfigError(
            f"model.attention_cap = {c.attention_cap} and model.attention_kernel = 'fused' cannot go together: the "
            'fused kernel does not let go of its scores. Use attention_kernel = "exact".'
        )
    if c.rope_scaling == "none":
        refuse_unread(c, ("rope_factor",), "model.rope_scaling = 'none' turns pairs as usual")
    if c.rope_scaling != "llama3":
        of_llama3 = ("rope_slow", "rope_fast", "rope_original_length")
        refuse_unread(c, of_llama3, f"model.rope_scaling = {c.rope_scaling!r} does not look at it")
    for position, names in OF_POSITION.items():
        if c.position != position:
            refuse_unread(c, names, f"model.position = {c.position!r} does not look at it")
    if not c.experts:
        refuse_unread(c, ("experts_per_token", "expert_capacity"), "model.experts = 0 has no experts")


OF_POSITION = {
    "rope": ("rope_base", "rope_scaling", "rope_factor", "rope_slow", "rope_fast", "rope_original_length"),
    "relative_bias": ("relative_buckets", "relative_distance"),
    "relative": ("relative_clip",),
}
