import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import ConfigError, DataError
from cutaway.metrics.alignment import alignment_error_rate, links_from_attention, words_of_tokens
from cutaway.metrics.scores import bleu, chrf, exact_match, perplexity


def bleu_by_hand(hypotheses, references):
    """Papineni et al. 2002, on text that needs no tokenization and has a match of every order."""
    log_precision, shorter, longer = 0.0, 0, 0
    for n in range(1, 5):
        matched = total = 0
        for h, r in zip(hypotheses, references, strict=True):
            grams = [Counter(tuple(w[i : i + n]) for i in range(len(w) - n + 1)) for w in (h.split(), r.split())]
            matched += sum((grams[0] & grams[1]).values())
            total += sum(grams[0].values())
        log_precision += math.log(matched / total) / 4
    shorter = sum(len(h.split()) for h in hypotheses)
    longer = sum(len(r.split()) for r in references)
    return 100 * min(1.0, math.exp(1 - longer / shorter)) * math.exp(log_precision)


def test_bleu():
    references = ["the cat sat on the mat", "a dog ran over the green hill"]
    hypotheses = ["the cat sat on a mat", "a dog ran over the hill"]
    score = bleu(hypotheses, references)
    assert score.value == pytest.approx(bleu_by_hand(hypotheses, references), abs=1e-9)
    assert "tok:13a" in score.signature
    assert "version" in score.signature
    assert bleu(references, references).value == pytest.approx(100)


def test_chrf_exact_match_and_perplexity():
    assert chrf(["abc def"], ["abc def"]).value == pytest.approx(100)
    assert 0 < chrf(["abc dex"], ["abc def"]).value < 100
    assert exact_match(["a", "b", "c", "d"], ["a", "x", "c", "D"]) == 0.5
    assert perplexity(math.log(7)) == pytest.approx(7)
    assert perplexity(1e9) > 1e300


def test_unequal_lengths_are_rejected():
    with pytest.raises(DataError, match="2 translations cannot be compared with 1 references"):
        bleu(["a", "b"], ["a"])
    with pytest.raises(DataError, match="0 translations"):
        exact_match([], [])


links = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1)


@given(links, links)
def test_alignment_error_rate_is_one_minus_f1(found, gold):
    aer = alignment_error_rate([found], [gold])
    hits = len(found & gold)
    if hits:
        precision, recall = hits / len(found), hits / len(gold)
        assert aer == pytest.approx(1 - 2 * precision * recall / (precision + recall))
    else:
        assert aer == 1
    assert alignment_error_rate([gold], [gold]) == 0


def test_links_from_attention_between_subword_tokens():
    """Source: two words of one and two tokens, then </s>. Target: two words of two tokens and one."""
    import numpy as np

    weights = np.array([[0.4, 0.3, 0.3, 0.0], [0.5, 0.2, 0.3, 0.0], [0.1, 0.0, 0.1, 0.8]])
    # first target word: 0.9 for word 0 against 1.1 for word 1; second: </s>, so no link
    assert links_from_attention(weights, [0, 1, 1, None], [0, 0, 1]) == {(1, 0)}


def test_words_of_tokens():
    text = "L'arbre l'aime."
    words = ["L'", "arbre", "l'", "aime", "."]
    spans = [(0, 2), (2, 4), (4, 7), (8, 10), (10, 14), (14, 15)]
    assert words_of_tokens(text, words, spans) == [0, 1, 1, 2, 3, 4]
    assert words_of_tokens("a b", ["a", "b"], [(0, 1), (1, 2), (2, 3)]) == [0, None, 1]


def test_bleu_of_older_papers():
    hypotheses, references = ["Ein Hund, der rennt!"], ["ein hund , der rennt !"]
    assert bleu(hypotheses, references).value < 75
    older = bleu(hypotheses, references, lowercase=True, tokenize="moses-de")
    assert older.value == pytest.approx(100)
    assert "case:lc" in older.signature
    assert "tok:moses-de" in older.signature
    with pytest.raises(ConfigError, match="Did you mean 'none'"):
        bleu(hypotheses, references, tokenize="non")
