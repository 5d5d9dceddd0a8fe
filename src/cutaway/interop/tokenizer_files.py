"""The tokenizers of others: whatever a folder of Hugging Face's holds becomes a tokenizer.json, and the way back.

    tokenizer.json              read as it is
    vocab.json, merges.txt      GPT-2: byte-level BPE
    vocab.txt                   BERT: WordPiece
    source.spm, vocab.json      Marian: SentencePiece, numbered by a vocabulary that both languages share
      and target.spm            ... for the texts that are to be written
    spiece.model                T5: SentencePiece

Which token is <s>, </s>, padding is asked of tokenizer_config.json and special_tokens_map.json, then of config.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from cutaway.data.tokenizer import ROLE_SETTINGS, Tokenizer
from cutaway.errors import DataError
from cutaway.interop.sentencepiece import UNKNOWN, SentencePieceModel, read_model
from cutaway.runs.files import write_json, write_text

FILES = ("tokenizer.json", "vocab.json and merges.txt", "vocab.txt", "source.spm and vocab.json", "spiece.model")
NEVER = -1e9  # the score of a piece that is to be chosen only where nothing else fits
SPACE = "▁"  # how SentencePiece writes a space
BERTS = ("BertTokenizer", "BertTokenizerFast")
# what `tokenizers` calls a setting of BERT's -> what tokenizer_config.json calls it
OF_BERT = {
    "lowercase": "do_lower_case",
    "handle_chinese_chars": "tokenize_chinese_chars",
    "strip_accents": "strip_accents",
}
LANGUAGE = re.compile(r">>.+<<")  # how a Marian model of many languages is told the one to write


def read_tokenizer(folder: Path, their_config: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a folder, with its roles as this model uses them."""
    settings = {**read_json(folder / "special_tokens_map.json"), **read_json(folder / "tokenizer_config.json")}
    try:
        backend = read_backend(folder, settings)
        roles = roles_of(backend, settings, their_config)
        if family_of(their_config) == "decoder":
            say_what_begins(backend, roles, settings.get("add_bos_token"))
        has_two = not (folder / "tokenizer.json").is_file() and (folder / "target.spm").is_file()
        return Tokenizer(backend, roles, from_marian(folder, settings, "target.spm") if has_two else None)
    except DataError as error:
        if "no token for" not in str(error):
            raise
        role = 'Name it in special_tokens_map.json, as in {"eos_token": "</s>"}.'
        raise DataError(f"{folder}: {str(error).partition(' Name it:')[0]} {role}") from None
    except (TypeError, ValueError, KeyError, AttributeError, UnicodeDecodeError) as error:
        raise DataError(
            f"the tokenizer in {folder} cannot be made sense of ({type(error).__name__}: {error}). Are its files "
            "whole, and is tokenizer_config.json what its makers wrote?"
        ) from None


