"""Scores of translations: BLEU and chrF by sacrebleu, with their signatures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.errors import ConfigError, DataError, MissingExtra, did_you_mean


@dataclass(frozen=True)
class Score:
    """A score and its sacrebleu signature. Only scores with the same signature are comparable (Post 2018)."""

    value: float
    signature: str


TOKENIZE = ("13a", "intl", "char", "none", "zh")  # of sacrebleu; "moses-de" and so on are of sacremoses


def bleu(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False, tokenize: str = "13a") -> Score:
    """Corpus BLEU (Papineni et al. 2002): n-gram precision up to 4, times a brevity penalty; 0 to 100.

    Today BLEU is computed by sacrebleu on cased text, which it tokenizes by the rules "13a". Older papers use
    lower-case text tokenized by Moses: `lowercase=True, tokenize="moses-de"`. The two are not comparable.
    """
    if not tokenize.startswith("moses-"):
        if tokenize not in TOKENIZE:
            known = did_you_mean(tokenize, (*TOKENIZE, "moses-de"))
            raise ConfigError(f"there is no tokenization {tokenize!r} for BLEU. {known}")
        return _sacrebleu("BLEU", hypotheses, references, lowercase=lowercase, tokenize=tokenize)
    split = _moses_tokenizer(tokenize.removeprefix("moses-"))
    score = _sacrebleu("BLEU", split(hypotheses), split(references), lowercase=lowercase, tokenize="none", force=True)
    return Score(score.value, score.signature.replace("tok:none", f"tok:{tokenize}"))


def _moses_tokenizer(language: str) -> Callable[[Sequence[str]], list[str]]:
    try:
        import sacremoses
    except ImportError:
        raise MissingExtra("sacremoses", "moses", what="tokenization by Moses' rules") from None
    normalize, words = sacremoses.MosesPunctNormalizer(language), sacremoses.MosesTokenizer(language)
    return lambda texts: [words.tokenize(normalize.normalize(text), return_str=True, escape=False) for text in texts]


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """chrF2 (Popović 2015): F-score over character n-grams, so that a wrong ending costs little; 0 to 100."""
    return _sacrebleu("CHRF", hypotheses, references)


def _sacrebleu(metric: str, hypotheses: Sequence[str], references: Sequence[str], **settings: Any) -> Score:
    _check_lengths(hypotheses, references)
    require_sacrebleu()
    from sacrebleu import metrics

    scorer = getattr(metrics, metric)(**settings)
    value = scorer.corpus_score(list(hypotheses), [list(references)]).score
    return Score(value, str(scorer.get_signature()))


def require_sacrebleu(what: str = "this") -> None:
    """Raise an error if sacrebleu is missing. Call it before a long training that needs it."""
    try:
        import sacrebleu  # noqa: F401
    except ImportError:
        raise MissingExtra("sacrebleu", "torch", what) from None


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The share of texts that equal their reference exactly; 0 to 1."""
    _check_lengths(hypotheses, references)
    return sum(h == r for h, r in zip(hypotheses, references, strict=True)) / len(references)


def perplexity(mean_nll: float) -> float:
    """exp(cross-entropy per token): the number of equally likely tokens that would be as hard to predict."""
    return math.exp(min(mean_nll, 700.0))  # larger values overflow


def _check_lengths(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references) or not references:
        raise DataError(
            f"{len(hypotheses)} translations cannot be compared with {len(references)} references. "
            "Give one reference for each translation, and at least one."
        )
