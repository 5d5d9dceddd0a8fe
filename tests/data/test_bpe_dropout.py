"""BPE dropout, compared with the algorithm of the paper and with `tokenizers`. The text must not change."""

import json
from collections import Counter
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tokenizers import Regex, decoders, models, pre_tokenizers

from cutaway.data.bpe_dropout import NAME_OF_BYTE, BpeDropout
from cutaway.data.tokenizer import SPECIALS, Tokenizer
from cutaway.errors import ConfigError

TEXTS = [
    "The old man's dog isn't there; they'll say we've lost it, I'd say you're right.",
    "Ein Mädchen in einem weißen Kleid läuft über die Straße – und lacht: Donaudampfschifffahrtsgesellschaft!",
    "L'élève  lit\n\n  son livre\t(12 345 pages, 3,50 €).   ",
    "def f(x):\n    return x ** 2  # 日本語 и 🙂🙃 aaaaaaa",
]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXTS * 5, "bpe", 420)


@pytest.fixture(scope="module")
def often(tokenizer):
    return BpeDropout(tokenizer, 0.5)


@pytest.fixture(scope="module")
def hardly_ever(tokenizer):
    """All steps (bytes, words, merges), but no merge is dropped."""
    return BpeDropout(tokenizer, 1e-12)


def generator(seed=0):
    return np.random.default_rng(seed)


any_text = st.text(max_size=40) | st.lists(st.sampled_from(" '’s\n\tt12.éß日🙂"), max_size=30).map("".join)


@given(text=any_text | st.sampled_from(TEXTS), seed=st.integers(0, 5))
def test_the_text_stays_and_without_dropout_the_ids_stay(tokenizer, often, hardly_ever, text, seed):
    ids = tokenizer.encode(text)
    other = often(ids, generator(seed))
    assert tokenizer.decode(other) == tokenizer.decode(ids)
    assert hardly_ever(other, generator(seed)) == ids


def test_a_text_has_many_segmentations(tokenizer):
    draw, dropout, ids = generator(), BpeDropout(tokenizer, 0.2), tokenizer.encode(TEXTS[0])
    ways = {tuple(dropout(ids, draw)) for _ in range(50)}
    assert len(ways) > 40
    assert min(map(len, ways)) >= len(ids)


@given(ids=st.lists(st.integers(0, 430), max_size=20))
def test_any_row_of_ids_keeps_its_bytes(often, ids):
    """Also inside a UTF-8 character, with special tokens, and with ids outside the vocabulary."""

    def spell(row):
        return b"".join(often.spelling.get(id, b"<%d>" % id) for id in row)

    assert spell(often(ids, generator())) == spell(ids)


def test_probability_0_returns_the_ids(tokenizer):
    ids = list(range(tokenizer.vocab_size))  # not the encoding of any text
    assert BpeDropout(tokenizer, 0)(ids, generator()) == ids


def test_special_tokens_stay_and_separate_their_neighbours(tokenizer, hardly_ever):
    ids = tokenizer.encode("there")
    row = [tokenizer.bos, *ids, tokenizer.pad, *ids, tokenizer.eos]
    assert hardly_ever(row, generator()) == row
    other = BpeDropout(tokenizer, 0.9)(row, generator())
    assert len(other) > len(row)
    assert [id for id in other if id in tokenizer.special_ids] == [tokenizer.bos, tokenizer.pad, tokenizer.eos]


def test_the_result_depends_only_on_the_state_of_the_generator(tokenizer):
    rows = tokenizer.encode_batch(TEXTS)
    fresh = BpeDropout(tokenizer, 0.3)
    draw = generator(7)
    for row in rows:
        fresh(row, draw)
    before = draw.bit_generator.state
    expected = [fresh(row, draw) for row in rows]
    again = generator()
    again.bit_generator.state = before
    assert [BpeDropout(tokenizer, 0.3)(row, again) for row in rows] == expected
    assert [fresh(row, generator(1)) for row in rows] != expected


def exact_distribution(dropout, p):
    """The probability of each segmentation: Algorithm 1 of the paper, over all choices of dropped merges."""

    @cache
    def ways(split):
        merges = [(dropout.rank[pair], place) for place, pair in enumerate(pairwise(split)) if pair in dropout.rank]
        found = Counter()
        for kept in product([False, True], repeat=len(merges)):
            probability = np.prod([1 - p if k else p for k in kept])
            left = [merge for merge, k in zip(merges, kept, strict=True) if k]
            if not left:
                found[split] += probability
                continue
            rank, place = min(left)
            for way, then in ways((*split[:place], dropout.merged[rank], *split[place + 2 :])).items():
                found[way] += probability * then
        return found

    return ways


