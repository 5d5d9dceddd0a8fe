"""How text is searched for: their generation_config.json and our [decode] table. docs/decoding.md compares the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutaway.config import DecodeConfig, ModelConfig

# What changes their texts and has no place here -> the values at which it does nothing.
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
TOP_K = 50  # theirs, if nothing is said
REPETITION = {"repetition_penalty": 1, "no_repeat_ngram_size": 0}  # -> the value at which it does nothing
IN_A_BEAM = (
    "{names} in a beam: there it changes log-probabilities, here the logits before the softmax, so that scores, and "
    "sometimes texts, differ."
)


def decode_from(
    config: Mapping[str, Any], generation: Mapping[str, Any], model: ModelConfig
) -> tuple[DecodeConfig, list[str]]:
    """Our table, and what of theirs is not in it. Folders without generation_config.json say it in config.json."""
    said = {name: value for name, value in (generation or config).items() if value is not None}
    notes = [
        f"{name} = {said[name]!r} is not kept: Cutaway's searches have no such setting."
        for name, neutral in NOT_KEPT.items()
        if name in said and said[name] not in neutral
    ]
    if "stop_strings" in said:
        notes.append(f"stop_strings = {said['stop_strings']!r} is not kept: give it with each call (--stop, or stop=).")
    ends = said.get("eos_token_id")
    if isinstance(ends, list) and len(ends) > 1:
        notes.append(f"eos_token_id = {ends}: a text ends with the first of them; the others do not end it here.")
    suppress, temperature = suppressed(said, model.vocab_size, notes), float(said.get("temperature", 1.0))
    settings: dict[str, Any] = {
        "strategy": "greedy",  # as their generate(), if nothing is said
        "max_length": longest(said, model, notes),
        "min_length": shortest(said, model, notes),
        "repetition_penalty": float(said.get("repetition_penalty", 1)),
        "no_repeat_ngram": said.get("no_repeat_ngram_size", 0),
        "suppress": suppress,
        "temperature": temperature if temperature > 0 else 1.0,
        "top_k": said.get("top_k", TOP_K),
        "top_p": float(said.get("top_p", 1.0)),
        "min_p": float(said.get("min_p", 0.0)),
    }
    repetition = [name for name, neutral in REPETITION.items() if said.get(name, neutral) != neutral]
    start = said.get("decoder_start_token_id", config.get("decoder_start_token_id"))
    if repetition and model.family == "encoder_decoder" and start not in suppress:
        notes.append(
            f"{' and '.join(repetition)}: the token that a decoder begins with counts as written there, and not here."
        )
    if said.get("num_beams", 1) > 1:
        settings |= beam(said, [*repetition, *(["min_length"] if settings["min_length"] else [])], notes)
    elif said.get("do_sample") and temperature > 0:
        settings["strategy"] = "sample"
    return DecodeConfig(**settings), notes


def longest(said: Mapping[str, Any], model: ModelConfig, notes: list[str]) -> int:
    """max_new_tokens means our max_length. Their max_length also counts what the decoder begins with."""
    if "max_new_tokens" in said:
        return int(said["max_new_tokens"])
    limit = int(said.get("max_length", model.max_length))
    if limit >= model.max_length:  # no limit but the positions that there are
        return 0
    if model.family == "encoder_decoder":
        return max(limit - 1, 1)
    notes.append(f"max_length = {limit} is not kept: there the prompt counts too, here what is written after it.")
    return 0


def shortest(said: Mapping[str, Any], model: ModelConfig, notes: list[str]) -> int:
    """min_new_tokens, which goes before min_length, means our min_length. Theirs counts as their max_length does."""
    if "min_new_tokens" in said:
        return int(said["min_new_tokens"])
    least = int(said.get("min_length", 0))
    if model.family == "encoder_decoder":
        return max(least - 1, 0)
    if least:
        notes.append(f"min_length = {least} is not kept: there the prompt counts too, here what is written after it.")
    return 0


def beam(said: Mapping[str, Any], rules: list[str], notes: list[str]) -> dict[str, Any]:
    """Their beam search, and in what ours differs. `rules`: those that are in force."""
    settings: dict[str, Any] = {"strategy": "beam", "beam_size": said["num_beams"]}
    ours = DecodeConfig().length_penalty
    if (theirs := said.get("length_penalty", 1.0)) == 0:
        settings["length_penalty"] = 0.0  # the one value at which both formulas are the same
    else:
        notes.append(f"length_penalty = {theirs} is another formula there (score / length^p); here it is {ours}.")
    if said.get("do_sample"):
        notes.append("do_sample = True is not kept: there a beam draws its tokens; here it takes the likeliest ones.")
    if said.get("early_stopping") is True:
        notes.append(
            "early_stopping = True is not kept: there a beam ends when it has found as many texts as it is wide; here, "
            "when nothing better can come."
        )
    if said.get("renormalize_logits"):  # then what is forbidden is left out before the softmax, as here
        rules = [name for name in rules if name == "repetition_penalty"]
    if rules:
        notes.append(IN_A_BEAM.format(names=" and ".join(rules)))
    return settings


def suppressed(said: Mapping[str, Any], vocab_size: int, notes: list[str]) -> tuple[int, ...]:
    """Tokens that are never written. Marian keeps its padding, with which it begins, out of its texts that way."""
    found, ends = list(said.get("suppress_tokens", ())), said.get("eos_token_id")
    for ids in said.get("bad_words_ids", ()):
        if len(ids) > 1:
            notes.append(f"bad_words_ids = {ids} is not kept: single tokens can be suppressed, sequences cannot.")
        elif ids[0] not in (ends if isinstance(ends, list) else [ends]):  # they never forbid the end that way
            found.append(ids[0])
    return tuple(sorted(id for id in set(found) if 0 <= id < vocab_size))


def generation_to(model: ModelConfig, decode: DecodeConfig, ids: Mapping[str, int]) -> dict[str, Any]:
    said: dict[str, Any] = {**ids}
    said |= {"max_new_tokens": decode.max_length} if decode.max_length else {"max_length": model.max_length}
    if decode.repetition_penalty != 1:
        said["repetition_penalty"] = decode.repetition_penalty
    if decode.no_repeat_ngram:
        said["no_repeat_ngram_size"] = decode.no_repeat_ngram
    if decode.min_length:
        said["min_new_tokens"] = decode.min_length
    if decode.suppress:
        said["suppress_tokens"] = list(decode.suppress)
    if decode.strategy == "beam" and decode.beam_size > 1:
        said |= {"num_beams": decode.beam_size, "early_stopping": "never", "renormalize_logits": True}
        if not decode.length_penalty:
            said["length_penalty"] = 0.0
    if decode.strategy == "sample":
        said |= {"do_sample": True, "temperature": decode.temperature, "top_k": decode.top_k, "top_p": decode.top_p}
        if decode.min_p:
            said["min_p"] = decode.min_p
    return said


def not_written(decode: DecodeConfig) -> list[str]:
    """What of our table theirs has no place for."""
    if decode.strategy != "beam":
        return []
    found = []
    if decode.length_penalty:
        found.append("length_penalty is not written: it is another formula there (score / length^p).")
    if decode.coverage_penalty:
        found.append("coverage_penalty is not written: their searches have no such setting.")
    if decode.repetition_penalty != 1:
        found.append(IN_A_BEAM.format(names="repetition_penalty"))
    return found
