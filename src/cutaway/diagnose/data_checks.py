"""Checks of the data of a run, and of scores. No torch here.

Each is a pure function of the observations. It runs only if its requirements are met (see doctor.py).
"""

from __future__ import annotations

import math
from itertools import pairwise

from cutaway.diagnose.observations import DataFacts, Finding, Observations, Unclear, format_percent, independent_answers


def facts(o: Observations) -> DataFacts:
    assert o.data is not None, "the table in doctor.py must list DATA as a requirement of this check"
    return o.data


def other_data(o: Observations) -> Finding | Unclear | None:
    if facts(o).is_other_data is None:
        return Unclear("the run has no data.json with the fingerprint of its training data")
    if not facts(o).is_other_data:
        return None
    return Finding(
        "warning",
        "The data has changed since the training",
        "The fingerprint of data.train differs from the one in data.json. Findings about data describe the new data.",
        "Restore the old data, or run the doctor with --no-data.",
    )


def leakage(o: Observations) -> Finding | None:
    """Held-out examples that are in the training data measure memory."""
    found = {split: overlap for split, overlap in facts(o).overlaps.items() if overlap.found}
    if not found:
        return None
    worst = max(overlap.share for overlap in found.values())
    names = {"valid": "validation", "test": "test"}
    counts = ", ".join(
        f"{v.found:,} of {v.of:,} {names[k]} examples ({format_percent(v.share)})" for k, v in found.items()
    )
    return Finding(
        "problem" if worst >= 0.05 else "warning" if worst >= 0.005 else "note",
        "Held-out examples are in the training data",
        f"{counts}, ignoring case and white space. Scores on them measure memory.",
        "Remove them from the training data, or evaluate on other data.",
    )


def padding(o: Observations) -> Finding | None:
    share = facts(o).padding
    if share is None or share < 0.15:
        return None
    data = o.config.data
    return Finding(
        "warning" if share >= 0.3 else "note",
        "Much of each batch is padding",
        f"{share:.0%} of the positions in the training batches are padding, which wastes computation.",
        f"Raise data.batch_tokens = {data.batch_tokens:,}: larger batches group similar lengths better. Or lower "
        f"data.max_tokens = {data.max_tokens:,} if few examples are that long.",
    )


def unknown_tokens(o: Observations) -> Finding | None:
    share = facts(o).unknown
    if not share or share < 0.002:
        return None
    data = o.config.data
    if data.tokenizer == "word":
        remedy = f'Raise data.vocab_size = {data.vocab_size:,}, or set data.tokenizer = "bpe": it encodes every text.'
    else:
        remedy = 'Set data.tokenizer = "bpe" or "byte": they encode every text.'
    return Finding(
        "problem" if share >= 0.1 else "warning" if share >= 0.02 else "note",
        "Some of the text is not in the vocabulary",
        f"{format_percent(share)} of the {'validation' if facts(o).valid_examples else 'training'} tokens are unknown. "
        "The model cannot read or generate them.",
        remedy,
    )


def left_out(o: Observations) -> Finding | None:
    data = facts(o)
    total = data.left_out + data.train_examples
    share = data.left_out / total if total else 0.0
    if share < 0.02:
        return None
    return Finding(
        "warning" if share >= 0.1 else "note",
        "Some training examples are skipped",
        f"{data.left_out:,} of {total:,} examples ({format_percent(share)}) are empty, or longer than data.max_tokens "
        f"= {o.config.data.max_tokens:,}.",
        "Raise data.max_tokens (and model.max_length) if they are too long. Check the files if they are empty.",
    )


def majority(o: Observations) -> Finding | None:
    """The baseline of an accuracy is the share of the most frequent label."""
    data, accuracy = facts(o), o.accuracy
    assert data.majority is not None
    assert accuracy is not None
    label, share = data.majority
    error = math.sqrt(max(share * (1 - share), 1e-9) / max(1, data.valid_examples))
    if accuracy > share + max(0.02, 2 * error):
        return None
    return Finding(
        "problem",
        "The model is no better than a constant answer",
        f"Its accuracy is {accuracy:.1%}. Always answering {label!r} gives {share:.1%}.",
        "Train longer, or try another train.lr. If that does not help, check the labels, or balance them.",
    )


def small_validation(o: Observations) -> Finding | Unclear | None:
    """A small validation set chooses the best checkpoint by chance."""
    data = facts(o)
    if not data.valid_examples or not data.valid_answers:
        return Unclear("the recipe no longer names validation data")
    losses = [value for _, value in o.history.curve("valid_loss")]
    error = 2 * losses[-1] / math.sqrt(independent_answers(data))  # an answer's loss varies about as much as its mean
    steps_apart = sorted(abs(a - b) for a, b in pairwise(losses[-4:]))
    difference = steps_apart[0] if steps_apart else 0.0
    is_tiny = data.valid_examples < 50
    if not is_tiny and not (data.valid_examples < 500 and steps_apart and difference < error):
        return None
    return Finding(
        "warning" if is_tiny else "note",
        "The validation set is small",
        f"{data.valid_examples:,} examples with {data.valid_answers:,} answers. The error of the loss "
        f"{losses[-1]:.3f} is about ±{error:.3f}"
        + (f", but validations differ by as little as {difference:.3f}." if steps_apart else "."),
        "Hold out more (data.valid, or data.heldout_size of a built-in corpus), or ignore small differences.",
    )


def comparable_bleu(o: Observations) -> Finding | None:
    """BLEU scores can be compared only if references and signature match (Post 2018)."""
    data, signature = facts(o), str(o.scores.get("bleu_signature", ""))
    by_bleu = o.config.train.best_by == "bleu"
    reasons = []
    if signature and "case:mixed" not in signature:
        reasons.append(f"the score ignores case ({signature})")
    if signature and "tok:13a" not in signature:
        reasons.append(f"the score does not use the standard tokenization 13a ({signature})")
    if by_bleu and (data.unknown or 0) > 0.002:
        reasons.append(f"{format_percent(data.unknown or 0)} of the validation tokens are unknown, on both sides")
    if not o.config.data.corpus and (signature or by_bleu):  # there are no published scores on built-in corpora
        kinds = {"lower_cased": "lower-cased", "tokenized": "tokenized", "subwords": "cut into subword units"}
        shares = {kind: getattr(data, name) or 0.0 for name, kind in kinds.items()}
        reasons += [f"{share:.0%} of the references are {kind}" for kind, share in shares.items() if share > 0.5]
    if not reasons:
        return None
    evidence = "; ".join(reasons)
    return Finding(
        "warning",
        "This BLEU cannot be compared with others",
        f"{evidence[0].upper()}{evidence[1:]}.",
        "Use plain references (with capitals, without added spaces) and a tokenizer without unknown tokens. Publish "
        "the signature with the score.",
    )


def old_scores(o: Observations) -> Finding | Unclear | None:
    scored = o.scores.get("checkpoint")
    if not scored:
        return Unclear("scores.json does not name the checkpoint that was scored")
    if scored == o.kept:
        return None
    return Finding(
        "note",
        "The scores belong to another checkpoint",
        f"scores.json is about {scored}. The best checkpoint is now {o.kept}.",
        "Run `cutaway evaluate` again.",
    )
