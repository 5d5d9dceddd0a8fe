"""Checks of the curves of a run: losses, learning rate, gradient norm, time. No torch here.

Each is a pure function of the observations. The thresholds are heuristics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from cutaway.diagnose.observations import (
    Finding,
    Observations,
    Rise,
    Severity,
    Unclear,
    format_percent,
    independent_answers,
)
from cutaway.runs.summary import BETTER, is_number

NEGLIGIBLE = 0.003  # share of the chance loss below which a change of the loss does not matter
ATTEMPTS = "try a tenth of it, or a longer train.warmup"


def no_validation(o: Observations) -> Finding | None:
    if o.history.validations:
        return None
    data = o.config.data
    if data.corpus or data.valid or getattr(data, "valid_share", None):
        return Finding(
            "note",
            "No validation yet",
            f"{o.history.last_step:,} steps so far; train.valid_every = {o.config.train.valid_every:,}.",
            "Wait, or lower train.valid_every to validate earlier.",
        )
    return Finding(
        "warning",
        "There is no validation data",
        "The recipe names none, so overfitting cannot be noticed.",
        "Set data.valid to files that are not in data.train, or set data.valid_share = 0.1.",
    )


def unfinished(o: Observations) -> Finding | None:
    if o.is_over:
        return None
    return Finding(
        "note",
        f"The training has not finished: {o.done:.0%} is done",
        f"The findings describe the first {o.history.last_step:,} steps.",
        "If it is not running, continue with --resume.",
    )


def not_a_number(o: Observations) -> Finding | None:
    """Steps without a finite gradient are skipped; a loss that stays NaN ends the training."""
    last = o.history.steps[-1]
    skipped, steps = last.get("skipped", 0), last["step"]
    validated = [row["valid_loss"] for row in o.history.validations[-1:]]
    lost = not all(map(is_number, [last["nll"], *validated]))
    if not (skipped or lost):
        return None
    train = o.config.train
    share = skipped / steps
    # float16 starts with a loss scale that is too large and lowers it after each overflow
    by_scale = train.precision == "float16" and share < 0.02
    severity: Severity = "problem" if lost or share > 0.05 else "note" if by_scale else "warning"
    return Finding(
        severity,
        "The loss is NaN or infinite" if lost else f"{skipped:,} steps had no finite gradient",
        f"{skipped:,} of {steps:,} steps were skipped. The peak learning rate was {o.peak_rate:.2g}, the last "
        f"gradient norm {last.get('gradient_norm', math.nan):.3g}.",
        f"Lower train.lr = {train.lr:g} ({ATTEMPTS})"
        + ("." if train.clip_norm else ", and set train.clip_norm = 1.")
        + (' Or train.precision = "bfloat16" or "float32".' if train.precision == "float16" else ""),
    )


def rate_too_high(o: Observations) -> Finding | None:
    """The training loss rises, for good or in jumps."""
    curve, found = o.history.curve("nll"), Rise.of(o.nll)
    remedy = f"Lower train.lr = {o.config.train.lr:g} ({ATTEMPTS}). The peak so far was {o.peak_rate:.2g}."
    if found.points > 1 and found.height > 0.15 * found.low + max(found.noise, NEGLIGIBLE * o.chance_loss):
        return Finding(
            "problem",
            "The training loss rose again: the learning rate is too high",
            f"It was {found.low:.3f} at step {curve[found.place][0]:,} and is {o.final_nll:.3f} now{growth_note(o)}.",
            remedy,
        )
    jumps = [
        (curve[i][0], before, o.nll[i])
        for i in range(3, len(curve))
        if o.nll[i] > (before := median(o.nll[i - 3 : i])) + max(0.5 * before, 0.07 * o.chance_loss)
    ]
    if jumps:
        step, before, after = max(jumps, key=lambda jump: jump[2] - jump[1])
        return Finding(
            "warning",
            "The training loss jumps: the learning rate is nearly too high",
            f"{len(jumps)} jump(s); the largest from {before:.3f} to {after:.3f} before step {step:,}.",
            remedy + ("" if o.config.train.clip_norm else " Set train.clip_norm = 1."),
        )
    has_stopped_falling = o.final_nll > max(0.95 * o.nll[len(o.nll) // 2], NEGLIGIBLE * o.chance_loss)
    if growth(o) > 10 and has_stopped_falling:
        return Finding(
            "warning",
            "The gradient grows but the loss does not fall: the learning rate is too high",
            f"The loss is {o.final_nll:.3f}{growth_note(o)}.",
            remedy,
        )
    return None


def growth(o: Observations) -> float:
    """The ratio of the gradient norm in the last quarter of the training to the second quarter."""
    norms = [value for _, value in o.history.curve("gradient_norm")]
    quarter = len(norms) // 4
    if not quarter:
        return 1.0
    return median(norms[-quarter:]) / max(1e-12, median(norms[quarter : 2 * quarter]))


def growth_note(o: Observations) -> str:
    return f"; the gradient norm has grown {growth(o):.0f}-fold" if growth(o) > 3 else ""


def stuck(o: Observations) -> Finding | Unclear | None:
    """The model has learned nothing, or only how frequent each answer is."""
    knows_frequencies = o.data.answer_entropy if o.data else None
    fifth = max(1, len(o.nll) // 5)
    early = median(o.nll[fifth : 2 * fifth] or o.nll[:1])
    is_flat = len(o.nll) >= 5 and o.final_nll > 0.98 * early and o.final_nll > 0.6 * o.chance_loss
    if knows_frequencies is not None and knows_frequencies < NEGLIGIBLE * o.chance_loss:
        return Unclear("nearly all answers are the same, so there is nothing to learn")
    if knows_frequencies and o.final_nll > 0.97 * knows_frequencies:
        if len(o.nll) < 5:
            return Unclear("metrics.jsonl has fewer than five lines about training")
        baseline = f"a model that only counts answers has {knows_frequencies:.3f}"
    elif is_flat or o.final_nll > 0.98 * o.chance_loss:
        baseline = f"random guessing has {o.chance_loss:.3f}"
    else:
        return None
    if o.final_nll > 1.2 * min(o.nll):
        return None  # it learned and then diverged: `rate_too_high` reports this
    return Finding(
        "problem",
        "The model has learned almost nothing",
        f"The training loss started at {o.nll[0]:.3f} and is {o.final_nll:.3f}; {baseline}. "
        f"The peak learning rate was {o.peak_rate:.2g}.",
        remedy_for_stuck(o),
    )


def remedy_for_stuck(o: Observations) -> str:
    train = o.config.train
    if o.peak_rate < 1e-4:
        return f"The learning rate is tiny: raise train.lr = {train.lr:g}, or shorten train.warmup = {train.warmup:,}."
    if o.peak_rate > 3e-3:
        return f"The learning rate is high for a Transformer: lower train.lr = {train.lr:g} ({ATTEMPTS})."
    placement = (
        ' Or set model.norm_placement = "pre", which is more stable.' if o.config.model.norm_placement == "post" else ""
    )
    return (
        f"Train longer than {o.history.last_step:,} steps, or try train.lr = {train.lr:g} ten times lower.{placement}"
    )


def warmup(o: Observations) -> Finding | None:
    """The learning rate should reach its peak early in the training."""
    train = o.config.train
    if train.schedule == "constant" or not train.warmup:
        return None
    share = train.warmup / max(1, o.all_steps)
    if share <= 0.5:
        return None
    if share > 1:
        title, peak = "The warmup is longer than the training", f"reaches {1 / share:.0%} of its peak and never falls"
    elif share == 1:
        title, peak = "The warmup is as long as the training", "reaches its peak in the last step and never falls"
    else:
        title, peak = "Most of the training is warmup", f"rises for {share:.0%} of the training"
    return Finding(
        "problem" if share >= 1 else "warning",
        title,
        f"train.warmup = {train.warmup:,} of {o.all_steps:,} steps: the learning rate {peak}.",
        f"Set train.warmup to about {max(1, o.all_steps // 10):,}, or train longer.",
    )


def clipping(o: Observations) -> Finding | Unclear | None:
    """Clipping should affect outliers only, not every gradient."""
    limit = o.config.train.clip_norm
    rows = [row for row in o.history.steps if is_number(row.get("gradient_norm"))]
    warm = 0 if o.config.train.schedule == "constant" else o.config.train.warmup
    after = [row for row in rows if row["step"] > warm]
    if not limit:
        return None
    if not after:
        return Unclear("the warmup has not ended" if rows else "metrics.jsonl has no gradient norm")
    rows = after
    share = fmean(row.get("clipped", float(row["gradient_norm"] > limit)) for row in rows)
    norm = median(row["gradient_norm"] for row in rows)
    if share < 0.9:
        return None
    is_far_above = norm > 10 * limit
    lower = f"Lower train.lr = {o.config.train.lr:g} if the loss is also noisy. Otherwise raise"
    return Finding(
        "warning" if is_far_above else "note",
        "Nearly every gradient is clipped",
        f"{share:.0%} of the steps{' after the warmup' if warm else ''}; the norm is about {norm:.2g}, and "
        f"train.clip_norm = {limit:g}.",
        f"{lower if is_far_above else 'Raise'} train.clip_norm to about {2 * norm:.2g}, so that it clips only "
        "outliers. With Adam this matters little.",
    )


def slow_input(o: Observations) -> Finding | None:
    last = o.history.steps[-1]
    waiting, seconds = last.get("waiting", 0.0), last.get("seconds", 0.0)
    share = waiting / seconds if seconds else 0.0
    if share < 0.1:
        return None
    return Finding(
        "warning" if share >= 0.25 else "note",
        "The training waits for its data",
        f"It spent {waiting:.1f} of {seconds:.1f} seconds ({share:.0%}) waiting for batches.",
        "Raise data.batch_tokens (fewer, larger batches), or lower data.distortion if it is set.",
    )


def noisy_steps(o: Observations) -> Finding | Unclear | None:
    """With small batches, the loss varies strongly from step to step."""
    rows = [row for row in o.history.steps if is_number(row.get("nll_spread"))]
    rows = [row for row in rows[len(rows) // 2 :] if row["nll"] > 0]
    answers = o.history.steps[-1]["tokens"] / o.history.last_step
    is_per_example = "classification" in o.config.model.task
    if answers > (32 if is_per_example else 300):
        return None
    if not rows:
        return Unclear("metrics.jsonl has no nll_spread")
    if o.final_nll < 0.015 * o.chance_loss:
        return Unclear("the training loss is near 0, so relative differences mean little")
    share = median(row["nll_spread"] / row["nll"] for row in rows)
    if share < 0.2:
        return None
    return Finding(
        "warning" if share >= 0.4 else "note",
        "The steps are noisy: batches are small",
        f"A step has {answers:,.0f} answers. Its loss varies by {share:.0%} from step to step.",
        f"Raise data.batch_tokens = {o.config.data.batch_tokens:,}, or lower the learning rate.",
    )


def overfitting(o: Observations) -> Finding | Unclear | None:
    """The validation loss rises, or is far above the training loss, while the training loss falls."""
    valid = o.history.curve("valid_loss")
    found = Rise.of([value for _, value in valid])
    best_step, last, train = valid[found.place][0], valid[-1][1], o.final_nll
    gap = last - train
    since_best = train - o.nll_at(best_step)  # if the training loss rises too, it is not overfitting
    is_higher = found.height > 0.05 * found.low and since_best < 0.5 * found.height
    rises = is_higher and found.height > 0.05 * found.low + max(1.5 * found.noise, error_of_one(o, found))
    is_apart = last > 2 * train and gap > min(0.1, 0.05 * o.chance_loss)
    is_far_off = last > 2 * train and gap > min(0.5, 0.25 * o.chance_loss)
    if not (rises or is_apart):
        if is_higher:
            return Unclear(f"the validation loss rose from {found.low:.3f} to {last:.3f}, which may be noise")
        if len(valid) == 1 and gap > 0:
            return Unclear("a single validation does not show a trend")
        return None
    is_grave = is_far_off or (rises and found.height > max(0.03 * o.chance_loss, 0.2 * found.low))
    severity: Severity = "problem" if is_grave else "warning" if rises else "note"
    since = f", risen from {found.low:.3f} at step {best_step:,}" if rises else ""
    return Finding(
        "note" if measures_still_improve(o) else severity,
        "Overfitting: the model memorizes the training data",
        f"Training loss {train:.3f}, validation loss {last:.3f}{since}.",
        "More data helps most. Otherwise raise "
        f"model.dropout = {o.config.model.dropout:g}, make the model smaller, or stop earlier with train.patience. "
        + (f"The best checkpoint is from step {o.best_step:,}." if o.best_step else ""),
    )


def error_of_one(o: Observations, found: Rise) -> float:
    """The error of a single validation. Several in a row confirm each other, so theirs is 0."""
    if found.points > 1:
        return 0.0
    if o.data is None or not o.data.valid_answers:
        return 0.05
    return math.sqrt(found.low / independent_answers(o.data))


def measures_still_improve(o: Observations) -> bool:
    """Whether BLEU or accuracy, if it chooses the best checkpoint, still improves despite a worse loss."""
    best = o.history.best(o.config.train.best_by)
    chosen_by_loss = BETTER[o.config.train.best_by][0] == "valid_loss"
    return not chosen_by_loss and best is not None and best["step"] > 0.8 * o.history.last_step


def still_improving(o: Observations) -> Finding | Unclear | None:
    """The validation loss should be flat at the end of the training."""
    valid = o.history.curve("valid_loss")
    losses = [value for _, value in valid]
    last, found = losses[-1], Rise.of(losses)
    before = [value for step, value in valid if step <= 0.7 * o.history.last_step]
    if not before:
        return Unclear("there was no validation before the last third of the training")
    fall = before[-1] - last
    if found.points or last < NEGLIGIBLE * o.chance_loss or fall < 0.02 * before[-1] + found.noise:
        return None
    gain = fall / before[-1]
    return Finding(
        "warning" if gain >= 0.1 else "note",
        "The model was still improving at the end",
        f"The validation loss fell by {format_percent(gain)} over the last third of the training, from "
        f"{before[-1]:.3f} to {last:.3f}.",
        longer(o),
    )


def longer(o: Observations) -> str:
    train = o.config.train
    doubled = f"train.{train.budget}={2 * getattr(train, train.budget):g}"
    if train.schedule in ("cosine", "wsd"):
        return f"Train again with more steps: --set {doubled}. This schedule depends on the end, so do not resume."
    return f"Continue: --resume --set {doubled}."


def too_small(o: Observations) -> Finding | Unclear | None:
    """Both losses are flat, equal, and not low: the model has too little capacity."""
    valid = [value for _, value in o.history.curve("valid_loss")]
    is_good = valid[-1] < 0.07 * o.chance_loss or (o.accuracy is not None and o.accuracy > 0.9)
    if is_good or valid[-1] - o.final_nll >= 0.05 * valid[-1]:  # overfits rather than underfits
        return None
    third = max(1, len(valid) // 3)
    is_flat = abs(valid[-1 - third] - valid[-1]) < 0.01 * valid[-1]
    is_close = abs(valid[-1] - o.final_nll) < 0.05 * valid[-1]
    if not (is_flat and is_close) or stuck(o):
        return Unclear("the losses do not show how much better the model can become")
    dropout, finetune = o.config.model.dropout, o.config.finetune
    size = {"lora": "finetune.rank", "full": "model.d_model, layers"}.get(finetune.method, "finetune.prompt_length")
    return Finding(
        "note",
        "The model may be too small",
        f"Training and validation loss agree ({o.final_nll:.3f}, {valid[-1]:.3f}) and no longer fall.",
        f"A larger {'adapter' if finetune.is_adapter else 'model'} ({size}) may do better"
        + (f", or less than model.dropout = {dropout:g}." if dropout else "."),
    )


def samples(o: Observations) -> Finding | None:
    """Generated texts that repeat themselves, are empty, or do not depend on the input."""
    found = o.samples
    written = [sample["written"] for sample in found]
    if not any(text.strip() for text in written):
        return Finding(
            "problem",
            "The model generates nothing",
            f"All {len(found)} samples of the last validation are empty.",
            "Check that the loss falls. If it does, train longer.",
        )
    if len(found) > 1 and len(set(written)) == 1 and len({s["given"] for s in found}) > 1 and found[0]["right"]:
        return Finding(
            "problem",
            "The model generates the same text for every input",
            f"All {len(found)} samples of the last validation are {shorten(written[0])!r}.",
            "It does not use its source yet. Train longer, or check that the loss falls.",
        )
    repeating = [s for s in found if repeats_itself(s["written"], s["right"] or s["given"])]
    if not repeating:
        return None
    is_rare = 2 * len(repeating) <= len(found)
    is_expected = o.config.model.task == "language_model"  # the most probable text often repeats itself
    return Finding(
        "note" if is_expected or is_rare else "warning",
        "Generated texts repeat themselves",
        f"{len(repeating)} of {len(found)} samples of the last validation, such as "
        f"{shorten(repeating[0]['written'])!r}.",
        "Sample instead (--strategy sample --temperature 1), use --repetition-penalty, or train longer."
        if is_expected
        else "The model has not learned enough. Check the loss. If it looks fine, train longer.",
    )


def shorten(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def repeats_itself(text: str, reference: str) -> bool:
    """Whether a text repeats itself far more than its reference."""
    return repetition(text) > max(0.4, repetition(reference) + 0.3)


def repetition(text: str) -> float:
    """The share of a text in phrases that occur three times or more (long phrases: twice)."""
    words = text.split()
    letters = " ".join(words)
    if len(words) <= 3:
        return repeated_share(letters, short=3, long=8)
    return max(repeated_share(words, short=2, long=8), repeated_share(letters, short=16, long=60))


def repeated_share(units: Sequence[str], short: int, long: int) -> float:
    """The share of units (words or letters) in repeated n-grams: n = `short` three times, n = `long` twice."""
    is_repeated = [False] * len(units)
    for size, times in ((short, 3), (long, 2)):
        positions: dict[tuple[str, ...], list[int]] = {}
        for start in range(len(units) - size + 1):
            positions.setdefault(tuple(units[start : start + size]), []).append(start)
        for start in (start for starts in positions.values() if len(starts) >= times for start in starts):
            is_repeated[start : start + size] = [True] * size
    return sum(is_repeated) / len(units) if units else 0.0
