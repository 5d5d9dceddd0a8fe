"""Read Unigram models of SentencePiece (`spiece.model`, `source.spm`) without the SentencePiece library.

The file is a protocol buffer: a sequence of fields, each a key and a value.

    key = field number · 8 + wire type, a varint: 7 bits per byte, lowest first; the 8th bit means "more bytes follow"
    wire type 0: a varint   1: 8 bytes   2: a length (varint) and that many bytes   5: 4 bytes
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cutaway.errors import DataError

# field numbers of sentencepiece_model.proto
PIECES, TRAINER, NORMALIZER = 1, 2, 3
PIECE_TEXT, PIECE_SCORE, PIECE_KIND = 1, 2, 3
MODEL_TYPE, BYTE_FALLBACK = 3, 35
CHARSMAP, DUMMY_PREFIX, REMOVE_SPACES = 2, 3, 4
UNIGRAM = 1
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6  # kinds of pieces


@dataclass(frozen=True)
class SentencePieceToken:
    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieceModel:
    """A SentencePiece model. `charsmap`: the character normalisation (NFKC and more)."""

    pieces: list[SentencePieceToken]
    charsmap: bytes
    dummy_prefix: bool  # put a space before each text
    remove_spaces: bool  # merge repeated spaces
    byte_fallback: bool

    @property
    def unknown(self) -> str:
        return next(piece.text for piece in self.pieces if piece.kind == UNKNOWN)


def read_model(path: Path) -> SentencePieceModel:
    try:
        return parse(path.read_bytes(), path)
    except (IndexError, struct.error, UnicodeDecodeError, StopIteration):
        raise DataError(
            f"{path} is not a readable SentencePiece model: it is cut off or damaged. Download it again."
        ) from None


def parse(content: bytes, path: Path) -> SentencePieceModel:
    pieces: list[SentencePieceToken] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, value in fields(content):
        if number == PIECES:
            piece = dict(fields(as_bytes(value)))
            (score,) = struct.unpack("<f", as_bytes(piece.get(PIECE_SCORE, bytes(4))))
            text = as_bytes(piece[PIECE_TEXT]).decode("utf-8")
            pieces.append(SentencePieceToken(text, score, int(piece.get(PIECE_KIND, NORMAL))))
        elif number == TRAINER:
            trainer = dict(fields(as_bytes(value)))
        elif number == NORMALIZER:
            normalizer = dict(fields(as_bytes(value)))
    if not pieces:
        raise DataError(f"{path} is not a readable SentencePiece model: it has no pieces. Download it again.")
    if trainer.get(MODEL_TYPE, UNIGRAM) != UNIGRAM:
        raise DataError(
            f"{path} is a SentencePiece model with model_type {trainer[MODEL_TYPE]!r}; only Unigram is supported. "
            "Convert it where transformers is installed: "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes a tokenizer.json."
        )
    return SentencePieceModel(
        pieces,
        charsmap=as_bytes(normalizer.get(CHARSMAP, b"")),
        dummy_prefix=bool(normalizer.get(DUMMY_PREFIX, 1)),
        remove_spaces=bool(normalizer.get(REMOVE_SPACES, 1)),
        byte_fallback=bool(trainer.get(BYTE_FALLBACK, 0)),
    )


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, value) of each field, repeated fields included."""
    position = 0
    while position < len(message):
        key, position = varint(message, position)
        value: int | bytes
        if key % 8 == 0:
            value, position = varint(message, position)
        else:
            size, position = {1: (8, position), 5: (4, position)}.get(key % 8) or varint(message, position)
            value, position = message[position : position + size], position + size
            if position > len(message):
                raise IndexError("a field is longer than the message")
        yield key // 8, value


def varint(message: bytes, position: int) -> tuple[int, int]:
    """Decode the number at `position`. Return it and the position after it."""
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position


def as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    raise IndexError("expected a message, found a number")
