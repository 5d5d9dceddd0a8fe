"""One Tokenizer over Hugging Face's `tokenizers`, with four schemes. No torch here.

    scheme   "L'arbre est grand."           vocabulary
    word     ␣L' arbre ␣est ␣grand .        the most frequent words; the rest is <unk>
    char     L ' a r b r e …                the characters seen in training
    byte     L ' a r b r e …                the 256 bytes; never <unk>
    bpe      ␣L 'arbre ␣est ␣grand .        bytes, merged where they often meet; never <unk>   (Sennrich et al. 2016)

A word is the same token wherever it stands: word and bpe put a space before the first one, and decoding takes it away.
The result is an ordinary `tokenizer.json`, and any other one can be opened.
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

LIBRARY = str(tokenizers.__version__)  # another one may learn another vocabulary from the same text

# The roles, under the names that we give them and the names that others do.
ROLES: dict[str, tuple[str, ...]] = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|endoftext|>"),
    "bos": ("<s>", "<bos>", "[CLS]", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>", "<pad>"),
    "eos": ("</s>", "<eos>", "[SEP]", "<|end_of_text|>", "<|endoftext|>"),
    "unk": ("<unk>", "[UNK]", "<|unk|>"),
    "mask": ("<mask>", "[MASK]"),
}
MASK = ROLES["mask"][0]
SPECIALS = [names[0] for role, names in ROLES.items() if role != "mask"]  # only a masked language model needs that
OPTIONAL = ("unk", "mask")
TARGET = "cutaway_target"  # in a tokenizer.json: the one for the other language, where there are two
ROLE_SETTINGS = {role: f"{role}_token" for role in ROLES}  # what a Hugging Face tokenizer_config.json calls them


class Tokenizer:
    """Text to ids and back. `encode` adds no special tokens; who builds a batch puts them where they belong."""

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
        """`target` cuts the texts that are to be written, where these are cut in another way: one vocabulary, but each
        language with its own pieces of it (Marian)."""
        self.backend = backend
        for one in (backend, target) if target else (backend,):
            refuse_growth(one)
            # A user's text that happens to contain "</s>" is text, not the end of a sentence.
            one.encode_special_tokens = True
            one.no_padding()
            one.no_truncation()
        self.roles = {role: name for role in ROLES if (name := self._find_role(role, roles or {})) is not None}
        for role in ROLES:
            setattr(self, role, backend.token_to_id(self.roles[role]) if role in self.roles else None)
        # Whether a text of a language model begins with <s>. A tokenizer from elsewhere has its own rule: GPT-2's texts
        # begin with their first word, and have an end between two, no more.
        around = None if backend.post_processor is None else backend.encode("", add_special_tokens=True).ids
        self.adds_bos = around is None or self.bos in around[:1]
        self.for_target = Tokenizer(target, self.roles) if target else self
        self.special_ids = {backend.token_to_id(name) for name in self.roles.values()}
        self._names: dict[int, str] = {}  # found before: asking the library takes its time

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
        """Learn a vocabulary of at most `vocab_size` tokens, the special ones included; with a <mask> on request."""
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
        """Read any `tokenizer.json`. Roles it does not make plain come from `roles` or a tokenizer_config.json."""
        path = Path(path)
        try:
            backends, beside = _backends(path.read_text(encoding="utf-8")), _roles_beside(path)
        except FileNotFoundError:
            raise DataError(f"there is no tokenizer file {str(path)!r}.") from None
        except Exception as error:  # the library raises bare Exceptions
            raise DataError(f"{path} is not a tokenizer.json that can be read: {error}") from None
        return cls(backends[0], {**beside, **(roles or {})}, backends[1])

    @classmethod
    def from_json(cls, text: str, roles: dict[str, str] | None = None) -> Tokenizer:
        backend, target = _backends(text)
        return cls(backend, roles, target)

    def to_json(self) -> str:
        text = str(self.backend.to_str(pretty=True))
        if self.for_target is self:
            return text
        both = {**json.loads(text), TARGET: json.loads(self.for_target.backend.to_str())}
        return json.dumps(both, ensure_ascii=False, indent=2)

    def settings(self) -> dict[str, str]:
        """The roles, as a tokenizer_config.json beside its file has them, for `open` to find."""
        return {ROLE_SETTINGS[role]: name for role, name in self.roles.items()}

    @property
    def vocab_size(self) -> int:
        return int(self.backend.get_vocab_size())

    def encode(self, text: str, continues: bool = False) -> list[int]:
        """`continues`: the text is what comes after another one, so no space is put before its first word."""
        backend = self._continuing_backend if continues else self.backend
        return self._without_specials(backend.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str], continues: bool = False) -> list[list[int]]:
        backend = self._continuing_backend if continues else self.backend
        # "fast": without the offsets that only `spans` needs
        encoded = backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._without_specials(encoding.ids) for encoding in encoded]

    @cached_property
    def _continuing_backend(self) -> tokenizers.Tokenizer:
        normalizer = self.backend.normalizer
        if normalizer is None or normalizer.__getstate__() != SPACE_BEFORE_THE_TEXT.__getstate__():
            return self.backend
        backend = tokenizers.Tokenizer.from_str(self.backend.to_str())
        backend.normalizer = normalizers.NFC()
        backend.encode_special_tokens = True
        return backend

    def add_bos(self, ids: Sequence[int]) -> list[int]:
        """A text as a language model reads it: after <s>, unless its texts have none. Nothing is always begun."""
        return [self.bos, *ids] if self.adds_bos or not ids else list(ids)

    def _without_specials(self, ids: list[int]) -> list[int]:
        """A word vocabulary holds the special names as words: written in a text, they are unknown words."""
        if self.special_ids.isdisjoint(ids):
            return ids
        unknown = [] if self.unk is None else [self.unk]
        return [i for id in ids for i in (unknown if id in self.special_ids else [id])]

    def decode(self, ids: Sequence[int]) -> str:
        """Ids to text; padding, begin and end are left out, an unknown word is shown as ⁇."""
        shown = [id for id in ids if id not in self.special_ids or id == self.unk]
        text = str(self.backend.decode(shown, skip_special_tokens=False))
        if self.unk is None or self.unk not in shown:  # a text may hold the name of the unknown token
            return text
        readable = text.replace(self.roles["unk"], " ⁇")
        return readable[1:] if text.startswith(self.roles["unk"]) else readable  # other spaces at the start are text

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Each id as people would like to read it: "chat" for " chat", "␣" for a lone space."""
        for id in ids:
            if id not in self._names:
                self._names[id] = self._readable(id)
        return [self._names[id] for id in ids]

    def _readable(self, id: int) -> str:
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
        within = str(self.backend.decode([id, id], skip_special_tokens=False))[len(text) :]  # not the first of a text
        return visible(within)

    def unknown(self, text: str) -> list[str]:
        """The pieces of `text` that are not in the vocabulary."""
        if self.unk is None:
            return []
        spans = zip(self.encode(text), self.spans(text), strict=False)
        return [text[start:end] for id, (start, end) in spans if id == self.unk and start < end]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where in `text` each token of `encode(text)` stands, white space around it not counted."""
        encoded = self.backend.encode(text, add_special_tokens=False)
        spans = [_strip(text, start, end) for start, end in encoded.offsets]
        # a space that was put before the text has no place in it; the library gives it that of the first character
        return [(0, 0), *spans[1:]] if encoded.tokens[:1] == [BYTE_SPACE] else spans


MOST_GROWTH = 64  # what rules may make of a character; those of published tokenizers stay below 4


def refuse_growth(backend: tokenizers.Tokenizer) -> None:
    """Rules that double a text, thirty in a row, would fill any memory: a file of a kilobyte can hold them."""
    parts = (backend.normalizer, backend.pre_tokenizer, backend.decoder)
    growth = max((max_growth(json.loads(part.__getstate__())) for part in parts if part is not None), default=1.0)
    marks = (getattr(backend.model, name, None) for name in ("continuing_subword_prefix", "end_of_word_suffix"))
    if max(growth, *(len(mark or "") for mark in marks)) > MOST_GROWTH:
        raise DataError(
            f"the rules of this tokenizer can make more than {MOST_GROWTH} characters of one. Take the tokenizer.json "
            "that came with the model."
        )


def max_growth(rule: dict[str, Any]) -> float:
    """How many times longer a text may become by a rule of a tokenizer.json."""
    if rule["type"] == "Replace":
        replaced = rule["pattern"].get("String", ".")  # an expression may match a single character
        return max(1.0, len(rule["content"]) / max(1, len(replaced)))
    if rule["type"] == "Prepend":
        return max(1.0, float(len(rule["prepend"])))
    several = [one for name in ("normalizers", "pretokenizers", "decoders") for one in rule.get(name, ())]
    return math.prod(map(max_growth, several), start=2.0 if rule["type"] == "ByteLevel" else 1.0)


def visible(white_space: str) -> str:
    """White space that can be told apart: " " -> "␣", a line end and eight spaces -> "⏎␣×8"."""
    signs = {" ": "␣", "\n": "⏎", "\t": "⇥"}
    runs = [(signs.get(sign, f"\\x{ord(sign):x}"), len(list(same))) for sign, same in groupby(white_space)]
    return "".join(sign if count == 1 else f"{sign}×{count}" for sign, count in runs) or "␣"


def make_tokenizer(
    config: DataConfig, texts: Iterable[str], has_mask: bool = False, file: Path | None = None
) -> Tokenizer:
    """The tokenizer that the configuration asks for, trained on `texts` unless it is read from a file.

    `file` goes before all: that of a run to be resumed, or to begin with.
    """
    if file or config.tokenizer == "file":
        file = file or Path(config.root) / config.tokenizer_file
        tokenizer = Tokenizer.open(file)
        if has_mask and tokenizer.mask is None:
            raise DataError(
                f"{file} has no token to hide others with: none of {', '.join(ROLES['mask'])} is in "
                "its vocabulary. Train a tokenizer, or use one that was made for masked language models."
            )
        return tokenizer
    return Tokenizer.train(texts, config.tokenizer, config.vocab_size, has_mask)


# Words do not care how much white space stands between them, nor whether they come first.
ONE_SPACE_BEFORE_EACH_WORD = normalizers.Sequence(
    [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip(), normalizers.Prepend(" ")]
)
MARKS = r".,;:!?…\"«»()\[\]"
# A word takes the space before it along, so that decoding is gluing together: " L'", "arbre", " est", " grand", "."
WORD = rf"\s?[^\s'’{MARKS}]+['’]?|\s?[{MARKS}]|\s|['’]"


def _word(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    backend = _word_level(WORD)
    backend.normalizer = ONE_SPACE_BEFORE_EACH_WORD
    backend.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return _train(backend, texts, trainers.WordLevelTrainer(**_training(vocab_size)))


def _char(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    return _train(_word_level(r"[\s\S]"), texts, trainers.WordLevelTrainer(**_training(vocab_size)))


def _word_level(pattern: str) -> tokenizers.Tokenizer:
    """A vocabulary of the most frequent matches of a pattern that leaves nothing between two matches."""
    backend = tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>"))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    backend.decoder = decoders.Fuse()
    return backend


# Always one, also before a text that begins with one: so decoding, which takes one away, gives back every text exactly.
# (ByteLevel's own add_prefix_space would make one text of "cat" and " cat".)
SPACE_BEFORE_THE_TEXT = normalizers.Sequence([normalizers.NFC(), normalizers.Prepend(" ")])
BYTE_SPACE = "Ġ"  # how a byte-level vocabulary writes a space


def _bpe(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.normalizer = SPACE_BEFORE_THE_TEXT
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return _train(backend, texts, trainers.BpeTrainer(**_training(vocab_size), initial_alphabet=alphabet))


def _byte(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    vocabulary = {name: id for id, name in enumerate(SPECIALS + sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.add_special_tokens(SPECIALS)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


SCHEMES = {"bpe": _bpe, "word": _word, "char": _char, "byte": _byte}
SMALLEST_VOCABULARY = {
    "bpe": len(SPECIALS) + 256,
    "word": len(SPECIALS) + 1,
    "char": len(SPECIALS) + 1,
    "byte": 0,
}


def _training(vocab_size: int) -> dict[str, Any]:
    return {"vocab_size": vocab_size, "special_tokens": SPECIALS, "show_progress": False}


def _train(backend: tokenizers.Tokenizer, texts: Iterable[str], trainer: Any) -> tokenizers.Tokenizer:
    backend.train_from_iterator(texts, trainer)
    return backend


def _backends(text: str) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer | None]:
    """What a tokenizer.json holds: one tokenizer, and perhaps another for the texts that are to be written."""
    if TARGET not in text:
        return tokenizers.Tokenizer.from_str(text), None
    both = json.loads(text)
    target = both.pop(TARGET)
    return tokenizers.Tokenizer.from_str(json.dumps(both)), tokenizers.Tokenizer.from_str(json.dumps(target))


def _roles_beside(path: Path) -> dict[str, str]:
    """The roles in a Hugging Face tokenizer_config.json next to the file, if there is one."""
    beside = path.with_name("tokenizer_config.json")
    if not beside.is_file():
        return {}
    settings = json.loads(beside.read_text(encoding="utf-8"))
    found = {role: settings.get(key) for role, key in ROLE_SETTINGS.items()}
    names = {role: name["content"] if isinstance(name, dict) else name for role, name in found.items() if name}
    if not all(isinstance(name, str) for name in names.values()):
        raise ValueError(f"{beside.name} names a special token by something that is no text: {names}")
    return names


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
