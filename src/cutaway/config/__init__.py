"""Configuration is data: frozen dataclasses that import nothing, TOML in, JSON out.

A recipe is four tables, `[model] [data] [train] [decode]`, and a fifth, `[finetune]`, if it begins with a trained run:

    recipe.toml ──read_recipe──▶ Config ──apply_overrides("train.steps=100")──▶ Config ──to_json──▶ config.json

Every exclusive choice is one field with named values (`norm_placement = "pre"`), never a pile of booleans.
What cannot work is refused here, with both values and a remedy, before anything is built.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from cutaway.errors import ConfigError, did_you_mean

SEAL = "seal"  # the table of config.json in which a run folder keeps its checksums (runs.py): no setting

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


@dataclass(frozen=True)
class Refusal:
    """Two settings that cannot go together: (field, values), (field, values), the reason, and the way out."""

    one: tuple[str, tuple[Any, ...]]
    other: tuple[str, tuple[Any, ...]]
    why: str
    remedy: str

    def check(self, config: Any) -> None:
        values = [getattr(config, name) for name, _ in (self.one, self.other)]
        if all(value in bad for value, (_, bad) in zip(values, (self.one, self.other), strict=True)):
            given = [
                f"{setting_name(config, name)} = {value!r}"
                for value, (name, _) in zip(values, (self.one, self.other), strict=True)
            ]
            raise ConfigError(f"{given[0]} and {given[1]} cannot go together: {self.why}. {self.remedy}.")


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


@dataclass(frozen=True)
class DataConfig:
    """Where the text comes from, how it is cut into tokens, how the tokens are put into batches."""

    corpus: str = ""  # a built-in corpus: "tinyworld:en-fr", "python", ...; or give files in train/valid/test
    size: int = 40_000  # how many training examples a built-in corpus gives
    heldout_size: int = 1_000  # ... and how many for each of valid and test
    root: str = ""  # the folder that the paths below are relative to; empty: the current one
    # Files (docs/data.md): two parallel ones to translate, or one of pairs; one of labels, tags or images; texts. Or
    # Hugging Face datasets: "hf:NAME:CONFIG@SPLIT".
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    valid_share: float = 0.0  # above 0: so much of the training data, from its end, is for validation instead
    columns: tuple[int | str, ...] = ()  # which columns (0, 1, ...; -1 is the last) or fields ("text", "label") to read
    tokenizer: Literal["bpe", "word", "char", "byte", "file"] = "bpe"
    tokenizer_file: str = ""  # with tokenizer = "file": any Hugging Face tokenizer.json
    vocab_size: int = 8_000  # at most; how many tokens bpe and word may learn
    max_tokens: int = 256  # of a training example; a language model's texts are always cut into pieces so long
    # What is done with a longer example, and with a text that is longer than model.max_length after the training: read
    # what fits, leave it out, or stop with an error. "auto": LONG_TEXTS.
    too_long: Literal["auto", "cut", "skip", "refuse"] = "auto"
    batch_tokens: int = 2_048  # tokens a batch, padding included (of the target, if there is one); or images a batch
    bpe_dropout: float = 0.0  # texts: how often a merge is left out, so that words come in other pieces every time
    distortion: float = 0.0  # images: how far each is turned, stretched and shifted in training, anew every time
    # sentence encoders: what may be put before a text, by name
    prompts: dict[str, str] = field(default_factory=dict, hash=False)
    prompt: str = ""  # the name of that which is put there if nobody says; empty: none

    def __post_init__(self) -> None:
        check_types(self)
        self.prompt_text()
        for name in ("size", "heldout_size", "vocab_size", "max_tokens", "batch_tokens"):
            require(getattr(self, name) >= 1, self, name, "must be at least 1")
        require(0 <= self.bpe_dropout < 1, self, "bpe_dropout", "must be at least 0 and below 1 (0.1 is usual)")
        require(self.distortion >= 0, self, "distortion", "must not be negative (0 leaves images as they are)")
        require(0 <= self.valid_share < 1, self, "valid_share", "must be at least 0 and below 1 (0 switches it off)")
        if self.corpus and self.train:
            raise ConfigError(
                f"data.corpus = {self.corpus!r} and data.train = {list(self.train)} are both given; a run has one "
                "training corpus. Remove one of them."
            )
        if self.valid_share and (self.valid or self.corpus):
            other = f"data.valid = {list(self.valid)}" if self.valid else f"data.corpus = {self.corpus!r}"
            raise ConfigError(
                f"data.valid_share = {self.valid_share} and {other} are both given, and the second brings its own "
                "validation data. Remove one of them."
            )
        if not self.corpus:
            refuse_unread(self, ("size", "heldout_size"), "no built-in data.corpus is named")
        else:
            refuse_unread(self, ("columns",), f"data.corpus = {self.corpus!r} is no file")
        if self.tokenizer in ("word", "char", "byte"):
            refuse_unread(self, ("bpe_dropout",), f"data.tokenizer = {self.tokenizer!r} merges nothing")
        if self.tokenizer in ("byte", "file"):
            refuse_unread(self, ("vocab_size",), f"data.tokenizer = {self.tokenizer!r} has a vocabulary of its own")
        if (self.tokenizer == "file") != bool(self.tokenizer_file):
            raise ConfigError(
                f"data.tokenizer = {self.tokenizer!r} and data.tokenizer_file = {self.tokenizer_file!r} do not go "
                'together: a file is read with tokenizer = "file", and only then.'
            )

    def prompt_text(self, name: str | None = None) -> str:
        """What is put before each text. None: what the run says; empty: nothing."""
        name = self.prompt if name is None else name
        if name and name not in self.prompts:
            known = did_you_mean(name, self.prompts) if self.prompts else "This run has none: leave it out."
            raise ConfigError(f"there is no prompt {name!r}. {known}")
        return self.prompts[name] if name else ""

    def long_texts(self, task: str) -> str:
        """What is done with texts that are too long: "cut", "skip" or "refuse"."""
        if task == "translation" and self.too_long == "cut":
            raise ConfigError(
                "data.too_long = 'cut' is not for translation: the beginning of a text and the beginning of its "
                'translation do not say the same. Use "skip" or "refuse".'
            )
        return LONG_TEXTS.get(task, "skip") if self.too_long == "auto" else self.too_long


# task -> data.too_long = "auto". Other tasks have nothing that is too long, or only read (docs/data.md).
LONG_TEXTS = {"classification": "cut", "tagging": "cut", "translation": "skip"}

BUDGETS = ("steps", "epochs", "tokens", "minutes")


@dataclass(frozen=True)
class TrainConfig:
    """How the weights are found."""

    # How long: one of these. What is not 0 counts; if all others are 0, `steps` does.
    steps: int = 100_000
    epochs: float = 0.0  # times that every training example is seen
    tokens: int = 0  # answers asked for: target tokens, labels, tags
    minutes: float = 0.0  # of training; what comes out then depends on the machine
    patience: int = 0  # stop after so many validations without a better one; 0: never

    seed: int = 1
    device: str = "auto"  # "auto": CUDA if there is one, else the CPU
    precision: Literal["auto", "float32", "float64", "bfloat16", "float16"] = "auto"  # of the matrix products
    compile: Literal["auto", "yes", "no"] = "auto"  # torch.compile; "auto": on GPUs
    processes: int = 0  # to train with on this machine's CPU; 0: one a core, if the batches are large enough
    # Several processes: whole models (DDP), or shares of one (FSDP2). "auto": whole ones, which on the cores of one
    # machine meet in memory that they share
    parallel: Literal["auto", "replicas", "shards"] = "auto"
    micro_batches: int = 1  # parts that a batch is computed in, one after the other, to save memory: the same result

    label_smoothing: float = 0.1
    balance_loss: float = 0.01  # with model.experts: how much an uneven load of the experts counts
    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    weight_decay: float = 0.01  # adamw, muon: how much of each matrix is taken off a step, times the learning rate
    momentum: float = 0.95  # muon
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    schedule: Literal["noam", "inverse_sqrt", "cosine", "wsd", "constant"] = "noam"
    lr: float = 1.0  # noam: a factor on the paper's schedule; constant: the learning rate itself; else its peak
    lr_end: float = 0.0  # cosine, wsd: the share of it that is left at the end
    warmup: int = 4_000  # steps
    decay: float = 0.2  # wsd: the share of the training during which it falls
    clip_norm: float = 1.0  # 0: no clipping
    ema: float = 0.0  # above 0: weights are kept that follow the trained ones slowly, by 1 - ema a step; they are used
    average: int = 0  # above 0: at the end, the mean of the last so many checkpoints is kept

    log_every: int = 50
    valid_every: int = 1_000
    best_by: Literal["loss", "accuracy", "bleu"] = "loss"  # by which validation chooses the weights that are kept
    samples: int = 3  # texts written at each validation, to look at
    save_every: int = 1_000
    keep: int = 3  # checkpoints to keep, the best one beside them
    snapshots: int = 0  # weights only, spread evenly over the run, to look at how it learned

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("steps", "log_every", "valid_every", "save_every", "keep", "micro_batches"):
            require(getattr(self, name) >= 1, self, name, "must be at least 1")
        not_negative = ("epochs", "tokens", "minutes", "patience", "weight_decay", "warmup", "clip_norm")
        for name in (*not_negative, "balance_loss", "snapshots", "seed", "average", "samples", "processes"):
            require(getattr(self, name) >= 0, self, name, "must not be negative")
        for name in ("label_smoothing", "beta1", "beta2", "momentum", "ema"):
            require(0 <= getattr(self, name) < 1, self, name, "must be at least 0 and below 1")
        for name in ("lr_end", "decay"):
            require(0 <= getattr(self, name) <= 1, self, name, "must be between 0 and 1")
        require(self.lr > 0, self, "lr", "must be positive")
        require(self.epsilon > 0, self, "epsilon", "must be positive")
        check_budget(self)
        check_optimizer(self)
        check_schedule(self)

    @property
    def budget(self) -> str:
        """What says how long the training is: the name of a setting."""
        return next((name for name in BUDGETS[1:] if getattr(self, name)), "steps")


def check_budget(c: TrainConfig) -> None:
    given = [name for name in BUDGETS[1:] if getattr(c, name)]
    if len(given) > 1:
        shown = " and ".join(f"train.{name} = {getattr(c, name)}" for name in given)
        raise ConfigError(f"{shown} are both given; one thing says how long a training is. Remove the others.")
    if given:
        refuse_unread(c, ("steps",), f"train.{given[0]} = {getattr(c, given[0])} says how long the training is")
    if c.ema and c.average:
        raise ConfigError(
            f"train.ema = {c.ema} and train.average = {c.average} are two ways to the same end, a mean over steps. "
            "Choose one."
        )
    if c.average > c.keep:
        raise ConfigError(
            f"train.average = {c.average} needs as many checkpoints, and train.keep = {c.keep} are kept. Raise keep."
        )


def check_optimizer(c: TrainConfig) -> None:
    if c.optimizer == "adam":
        refuse_unread(c, ("weight_decay",), "train.optimizer = 'adam' has none; use 'adamw'")
    if c.optimizer != "muon":
        refuse_unread(c, ("momentum",), f"train.optimizer = {c.optimizer!r} has beta1 instead")


def check_schedule(c: TrainConfig) -> None:
    if c.schedule == "noam" and c.warmup < 1:
        raise ConfigError(
            f"train.schedule = 'noam' divides by train.warmup, which is {c.warmup}. "
            "Set warmup to at least 1, or schedule = 'constant'."
        )
    if c.schedule == "constant":
        refuse_unread(c, ("warmup",), "train.schedule = 'constant' has no warmup")
    if c.schedule not in ("cosine", "wsd"):
        refuse_unread(c, ("lr_end",), f"train.schedule = {c.schedule!r} does not look at it")
    if c.schedule != "wsd":
        refuse_unread(c, ("decay",), f"train.schedule = {c.schedule!r} does not look at it")
    if c.schedule != "noam" and c.lr >= 0.1:
        raise ConfigError(
            f"train.schedule = {c.schedule!r} takes train.lr = {c.lr} as the learning rate itself, and Adam "
            "diverges at such a rate. Set lr to about 1e-3, or schedule = 'noam', where lr is a factor."
        )


@dataclass(frozen=True)
class DecodeConfig:
    """How text comes out of a trained model."""

    # "auto": "sample" of a language model, whose likeliest text goes round in circles; "beam" of a translator
    strategy: Literal["auto", "greedy", "beam", "sample"] = "auto"
    beam_size: int = 4
    length_penalty: float = 0.6
    coverage_penalty: float = 0.0  # beam, of translations: how much it costs to leave a source token unlooked at
    temperature: float = 0.8  # sample: below 1 safer, above 1 bolder; 1: the model's own distribution
    top_k: int = 0  # sample: from the k likeliest tokens; 0: from all
    top_p: float = 0.95  # sample: from the likeliest tokens that make up p; 1: from all
    min_p: float = 0.0  # tokens that are less likely than this share of the likeliest are not drawn; 0: all
    seed: int = 0
    repetition_penalty: float = 1.0  # above 1: tokens that were written become less likely
    no_repeat_ngram: int = 0  # no n tokens in a row are written twice; 0: they may be
    suppress: tuple[int, ...] = ()  # ids of tokens that are never written
    min_length: int = 0  # tokens, </s> not counted, before </s> may come
    max_length: int = 0  # tokens a translation may have; 0: 50 more than its source, as in the paper
    batch_size: int = 64  # sentences decoded together

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("beam_size", "batch_size"):
            require(getattr(self, name) >= 1, self, name, "must be at least 1")
        require(self.beam_size <= 1_000, self, "beam_size", "is above the limit of 1,000")
        for name in (
            "length_penalty", "coverage_penalty", "top_k", "no_repeat_ngram", "min_length", "max_length", "seed",
        ):  # fmt: skip
            require(getattr(self, name) >= 0, self, name, "must not be negative")
        for name in ("length_penalty", "coverage_penalty", "temperature", "repetition_penalty"):
            require(math.isfinite(getattr(self, name)), self, name, "must be a finite number")
        require(self.repetition_penalty > 0, self, "repetition_penalty", "must be positive; 1 changes nothing")
        require(0 <= self.min_p <= 1, self, "min_p", "must be between 0 and 1")
        require(all(id >= 0 for id in self.suppress), self, "suppress", "must be ids of tokens, counted from 0")
        require(self.temperature > 0, self, "temperature", "must be positive; for no randomness use greedy")
        require(0 < self.top_p <= 1, self, "top_p", "must be above 0 and at most 1")

    def for_task(self, task: str) -> DecodeConfig:
        """The same, with the strategy that "auto" stands for in this task."""
        if self.strategy != "auto":
            return self
        return dataclasses.replace(self, strategy="sample" if task == "language_model" else "beam")


@dataclass(frozen=True)
class FinetuneConfig:
    """What a training begins with, and which part of it is trained. No base: everything, from nothing."""

    base: str = ""  # a run folder, or the name of a recipe, whose run is then in runs/
    # "full": the weights themselves. The others leave them as they are and train a little beside them (finetune/).
    method: Literal["full", "lora", "prefix", "prompt"] = "full"
    parts: tuple[str, ...] = ()  # patterns of names: what gets an adapter; none: what is usual for the method
    rank: int = 8  # lora: of the matrices that are added
    alpha: float = 16.0  # lora: what is added counts alpha / rank times
    dropout: float = 0.0  # lora: on what the added matrices read
    length: int = 16  # prefix, prompt: how many vectors stand before the text
    freeze: tuple[str, ...] = ()  # full: patterns of names of weights that stay as they are
    train: tuple[str, ...] = ()  # the others: patterns of names of weights that are trained beside the adapter

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("rank", "length"):
            require(getattr(self, name) >= 1, self, name, "must be at least 1")
        require(self.alpha > 0, self, "alpha", "must be positive")
        require(0 <= self.dropout < 1, self, "dropout", "must be at least 0 and below 1")
        if not self.base:
            others = [f.name for f in dataclasses.fields(self) if f.name != "base"]
            refuse_unread(self, others, "finetune.base names no run to begin with")
        unread = {"full": ("parts", "rank", "alpha", "dropout", "length", "train"), "lora": ("freeze", "length")}
        of_vectors = ("freeze", "rank", "alpha", "dropout")
        why = f"finetune.method = {self.method!r} does not look at it"
        refuse_unread(self, unread.get(self.method, of_vectors), why)

    @property
    def is_adapter(self) -> bool:
        """Whether the base stays as it is, and what is trained is kept alone."""
        return self.method != "full"


@dataclass(frozen=True)
class Config:
    """A whole recipe, and what `config.json` in a run folder holds."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)

    def __post_init__(self) -> None:
        """What one table asks of another."""
        object.__setattr__(self, "decode", self.decode.for_task(self.model.task))  # config.json never says "auto"
        if self.model.family == "vision":
            of_text = ("tokenizer", "tokenizer_file", "vocab_size", "max_tokens", "bpe_dropout")
            refuse_unread(self.data, of_text, "model.family = 'vision' reads images")
        else:
            check_lengths(self.data, self.model.max_length)
            refuse_unread(self.data, ("distortion",), f"model.family = {self.model.family!r} reads text")
        check_long_texts(self.data, self.model.task)
        for split in ("train", "valid", "test"):
            check_files(self.data, split, self.model.task)
        if self.model.head != "vectors":
            refuse_unread(self.data, ("prompts",), "model.head = 'vectors' alone has prompts")
        if not self.model.experts:
            refuse_unread(self.train, ("balance_loss",), "model.experts = 0 has no experts")
        check_vectors(self)

    @property
    def longest_text(self) -> int:
        """Tokens that a text may have. A rotation has so many positions, and those of a prompt are among them."""
        takes_some = self.finetune.method == "prompt" and self.model.position == "rope"
        return self.model.n_positions - (self.finetune.length if takes_some else 0)

    @property
    def long_texts(self) -> str:
        """What is done with texts that are too long: "cut", "skip" or "refuse"."""
        return self.data.long_texts(self.model.task)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Config:
        return config_from_tables({name: table for name, table in json.loads(text).items() if name != SEAL})


