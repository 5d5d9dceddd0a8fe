"""SentencePiece files (`spiece.model`, `source.spm`), read without SentencePiece: the Unigram kind.

Such a file is a protocol buffer, and of its many fields four matter here. A protocol buffer is a row of fields, each a
key and a value:

    key = number of the field · 8 + wire type       both as varints: 7 bits a byte, the lowest first, the 8th: "more"
    wire type 0: a varint   1: 8 bytes   2: a length (a varint) and so many bytes   5: 4 bytes
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cutaway.errors import DataError

# in the message of the whole file, and in those within it (sentencepiece_model.proto)
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
    """`charsmap` says which characters are written as which others before anything else (NFKC and more)."""

    pieces: list[SentencePieceToken]
    charsmap: bytes
    dummy_prefix: bool  # whether a text is given a space at its start
    remove_spaces: bool  # whether several spaces count as one
    byte_fallback: bool

    @property
    def unknown(self) -> str:
        return next(piece.text for piece in self.pieces if piece.kind == UNKNOWN)


def read_model(path: Path) -> SentencePieceModel:
    try:
        return parsed(path.read_bytes(), path)
    except (IndexError, struct.error, UnicodeDecodeError, StopIteration):
        raise DataError(f"{path} is not a SentencePiece model that can be read: it is cut off or damaged.") from None


def parsed(content: bytes, path: Path) -> SentencePieceModel:
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
        raise DataError(f"{path} is not a SentencePiece model that can be read: there are no pieces in it.")
    if trainer.get(MODEL_TYPE, UNIGRAM) != UNIGRAM:
        raise DataError(
            f"{path} is a SentencePiece model of another kind than Unigram (model_type {trainer[MODEL_TYPE]!r}). "
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
    """(number, value) of each field; of one that is repeated, each time."""
    place = 0
    while place < len(message):
        key, place = varint(message, place)
        value: int | bytes
        if key % 8 == 0:
            value, place = varint(message, place)
        else:
            size, place = {1: (8, place), 5: (4, place)}.get(key % 8) or varint(message, place)
            value, place = message[place : place + size], place + size
            if place > len(message):
                raise IndexError("a field goes beyond the end")
        yield key // 8, value


def varint(message: bytes, place: int) -> tuple[int, int]:
    """The number that begins at `place`, and where it ends."""
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place


def as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    raise IndexError("a number where a message should be")
