"""One Tokenizer over Hugging Face's `tokenizers`, with four schemes. No torch here.

    scheme   "L'arbre est grand."           vocabulary
    word     ␣L' arbre ␣est ␣grand .        the most frequent words; all others are <unk>
    char     L ' a r b r e …                the characters of the training data
    byte     L ' a r b r e …                the 256 bytes; never <unk>
    bpe      ␣L 'arbre ␣est ␣grand .        bytes; frequent pairs are merged; never <unk>   (Sennrich et al. 2016)

A word is the same token at every position: word and bpe prepend a space to the text, and decoding removes it.
The result is an ordinary `tokenizer.json`. `Tokenizer.open` reads any other `tokenizer.json`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from cutaway.config import DataConfig
from cutaway.errors import ConfigError, DataError, did_you_mean

LIBRARY = str(tokenizers.__version__)  # another version may learn another vocabulary from the same text

# Role -> token names. The first name is ours; the others are names in other tokenizers.
ROLES: dict[str, tuple[str, ...]] = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|endoftext|>"),
    "bos": ("<s>", "<bos>", "[CLS]", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>", "<pad>"),
    "eos": ("</s>", "<eos>", "[SEP]", "<|end_of_text|>", "<|endoftext|>"),
    "unk": ("<unk>", "[UNK]", "<|unk|>"),
    "mask": ("<mask>", "[MASK]"),
}
MASK = ROLES["mask"][0]
SPECIALS = [names[0] for role, names in ROLES.items() if role != "mask"]  # only a masked language model needs <mask>
OPTIONAL = ("unk", "mask")
TARGET_KEY = "cutaway_target"  # key in tokenizer.json of the target tokenizer, if there are two
ROLE_SETTINGS = {role: f"{role}_token" for role in ROLES}  # their keys in Hugging Face's tokenizer_config.json


class Tokenizer:
    """Text to ids and back. `encode` adds no special tokens; the collate functions add them."""

    pad: int
    bos: int
    eos: int
    unk: int | None
    mask: int | None

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        roles: dict[str, str] | None = None,
        target: tokenizers.Tokenizer | None = None,
    ):
        """`target`: a second tokenizer for target texts, with the same vocabulary but other segmentation (Marian)."""
        self.backend = backend
        for one in (backend, target) if target else (backend,):
            check_growth(one)
            # "</s>" in a user's text is text, not an end-of-sentence token.
            one.encode_special_tokens = True
            one.no_padding()
            one.no_truncation()
        self.roles = {role: name for role in ROLES if (name := self._find_role(role, roles or {})) is not None}
        for role in ROLES:
            setattr(self, role, backend.token_to_id(self.roles[role]) if role in self.roles else None)
        # Whether a language model's texts begin with <s>. An imported tokenizer has its own rule: GPT-2 adds no <s>.
        around = None if backend.post_processor is None else backend.encode("", add_special_tokens=True).ids
        self.adds_bos = around is None or self.bos in around[:1]
        self.for_target = Tokenizer(target, self.roles) if target else self
        self.special_ids = {backend.token_to_id(name) for name in self.roles.values()}
        self._token_names: dict[int, str] = {}  # a cache: the library is slow here

    def _find_role(self, role: str, given: dict[str, str]) -> str | None:
        candidates = (given[role],) if role in given else ROLES[role]
        for name in candidates:
            if self.backend.token_to_id(name) is not None:
                return name
        if role in OPTIONAL and role not in given:
            return None
        raise DataError(
            f"the tokenizer has no token for {role!r}: none of {', '.join(candidates)} is in its vocabulary. "
            f'Name it: Tokenizer.open(path, roles={{"{role}": "..."}}).'
        )

    @classmethod
    def train(
        cls, texts: Iterable[str], scheme: str = "bpe", vocab_size: int = 8_000, has_mask: bool = False
    ) -> Tokenizer:
        """Learn a vocabulary of at most `vocab_size` tokens, special tokens included."""
        if scheme not in SCHEMES:
            raise ConfigError(f"there is no tokenizer scheme {scheme!r}. {did_you_mean(scheme, SCHEMES)}")
        if vocab_size < (smallest := SMALLEST_VOCABULARY[scheme]):
            raise ConfigError(
                f"a vocabulary of {vocab_size} is too small: {scheme!r} needs at least {smallest} tokens."
            )
        backend = SCHEMES[scheme](texts, vocab_size - has_mask)
        if has_mask:
            backend.add_special_tokens([MASK])
        return cls(backend)

    @classmethod
    def open(cls, path: str | Path, roles: dict[str, str] | None = None) -> Tokenizer:
        """Read any `tokenizer.json`. Unusual role names come from `roles` or a tokenizer_config.json next to it."""
        path = Path(path)
        try:
            backends, found = _parse_backends(path.read_text(encoding="utf-8")), _roles_from_config(path)
        except FileNotFoundError:
            raise DataError(f"there is no tokenizer file {str(path)!r}.") from None
        except Exception as error:  # the library raises bare Exceptions
            raise DataError(f"{path} is not a readable tokenizer.json: {error}") from None
        return cls(backends[0], {**found, **(roles or {})}, backends[1])

    @classmethod
    def from_json(cls, text: str, roles: dict[str, str] | None = None) -> Tokenizer:
        backend, target = _parse_backends(text)
        return cls(backend, roles, target)

    def to_json(self) -> str:
        text = str(self.backend.to_str(pretty=True))
        if self.for_target is self:
            return text
        both = {**json.loads(text), TARGET_KEY: json.loads(self.for_target.backend.to_str())}
        return json.dumps(both, ensure_ascii=False, indent=2)

    def settings(self) -> dict[str, str]:
        """The roles in the format of tokenizer_config.json. `open` reads this file."""
        return {ROLE_SETTINGS[role]: name for role, name in self.roles.items()}

    @property
    def vocab_size(self) -> int:
        return int(self.backend.get_vocab_size())

    def encode(self, text: str, continues: bool = False) -> list[int]:
        """Text to ids. `continues`: the text continues another text, so no space is prepended."""
        backend = self._continuing_backend if continues else self.backend
        return self._replace_specials(backend.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str], continues: bool = False) -> list[list[int]]:
        backend = self._continuing_backend if continues else self.backend
        # "fast" leaves out the offsets, which only `spans` needs
        encoded = backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._replace_specials(encoding.ids) for encoding in encoded]

    @cached_property
    def _continuing_backend(self) -> tokenizers.Tokenizer:
        normalizer = self.backend.normalizer
        if normalizer is None or normalizer.__getstate__() != PREPEND_SPACE.__getstate__():
            return self.backend
        backend = tokenizers.Tokenizer.from_str(self.backend.to_str())
        backend.normalizer = normalizers.NFC()
        backend.encode_special_tokens = True
        return backend

    def add_bos(self, ids: Sequence[int]) -> list[int]:
        """Prepend <s> if this language model uses it, or if `ids` is empty."""
        return [self.bos, *ids] if self.adds_bos or not ids else list(ids)

    def _replace_specials(self, ids: list[int]) -> list[int]:
        """Replace special ids by <unk>. A word vocabulary would otherwise match "</s>" in a text."""
        if self.special_ids.isdisjoint(ids):
            return ids
        unknown = [] if self.unk is None else [self.unk]
        return [i for id in ids for i in (unknown if id in self.special_ids else [id])]

    def decode(self, ids: Sequence[int]) -> str:
        """Ids to text, without special tokens. An unknown token becomes ⁇."""
        kept = [id for id in ids if id not in self.special_ids or id == self.unk]
        text = str(self.backend.decode(kept, skip_special_tokens=False))
        if self.unk is None or self.unk not in kept:  # "<unk>" may also occur as plain text
            return text
        readable = text.replace(self.roles["unk"], " ⁇")
        return readable[1:] if text.startswith(self.roles["unk"]) else readable  # keep other spaces at the start

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """A readable name for each id: "chat" for " chat", "␣" for a single space."""
        for id in ids:
            if id not in self._token_names:
                self._token_names[id] = self._readable_name(id)
        return [self._token_names[id] for id in ids]

    def _readable_name(self, id: int) -> str:
        name = self.backend.id_to_token(id)
        if name is None:
            return f"#{id}"
        if id in self.special_ids:
            return str(name)
        text = str(self.backend.decode([id], skip_special_tokens=False))
        if "\ufffd" in text:
            return str(name)
        if text.strip():
            return text.strip()
        second = str(self.backend.decode([id, id], skip_special_tokens=False))[len(text) :]  # not the first token
        return show_whitespace(second)

    def unknown(self, text: str) -> list[str]:
        """The pieces of `text` that are not in the vocabulary."""
        if self.unk is None:
            return []
        spans = zip(self.encode(text), self.spans(text), strict=False)
        return [text[start:end] for id, (start, end) in spans if id == self.unk and start < end]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end in `text` of each token of `encode(text)`, without surrounding white space."""
        encoded = self.backend.encode(text, add_special_tokens=False)
        spans = [_strip(text, start, end) for start, end in encoded.offsets]
        # the prepended space is not part of the text; the library reports the span of the first character for it
        return [(0, 0), *spans[1:]] if encoded.tokens[:1] == [BYTE_SPACE] else spans