def check_lengths(data: DataConfig, max_length: int) -> None:
    if data.max_tokens > max_length:
        raise ConfigError(
            f"data.max_tokens = {data.max_tokens} lets in longer texts than the model has positions for: "
            f"model.max_length = {max_length}. Lower the first or raise the second."
        )
    if data.max_tokens > data.batch_tokens:
        raise ConfigError(
            f"data.max_tokens = {data.max_tokens} is more than data.batch_tokens = {data.batch_tokens}, so a "
            "single long example would not fit into a batch. Lower the first or raise the second."
        )


def check_long_texts(data: DataConfig, task: str) -> None:
    if task not in LONG_TEXTS:
        why = "reads images" if task == "image_classification" else "cuts its texts into pieces, or only reads"
        refuse_unread(data, ("too_long",), f"a model for {task.replace('_', ' ')} {why}")
    if data.long_texts(task) == "cut":
        require(data.max_tokens >= 3, data, "max_tokens", "leaves no room between <s> and </s>; set it to 3 or more")


def check_vectors(config: Config) -> None:
    """Whether there is a place for the learned vectors of prefix and prompt tuning."""
    finetune, model = config.finetune, config.model
    if finetune.method == "prefix" and model.attention == "linear":
        raise ConfigError(
            "finetune.method = 'prefix' and model.attention = 'linear' cannot go together: linear attention keeps "
            'sums, and no keys that others could stand before. Use method = "lora" or "prompt".'
        )
    needed = model.n_positions if model.family == "vision" else config.data.max_tokens
    if finetune.method == "prompt" and needed > config.longest_text:
        read = f"an image of {needed} patches" if model.family == "vision" else f"data.max_tokens = {needed}"
        raise ConfigError(
            f"finetune.length = {finetune.length} vectors before {read} do not fit into the {model.n_positions} "
            'positions that this model\'s rotation knows. Shorten one of them, or use method = "prefix".'
        )


