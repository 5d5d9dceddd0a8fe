"""What is wrong with this run? No torch here.

run folder ──observe──▶ Observed ──diagnose──▶ Diagnosis: findings, what is in order, what is not known

A check is a pure function of what was observed (checks_of_curves.py, checks_of_data.py) and a row of the table below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cutaway.diagnose import curve_checks as curves
from cutaway.diagnose import data_checks as data
from cutaway.diagnose.observations import (
    A_ROW,
    BLEU,
    DATA,
    HELD_OUT,
    LABELS,
    OVER,
    PADDING,
    ROWS,
    SAMPLES,
    SCORES,
    SEVERITIES,
    TOKENIZER,
    VALIDATION,
    VALIDATIONS,
    Check,
    Finding,
    Observed,
    Unclear,
)
from cutaway.errors import CutawayError
from cutaway.runs import RunFolder
from cutaway.runs.summary import History, read_scores

CHECKS = (
    Check("not_a_number", "every step had a usable gradient", curves.not_a_number, (A_ROW,)),
    Check("overfitting", "no overfitting", curves.overfitting, (ROWS, VALIDATION)),
    Check("stuck", "it has learned something", curves.stuck, (ROWS,)),
    Check("rate_too_high", "the training loss falls without jumps", curves.rate_too_high, (ROWS,)),
    Check("warmup", "the warmup is a small part of the training", curves.warmup, (A_ROW,)),
    Check("leakage", "no held-out example stands in the training data", data.leakage, (DATA, HELD_OUT)),
    Check("majority", "better than always giving the most frequent answer", data.majority, (LABELS,)),
    Check("samples", "what it writes does not go round in circles", curves.samples, (SAMPLES,)),
    Check("still_improving", "not cut off while it improved", curves.still_improving, (OVER, VALIDATIONS)),
    Check("too_small", "the model is large enough", curves.too_small, (OVER, ROWS, VALIDATIONS)),
    Check("no_validation", "something is held out", curves.no_validation, (A_ROW,)),
    Check("small_validation", "the validation set is large enough", data.small_validation, (DATA, VALIDATION)),
    Check("unknown_tokens", "the tokenizer knows the text", data.unknown_tokens, (TOKENIZER, DATA)),
    Check("left_out", "hardly any example is left out", data.left_out, (DATA,)),
    Check("other_data", "the data is what it was trained on", data.other_data, (DATA,)),
    Check("comparable_bleu", "BLEU as others measure it", data.comparable_bleu, (BLEU, DATA)),
    Check("old_scores", "the scores are those of the kept weights", data.old_scores, (SCORES,)),
    Check("clipping", "few gradients are clipped", curves.clipping, (ROWS,)),
    Check("noisy_steps", "batches are large enough", curves.noisy_steps, (ROWS,)),
    Check("padding", "little padding", data.padding, (PADDING, DATA)),
    Check("slow_input", "data comes quickly enough", curves.slow_input, (A_ROW,)),
    Check("unfinished", "the training is over", curves.unfinished, (A_ROW,)),
)


@dataclass(frozen=True)
class Diagnosis:
    findings: tuple[Finding, ...]  # the gravest first
    in_order: tuple[str, ...]  # what was looked at and is well
    not_checked: dict[str, str]  # check -> why nothing can be said

    def of(self, *severities: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity in severities]

    @property
    def not_known(self) -> list[str]:
        """What could not be looked at, a sentence for each reason."""
        names: dict[str, list[str]] = {}
        for check, why in self.not_checked.items():
            names.setdefault(why, []).append(check.replace("_", " "))
        return [f"Not known: {', '.join(checks)}, because {why.rstrip('.')}." for why, checks in names.items()]

    @property
    def has_problem(self) -> bool:
        return bool(self.of("problem"))

    def as_json(self) -> dict[str, Any]:
        findings = [asdict(finding) for finding in self.findings]
        return {"findings": findings, "in_order": list(self.in_order), "not_checked": self.not_checked}


def diagnose(observed: Observed, checks: Sequence[Check] = CHECKS) -> Diagnosis:
    findings, in_order, not_checked = [], [], {}
    for check in checks:
        missing = next((need for need in check.needs if not need.is_there(observed)), None)
        if missing:
            if missing.why_not:
                not_checked[check.name] = missing.reason(observed)
            continue
        seen = check.look(observed)
        if seen is None:
            in_order.append(check.asks)
        elif isinstance(seen, Unclear):
            not_checked[check.name] = seen.why
        else:
            findings.append(replace(seen, check=check.name))
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return Diagnosis(tuple(findings), tuple(in_order), not_checked)


def observe(run: RunFolder, with_data: bool = True) -> Observed:
    """What a run folder shows."""
    config, best = run.read_config(), run.pointer("best")
    observed = Observed(config, History.of(run.read_metrics()), None, read_scores(run), best.name if best else "")
    if not with_data:
        return observed
    from cutaway.diagnose.data_facts import facts_about

    try:
        return replace(observed, data=facts_about(run, config))
    except (CutawayError, OSError) as error:
        return replace(observed, why_no_data=f"the data cannot be read: {error}")
