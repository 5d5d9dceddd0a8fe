"""[data]: the training data, the tokenizer and the batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cutaway.config.checks import check_types, refuse_unread, require
from cutaway.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class DataConfig:
    """The training data, the tokenizer and the batches."""

    corpus: str = ""  # A built-in corpus such as "tinyworld:en-fr" or "python"; or give files in train, valid and test.
    size: int = 40_000  # The number of training examples of a built-in corpus.
    heldout_size: int = 1_000  # The number of validation and of test examples of a built-in corpus.
    root: str = ""  # The folder that relative paths start from; empty: the current folder.
    # Training files or Hugging Face datasets ("hf:NAME:CONFIG@SPLIT"); docs/data.md lists the formats of each task.
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()  # Validation files, in the format of train.
    test: tuple[str, ...] = ()  # Test files, in the format of train.
    valid_share: float = 0.0  # Above 0: this fraction of the training data, from its end, is used for validation.
    columns: tuple[int | str, ...] = ()  # The columns (0, 1, ...; -1 is the last) or fields ("text", "label") to read.
    tokenizer: Literal["bpe", "word", "char", "byte", "file"] = "bpe"  # The kind of tokenizer.
    tokenizer_file: str = ""  # tokenizer = "file": the path of a Hugging Face tokenizer.json.
    vocab_size: int = 8_000  # bpe, word, char: the largest number of tokens.
    max_tokens: int = 256  # The longest training example; a language model's texts are cut into chunks of this length.
    # How longer texts are handled: read the part that fits, skip them, or raise an error; "auto": docs/data.md.
    too_long: Literal["auto", "cut", "skip", "refuse"] = "auto"
    batch_tokens: int = 2_048  # The tokens of a batch with padding (of the target, if there is one); or its images.
    bpe_dropout: float = 0.0  # The probability of leaving out a merge in training, which varies the tokens of a word.
    distortion: float = 0.0  # Images: the strength of random rotation, scaling and shift in training.
    # Sentence encoders: texts to put before an input, by name.
    prompts: dict[str, str] = field(default_factory=dict, hash=False)
    prompt: str = ""  # The name of the default prompt; empty: none.

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
                f"data.valid_share = {self.valid_share} and {other} are both given, and the second has its own "
                "validation data. Remove one of them."
            )
        if not self.corpus:
            refuse_unread(self, ("size", "heldout_size"), "no built-in data.corpus is named")
        else:
            refuse_unread(self, ("columns",), f"data.corpus = {self.corpus!r} is not a file")
        if self.tokenizer in ("word", "char", "byte"):
            refuse_unread(self, ("bpe_dropout",), f"data.tokenizer = {self.tokenizer!r} merges nothing")
        if self.tokenizer in ("byte", "file"):
            refuse_unread(self, ("vocab_size",), f"data.tokenizer = {self.tokenizer!r} has a fixed vocabulary")
        if (self.tokenizer == "file") != bool(self.tokenizer_file):
            raise ConfigError(
                f"data.tokenizer = {self.tokenizer!r} and data.tokenizer_file = {self.tokenizer_file!r} cannot be "
                'combined: only tokenizer = "file" reads a file.'
            )

    def prompt_text(self, name: str | None = None) -> str:
        """The text to put before each input. None: the run's default prompt; empty: no prompt."""
        name = self.prompt if name is None else name
        if name and name not in self.prompts:
            known = did_you_mean(name, self.prompts) if self.prompts else "This run has no prompts: leave it out."
            raise ConfigError(f"there is no prompt {name!r}. {known}")
        return self.prompts[name] if name else ""

    def long_texts(self, task: str) -> str:
        """How texts that are too long are handled: "cut", "skip" or "refuse"."""
        if task == "translation" and self.too_long == "cut":
            raise ConfigError(
                "data.too_long = 'cut' is not for translation: the start of a text and the start of its "
                'translation do not correspond. Use "skip" or "refuse".'
            )
        return LONG_TEXTS.get(task, "skip") if self.too_long == "auto" else self.too_long


# task -> the value of data.too_long = "auto". Other tasks have no text that is too long (docs/data.md).
LONG_TEXTS = {"classification": "cut", "tagging": "cut", "translation": "skip"}