OF_PAIRS = (".tsv", ".jsonl")  # endings of files in which a line holds both sides; .gz may follow


def check_files(data: DataConfig, split: str, task: str) -> None:
    """Two parallel files to translate, or files of pairs; one to classify or tag; any number of texts."""
    files = getattr(data, split)
    if task == "translation":
        of_pairs = [file.startswith("hf:") or file.removesuffix(".gz").endswith(OF_PAIRS) for file in files]
        is_parallel = len(files) == 2 and not any(of_pairs)
        what = 'must name two files whose lines correspond, as in ["train.de", "train.en"], or files of pairs, as in '
        require(is_parallel or all(of_pairs), data, split, what + '["train.tsv"] (.tsv, .jsonl or hf:NAME)')
    elif task in ("classification", "tagging"):
        require(len(files) <= 1, data, split, f'must name one file for {task}, as in ["train.tsv"]')
    elif task == "image_classification":
        is_arrays = all(file.endswith(".npz") for file in files)
        require(len(files) <= 1 and is_arrays, data, split, 'must name one file of arrays, as in ["train.npz"]')
    if task == "image_classification":
        refuse_unread(data, ("columns",), "images come in arrays")


def read_recipe(path: str | Path, overrides: Iterable[str] = (), started: Path | None = None) -> Config:
    """Read a TOML recipe, with `overrides` such as "train.steps=100" on top. `started`: the run that it has begun."""
    return config_from_tables(on_base(read_tables(path, overrides), started))


