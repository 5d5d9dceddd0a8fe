"""Read the tokenizer files of Hugging Face folders, and write ours for transformers.

    tokenizer.json              read directly
    vocab.json, merges.txt      GPT-2: byte-level BPE
    vocab.txt                   BERT: WordPiece
    source.spm, vocab.json      Marian: SentencePiece, with the ids of a vocabulary that both languages share
      and target.spm            ... for target texts
    spiece.model                T5: SentencePiece

The roles of special tokens (<s>, </s>, padding) come from tokenizer_config.json and special_tokens_map.json, then from
config.json.
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
LOWEST_SCORE = -1e9  # of a piece that is used only if no other fits
SPACE = "▁"  # how SentencePiece writes a space
BERT_CLASSES = ("BertTokenizer", "BertTokenizerFast")
# BERT settings: name in `tokenizers` -> name in tokenizer_config.json
BERT_SETTINGS = {
    "lowercase": "do_lower_case",
    "handle_chinese_chars": "tokenize_chinese_chars",
    "strip_accents": "strip_accents",
}
LANGUAGE_TOKEN = re.compile(r">>.+<<")  # the target language of a multilingual Marian model


def read_tokenizer(folder: Path, hf_config: Mapping[str, Any]) -> Tokenizer:
    """Read the tokenizer of a folder, with the roles that this model uses."""
    settings = {**read_json(folder / "special_tokens_map.json"), **read_json(folder / "tokenizer_config.json")}
    try:
        backend = read_backend(folder, settings)
        roles = find_roles(backend, settings, hf_config)
        if family_of(hf_config) == "decoder":
            set_bos(backend, roles, settings.get("add_bos_token"))
        has_two = not (folder / "tokenizer.json").is_file() and (folder / "target.spm").is_file()
        return Tokenizer(backend, roles, from_marian(folder, settings, "target.spm") if has_two else None)
    except DataError as error:
        if "no token for" not in str(error):
            raise
        role = 'Name it in special_tokens_map.json, as in {"eos_token": "</s>"}.'
        raise DataError(f"{folder}: {str(error).partition(' Name it:')[0]} {role}") from None
    except (TypeError, ValueError, KeyError, AttributeError, UnicodeDecodeError) as error:
        raise DataError(
            f"the tokenizer in {folder} is invalid ({type(error).__name__}: {error}). Download its files again, "
            "tokenizer_config.json too."
        ) from None


def read_backend(folder: Path, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    for names, read in READERS:
        if all((folder / name).is_file() for name in names):
            return read(folder, settings)
    raise DataError(
        f"there is no tokenizer in {str(folder)!r}: none of {', '.join(FILES)}. Convert other kinds with transformers: "
        "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)."
    )


def from_json(folder: Path, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    path = folder / "tokenizer.json"
    try:
        backend = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare Exceptions
        raise DataError(f"{path} is not a readable tokenizer.json: {error}. Download it again.") from None
    if isinstance(backend.normalizer, normalizers.BertNormalizer) and settings.get("tokenizer_class") in BERT_CLASSES:
        for name, setting in BERT_SETTINGS.items():  # as in transformers, tokenizer_config.json has priority
            if settings.get(setting) is not None:
                setattr(backend.normalizer, name, settings[setting])
    return backend


def add_lowercase(tokenizer: Tokenizer) -> None:
    """Lower-case every text before all other steps of the tokenizer."""
    others, lowercase = tokenizer.backend.normalizer, normalizers.Lowercase()
    tokenizer.backend.normalizer = lowercase if others is None else normalizers.Sequence([lowercase, others])


def from_merges(folder: Path, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """GPT-2: byte-level BPE with the merges of merges.txt."""
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
    """BERT: split at white space and punctuation, then into the longest pieces of the vocabulary."""
    names = read_lines(folder / "vocab.txt")
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise DataError(
            f"{folder / 'vocab.txt'} has the word {twice!r} twice, so its ids are ambiguous. Download it again."
        )
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
    """Marian: the SentencePiece model of one language, with the ids of vocab.json, which both languages share.

    A piece that only the other language has is used only if nothing else fits. (SentencePiece merges adjacent unknown
    characters into one unknown piece; here, characters that the other language knows keep their ids.)
    """
    model, ids = read_model(folder / file), read_json(folder / "vocab.json")
    names = sorted(ids, key=lambda name: int(ids[name]))
    if [ids[name] for name in names] != list(range(len(names))):
        raise DataError(
            f"the ids in {folder / 'vocab.json'} are not 0 to {len(names) - 1}, each once. Download it again."
        )
    scores = {piece.text: piece.score for piece in model.pieces if piece.kind != UNKNOWN}
    special = [name for name in ("<pad>", "</s>", "<unk>", "<s>") if name in ids]
    pieces = [(name, LOWEST_SCORE if name in special else scores.get(name, LOWEST_SCORE)) for name in names]
    backend = from_pieces(model, pieces, ids.get("<unk>", 0))
    backend.add_special_tokens(special)
    languages = [name for name in names if LANGUAGE_TOKEN.fullmatch(name)]
    backend.add_tokens([tokenizers.AddedToken(name, normalized=False, rstrip=True) for name in languages])
    return backend


def from_spiece(folder: Path, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """T5: its SentencePiece model, followed by the span tokens in descending order."""
    model = read_model(folder / "spiece.model")
    extra = [f"<extra_id_{i}>" for i in reversed(range(int(settings.get("extra_ids", 100))))]
    pieces = [(piece.text, piece.score) for piece in model.pieces] + [(name, LOWEST_SCORE) for name in extra]
    backend = from_pieces(model, pieces, [piece.text for piece in model.pieces].index(model.unknown))
    backend.add_special_tokens([n for n, _ in pieces if n in ("<pad>", "</s>", model.unknown)] + extra)
    return backend


def from_pieces(model: SentencePieceModel, pieces: Sequence[tuple[str, float]], unknown: int) -> tokenizers.Tokenizer:
    """A Unigram model of `tokenizers` with SentencePiece's normalisation."""
    backend = tokenizers.Tokenizer(models.Unigram(list(pieces), unknown, model.byte_fallback))
    steps: list[Any] = [normalizers.Precompiled(model.charsmap)] if model.charsmap else []
    if model.remove_spaces:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    backend.normalizer = normalizers.Sequence(steps)
    scheme = "always" if model.dummy_prefix else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme)
    backend.decoder = decoders.Metaspace(SPACE, prepend_scheme=scheme)
    return backend


