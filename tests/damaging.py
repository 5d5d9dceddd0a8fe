"""Ways to damage a file, and a run or Hugging Face folder with known files in it."""

import json
import os
import shutil
import struct

DEEP = 100_000


def flip(content: bytes, draw) -> bytes:
    """One bit is another."""
    place = draw.randrange(len(content) * 8)
    changed = bytearray(content)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def cut(content, draw):
    return content[: draw.randrange(len(content))]


def emptied(content, draw):
    return b""


def noise(content, draw):
    return draw.randbytes(draw.randrange(1, 500))


def zeros(content, draw):
    """As a disk that lost power leaves a file: of the right length."""
    return bytes(len(content))


def twice(content, draw):
    return content + content


def other_encoding(content, draw):
    return content.decode("utf-8", "replace").encode("utf-16")


def nested(content, draw):
    return b"[" * DEEP + b"]" * DEEP


def nested_table(content, draw):
    return b'{"a":' * DEEP + b"1" + b"}" * DEEP


def other_json(content, draw):
    return draw.choice([b"[]", b"{}", b"null", b"3", b'"text"', b"[[1]]", b'{"model": 3}', b"NaN", b"1" * 5_000])


# what may stand where something else should
VALUES = [None, True, -1, 0, 3, 10**5, 2**20, 10**9, 100_000_000_003, 10**30, 0.5, float("nan"), float("inf"), -1e300,
          "", "text", "ä" * 300, [], [1], [[]], {}, {"a": 1}, ["a", 1]]  # fmt: skip


def other_value(content, draw):
    """JSON in which one value is another, or one key is missing or new."""
    try:
        value = json.loads(content)
    except ValueError:
        return noise(content, draw)
    place, key = value, None
    for _ in range(draw.randrange(1, 5)):
        keys = list(place) if isinstance(place, dict) else list(range(len(place))) if isinstance(place, list) else []
        if not keys:
            break
        above, key = place, draw.choice(keys)
        place = above[key]
    if key is None:
        return json.dumps(draw.choice(VALUES)).encode()
    kind = draw.randrange(6)
    if kind == 0:
        above.pop(key)
    elif kind == 1 and isinstance(above, dict):
        above["new"] = draw.choice(VALUES)
    else:
        above[key] = draw.choice(VALUES)
    return json.dumps(value).encode()


def other_header(content, draw):
    """A safetensors file whose header says something else."""
    if len(content) < 8:
        return noise(content, draw)
    (length,) = struct.unpack("<Q", content[:8])
    header = other_value(content[8 : 8 + length], draw)
    return struct.pack("<Q", len(header)) + header + content[8 + length :]


def long_header(content, draw):
    return struct.pack("<Q", draw.choice([2**63, 10**12, len(content), 0])) + content[8:]


OF_BYTES = (flip, cut, emptied, noise, zeros, twice)
OF_JSON = (*OF_BYTES, other_encoding, nested, nested_table, other_json, *[other_value] * 8)
OF_WEIGHTS = (*OF_BYTES, long_header, *[other_header] * 4)


def damage(file, draw) -> str:
    """Do one thing to a file. -> what it was"""
    what = draw.random()
    if what < 0.04:
        file.unlink()
        return "removed"
    if what < 0.07:
        file.unlink()
        file.mkdir()
        return "a folder"
    if what < 0.10:
        file.unlink()
        os.symlink(file.name, file)
        return "a link to itself"
    way = draw.choice(OF_WEIGHTS if file.suffix == ".safetensors" else OF_JSON)
    file.write_bytes(way(file.read_bytes(), draw))
    return way.__name__


def files_of(folder):
    """All files in a folder, in one order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def copy_of(folder, place):
    if place.exists():
        shutil.rmtree(place)
    return shutil.copytree(folder, place)
