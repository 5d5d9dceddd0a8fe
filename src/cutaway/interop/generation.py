"""Convert generation_config.json to our [decode] table and back. docs/decoding.md compares the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutaway.config import DecodeConfig, ModelConfig

# settings that Cutaway does not have -> the values without effect
NOT_KEPT: dict[str, tuple[Any, ...]] = {
    "encoder_repetition_penalty": (1,),
    "encoder_no_repeat_ngram_size": (0,),
    "typical_p": (1,),
    "top_h": (),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0,),
    "forced_bos_token_id": (),
    "begin_suppress_tokens": ([],),
    "forced_decoder_ids": ([],),
    "force_words_ids": ([],),
    "constraints": ([],),
    "penalty_alpha": (0,),
    "dola_layers": (),
    "sequence_bias": ({}, []),
    "exponential_decay_length_penalty": ([],),
    "guidance_scale": (1,),
    "watermarking_config": ({},),
    "token_healing": (False,),
    "max_time": (),
}
TOP_K = 50  # the default of transformers
REPETITION = {"repetition_penalty": 1, "no_repeat_ngram_size": 0}  # -> the value without effect
BEAM_NOTE = (
    "{names} in beam search: transformers changes log-probabilities, Cutaway the logits before the softmax. Scores, "
    "and sometimes texts, differ."
)


def decode_from(
    config: Mapping[str, Any], generation: Mapping[str, Any], model: ModelConfig
) -> tuple[DecodeConfig, list[str]]:
    """Our decode settings, and notes on what is lost. Without generation_config.json, config.json has the settings."""
    given = {name: value for name, value in (generation or config).items() if value is not None}
    notes = [
        f"{name} = {given[name]!r} is not kept: Cutaway has no such setting."
        for name, neutral in NOT_KEPT.items()
        if name in given and given[name] not in neutral
    ]
    if "stop_strings" in given:
        notes.append(
            f"stop_strings = {given['stop_strings']!r} is not kept: give it with each call (--stop, or stop=)."
        )
    ends = given.get("eos_token_id")
    if isinstance(ends, list) and len(ends) > 1:
        notes.append(f"eos_token_id = {ends}: only the first of them ends a text in Cutaway.")
    suppress, temperature = suppressed_tokens(given, model.vocab_size, notes), float(given.get("temperature", 1.0))
    settings: dict[str, Any] = {
        "strategy": "greedy",  # the default of generate()
        "max_length": max_new_tokens(given, model, notes),
        "min_length": min_new_tokens(given, model, notes),
        "repetition_penalty": float(given.get("repetition_penalty", 1)),
        "no_repeat_ngram": given.get("no_repeat_ngram_size", 0),
        "suppress": suppress,
        "temperature": temperature if temperature > 0 else 1.0,
        "top_k": given.get("top_k", TOP_K),
        "top_p": float(given.get("top_p", 1.0)),
        "min_p": float(given.get("min_p", 0.0)),
    }
    repetition = [name for name, neutral in REPETITION.items() if given.get(name, neutral) != neutral]
    start = given.get("decoder_start_token_id", config.get("decoder_start_token_id"))
    if repetition and model.family == "encoder_decoder" and start not in suppress:
        notes.append(
            f"{' and '.join(repetition)}: transformers also counts the start token of the decoder, Cutaway does not."
        )
    if given.get("num_beams", 1) > 1:
        settings |= beam_settings(given, [*repetition, *(["min_length"] if settings["min_length"] else [])], notes)
    elif given.get("do_sample") and temperature > 0:
        settings["strategy"] = "sample"
    return DecodeConfig(**settings), notes


def max_new_tokens(given: Mapping[str, Any], model: ModelConfig, notes: list[str]) -> int:
    """max_new_tokens is our max_length. Their max_length also counts the start token or the prompt."""
    if "max_new_tokens" in given:
        return int(given["max_new_tokens"])
    limit = int(given.get("max_length", model.max_length))
    if limit >= model.max_length:  # no limit except the positions
        return 0
    if model.family == "encoder_decoder":
        return max(limit - 1, 1)
    notes.append(f"max_length = {limit} is not kept: it counts the prompt too; Cutaway counts only new tokens.")
    return 0


def min_new_tokens(given: Mapping[str, Any], model: ModelConfig, notes: list[str]) -> int:
    """min_new_tokens is our min_length and has priority. Their min_length counts like their max_length."""
    if "min_new_tokens" in given:
        return int(given["min_new_tokens"])
    least = int(given.get("min_length", 0))
    if model.family == "encoder_decoder":
        return max(least - 1, 0)
    if least:
        notes.append(f"min_length = {least} is not kept: it counts the prompt too; Cutaway counts only new tokens.")
    return 0


def beam_settings(given: Mapping[str, Any], rules: list[str], notes: list[str]) -> dict[str, Any]:
    """Settings of beam search, and notes on differences. `rules`: the settings that are in effect."""
    settings: dict[str, Any] = {"strategy": "beam", "beam_size": given["num_beams"]}
    ours = DecodeConfig().length_penalty
    if (theirs := given.get("length_penalty", 1.0)) == 0:
        settings["length_penalty"] = 0.0  # the only value for which both formulas agree
    else:
        notes.append(
            f"length_penalty = {theirs} has another formula in transformers (score / length^p). Cutaway uses {ours}."
        )
    if given.get("do_sample"):
        notes.append("do_sample = True is not kept: Cutaway's beam search does not sample.")
    if given.get("early_stopping") is True:
        notes.append(
            "early_stopping = True is not kept: it ends when num_beams texts are finished; Cutaway ends when no better "
            "text is possible."
        )
    if given.get("renormalize_logits"):  # then forbidden tokens are removed before the softmax, as in Cutaway
        rules = [name for name in rules if name == "repetition_penalty"]
    if rules:
        notes.append(BEAM_NOTE.format(names=" and ".join(rules)))
    return settings


def suppressed_tokens(given: Mapping[str, Any], vocab_size: int, notes: list[str]) -> tuple[int, ...]:
    """Tokens that are never generated. Marian suppresses its padding token, which is also its start token."""
    found, ends = list(given.get("suppress_tokens", ())), given.get("eos_token_id")
    for ids in given.get("bad_words_ids", ()):
        if len(ids) > 1:
            notes.append(f"bad_words_ids = {ids} is not kept: only single tokens can be suppressed.")
        elif ids[0] not in (ends if isinstance(ends, list) else [ends]):  # transformers ignores the end token here
            found.append(ids[0])
    return tuple(sorted(id for id in set(found) if 0 <= id < vocab_size))


def generation_to(model: ModelConfig, decode: DecodeConfig, ids: Mapping[str, int]) -> dict[str, Any]:
    """The content of generation_config.json."""
    given: dict[str, Any] = {**ids}
    given |= {"max_new_tokens": decode.max_length} if decode.max_length else {"max_length": model.max_length}
    if decode.repetition_penalty != 1:
        given["repetition_penalty"] = decode.repetition_penalty
    if decode.no_repeat_ngram:
        given["no_repeat_ngram_size"] = decode.no_repeat_ngram
    if decode.min_length:
        given["min_new_tokens"] = decode.min_length
    if decode.suppress:
        given["suppress_tokens"] = list(decode.suppress)
    if decode.strategy == "beam" and decode.beam_size > 1:
        given |= {"num_beams": decode.beam_size, "early_stopping": "never", "renormalize_logits": True}
        if not decode.length_penalty:
            given["length_penalty"] = 0.0
    if decode.strategy == "sample":
        given |= {"do_sample": True, "temperature": decode.temperature, "top_k": decode.top_k, "top_p": decode.top_p}
        if decode.min_p:
            given["min_p"] = decode.min_p
    return given


def decode_export_notes(decode: DecodeConfig) -> list[str]:
    """Notes on settings that generation_config.json cannot express."""
    if decode.strategy != "beam":
        return []
    found = []
    if decode.length_penalty:
        found.append("length_penalty is not written: it has another formula in transformers (score / length^p).")
    if decode.coverage_penalty:
        found.append("coverage_penalty is not written: transformers has no such setting.")
    if decode.repetition_penalty != 1:
        found.append(BEAM_NOTE.format(names="repetition_penalty"))
    return found