# required files -> reader. The first whose files all exist is used.
READERS: tuple[tuple[tuple[str, ...], Callable[[Path, Mapping[str, Any]], tokenizers.Tokenizer]], ...] = (
    (("tokenizer.json",), from_json),
    (("source.spm", "vocab.json"), from_marian),
    (("vocab.json", "merges.txt"), from_merges),
    (("vocab.txt",), from_word_pieces),
    (("spiece.model",), from_spiece),
)


def family_of(hf_config: Mapping[str, Any]) -> str:
    if hf_config.get("is_encoder_decoder") or hf_config.get("model_type") in ("t5", "marian"):
        return "encoder_decoder"
    return "encoder" if hf_config.get("model_type") == "bert" else "decoder"


def find_roles(
    backend: tokenizers.Tokenizer, settings: Mapping[str, Any], hf_config: Mapping[str, Any]
) -> dict[str, str]:
    """Map roles to tokens. `Tokenizer` guesses missing roles by common names."""

    def find_token(setting: str) -> str | None:
        name = settings.get(f"{setting}_token")
        name = name.get("content") if isinstance(name, dict) else name
        if name is None:
            id = hf_config.get(f"{setting}_token_id")
            if isinstance(id, list) and id:
                id = id[0]  # Llama 3 has several; the first ends a text
            name = backend.id_to_token(id) if isinstance(id, int) and id >= 0 else None
        return name if name is not None and backend.token_to_id(name) is not None else None

    family, end = family_of(hf_config), find_token("eos")
    found = {
        "pad": find_token("pad"),
        "eos": end,
        "unk": find_token("unk"),
        "mask": find_token("mask"),
        "bos": find_token("bos"),
    }
    if family == "encoder":
        found |= {"bos": find_token("cls") or found["bos"], "eos": find_token("sep") or end}
    elif family == "encoder_decoder":  # the start token of the decoder
        found["bos"] = find_token("decoder_start") or found["pad"]
    else:
        found["bos"] = found["bos"] or end
    found["pad"] = found["pad"] or found["eos"]  # padding is masked, so any token works
    for role in ("unk", "mask"):  # SmolLM has one token for all roles: then there is no unknown or mask token
        if found[role] in (found["pad"], found["bos"], found["eos"]):
            found[role] = None
    return {role: name for role, name in found.items() if name is not None}


def set_bos(backend: tokenizers.Tokenizer, roles: Mapping[str, str], given: bool | None) -> None:
    """Store in the post-processor whether texts start with <s>, where `Tokenizer.adds_bos` reads it."""
    bos, has_processor = roles.get("bos"), backend.post_processor is not None
    adds_bos = has_processor and bos is not None and backend.encode("").ids[:1] == [backend.token_to_id(bos)]
    wanted = adds_bos if given is None else given
    if not has_processor or adds_bos != wanted:
        backend.post_processor = template(backend, [bos] if wanted and bos else [], [])


def template(backend: tokenizers.Tokenizer, before: Sequence[str], after: Sequence[str]) -> Any:
    """A post-processor that adds these tokens before and after a text."""
    special = [(name, backend.token_to_id(name)) for name in {*before, *after}]
    both = [*before, "$A", *after]
    return processors.TemplateProcessing(
        single=" ".join(both), pair=" ".join([*both, "$B:1", *(f"{name}:1" for name in after)]), special_tokens=special
    )


def write_tokenizer(tokenizer: Tokenizer, folder: Path, family: str, max_length: int) -> dict[str, int]:
    """Write tokenizer.json and the settings for transformers. Return the ids for config.json.

    In transformers the tokenizer adds special tokens; in Cutaway batching does.
    """
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())  # a copy
    bos, eos = tokenizer.roles["bos"], tokenizer.roles["eos"]
    before = {"decoder": [bos] if tokenizer.adds_bos else [], "encoder": [bos], "encoder_decoder": []}[family]
    backend.post_processor = template(backend, before, [] if family == "decoder" else [eos])
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
    else:  # otherwise the tokenizer would return segments, which these models do not take
        settings["model_input_names"] = ["input_ids", "attention_mask"]
    if family == "encoder_decoder":
        ids["decoder_start_token_id"] = tokenizer.bos
    write_json(folder / "tokenizer_config.json", {**settings, **special})
    write_json(folder / "special_tokens_map.json", special)
    return ids


def read_lines(path: Path) -> list[str]:
    """Split only at line feeds: a vocabulary may contain other characters that Python's splitlines() splits at."""
    lines = [line.removesuffix("\r") for line in path.read_bytes().decode("utf-8").split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Empty if the file is missing."""
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error}. Download it again.") from None