MAX_GROWTH = 64  # characters that the rules may make of one character; published tokenizers stay below 4


def check_growth(backend: tokenizers.Tokenizer) -> None:
    """Refuse rules that make a text very long. Thirty rules that double it fit into 1 kB and would fill the memory."""
    parts = (backend.normalizer, backend.pre_tokenizer, backend.decoder)
    growth = max((max_growth(json.loads(part.__getstate__())) for part in parts if part is not None), default=1.0)
    marks = (getattr(backend.model, name, None) for name in ("continuing_subword_prefix", "end_of_word_suffix"))
    if max(growth, *(len(mark or "") for mark in marks)) > MAX_GROWTH:
        raise DataError(
            f"the rules of this tokenizer can replace one character by more than {MAX_GROWTH}. "
            "Use the tokenizer.json that was published with the model."
        )


def max_growth(rule: dict[str, Any]) -> float:
    """By which factor a rule of a tokenizer.json can lengthen a text."""
    if rule["type"] == "Replace":
        replaced = rule["pattern"].get("String", ".")  # a regular expression may match a single character
        return max(1.0, len(rule["content"]) / max(1, len(replaced)))
    if rule["type"] == "Prepend":
        return max(1.0, float(len(rule["prepend"])))
    inner = [one for name in ("normalizers", "pretokenizers", "decoders") for one in rule.get(name, ())]
    return math.prod(map(max_growth, inner), start=2.0 if rule["type"] == "ByteLevel" else 1.0)


