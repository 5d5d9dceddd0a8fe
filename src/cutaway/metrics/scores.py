"""Scores of translations: BLEU and chrF by sacrebleu, with the signature that makes them comparable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.errors import ConfigError, DataError, MissingExtra, did_you_mean


@dataclass(frozen=True)
class Score:
    """A number, and the signature without which it cannot be compared (Post 2018)."""

    value: float
    signature: str


TOKENIZE = ("13a", "intl", "char", "none", "zh")  # sacrebleu's; and "moses-de", with the language, by sacremoses


def bleu(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False, tokenize: str = "13a") -> Score:
    """Corpus BLEU (Papineni et al. 2002): n-gram precision up to 4, times a brevity penalty; 0 to 100.

    Whoever reports BLEU today gives cased text to sacrebleu, which cuts it into words by the rules "13a". Older papers
    give text that is lower-cased and cut by Moses' rules: `lowercase=True, tokenize="moses-de"`. Scores that were
    measured in different ways cannot be compared; the signature says in which way.
    """
    if not tokenize.startswith("moses-"):
        if tokenize not in TOKENIZE:
            known = did_you_mean(tokenize, (*TOKENIZE, "moses-de"))
            raise ConfigError(f"there is no way {tokenize!r} to cut text into words. {known}")
        return _sacrebleu("BLEU", hypotheses, references, lowercase=lowercase, tokenize=tokenize)
    cut = _moses(tokenize.removeprefix("moses-"))
    score = _sacrebleu("BLEU", cut(hypotheses), cut(references), lowercase=lowercase, tokenize="none", force=True)
    return Score(score.value, score.signature.replace("tok:none", f"tok:{tokenize}"))


def _moses(language: str) -> Callable[[Sequence[str]], list[str]]:
    try:
        import sacremoses
    except ImportError:
        raise MissingExtra("sacremoses", "moses", what="cutting text into words by Moses' rules") from None
    normalize, cut = sacremoses.MosesPunctNormalizer(language), sacremoses.MosesTokenizer(language)
    return lambda texts: [cut.tokenize(normalize.normalize(text), return_str=True, escape=False) for text in texts]


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """chrF2 (Popović 2015): F-score over character n-grams, kind to small differences in endings; 0 to 100."""
    return _sacrebleu("CHRF", hypotheses, references)


def _sacrebleu(metric: str, hypotheses: Sequence[str], references: Sequence[str], **settings: Any) -> Score:
    _check_lengths(hypotheses, references)
    require_sacrebleu()
    from sacrebleu import metrics

    scorer = getattr(metrics, metric)(**settings)
    value = scorer.corpus_score(list(hypotheses), [list(references)]).score
    return Score(value, str(scorer.get_signature()))


def require_sacrebleu(what: str = "this") -> None:
    """To be asked before a training whose results are to be scored."""
    try:
        import sacrebleu  # noqa: F401
    except ImportError:
        raise MissingExtra("sacrebleu", "torch", what) from None


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