def read_backend(folder: Path, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    for names, read in READERS:
        if all((folder / name).is_file() for name in names):
            return read(folder, settings)
    raise DataError(
        f"there is no tokenizer in {str(folder)!r}: none of {', '.join(FILES)}. If it has one of another kind, convert "
        "it where transformers is installed: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)."
    )


def from_json(folder: Path, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    path = folder / "tokenizer.json"
    try:
        backend = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare Exceptions
        raise DataError(f"{path} is not a tokenizer.json that can be read: {error}") from None
    if isinstance(backend.normalizer, normalizers.BertNormalizer) and settings.get("tokenizer_class") in BERTS:
        for name, setting in OF_BERT.items():  # what transformers does: tokenizer_config.json goes before
            if settings.get(setting) is not None:
                setattr(backend.normalizer, name, settings[setting])
    return backend


def lower_case(tokenizer: Tokenizer) -> None:
    """Let capitals become small before anything else happens to a text."""
    then = tokenizer.backend.normalizer
    first = normalizers.Lowercase()
    tokenizer.backend.normalizer = first if then is None else normalizers.Sequence([first, then])


def from_merges(folder: Path, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """GPT-2: bytes, merged in the order of merges.txt."""
    vocabulary = read_json(folder / "vocab.json")
    lines = read_lines(folder / "merges.txt")
    pairs = [line.partition(" ") for line in lines if line and not line.startswith("#version")]
    merges = [(left, right) for left, _, right in pairs]
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(settings.get("add_prefix_space", False)))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([name for name in ("<|endoftext|>",) if name in vocabulary])
    return backend


def from_word_pieces(folder: Path, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """BERT: words cut at white space and marks, then into the longest pieces that the vocabulary has."""
    names = read_lines(folder / "vocab.txt")
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise DataError(f"{folder / 'vocab.txt'} has the word {twice!r} twice: its ids are not certain. Restore it.")
    backend = tokenizers.Tokenizer(models.WordPiece({name: id for id, name in enumerate(names)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=bool(settings.get("do_lower_case", True)),
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        strip_accents=settings.get("strip_accents"),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens([name for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if name in names])
    return backend


def from_marian(folder: Path, settings: Mapping[str, Any], file: str = "source.spm") -> tokenizers.Tokenizer:
    """A text is cut by the SentencePiece of its language; the ids are those of vocab.json, which both languages share.

    A piece that the other language alone has is chosen only if all else is unknown. (SentencePiece makes one unknown
    piece of unknown characters that stand side by side; those of them that the other language knows keep their ids.)
    """
    model, ids = read_model(folder / file), read_json(folder / "vocab.json")
    names = sorted(ids, key=lambda name: int(ids[name]))
    if [ids[name] for name in names] != list(range(len(names))):
        raise DataError(f"the ids in {folder / 'vocab.json'} are not 0 to {len(names) - 1}, each once. Restore it.")
    scores = {piece.text: piece.score for piece in model.pieces if piece.kind != UNKNOWN}
    special = [name for name in ("<pad>", "</s>", "<unk>", "<s>") if name in ids]
    pieces = [(name, NEVER if name in special else scores.get(name, NEVER)) for name in names]
    backend = from_pieces(model, pieces, ids.get("<unk>", 0))
    backend.add_special_tokens(special)
    languages = [name for name in names if LANGUAGE.fullmatch(name)]
    backend.add_tokens([tokenizers.AddedToken(name, normalized=False, rstrip=True) for name in languages])
    return backend


def from_spiece(folder: Path, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """T5: its SentencePiece, and behind it the marks of left-out spans, the last of them first."""
    model = read_model(folder / "spiece.model")
    extra = [f"<extra_id_{i}>" for i in reversed(range(int(settings.get("extra_ids", 100))))]
    pieces = [(piece.text, piece.score) for piece in model.pieces] + [(name, NEVER) for name in extra]
    backend = from_pieces(model, pieces, [piece.text for piece in model.pieces].index(model.unknown))
    backend.add_special_tokens([n for n, _ in pieces if n in ("<pad>", "</s>", model.unknown)] + extra)
    return backend


def from_pieces(model: SentencePieceModel, pieces: Sequence[tuple[str, float]], unknown: int) -> tokenizers.Tokenizer:
    """SentencePiece's Unigram, as `tokenizers` has it."""
    backend = tokenizers.Tokenizer(models.Unigram(list(pieces), unknown, model.byte_fallback))
    steps: list[Any] = [normalizers.Precompiled(model.charsmap)] if model.charsmap else []
    if model.remove_spaces:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    backend.normalizer = normalizers.Sequence(steps)
    scheme = "always" if model.dummy_prefix else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme)
    backend.decoder = decoders.Metaspace(SPACE, prepend_scheme=scheme)
    return backend


# the files that it takes -> how they are read; the first whose files are all there
READERS: tuple[tuple[tuple[str, ...], Callable[[Path, Mapping[str, Any]], tokenizers.Tokenizer]], ...] = (
    (("tokenizer.json",), from_json),
    (("source.spm", "vocab.json"), from_marian),
    (("vocab.json", "merges.txt"), from_merges),
    (("vocab.txt",), from_word_pieces),
    (("spiece.model",), from_spiece),
)


def family_of(their_config: Mapping[str, Any]) -> str:
    if their_config.get("is_encoder_decoder") or their_config.get("model_type") in ("t5", "marian"):
        return "encoder_decoder"
    return "encoder" if their_config.get("model_type") == "bert" else "decoder"


def roles_of(
    backend: tokenizers.Tokenizer, settings: Mapping[str, Any], their_config: Mapping[str, Any]
) -> dict[str, str]:
    """Which token plays which role. What the files do not say is left to be guessed by usual names."""

    def named(setting: str) -> str | None:
        name = settings.get(f"{setting}_token")
        name = name.get("content") if isinstance(name, dict) else name
        if name is None:
            id = their_config.get(f"{setting}_token_id")
            id = (
                id[0] if isinstance(id, list) and id else id
            )  # Llama 3 has several ends; the first is the end of a text
            name = backend.id_to_token(id) if isinstance(id, int) and id >= 0 else None
        return name if name is not None and backend.token_to_id(name) is not None else None

    family, end = family_of(their_config), named("eos")
    found = {"pad": named("pad"), "eos": end, "unk": named("unk"), "mask": named("mask"), "bos": named("bos")}
    if family == "encoder":
        found |= {"bos": named("cls") or found["bos"], "eos": named("sep") or end}
    elif family == "encoder_decoder":  # what its decoder begins with
        found["bos"] = named("decoder_start") or found["pad"]
    else:
        found["bos"] = found["bos"] or end
    found["pad"] = found["pad"] or found["eos"]  # nobody attends to it, so any will do
    for role in ("unk", "mask"):  # one token for everything, as SmolLM has it: it is an end, and nothing is unknown
        if found[role] in (found["pad"], found["bos"], found["eos"]):
            found[role] = None
    return {role: name for role, name in found.items() if name is not None}


def say_what_begins(backend: tokenizers.Tokenizer, roles: Mapping[str, str], given: bool | None) -> None:
    """Let the tokenizer itself say whether texts begin with <s> (`Tokenizer.adds_bos` asks its post-processor)."""
    bos, has_one = roles.get("bos"), backend.post_processor is not None
    does = has_one and bos is not None and backend.encode("").ids[:1] == [backend.token_to_id(bos)]
    wanted = does if given is None else given
    if not has_one or does != wanted:
        backend.post_processor = around(backend, [bos] if wanted and bos else [], [])


def around(backend: tokenizers.Tokenizer, before: Sequence[str], after: Sequence[str]) -> Any:
    """A post-processor that puts these tokens around a text."""
    named = [(name, backend.token_to_id(name)) for name in {*before, *after}]
    both = [*before, "$A", *after]
    return processors.TemplateProcessing(
        single=" ".join(both), pair=" ".join([*both, "$B:1", *(f"{name}:1" for name in after)]), special_tokens=named
    )


def write_tokenizer(tokenizer: Tokenizer, folder: Path, family: str, max_length: int) -> dict[str, int]:
    """tokenizer.json, and what transformers wants to know beside it. -> the ids that belong into config.json

    What we put around a text when a batch is made, they leave to the tokenizer.
    """
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())  # a copy
    bos, eos = tokenizer.roles["bos"], tokenizer.roles["eos"]
    before = {"decoder": [bos] if tokenizer.adds_bos else [], "encoder": [bos], "encoder_decoder": []}[family]
    backend.post_processor = around(backend, before, [] if family == "decoder" else [eos])
    write_text(folder / "tokenizer.json", backend.to_str(pretty=True))
    special = {ROLE_SETTINGS[role]: name for role, name in tokenizer.roles.items()}
    ids = {f"{role}_token_id": int(getattr(tokenizer, role)) for role in ("bos", "eos", "pad")}
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
    }
    if family == "encoder":
        special |= {"cls_token": bos, "sep_token": eos}
    else:  # theirs would hand segments to models that have none
        settings["model_input_names"] = ["input_ids", "attention_mask"]
    if family == "encoder_decoder":
        ids["decoder_start_token_id"] = tokenizer.bos
    write_json(folder / "tokenizer_config.json", {**settings, **special})
    write_json(folder / "special_tokens_map.json", special)
    return ids


def read_lines(path: Path) -> list[str]:
    """Lines end with a line feed and nothing else: a vocabulary may hold signs that Python, too, calls line ends."""
    lines = [line.removesuffix("\r") for line in path.read_bytes().decode("utf-8").split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def read_json(path: Path) -> dict[str, Any]:
    """What is in it; nothing, if it is not there."""
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error}. Fetch it again.") from None