def show_whitespace(white_space: str) -> str:
    """White space as visible symbols: " " -> "␣", a line end and eight spaces -> "⏎␣×8"."""
    signs = {" ": "␣", "\n": "⏎", "\t": "⇥"}
    runs = [(signs.get(sign, f"\\x{ord(sign):x}"), len(list(same))) for sign, same in groupby(white_space)]
    return "".join(sign if count == 1 else f"{sign}×{count}" for sign, count in runs) or "␣"


def make_tokenizer(
    config: DataConfig, texts: Iterable[str], has_mask: bool = False, file: Path | None = None
) -> Tokenizer:
    """Train a tokenizer on `texts`, or read it from a file.

    `file` has priority over the configuration: it is the tokenizer of a run to resume or to fine-tune.
    """
    if file or config.tokenizer == "file":
        file = file or Path(config.root) / config.tokenizer_file
        tokenizer = Tokenizer.open(file)
        if has_mask and tokenizer.mask is None:
            raise DataError(
                f"{file} has no mask token: none of {', '.join(ROLES['mask'])} is in its vocabulary. "
                "Train a tokenizer, or use one that was made for masked language models."
            )
        return tokenizer
    return Tokenizer.train(texts, config.tokenizer, config.vocab_size, has_mask)


# One space before each word, also before the first: the amount of white space does not matter.
NORMALIZE_SPACES = normalizers.Sequence(
    [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip(), normalizers.Prepend(" ")]
)
PUNCTUATION = r".,;:!?…\"«»()\[\]"
# A word includes the space before it, so decoding is concatenation: " L'", "arbre", " est", " grand", "."
WORD = rf"\s?[^\s'’{PUNCTUATION}]+['’]?|\s?[{PUNCTUATION}]|\s|['’]"


