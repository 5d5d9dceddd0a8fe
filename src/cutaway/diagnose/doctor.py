"""Diagnose a run: `cutaway doctor`. No torch here.

run folder ──observe──▶ Observations ──diagnose──▶ Diagnosis: findings, passed checks, checks that could not run

A check is a pure function of the observations (curve_checks.py, data_checks.py) and a row of the table below.
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
    Observations,
    Unclear,
)
from cutaway.errors import CutawayError
from cutaway.runs import RunFolder
from cutaway.runs.summary import History, read_scores

CHECKS = (
    Check("not_a_number", "every step had a usable gradient", curves.not_a_number, (A_ROW,)),
    Check("overfitting", "no overfitting", curves.overfitting, (ROWS, VALIDATION)),
    Check("stuck", "the model has learned something", curves.stuck, (ROWS,)),
    Check("rate_too_high", "the training loss falls without jumps", curves.rate_too_high, (ROWS,)),
    Check("warmup", "the warmup is a small part of the training", curves.warmup, (A_ROW,)),
    Check("leakage", "no held-out example is in the training data", data.leakage, (DATA, HELD_OUT)),
    Check("majority", "better than always predicting the most frequent label", data.majority, (LABELS,)),
    Check("samples", "generated texts do not repeat themselves", curves.samples, (SAMPLES,)),
    Check("still_improving", "the loss was flat at the end", curves.still_improving, (OVER, VALIDATIONS)),
    Check("too_small", "the model is large enough", curves.too_small, (OVER, ROWS, VALIDATIONS)),
    Check("no_validation", "there is validation data", curves.no_validation, (A_ROW,)),
    Check("small_validation", "the validation set is large enough", data.small_validation, (DATA, VALIDATION)),
    Check("unknown_tokens", "the tokenizer covers the text", data.unknown_tokens, (TOKENIZER, DATA)),
    Check("left_out", "few examples are skipped", data.left_out, (DATA,)),
    Check("other_data", "the data has not changed since the training", data.other_data, (DATA,)),
    Check("comparable_bleu", "BLEU is comparable", data.comparable_bleu, (BLEU, DATA)),
    Check("old_scores", "the scores belong to the best checkpoint", data.old_scores, (SCORES,)),
    Check("clipping", "few gradients are clipped", curves.clipping, (ROWS,)),
    Check("noisy_steps", "batches are large enough", curves.noisy_steps, (ROWS,)),
    Check("padding", "little padding", data.padding, (PADDING, DATA)),
    Check("slow_input", "the data loads fast enough", curves.slow_input, (A_ROW,)),
    Check("unfinished", "the training has finished", curves.unfinished, (A_ROW,)),
)


@dataclass(frozen=True)
class Diagnosis:
    findings: tuple[Finding, ...]  # most severe first
    in_order: tuple[str, ...]  # statements of the checks that passed
    not_checked: dict[str, str]  # check -> why it could not decide

    def of(self, *severities: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity in severities]

    @property
    def not_known(self) -> list[str]:
        """One sentence for each reason why checks could not decide."""
        names: dict[str, list[str]] = {}
        for check, why in self.not_checked.items():
            names.setdefault(why, []).append(check.replace("_", " "))
        return [f"Not checked: {', '.join(checks)}, because {why.rstrip('.')}." for why, checks in names.items()]

    @property
    def has_problem(self) -> bool:
        return bool(self.of("problem"))

    def as_json(self) -> dict[str, Any]:
        findings = [asdict(finding) for finding in self.findings]
        return {"findings": findings, "in_order": list(self.in_order), "not_checked": self.not_checked}


def diagnose(observed: Observations, checks: Sequence[Check] = CHECKS) -> Diagnosis:
    findings, in_order, not_checked = [], [], {}
    for check in checks:
        missing = next((need for need in check.needs if not need.is_met(observed)), None)
        if missing:
            if missing.reason_unmet:
                not_checked[check.name] = missing.reason(observed)
            continue
        result = check.run(observed)
        if result is None:
            in_order.append(check.ok_text)
        elif isinstance(result, Unclear):
            not_checked[check.name] = result.why
        else:
            findings.append(replace(result, check=check.name))
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return Diagnosis(tuple(findings), tuple(in_order), not_checked)


def observe(run: RunFolder, with_data: bool = True) -> Observations:
    """Read the observations from a run folder."""
    config, best = run.read_config(), run.pointer("best")
    observed = Observations(config, History.of(run.read_metrics()), None, read_scores(run), best.name if best else "")
    if not with_data:
        return observed
    from cutaway.diagnose.data_facts import collect_data_facts

    try:
        return replace(observed, data=collect_data_facts(run, config))
    except (CutawayError, OSError) as error:
        return replace(observed, data_error=f"the data cannot be read: {error}")
