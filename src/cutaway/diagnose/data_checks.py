"""Checks that need to know the data, or the scores that were measured on it. No torch here.

Each is a pure function of what was observed, and is only asked if what it needs is there (see doctor.py).
"""

from __future__ import annotations

import math
from itertools import pairwise

from cutaway.diagnose.observations import DataFacts, Finding, Observed, Unclear, independent_answers, per_cent


def facts(o: Observed) -> DataFacts:
    assert o.data is not None, "the table in doctor.py says that this check needs the data"
    return o.data


def other_data(o: Observed) -> Finding | Unclear | None:
    if facts(o).is_other_data is None:
        return Unclear("the run has no data.json that says what it was trained on")
    if not facts(o).is_other_data:
        return None
    return Finding(
        "warning",
        "The data is not what the run was trained on",
        "The training data that the recipe names has another fingerprint than data.json.",
        "Restore it, or leave the data out with --no-data: what is said about it below is about the new data.",
    )


def leakage(o: Observed) -> Finding | None:
    """Held-out examples that stand in the training data measure memory."""
    seen = {split: overlap for split, overlap in facts(o).overlaps.items() if overlap.found}
    if not seen:
        return None
    worst = max(overlap.share for overlap in seen.values())
    names = {"valid": "validation", "test": "test"}
    told = ", ".join(f"{v.found:,} of {v.of:,} {names[k]} examples ({per_cent(v.share)})" for k, v in seen.items())
    return Finding(
        "problem" if worst >= 0.05 else "warning" if worst >= 0.005 else "note",
        "Held-out examples stand in the training data",
        f"{told}, whatever their case and white space.",
        "Take them out of the training data, or measure on other data: on these, a score says how much it remembers.",
    )


def padding(o: Observed) -> Finding | None:
    share = facts(o).padding
    if share is None or share < 0.15:
        return None
    data = o.config.data
    return Finding(
        "warning" if share >= 0.3 else "note",
        "Much of each batch is padding",
        f"{share:.0%} of the places in the training batches hold no token.",
        f"Lower data.max_tokens = {data.max_tokens:,} if few examples are that long, or raise data.batch_tokens = "
        f"{data.batch_tokens:,}: examples of like length go together more easily in large batches.",
    )


def unknown_tokens(o: Observed) -> Finding | None:
    share = facts(o).unknown
    if not share or share < 0.002:
        return None
    data = o.config.data
    if data.tokenizer == "word":
        remedy = f'Raise data.vocab_size = {data.vocab_size:,}, or set data.tokenizer = "bpe", which knows every text.'
    else:
        remedy = 'Set data.tokenizer = "bpe" or "byte", which know every text.'
    return Finding(
        "problem" if share >= 0.1 else "warning" if share >= 0.02 else "note",
        "The tokenizer does not know some of the text",
        f"{per_cent(share)} of the tokens of the {'held-out' if facts(o).valid_examples else 'training'} data are "
        "unknown to it.",
        remedy,
    )


def left_out(o: Observed) -> Finding | None:
    data = facts(o)
    total = data.left_out + data.train_examples
    share = data.left_out / total if total else 0.0
    if share < 0.02:
        return None
    return Finding(
        "warning" if share >= 0.1 else "note",
        "Part of the training data is left out",
        f"{data.left_out:,} of {total:,} examples ({per_cent(share)}) are empty, or longer than data.max_tokens = "
        f"{o.config.data.max_tokens:,}.",
        "Raise data.max_tokens (and model.max_length) if they are too long; look at the files if they are empty.",
    )


def majority(o: Observed) -> Finding | None:
    """An accuracy is worth what it has above that of always giving the most frequent answer."""
    data, accuracy = facts(o), o.accuracy
    assert data.majority is not None
    assert accuracy is not None
    label, share = data.majority
    error = math.sqrt(max(share * (1 - share), 1e-9) / max(1, data.valid_examples))
    if accuracy > share + max(0.02, 2 * error):
        return None
    return Finding(
        "problem",
        "It is no better than always giving the same answer",
        f"Its accuracy is {accuracy:.1%}, and {share:.1%} of the validation data is {label!r}.",
        "Train longer or with another train.lr; if it stays so, balance the labels or look whether they are right.",
    )


def small_validation(o: Observed) -> Finding | Unclear | None:
    """What is chosen by a small sample is chosen by luck."""
    data = facts(o)
    if not data.valid_examples or not data.valid_answers:
        return Unclear("the recipe names no validation data any more")
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
        f"{data.valid_examples:,} examples with {data.valid_answers:,} answers: the loss of {losses[-1]:.3f} is known "
        f"to about ±{error:.3f}"
        + (f", and validations differ by as little as {difference:.3f}." if steps_apart else "."),
        "Hold out more (data.valid, or data.heldout_size of a built-in corpus), or do not make much of differences.",
    )


def comparable_bleu(o: Observed) -> Finding | None:
    """A BLEU can be set beside another one only if text and signature are alike (Post 2018)."""
    data, signature = facts(o), str(o.scores.get("bleu_signature", ""))
    by_bleu = o.config.train.best_by == "bleu"
    reasons = []
    if signature and "case:mixed" not in signature:
        reasons.append(f"its signature says that case was ignored ({signature})")
    if signature and "tok:13a" not in signature:
        reasons.append(f"its signature names another tokenization than the usual 13a ({signature})")
    if by_bleu and (data.unknown or 0) > 0.002:
        reasons.append(
            f"validation scores texts in which {per_cent(data.unknown or 0)} of the tokens are unknown, on both sides"
        )
    if not o.config.data.corpus and (signature or by_bleu):  # nobody publishes scores on a built-in corpus
        kinds = {"lower_cased": "lower-cased", "tokenized": "tokenized", "subwords": "cut into subword units"}
        shares = {told: getattr(data, name) or 0.0 for name, told in kinds.items()}
        reasons += [f"{share:.0%} of the references are {told}" for told, share in shares.items() if share > 0.5]
    if not reasons:
        return None
    return Finding(
        "warning",
        "This BLEU cannot be compared with others",
        "Because " + "; and ".join(reasons) + ".",
        "Use references as people write them, with capitals and without added blanks, a tokenizer that knows every "
        "text, and name the signature beside the score.",
    )


def old_scores(o: Observed) -> Finding | Unclear | None:
    of = o.scores.get("checkpoint")
    if not of:
        return Unclear("scores.json does not say which weights were scored")
    if of == o.kept:
        return None
    return Finding(
        "note",
        "The scores are those of other weights",
        f"scores.json was measured at {of}; {o.kept} is kept now.",
        "Run `cutaway evaluate` again.",
    )
