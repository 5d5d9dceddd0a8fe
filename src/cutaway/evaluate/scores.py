"""Scores of translations: BLEU and chrF by sacrebleu, with the signature that makes them comparable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cutaway.errors import DataError, MissingExtra


@dataclass(frozen=True)
class Score:
    """A number, and the signature without which it cannot be compared (Post 2018)."""

    value: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus BLEU (Papineni et al. 2002): n-gram precision up to 4, times a brevity penalty; 0 to 100."""
    return _sacrebleu("BLEU", hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """chrF2 (Popović 2015): F-score over character n-grams, kind to small differences in endings; 0 to 100."""
    return _sacrebleu("CHRF", hypotheses, references)


def _sacrebleu(metric: str, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    _check_lengths(hypotheses, references)
    try:
        from sacrebleu import metrics
    except ImportError:
        raise MissingExtra("sacrebleu", "torch") from None
    scorer = getattr(metrics, metric)()
    value = scorer.corpus_score(list(hypotheses), [list(references)]).score
    return Score(value, str(scorer.get_signature()))


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The share of texts that are right to the letter; 0 to 1."""
    _check_lengths(hypotheses, references)
    return sum(h == r for h, r in zip(hypotheses, references, strict=True)) / len(references)


def perplexity(mean_nll: float) -> float:
    """exp(cross-entropy a token): among how many equally likely tokens the model seems to choose."""
    return math.exp(min(mean_nll, 700.0))  # beyond that a float overflows, and nobody compares


def _check_lengths(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references) or not references:
        raise DataError(
            f"{len(hypotheses)} translations cannot be scored against {len(references)} references: "
            "there must be one of each for each sentence, and at least one."
        )
