"""Checks that need nothing but the curves of a run: losses, learning rate, gradient norm, time. No torch here.

Each is a pure function of what was observed. The numbers in them are judgements, not laws; each says what it is for.
"""

from __future__ import annotations

import math
from statistics import fmean, median

from cutaway.summary import BETTER, is_number
from cutaway.train.observed import Finding, Observed, Severity, per_cent

ATTEMPTS = "try a tenth of it, or a longer train.warmup"


def no_validation(o: Observed) -> Finding | None:
    if o.history.validations:
        return None
    data = o.config.data
    if data.corpus or data.valid or getattr(data, "valid_share", None):
        return Finding(
            "note",
            "No validation yet",
            f"{o.history.last_step:,} steps, and train.valid_every = {o.config.train.valid_every:,}.",
            "Lower train.valid_every if you want to see how it does on other data before that.",
        )
    return Finding(
        "warning",
        "Nothing is held out",
        "The recipe names no validation data, so learning cannot be told from learning by heart.",
        "Set data.valid to files that are not in data.train.",
    )


def unfinished(o: Observed) -> Finding | None:
    if o.is_over:
        return None
    return Finding(
        "note",
        f"The training is not over: {o.done:.0%} of it is done",
        f"{o.history.last_step:,} steps; what is said here is about these.",
        "Go on with --resume.",
    )


def not_a_number(o: Observed) -> Finding | None:
    """Steps without a usable gradient change nothing; a loss that stays no number is the end."""
    last = o.history.steps[-1]
    skipped, steps = last.get("skipped", 0), last["step"]
    lost = not is_number(last["nll"])
    if not (skipped or lost):
        return None
    train = o.config.train
    share = skipped / steps
    # float16 begins with a scale that is too large and finds a smaller one by failing
    by_scale = train.precision == "float16" and share < 0.02
    severity: Severity = "problem" if lost or share > 0.05 else "note" if by_scale else "warning"
    return Finding(
        severity,
        "The loss is not a number any more" if lost else f"{skipped:,} steps had no usable gradient",
        f"{skipped:,} of {steps:,} steps were skipped; the highest learning rate was {o.peak_rate:.2g}, the last "
        f"gradient norm {last.get('gradient_norm', math.nan):.3g}.",
        f"Lower train.lr = {train.lr:g} ({ATTEMPTS})"
        + ("." if train.clip_norm else ", and set train.clip_norm = 1.")
        + (' Or train.precision = "bfloat16" or "float32".' if train.precision == "float16" else ""),
    )