def _word_backend(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    backend = _word_level_backend(WORD)
    backend.normalizer = NORMALIZE_SPACES
    backend.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return _train(backend, texts, trainers.WordLevelTrainer(**_trainer_options(vocab_size)))


def _char_backend(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    return _train(_word_level_backend(r"[\s\S]"), texts, trainers.WordLevelTrainer(**_trainer_options(vocab_size)))


def _word_level_backend(pattern: str) -> tokenizers.Tokenizer:
    """A vocabulary of the most frequent matches of a pattern. The matches must cover the whole text."""
    backend = tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>"))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    backend.decoder = decoders.Fuse()
    return backend


# Always prepend one space, also to a text that begins with a space. Decoding removes one, so every text is restored
# exactly. (ByteLevel's add_prefix_space would encode "cat" and " cat" to the same ids.)
PREPEND_SPACE = normalizers.Sequence([normalizers.NFC(), normalizers.Prepend(" ")])
BYTE_SPACE = "Ġ"  # a space in a byte-level vocabulary


def _bpe_backend(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.normalizer = PREPEND_SPACE
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return _train(backend, texts, trainers.BpeTrainer(**_trainer_options(vocab_size), initial_alphabet=alphabet))


def _byte_backend(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    vocabulary = {name: id for id, name in enumerate(SPECIALS + sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.add_special_tokens(SPECIALS)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


SCHEMES = {"bpe": _bpe_backend, "word": _word_backend, "char": _char_backend, "byte": _byte_backend}
SMALLEST_VOCABULARY = {
    "bpe": len(SPECIALS) + 256,
    "word": len(SPECIALS) + 1,
    "char": len(SPECIALS) + 1,
    "byte": 0,
}


def _trainer_options(vocab_size: int) -> dict[str, Any]:
    return {"vocab_size": vocab_size, "special_tokens": SPECIALS, "show_progress": False}


def _train(backend: tokenizers.Tokenizer, texts: Iterable[str], trainer: Any) -> tokenizers.Tokenizer:
    backend.train_from_iterator(texts, trainer)
    return backend


def _parse_backends(text: str) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer | None]:
    """The tokenizer in a tokenizer.json, and the target tokenizer if it has one."""
    if TARGET_KEY not in text:
        return tokenizers.Tokenizer.from_str(text), None
    both = json.loads(text)
    target = both.pop(TARGET_KEY)
    return tokenizers.Tokenizer.from_str(json.dumps(both)), tokenizers.Tokenizer.from_str(json.dumps(target))


def _roles_from_config(path: Path) -> dict[str, str]:
    """The roles in a Hugging Face tokenizer_config.json next to the file, if it exists."""
    file = path.with_name("tokenizer_config.json")
    if not file.is_file():
        return {}
    settings = json.loads(file.read_text(encoding="utf-8"))
    found = {role: settings.get(key) for role, key in ROLE_SETTINGS.items()}
    names = {role: name["content"] if isinstance(name, dict) else name for role, name in found.items() if name}
    if not all(isinstance(name, str) for name in names.values()):
        raise ValueError(f"{file.name} has a special token that is not a string: {names}")

    return names


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
