"""Checks that need nothing but the curves of a run: losses, learning rate, gradient norm, time. No torch here.

Each is a pure function of what was observed. The numbers in them are judgements, not laws; each says what it is for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from cutaway.diagnose.observations import Finding, Observed, Rise, Severity, Unclear, independent_answers, per_cent
from cutaway.runs.summary import BETTER, is_number

NEGLIGIBLE = 0.003  # of what blind guessing has: by so little, a loss may rise or fall without anybody noticing
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
    validated = [row["valid_loss"] for row in o.history.validations[-1:]]
    lost = not all(map(is_number, [last["nll"], *validated]))
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
    curve, found = o.history.curve("nll"), Rise.of(o.nll)
    remedy = f"Lower train.lr = {o.config.train.lr:g} ({ATTEMPTS}); the peak so far was {o.peak_rate:.2g}."
    if found.points > 1 and found.height > 0.15 * found.low + max(found.swing, NEGLIGIBLE * o.chance):
        return Finding(
            "problem",
            "The training loss rose and did not come back: the learning rate is too high",
            f"It was {found.low:.3f} at step {curve[found.place][0]:,} and is {o.final_nll:.3f} now{growth_told(o)}.",
            remedy,
        )
    jumps = [
        (curve[i][0], before, o.nll[i])
        for i in range(3, len(curve))
        if o.nll[i] > (before := median(o.nll[i - 3 : i])) + max(0.5 * before, 0.07 * o.chance)
    ]
    if jumps:
        step, before, after = max(jumps, key=lambda jump: jump[2] - jump[1])
        return Finding(
            "warning",
            "The training loss jumps: the learning rate is near its limit",
            f"{len(jumps)} time(s); the largest from {before:.3f} to {after:.3f} before step {step:,}.",
            remedy + ("" if o.config.train.clip_norm else " Set train.clip_norm = 1."),
        )
    has_stopped_falling = o.final_nll > max(0.95 * o.nll[len(o.nll) // 2], NEGLIGIBLE * o.chance)
    if growth(o) > 10 and has_stopped_falling:
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


def stuck(o: Observed) -> Finding | Unclear | None:
    """It has learned nothing, or no more than how frequent each answer is."""
    knows_frequencies = o.data.answer_entropy if o.data else None
    fifth = max(1, len(o.nll) // 5)
    early = median(o.nll[fifth : 2 * fifth] or o.nll[:1])
    is_flat = len(o.nll) >= 5 and o.final_nll > 0.98 * early and o.final_nll > 0.6 * o.chance
    if knows_frequencies is not None and knows_frequencies < NEGLIGIBLE * o.chance:
        return Unclear("hardly any answer differs from the others, so there is nothing to learn")
    if knows_frequencies and o.final_nll > 0.97 * knows_frequencies:
        if len(o.nll) < 5:
            return Unclear("there are fewer than five lines about training, and so far it knows only frequencies")
        told = f"{knows_frequencies:.3f} is what one has who knows only how frequent each answer is"
    elif is_flat or o.final_nll > 0.98 * o.chance:
        told = f"{o.chance:.3f} is what blind guessing has"
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
    if share <= 0.5:
        return None
    if share > 1:
        title, peak = "The warmup is longer than the training", f"gets to {1 / share:.0%} of its peak, and never falls"
    elif share == 1:
        title, peak = "The warmup is as long as the training", "gets to its peak in the last step, and never falls"
    else:
        title, peak = "Most of the training is warmup", f"rises for {share:.0%} of the training"
    return Finding(
        "problem" if share >= 1 else "warning",
        title,
        f"train.warmup = {train.warmup:,} of {o.all_steps:,} steps: the learning rate {peak}.",
        f"Set train.warmup to about {max(1, o.all_steps // 10):,}, or train longer.",
    )


def clipping(o: Observed) -> Finding | Unclear | None:
    """If every gradient is cut to one length, its length says nothing any more."""
    limit = o.config.train.clip_norm
    rows = [row for row in o.history.steps if is_number(row.get("gradient_norm"))]
    warm = 0 if o.config.train.schedule == "constant" else o.config.train.warmup
    after = [row for row in rows if row["step"] > warm]
    if not limit:
        return None
    if not after:
        return Unclear("it has not come to the end of its warmup" if rows else "no norm of the gradient is known")
    rows = after
    share = fmean(row.get("clipped", float(row["gradient_norm"] > limit)) for row in rows)
    norm = median(row["gradient_norm"] for row in rows)
    if share < 0.9:
        return None
    is_far_above = norm > 10 * limit
    lower = f"Lower train.lr = {o.config.train.lr:g} if the loss is restless, too. Else raise"
    return Finding(
        "warning" if is_far_above else "note",
        "Nearly every gradient is clipped",
        f"{share:.0%} of the steps{' after the warmup' if warm else ''}; the norm is about {norm:.2g}, and "
        f"train.clip_norm = {limit:g}.",
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


def noisy_steps(o: Observed) -> Finding | Unclear | None:
    """A small batch is a small sample: neighbouring steps then see rather different losses."""
    rows = [row for row in o.history.steps if is_number(row.get("nll_spread"))]
    rows = [row for row in rows[len(rows) // 2 :] if row["nll"] > 0]
    answers = o.history.steps[-1]["tokens"] / o.history.last_step
    of_examples = "classification" in o.config.model.task
    if answers > (32 if of_examples else 300):
        return None
    if not rows:
        return Unclear("metrics.jsonl does not say how far steps lie apart")
    if o.final_nll < 0.015 * o.chance:
        return Unclear("the training loss is near 0, of which any difference is a large share")
    share = median(row["nll_spread"] / row["nll"] for row in rows)
    if share < 0.2:
        return None
    return Finding(
        "warning" if share >= 0.4 else "note",
        "The steps are noisy: batches are small",
        f"A step sees {answers:,.0f} answers, and from step to step the loss varies by {share:.0%} of itself.",
        f"Raise data.batch_tokens = {o.config.data.batch_tokens:,}, or lower the learning rate.",
    )


def overfitting(o: Observed) -> Finding | Unclear | None:
    """Validation gets worse, or is far off, while the training loss falls."""
    valid = o.history.curve("valid_loss")
    found = Rise.of([value for _, value in valid])
    best_step, last, train = valid[found.place][0], valid[-1][1], o.final_nll
    gap = last - train
    since_best = train - o.nll_at(best_step)  # a training loss that rises as well is another trouble
    is_higher = found.height > 0.05 * found.low and since_best < 0.5 * found.height
    rises = is_higher and found.height > 0.05 * found.low + max(1.5 * found.swing, error_of_one(o, found))
    is_apart = last > 2 * train and gap > min(0.1, 0.05 * o.chance)
    is_far_off = last > 2 * train and gap > min(0.5, 0.25 * o.chance)
    if not (rises or is_apart):
        if is_higher:
            return Unclear(f"the validation loss rose from {found.low:.3f} to {last:.3f}, which may be chance")
        if len(valid) == 1 and gap > 0:
            return Unclear("a single validation does not show whether its loss rises")
        return None
    is_grave = is_far_off or (rises and found.height > max(0.03 * o.chance, 0.2 * found.low))
    severity: Severity = "problem" if is_grave else "warning" if rises else "note"
    since = f", risen from {found.low:.3f} at step {best_step:,}" if rises else ""
    return Finding(
        "note" if measures_still_improve(o) else severity,
        "Overfitting: it learns the training data by heart",
        f"Training loss {train:.3f}, validation loss {last:.3f}{since}.",
        "More data helps most. Else raise "
        f"model.dropout = {o.config.model.dropout:g}, make the model smaller, or stop in time with train.patience. "
        + (f"The weights of step {o.kept_step:,} are kept." if o.kept_step else ""),
    )


def error_of_one(o: Observed, found: Rise) -> float:
    """By how much a single validation may be off. Of several in a row, each is a witness for the others."""
    if found.points > 1:
        return 0.0
    if o.data is None or not o.data.valid_answers:
        return 0.05
    return math.sqrt(found.low / independent_answers(o.data))


def measures_still_improve(o: Observed) -> bool:
    """If the weights are chosen by BLEU or accuracy, a worse loss may come with better answers."""
    best = o.history.best(o.config.train.best_by)
    chosen_by_loss = BETTER[o.config.train.best_by][0] == "valid_loss"
    return not chosen_by_loss and best is not None and best["step"] > 0.8 * o.history.last_step


def still_improving(o: Observed) -> Finding | Unclear | None:
    """At the end of a training, its validation loss should have become flat."""
    valid = o.history.curve("valid_loss")
    losses = [value for _, value in valid]
    last, found = losses[-1], Rise.of(losses)
    before = [value for step, value in valid if step <= 0.7 * o.history.last_step]
    if not before:
        return Unclear("there was no validation before the last third of the training")
    fall = before[-1] - last
    if found.points or last < NEGLIGIBLE * o.chance or fall < 0.02 * before[-1] + found.swing:
        return None
    gain = fall / before[-1]
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


def too_small(o: Observed) -> Finding | Unclear | None:
    """Flat, as good on new data as on old, and not good: it could hold more."""
    valid = [value for _, value in o.history.curve("valid_loss")]
    is_good = valid[-1] < 0.07 * o.chance or (o.accuracy is not None and o.accuracy > 0.9)
    if is_good or valid[-1] - o.final_nll >= 0.05 * valid[-1]:  # it holds more than helps it with new data
        return None
    third = max(1, len(valid) // 3)
    is_flat = abs(valid[-1 - third] - valid[-1]) < 0.01 * valid[-1]
    is_close = abs(valid[-1] - o.final_nll) < 0.05 * valid[-1]
    if not (is_flat and is_close) or stuck(o):
        return Unclear("its losses do not show how good it can become")
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
    circling = [s for s in found if is_circle(s["written"], s["right"] or s["given"])]
    if not circling:
        return None
    is_rare = 2 * len(circling) <= len(found)
    by_nature = o.config.model.task == "language_model"  # the likeliest text often is a circle
    return Finding(
        "note" if by_nature or is_rare else "warning",
        "What it writes goes round in circles",
        f"{len(circling)} of {len(found)} samples at the last validation, as in {shortened(circling[0]['written'])!r}.",
        "Draw more boldly (--strategy sample --temperature 1), or use --repetition-penalty. Longer training helps."
        if by_nature
        else "It has not learned enough, or has lost its source: look at the loss; if that is fine, train longer.",
    )


def shortened(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def is_circle(text: str, beside: str) -> bool:
    """Whether a text repeats itself, and far more than the one that it should be like."""
    return repetition(text) > max(0.4, repetition(beside) + 0.3)


def repetition(text: str) -> float:
    """The share of a text that comes three times or more (or twice, if it is long), next to each other or not."""
    words = text.split()
    letters = " ".join(words)
    if len(words) <= 3:
        return repeated_share(letters, short=3, long=8)
    return max(repeated_share(words, short=2, long=8), repeated_share(letters, short=16, long=60))


def repeated_share(units: Sequence[str], short: int, long: int) -> float:
    """The share of the units (words, or letters) that are in `short` ones in a row that come three times, or in `long`
    ones that come twice."""
    is_repeated = [False] * len(units)
    for size, times in ((short, 3), (long, 2)):
        places: dict[tuple[str, ...], list[int]] = {}
        for start in range(len(units) - size + 1):
            places.setdefault(tuple(units[start : start + size]), []).append(start)
        for start in (start for starts in places.values() if len(starts) >= times for start in starts):
            is_repeated[start : start + size] = [True] * size
    return sum(is_repeated) / len(units) if units else 0.0