def read_tables(path: str | Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """The tables of a recipe as they stand there, with `overrides` on top."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no recipe {str(path)!r}. Give the path of a .toml file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the recipe {str(path)!r} is not valid TOML: {error}") from None
    return apply_overrides(tables, overrides)


# What of a base's model a fine-tuned one may have in its own way. All else is in the weights that it begins with.
OWN_WAY = ("head", "n_classes", "pooling", "dropout", "attention_dropout", "attention_kernel")
OF_THE_HEAD = ("pooling", "embeddings")  # what another head does not take over


def on_base(tables: Mapping[str, Any], started: Path | None = None) -> dict[str, Any]:
    """The tables of a recipe that begins with a trained run, completed by it: its model, tokenizer, way of decoding.

    In such a recipe, [model] and [decode] hold what is to be different from that run. A run that has been started
    already knows all of it: then nobody asks for its base.
    """
    base = base_of_tables(tables)
    if not base:
        return dict(tables)
    if started and is_run(started):
        there = json.loads((started / "config.json").read_text(encoding="utf-8"))
    else:
        there = dataclasses.asdict(read_base(find_base(base)))
    given = {name: tables.get(name, {}) for name in ("model", "data", "decode")}
    if not all(isinstance(table, Mapping) for table in given.values()):
        return dict(tables)  # who makes a Config of them says what is wrong
    if there["model"]["family"] != "vision":
        refuse_tokenizer(given["data"], base)
        given["data"] = {**given["data"], "tokenizer": "file", "tokenizer_file": "tokenizer.json"}
    model = {**there["model"], "n_classes": 0, **given["model"]}  # classes are those of the new data
    if model["head"] != there["model"]["head"]:
        defaults = {f.name: f.default for f in dataclasses.fields(ModelConfig)}
        model |= {name: defaults[name] for name in OF_THE_HEAD if name not in given["model"]}
    refuse_other_model(model, there["model"], base)
    return {**tables, "model": model, "data": given["data"], "decode": {**there["decode"], **given["decode"]}}


def base_of_tables(tables: Mapping[str, Any]) -> str:
    """The run that a recipe begins with; empty: none."""
    finetune = tables.get("finetune", {})
    base = finetune.get("base", "") if isinstance(finetune, Mapping) else ""
    return base if isinstance(base, str) else ""


def base_folders(base: str, beside: Path | None = None) -> list[Path]:
    """Where a base may be: as given, in runs/, or beside the run that was made of it."""
    named = [Path(base), Path("runs") / base]
    return [*named, beside.parent / Path(base).name] if beside else named


def is_run(folder: Path) -> bool:
    """Whether the folder's config.json is one of ours: others' folders have one, too."""
    try:
        Config.from_json((folder / "config.json").read_text(encoding="utf-8"))
    except (ConfigError, OSError, ValueError, TypeError, AttributeError):
        return False
    return True


def find_base(base: str, beside: Path | None = None) -> Path:
    for folder in base_folders(base, beside):
        if is_run(folder):
            return folder
    there = sorted(path.parent.name for path in Path("runs").glob("*/config.json"))
    known = f"In runs/ there are: {', '.join(there)}." if there else "There is no run in runs/ either."
    raise ConfigError(
        f"finetune.base = {base!r} is no run folder. {known} Give the path of one, or train it first: "
        f"cutaway train {base}"
    )


def read_base(folder: Path) -> Config:
    """The configuration of a run that another one begins with."""
    try:
        config = Config.from_json((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ConfigError(f"the configuration of the base {str(folder)!r} cannot be read: {error}") from None
    if config.finetune.is_adapter:
        raise ConfigError(
            f"the base {str(folder)!r} is an adapter itself (finetune.method = {config.finetune.method!r}), on "
            f"{config.finetune.base!r}. Begin with that one, or put the two together first: "
            f"cutaway export {folder} FOLDER --to run"
        )
    return config


def refuse_tokenizer(data: Mapping[str, Any], base: str) -> None:
    for name in ("tokenizer", "tokenizer_file", "vocab_size"):
        if name in data:
            raise ConfigError(
                f"data.{name} = {data[name]!r} is not for a fine-tuned model to choose: it reads with the tokenizer "
                f"of its base, {base!r}. Remove it."
            )


def refuse_other_model(model: Mapping[str, Any], of_base: Mapping[str, Any], base: str) -> None:
    """A model that has other weights than its base, or does something else with them."""
    may_differ = {*OWN_WAY, *(OF_THE_HEAD if model.get("head") != of_base["head"] else ())}
    if of_base["family"] == "vision":
        may_differ.remove("pooling")  # whether there is a class token is a matter of the embedding
    for name, value in model.items():
        if name in of_base and name not in may_differ and value != of_base[name]:
            raise ConfigError(
                f"model.{name} = {value!r}, but the base {base!r} was trained with {of_base[name]!r}. Remove it: a "
                f"fine-tuned model is that of its base, but for {', '.join(n for n in OWN_WAY if n in may_differ)}."
            )


def apply_overrides(tables: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Put "table.field=value" settings on top of `tables`. A value is read as TOML, or else as plain text.

    One thing says how long a training is: "train.minutes=1" takes the place of the recipe's steps.
    """
    overrides = list(overrides)
    result = {name: dict(table) if isinstance(table, Mapping) else table for name, table in tables.items()}
    budgets, train = [f"train.{name}" for name in BUDGETS], result.get("train")
    if isinstance(train, dict) and any(setting.partition("=")[0].strip() in budgets for setting in overrides):
        result["train"] = {name: value for name, value in train.items() if name not in BUDGETS}
    for setting in overrides:
        dotted, equals, text = setting.partition("=")
        table, dot, name = dotted.strip().partition(".")
        if not (equals and dot and name):
            raise ConfigError(f"the setting {setting!r} is not of the form table.field=value, as in train.steps=100.")
        result.setdefault(table, {})[name] = toml_value(text.strip())
    return result


def with_given(config: Any, **settings: Any) -> Any:
    """`config` with those settings changed that are not None: what a command line was given."""
    return dataclasses.replace(config, **{name: value for name, value in settings.items() if value is not None})


def config_from_tables(tables: Mapping[str, Any]) -> Config:
    parts = {f.name: f.default_factory for f in dataclasses.fields(Config)}
    for name, table in tables.items():
        if name not in parts:
            raise ConfigError(f"unknown table [{name}]. {did_you_mean(name, parts)}")
        if not isinstance(table, Mapping):
            raise ConfigError(f"{name} = {table!r} stands outside a table. Put it under one of: {', '.join(parts)}.")
    return Config(**{name: from_table(make, name, tables.get(name, {})) for name, make in parts.items()})


def from_table(cls: Any, table_name: str, table: Mapping[str, Any]) -> Any:
    """Build the dataclass `cls` from a table, refusing unknown fields with a suggestion."""
    allowed = [f.name for f in dataclasses.fields(cls)]
    for name in table:
        if name not in allowed:
            raise ConfigError(f"unknown setting {table_name}.{name}. {did_you_mean(name, allowed)}")
    return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in table.items()})


def toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # --set data.corpus=reverse, with no quotes to fight the shell for


def check_types(config: Any) -> None:
    """Hold each field against its annotation: 8.0 heads or a misspelt choice is refused by name."""
    for name, hint in type_hints(type(config)).items():  # type: ignore[arg-type]
        value = getattr(config, name)
        if type(value) is hint:
            continue
        if get_origin(hint) is Literal:
            if value not in get_args(hint):
                raise ConfigError(
                    f"{setting_name(config, name)} = {value!r} is not a choice. "
                    f"{did_you_mean(str(value), get_args(hint))}"
                )
        elif hint is float and type(value) is int:
            object.__setattr__(config, name, float(value))  # `lr = 1` in TOML means 1.0
        elif not is_of_type(value, hint):
            raise ConfigError(
                f"{setting_name(config, name)} = {value!r} is of type {type(value).__name__}; "
                f"expected {getattr(hint, '__name__', hint)}."
            )


@cache
def type_hints(cls: Any) -> dict[str, Any]:
    """The annotation of each field."""
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


@cache
def defaults(cls: Any) -> dict[str, Any]:
    """What each field is if nobody says it."""
    fields = dataclasses.fields(cls)
    return {f.name: f.default_factory() if callable(f.default_factory) else f.default for f in fields}


