"""[data]: what is read, and how it becomes batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cutaway.config.checks import check_types, refuse_unread, require
from cutaway.errors import ConfigError, did_you_mean


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