def rate_too_high(o: Observed) -> Finding | None:
    """The training loss itself rises: for good, or in jumps."""
    curve = o.history.curve("nll")
    smooth = [median(o.nll[max(0, i - 1) : i + 2]) for i in range(len(o.nll))]
    best = min(range(len(smooth)), key=smooth.__getitem__)
    rise = o.final_nll - smooth[best]
    remedy = f"Lower train.lr = {o.config.train.lr:g} ({ATTEMPTS}); the peak so far was {o.peak_rate:.2g}."
    if rise > max(0.2, 0.15 * smooth[best]):
        return Finding(
            "problem",
            "The training loss rose and did not come back: the learning rate is too high",
            f"It was {smooth[best]:.3f} at step {curve[best][0]:,} and is {o.final_nll:.3f} now{growth_told(o)}.",
            remedy,
        )
    jumps = [
        (curve[i][0], before, o.nll[i])
        for i in range(3, len(curve))
        if o.nll[i] > (before := median(o.nll[i - 3 : i])) + max(0.5, 0.5 * before)
    ]
    if jumps:
        step, before, after = max(jumps, key=lambda jump: jump[2] - jump[1])
        return Finding(
            "warning",
            "The training loss jumps: the learning rate is near its limit",
            f"{len(jumps)} time(s); the largest from {before:.3f} to {after:.3f} before step {step:,}.",
            remedy + ("" if o.config.train.clip_norm else " Set train.clip_norm = 1."),
        )
    if growth(o) > 10 and o.final_nll > 0.95 * o.nll[len(o.nll) // 2]:
        return Finding(
            "warning",
            "The gradient grows while the loss does not fall: the learning rate is too high",
            f"The loss is {o.final_nll:.3f}{growth_told(o)}.",
            remedy,
        )
    return None


def growth(o: Observed) -> float:
    """How many times the gradient norm of the second quarter of a training its last quarter has."""
    norms = [value for _, value in o.history.curve("gradient_norm")]
    quarter = len(norms) // 4
    if not quarter:
        return 1.0
    return median(norms[-quarter:]) / max(1e-12, median(norms[quarter : 2 * quarter]))


def growth_told(o: Observed) -> str:
    return f"; the gradient norm has grown {growth(o):.0f}-fold" if growth(o) > 3 else ""


def stuck(o: Observed) -> Finding | None:
    """It has learned nothing, or no more than how frequent each answer is."""
    model = o.config.model
    by_chance = math.log(max(2, model.vocab_size if model.head == "language" else model.n_classes))
    knows_frequencies = o.data.answer_entropy if o.data else None
    fifth = max(1, len(o.nll) // 5)
    early = median(o.nll[fifth : 2 * fifth] or o.nll[:1])
    is_flat = len(o.nll) >= 5 and o.final_nll > 0.98 * early and o.final_nll > 0.6 * by_chance
    if knows_frequencies and len(o.nll) >= 5 and o.final_nll > max(0.05, 0.97 * knows_frequencies):
        told = f"{knows_frequencies:.3f} is what one has who knows only how frequent each answer is"
    elif is_flat or o.final_nll > 0.98 * by_chance:
        told = f"{by_chance:.3f} is what blind guessing has"
    else:
        return None
    if o.final_nll > 1.2 * min(o.nll):
        return None  # it has learned, and lost it again: `rate_too_high` says so
    return Finding(
        "problem",
        "It has hardly learned anything",
        f"The training loss was {o.nll[0]:.3f} at first and is {o.final_nll:.3f}; {told}. "
        f"The learning rate went up to {o.peak_rate:.2g}.",
        remedy_for_stuck(o),
    )


def remedy_for_stuck(o: Observed) -> str:
    train = o.config.train
    if o.peak_rate < 1e-4:
        return f"The learning rate is tiny: raise train.lr = {train.lr:g}, or shorten train.warmup = {train.warmup:,}."
    if o.peak_rate > 3e-3:
        return f"The learning rate is high for a Transformer: lower train.lr = {train.lr:g} ({ATTEMPTS})."
    placement = (
        ' Set model.norm_placement = "pre", which forgives more.' if o.config.model.norm_placement == "post" else ""
    )
    return (
        f"Train longer than {o.history.last_step:,} steps, or try train.lr = {train.lr:g} ten times lower.{placement}"
    )


def warmup(o: Observed) -> Finding | None:
    """While it warms up, a training is slower than it could be; the peak should come early."""
    train = o.config.train
    if train.schedule == "constant" or not train.warmup:
        return None
    share = train.warmup / max(1, o.all_steps)
    if share < 0.5:
        return None
    never = share >= 1
    return Finding(
        "problem" if never else "warning",
        "The warmup is longer than the training" if never else "Most of the training is warmup",
        f"train.warmup = {train.warmup:,} of {o.all_steps:,} steps"
        + (f": the learning rate gets to {1 / share:.0%} of its peak, and never falls." if never else "."),
        f"Set train.warmup to about {max(1, o.all_steps // 10):,}, or train longer.",
    )


def clipping(o: Observed) -> Finding | None:
    """If every gradient is cut to one length, its length says nothing any more."""
    limit = o.config.train.clip_norm
    rows = [row for row in o.history.steps if is_number(row.get("gradient_norm"))]
    warm = 0 if o.config.train.schedule == "constant" else o.config.train.warmup
    rows = [row for row in rows if row["step"] > warm] or rows
    if not limit or not rows:
        return None
    share = fmean(row.get("clipped", float(row["gradient_norm"] > limit)) for row in rows)
    norm = median(row["gradient_norm"] for row in rows)
    if share < 0.9:
        return None
    is_far_above = norm > 10 * limit
    lower = f"Lower train.lr = {o.config.train.lr:g} if the loss is restless, too. Else raise"
    return Finding(
        "warning" if is_far_above else "note",
        "Nearly every gradient is clipped",
        f"{share:.0%} of the steps after the warmup; the norm is about {norm:.2g}, and train.clip_norm = {limit:g}.",
        f"{lower if is_far_above else 'Raise'} train.clip_norm to about {2 * norm:.2g}, so that only outliers are cut. "
        "With Adam it matters little.",
    )


def slow_input(o: Observed) -> Finding | None:
    last = o.history.steps[-1]
    waiting, seconds = last.get("waiting", 0.0), last.get("seconds", 0.0)
    share = waiting / seconds if seconds else 0.0
    if share < 0.1:
        return None
    return Finding(
        "warning" if share >= 0.25 else "note",
        "The training waits for its data",
        f"{waiting:.1f} of {seconds:.1f} seconds, {share:.0%}, went by until batches were there.",
        "Raise data.batch_tokens (fewer, larger batches), or lower data.distortion if there is one.",
    )


def noisy_steps(o: Observed) -> Finding | None:
    """A small batch is a small sample: neighbouring steps then see rather different losses."""
    rows = [row for row in o.history.steps if is_number(row.get("nll_spread"))]
    rows = [row for row in rows[len(rows) // 2 :] if row["nll"] > 0]
    answers = o.history.steps[-1]["tokens"] / o.history.last_step
    of_examples = "classification" in o.config.model.task
    if not rows or answers > (32 if of_examples else 300) or o.final_nll < 0.1:
        return None  # of a loss near 0, any difference is a large share
    share = median(row["nll_spread"] / row["nll"] for row in rows)
    if share < 0.2:
        return None
    return Finding(
        "warning" if share >= 0.4 else "note",
        "The steps are noisy: batches are small",
        f"A step sees {answers:,.0f} answers, and from step to step the loss varies by {share:.0%} of itself.",
        f"Raise data.batch_tokens = {o.config.data.batch_tokens:,}, or lower the learning rate.",
    )


def overfitting(o: Observed) -> Finding | None:
    """Validation gets worse, or is far off, while the training loss falls."""
    valid = o.history.curve("valid_loss")
    best_step, best = min(valid, key=lambda point: point[1])
    last, train = valid[-1][1], o.final_nll
    rise, gap = last - best, last - train
    rises = rise > max(0.05, 0.05 * best) and train < o.nll_at(best_step)
    is_far_off = gap > 0.5 and last > 2 * train
    if not (rises or is_far_off):
        return None
    is_grave = is_far_off or rise > max(0.2, 0.2 * best)
    if measures_still_improve(o):
        severity: Severity = "note"
    else:
        severity = "problem" if is_grave else "warning"
    since = f" from {best:.3f} at step {best_step:,}" if rises else ""
    return Finding(
        severity,
        "Overfitting: it learns the training data by heart",
        f"Training loss {train:.3f}, validation loss {last:.3f}" + (f", risen{since}." if since else "."),
        "More data helps most. Else raise "
        f"model.dropout = {o.config.model.dropout:g}, make the model smaller, or stop in time with train.patience. "
        + (f"The weights of step {o.kept_step:,} are kept." if o.kept_step else ""),
    )


def measures_still_improve(o: Observed) -> bool:
    """If the weights are chosen by BLEU or accuracy, a worse loss may come with better answers."""
    best = o.history.best(o.config.train.best_by)
    chosen_by_loss = BETTER[o.config.train.best_by][0] == "valid_loss"
    return not chosen_by_loss and best is not None and best["step"] > 0.8 * o.history.last_step


def still_improving(o: Observed) -> Finding | None:
    """At the end of a training, its validation loss should have become flat."""
    valid = o.history.curve("valid_loss")
    last = valid[-1][1]
    if not o.is_over or last > min(value for _, value in valid) or last < 0.02:
        return None
    before = [value for step, value in valid if step <= 0.7 * o.history.last_step]
    if not before:
        return None
    gain = (before[-1] - last) / before[-1]
    if gain < 0.02:
        return None
    return Finding(
        "warning" if gain >= 0.1 else "note",
        "It was still improving when it ended",
        f"Over the last third of the training, the validation loss fell by {per_cent(gain)}, from {before[-1]:.3f} to "
        f"{last:.3f}.",
        longer(o),
    )


def longer(o: Observed) -> str:
    train = o.config.train
    doubled = f"train.{train.budget}={2 * getattr(train, train.budget):g}"
    if train.schedule in ("cosine", "wsd"):
        return f"Train longer, from the beginning, because this schedule knows its end: --set {doubled}."
    return f"Go on with it: --resume --set {doubled}."


def too_small(o: Observed) -> Finding | None:
    """Flat, as good on new data as on old, and not good: it could hold more."""
    valid = [value for _, value in o.history.curve("valid_loss")]
    if not o.is_over or (o.accuracy or 1.0) > 0.9 or valid[-1] < 0.5:
        return None
    third = max(1, len(valid) // 3)
    is_flat = abs(valid[-1 - third] - valid[-1]) < 0.01 * valid[-1]
    is_close = abs(valid[-1] - o.final_nll) < 0.05 * valid[-1]
    if not (is_flat and is_close) or stuck(o):
        return None
    dropout, finetune = o.config.model.dropout, o.config.finetune
    size = {"lora": "finetune.rank", "full": "model.d_model, layers"}.get(finetune.method, "finetune.length")
    return Finding(
        "note",
        "It has learned what it can hold",
        f"Training and validation loss agree ({o.final_nll:.3f}, {valid[-1]:.3f}) and fall no more.",
        f"A larger {'adapter' if finetune.is_adapter else 'model'} ({size}) may do better"
        + (f", or less than model.dropout = {dropout:g}." if dropout else "."),
    )


def samples(o: Observed) -> Finding | None:
    """Texts that go round in circles, are empty, or are the same whatever was asked."""
    found = o.samples
    written = [sample["written"] for sample in found]
    if not any(text.strip() for text in written):
        return Finding(
            "problem",
            "It writes nothing",
            f"At the last validation, all {len(found)} samples were empty.",
            "Look whether the loss falls at all; if it does, train longer.",
        )
    if len(found) > 1 and len(set(written)) == 1 and len({s["given"] for s in found}) > 1 and found[0]["right"]:
        return Finding(
            "problem",
            "It writes the same whatever it is given",
            f"At the last validation, all {len(found)} samples were {shortened(written[0])!r}.",
            "It does not look at its source yet: train longer, or see whether the loss is stuck.",
        )
    circling = [s for s in found if repetition(s["written"]) > 0.4 and repetition(s["right"] or s["given"]) < 0.3]
    if 2 * len(circling) <= len(found):
        return None
    by_nature = o.config.model.task == "language_model"  # the likeliest text often is a circle
    return Finding(
        "note" if by_nature else "warning",
        "What it writes goes round in circles",
        f"{len(circling)} of {len(found)} samples at the last validation, as in {shortened(circling[0]['written'])!r}.",
        "Draw instead of taking the likeliest: --strategy sample. A longer training helps, too."
        if by_nature
        else "It has not learned enough, or has lost its source: look at the loss; if that is fine, train longer.",
    )


def shortened(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def repetition(text: str) -> float:
    """The share of a text that is one unit of up to eight words (or letters, if it is one word) again and again."""
    words = text.split() if len(text.split()) > 3 else list(text)
    longest = 0
    for size in range(1, 9):
        run = 0  # how many words in a row are the same as those `size` before
        for i in range(size, len(words)):
            run = run + 1 if words[i] == words[i - size] else 0
            if run >= 2 * size and run >= 4:
                longest = max(longest, run + size)
    return longest / len(words) if words else 0.0