def is_of_type(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(is_of_type(value, h) for h in get_args(hint))
    if origin is tuple:
        return isinstance(value, tuple) and all(is_of_type(v, get_args(hint)[0]) for v in value)
    if origin is dict:
        of_keys, of_values = get_args(hint)
        return isinstance(value, dict) and all(type(k) is of_keys and type(v) is of_values for k, v in value.items())
    return type(value) is hint  # not isinstance: True is no number of layers


def require(holds: bool, config: Any, name: str, what: str) -> None:
    if not holds:
        raise ConfigError(f"{setting_name(config, name)} = {getattr(config, name)!r} {what}.")


def refuse_unread(config: Any, names: Iterable[str], why: str) -> None:
    """A setting that nothing reads is a misunderstanding: say so rather than ignore it."""
    usual = defaults(type(config))  # type: ignore[arg-type]
    for name in names:
        if getattr(config, name) != usual[name]:
            raise ConfigError(
                f"{setting_name(config, name)} = {getattr(config, name)!r} would have no effect, because {why}. "
                "Remove it."
            )


def setting_name(config: Any, name: str) -> str:
    return f"{type(config).__name__.removesuffix('Config').lower()}.{name}"


def choices(cls: type, name: str) -> tuple[str, ...]:
    """The named values of one field: what the tests iterate."""
    return get_args(type_hints(cls)[name])


def divisors(n: int) -> list[int]:
    """In time that grows with the square root of n: it may be a number that nobody meant."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})
