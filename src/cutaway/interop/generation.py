"""How text is searched for: their generation_config.json and our [decode] table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutaway.config import DecodeConfig, ModelConfig

# What changes a search of theirs and has no place here -> the value at which it does nothing.
NOT_KEPT = {
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "min_length": 0,
    "min_new_tokens": 0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "forced_bos_token_id": 0,
    "begin_suppress_tokens": [],
    "early_stopping": False,
    "penalty_alpha": 0.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "sequence_bias": {},
    "forced_decoder_ids": [],
    "exponential_decay_length_penalty": [],
}
TOP_K = 50  # theirs, if nothing is said


def decode_from(
    config: Mapping[str, Any], generation: Mapping[str, Any], vocab_size: int
) -> tuple[DecodeConfig, list[str]]:
    """Our table, and what of theirs is not in it. Older folders have these settings in config.json."""
    said = {name: value for name, value in {**config, **generation}.items() if value is not None}
    notes = [
        f"{name} = {said[name]!r} is not kept: Cutaway's searches have no such setting."
        for name, neutral in NOT_KEPT.items()
        if name in said and said[name] != neutral
    ]
    ends = said.get("eos_token_id")
    if isinstance(ends, list) and len(ends) > 1:
        notes.append(f"eos_token_id = {ends}: a text ends with the first of them; the others do not end it here.")
    settings: dict[str, Any] = {
        "max_length": int(said.get("max_new_tokens", 0)),
        "strategy": "greedy",
        "suppress": suppressed(said, vocab_size, notes),
    }
    if said.get("num_beams", 1) > 1:
        settings |= {"strategy": "beam", "beam_size": said["num_beams"]}
        ours = DecodeConfig().length_penalty
        if (theirs := said.get("length_penalty", 1.0)) != ours:
            notes.append(f"length_penalty = {theirs} is another formula there (score / length^p); here it is {ours}.")
    elif said.get("do_sample") and said.get("temperature", 1.0) > 0:
        settings |= {
            "strategy": "sample",
            "temperature": float(said.get("temperature", 1.0)),
            "top_k": said.get("top_k", TOP_K),
            "top_p": float(said.get("top_p", 1.0)),
        }
    return DecodeConfig(**settings), notes


def suppressed(said: Mapping[str, Any], vocab_size: int, notes: list[str]) -> tuple[int, ...]:
    """Tokens that are never written. Marian keeps its padding, with which it begins, out of its texts that way."""
    found = list(said.get("suppress_tokens", ()))
    for ids in said.get("bad_words_ids", ()):
        if len(ids) == 1:
            found.append(ids[0])
        else:
            notes.append(f"bad_words_ids = {ids} is not kept: single tokens can be suppressed, sequences cannot.")
    return tuple(sorted(id for id in set(found) if 0 <= id < vocab_size))


def generation_to(model: ModelConfig, decode: DecodeConfig, ids: Mapping[str, int]) -> dict[str, Any]:
    said: dict[str, Any] = {**ids, "max_length": model.max_length}
    if decode.strategy == "beam":
        said |= {"num_beams": decode.beam_size}
    if decode.strategy == "sample":
        said |= {"do_sample": True, "temperature": decode.temperature, "top_k": decode.top_k, "top_p": decode.top_p}
    if decode.suppress:
        said["suppress_tokens"] = list(decode.suppress)
    return said