def merge_rare(counts, expected, least=10):
    """Observed and expected counts. The last column is for all segmentations expected fewer than `least` times."""
    columns = [(counts[way], n) for way, n in expected.items() if n >= least]
    rest = (counts.total() - sum(c for c, _ in columns), sum(expected.values()) - sum(n for _, n in columns))
    return np.array([*columns, rest] if rest[1] > 0.5 else columns, dtype=float).T


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("word", [" there", " dog", "aaaaaa", "Straße", " über"])
def test_segmentations_have_the_frequencies_of_the_paper(tokenizer, word, p):
    dropout, draw, n = BpeDropout(tokenizer, p), generator(3), 2_000
    ids = tokenizer.encode(word, continues=True)  # without a prepended space
    counts = Counter(tuple(dropout(ids, draw)) for _ in range(n))
    symbols = "".join(piece for piece, _ in dropout.pre_tokenizer.pre_tokenize_str(word))
    probable = exact_distribution(dropout, p)(tuple(dropout.base[symbol] for symbol in symbols))
    assert counts.keys() <= probable.keys()
    observed, expected = merge_rare(counts, {way: n * share for way, share in probable.items()})
    assert len(observed) > 1
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


def bpe_with_merges(merges, pre_tokenizer=None, **settings):
    """A byte-level BPE with exactly these merges."""
    names = dict.fromkeys([*SPECIALS, *NAME_OF_BYTE, *("".join(merge) for merge in merges)])
    backend = tokenizers.Tokenizer(models.BPE({name: id for id, name in enumerate(names)}, merges, **settings))
    backend.add_special_tokens(SPECIALS)
    backend.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend)


def test_segmentations_have_the_frequencies_of_tokenizers():
    """With merges that never compete for a symbol. Otherwise the library drops fewer merges than the paper."""
    merges = [("a", "b"), ("c", "d"), ("e", "f"), ("ab", "cd"), ("abcd", "ef")]
    p, n, draw = 0.3, 2_000, generator(5)
    tokenizer = bpe_with_merges(merges)
    ids, dropout = tokenizer.encode("abcdef"), BpeDropout(tokenizer, p)
    ours = Counter(tuple(dropout(ids, draw)) for _ in range(n))
    library = bpe_with_merges(merges, dropout=p)
    theirs = Counter(tuple(library.encode("abcdef")) for _ in range(n))
    table = merge_rare(ours, theirs)
    assert table.shape[1] >= 8
    assert stats.chi2_contingency(table).pvalue > 1e-6  # small, because the library cannot be seeded


MODERN = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        pre_tokenizers.ByteLevel(add_prefix_space=True),  # RoBERTa
        pre_tokenizers.Sequence(  # Llama 3
            [
                pre_tokenizers.Split(Regex(MODERN), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
    ],
    ids=["prefix space", "another pattern"],
)
def test_other_byte_level_tokenizers(tokenizer, pre_tokenizer):
    other = bpe_with_merges([tuple(m) for m in json.loads(tokenizer.to_json())["model"]["merges"]], pre_tokenizer)
    often, hardly_ever = BpeDropout(other, 0.5), BpeDropout(other, 1e-12)
    for text in TEXTS:
        ids = other.encode(text)
        segmented = often(ids, generator())
        assert segmented != ids
        assert other.decode(segmented) == other.decode(ids)
        assert hardly_ever(segmented, generator()) == ids
        assert hardly_ever(ids[1:], generator()) == ids[1:]  # no space before the rest of a text


REFUSED = {
    "its model is WordLevel": lambda: Tokenizer.train(TEXTS, "word"),
    "it has single bytes only": lambda: Tokenizer.train(TEXTS, "byte"),
    "end_of_word_suffix = '</w>'": lambda: bpe_with_merges([("a", "b")], end_of_word_suffix="</w>"),
    "its last pre-tokenizer is Metaspace, not ByteLevel": lambda: bpe_with_merges(
        [("a", "b")], pre_tokenizers.Metaspace()
    ),
    "its pre-tokenizer WhitespaceSplit may remove characters": lambda: bpe_with_merges(
        [("a", "b")], pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel()])
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_other_tokenizers_are_refused(why):
    with pytest.raises(
        ConfigError, match=rf"needs a byte-level BPE tokenizer. .*{why}.* Train one with data.tokenizer"
    ):
        BpeDropout(REFUSED[why](), 0.1)


@pytest.mark.parametrize("p", [-0.1, 1.0, 10, float("nan")])
def test_impossible_probabilities_are_refused(tokenizer, p):
    with pytest.raises(ConfigError, match=f"data.bpe_dropout = {p} is not possible: it must be at least 0 and below 1"):
        BpeDropout(tokenizer, p)
