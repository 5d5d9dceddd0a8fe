"""Exercise 10 for the grader: byte-pair encoding, ids, padding, batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from cutaway.course.exercise import NO_MISTAKES, Case, Exercise, ExercisePart, Mistake, Property, Switches
from cutaway.course.exercises.scaled_dot_product import Array

Pair = tuple[str, str]
SplitWords = list[tuple[list[str], int]]
END = "</w>"


def count_pairs(split_words: SplitWords, wrong: Switches = NO_MISTAKES) -> dict[Pair, int]:
    """(left, right) -> the number of its occurrences"""
    if "across-flat" in wrong:
        split_words = [([symbol for symbols, _ in split_words for symbol in symbols], 1)]
    if "across-repeated" in wrong:
        split_words = [([symbol for symbols, count in split_words for symbol in symbols * count], 1)]
    counts: dict[Pair, int] = {}
    previous: list[str] = []
    for symbols, count in split_words:
        before = previous[-1:] if "across-previous" in wrong else []
        for pair in pairs_of([*before, *symbols], wrong):
            if "counts-overwritten" in wrong:
                counts[pair] = count
            else:
                counts[pair] = counts.get(pair, 0) + (1 if "counts-ignored" in wrong else count)
        previous = symbols or previous
    return counts


def pairs_of(symbols: list[str], wrong: Switches) -> list[Pair]:
    pairs = list(pairwise(symbols))
    if "every-second-pair" in wrong:
        return pairs[::2]
    if "once-per-word" in wrong:
        return list(dict.fromkeys(pairs))
    if "overlaps-once" in wrong:
        kept: list[Pair] = []
        i = 0
        while i < len(pairs):
            kept.append(pairs[i])
            is_overlap = i + 1 < len(pairs) and pairs[i + 1] == pairs[i]
            i += 2 if is_overlap else 1
        return kept
    return pairs


COUNTS_IGNORED = Mistake(
    "counts-ignored",
    "each word counts once, however often it occurs",
    "What does your code do with the number beside each word?",
    "A pair of a word that occurs 5 times occurs 5 times, too. Add that number instead of 1.",
)

COUNT_PAIRS_MISTAKES = (
    COUNTS_IGNORED,
    Mistake(
        "counts-overwritten",
        "a pair that occurs again replaces its earlier count; the counts should be added up",
        "What happens to a pair that occurs in two words?",
        "Add the new count to the one that is already in the dict, or to 0.",
    ),
    Mistake(
        "pairs-across-words",
        "the last symbol of a word and the first symbol of the next word are counted as a pair",
        "Which pairs does your code find in the two words a b and c d? There are two.",
        "Go through the pairs of one word at a time, and start afresh with each word.",
        ways=("across-previous", "across-flat", "across-repeated"),
    ),
    Mistake(
        "every-second-pair",
        "only every second pair is counted",
        "How many pairs of neighbours has a word of three symbols?",
        "Pairs overlap: in l o w the o belongs to two pairs. From one pair to the next, move on by one symbol.",
    ),
    Mistake(
        "once-per-word",
        "a pair that occurs at several places of one word is counted once",
        "How often does the pair (a, n) occur in b a n a n a?",
        "Count places, not different pairs: each place adds the count of the word. A set loses places.",
    ),
    Mistake(
        "overlaps-once",
        "of two overlapping places with the same pair, only one is counted",
        "How often does the pair (a, a) occur in a a a? Count the places where it begins.",
        "Every place counts, also if it shares a symbol with the place before. str.count does not count such places.",
    ),
)


def words_of(*counts: tuple[str, int]) -> SplitWords:
    return [(symbols.split(), count) for symbols, count in counts]


def check_total(split_words: SplitWords) -> Callable[[Any], str | None]:
    total = sum(count * (len(symbols) - 1) for symbols, count in split_words)

    def check(counts: Any) -> str | None:
        found = sum(int(count) for count in counts.values())
        return None if found == total else f"Together, your counts are {found}; there are {total} pairs of neighbours."

    return check


LOW_LOT = words_of(("l o w", 5), ("l o t", 2))

COUNT_PAIRS = ExercisePart(
    "count_pairs",
    ("split_words",),
    ("counts",),
    count_pairs,
    cases=(
        Case("two words", (LOW_LOT,)),
        Case("a pair at two places of a word", (words_of(("b a n a n a", 3), ("a n", 2)),)),
        Case("the same symbol several times in a row", (words_of(("a a a", 2), ("b b b b", 3), ("a c c c", 1)),)),
        Case("longer symbols, and a word of one symbol", (words_of(("lo w", 4), ("low", 9), ("n e w est", 6)),)),
        Case("no words", ([],)),
    ),
    mistakes=COUNT_PAIRS_MISTAKES,
    properties=(Property("all pairs are counted", (Case("two words", (LOW_LOT,)),), check_total(LOW_LOT)),),
    hint="Write down the pairs of neighbours of the first word, and how often each occurs.",
    strong_hint="Two loops, one inside the other: over the words, and over the places of a word. The dict is made "
    "before both. Its keys are tuples of two symbols.",
    thought="A word of n symbols has n - 1 pairs of neighbours: they begin at the places 0 to n - 2. A word that "
    "occurs 5 times contributes 5 to each of its pairs. The same pair can occur in several words and at several "
    "places, so its counts are added up. A pair that is not yet in the dict starts with 0.",
)


def merge_pair(symbols: list[str], pair: Pair, wrong: Switches = NO_MISTAKES) -> list[str]:
    """Replace every occurrence of the pair by its concatenation, from left to right."""
    left, right = pair
    if "text-replaced" in wrong:
        return " ".join(symbols).replace(f"{left} {right}", left + right).split()
    if "merged-from-the-right" in wrong:
        return merge_from_the_right(symbols, pair)
    if "symbol-used-twice" in wrong:
        is_pair = [each == (left, right) for each in pairwise(symbols)]
        padded = [False, *is_pair, False]  # is symbol i the right one, padded[i], or the left one, padded[i + 1]?
        return [
            left + right if padded[i + 1] else symbol
            for i, symbol in enumerate(symbols)
            if padded[i + 1] or not padded[i]
        ]
    merged: list[str] = []
    i, merges = 0, 0
    while i < len(symbols):
        matches = tuple(symbols[i : i + 2]) == (left, right) and not ("first-only" in wrong and merges)
        if matches:
            merged.append(left + right)
            merges += 1
        elif not ("last-symbol-lost" in wrong and i == len(symbols) - 1):
            merged.append(symbols[i])
        i += 2 if matches and "right-symbol-kept" not in wrong else 1
    return merged


def merge_from_the_right(symbols: list[str], pair: Pair) -> list[str]:
    backwards = merge_pair([symbol[::-1] for symbol in symbols[::-1]], (pair[1][::-1], pair[0][::-1]))
    return [symbol[::-1] for symbol in backwards[::-1]]


FIRST_ONLY = Mistake(
    "first-only",
    "only the first occurrence of a pair is merged",
    "What does your code do after the first merge in b a n a n a?",
    "Go on to the end of the word: every occurrence is merged.",
)
TEXT_REPLACED = Mistake(
    "text-replaced",
    "the end of a longer symbol is merged as if it were a symbol: (a, b) also merges ba b",
    "The pair is (a, b), and the symbols are ba and b. Should they be merged?",
    "A replacement in a text with spaces does not see where a symbol begins. Compare whole symbols of the list.",
)

MERGE_PAIR_MISTAKES = (
    FIRST_ONLY,
    Mistake(
        "right-symbol-kept",
        "the right symbol of a merged pair stays, although it is now part of the new symbol",
        "Join your symbols. Is this still the word?",
        "After a merge, go on two places further, not one: both symbols are used.",
    ),
    Mistake(
        "last-symbol-lost",
        "the last symbol of the word is lost",
        "Join your symbols. Is this still the word?",
        "The last symbol has no right neighbour. If it was not merged with its left neighbour, it has to be added as "
        "it is.",
    ),
    TEXT_REPLACED,
    Mistake(
        "symbol-used-twice",
        "a symbol is merged twice, with its left and with its right neighbour: a a a becomes aa aa",
        "Join your symbols of a a a. How many letters are there?",
        "Before you merge two symbols, ask whether the left one was already merged one step before.",
    ),
    Mistake(
        "merged-from-the-right",
        "the pairs are merged from right to left",
        "a a a has two places where (a, a) could be merged. Which comes first?",
        "Begin at the left end: a a a becomes aa a.",
    ),
)


def check_word_is_kept(word: str) -> Callable[[Any], str | None]:
    def check(symbols: Any) -> str | None:
        joined = "".join(symbols)
        return None if joined == word else f"Joined, your symbols are '{joined}'; the word is '{word}'."

    return check


def merge_case(description: str, symbols: str, pair: Pair) -> Case:
    return Case(description, (symbols.split(), pair))


BANANA = merge_case("a pair at two places", "b a n a n a", ("a", "n"))

MERGE_PAIR = ExercisePart(
    "merge_pair",
    ("symbols", "pair"),
    ("symbols",),
    merge_pair,
    cases=(
        merge_case("a pair at the start", "l o w", ("l", "o")),
        BANANA,
        merge_case("a pair at the end", "n e w </w>", ("w", "</w>")),
        merge_case("the same symbol three times", "a a a", ("a", "a")),
        merge_case("each symbol of the pair also alone", "a c b a b a", ("a", "b")),
        merge_case("a pair that does not occur", "b a b a", ("b", "b")),
        merge_case("longer symbols", "ba b a b ab bc", ("a", "b")),
        merge_case("longer symbols, twice in a row", "lo w lo w e", ("lo", "w")),
        merge_case("one symbol", "a", ("a", "a")),
    ),
    mistakes=MERGE_PAIR_MISTAKES,
    properties=(Property("the word stays the same", (BANANA,), check_word_is_kept("banana")),),
    hint="Go through the symbols of the smallest case by hand, place by place. What should be in the new list?",
    strong_hint="At each place there are two possibilities: the pair stands here, and one new symbol replaces two; "
    "or it does not, and one symbol stays.",
    thought="Go from left to right with a place i and a new list. If symbols i and i + 1 are the pair, their "
    "concatenation goes into the new list, and the next place is i + 2. Otherwise symbol i goes into the list, and the "
    "next place is i + 1. So no letter is lost and none is used twice. At the last symbol there is no right neighbour.",
)


def mark_end(word: str, wrong: Switches) -> list[str]:
    if "no-end-mark" in wrong:
        return list(word)
    if "end-mark-split" in wrong:
        return list(word + END)
    if "end-mark-glued" in wrong:
        return [*word[:-1], word[-1:] + END]
    return [*word, END]


def learn_merges(words: dict[str, int], n_merges: int, wrong: Switches = NO_MISTAKES) -> list[Any]:
    """The pairs that byte-pair encoding merges, in order"""
    split_words = [(mark_end(word, wrong), count) for word, count in words.items()]
    if "one-merge-too-few" in wrong:
        n_merges -= 1
    if "one-merge-too-many" in wrong:
        n_merges += 1
    merges: list[Pair] = []
    counts = count_pairs(split_words, wrong)
    if "counted-once" in wrong:
        merges = sorted(counts, key=lambda pair: (-counts[pair], pair))[:n_merges]
    while "counted-once" not in wrong and len(merges) < n_merges and counts:
        best = choose_pair(counts, wrong)
        if "stops-at-one" in wrong and counts[best] < 2:
            break
        merges.append(best)
        if "words-not-updated" not in wrong:
            split_words = [(merge_pair(symbols, best, wrong), count) for symbols, count in split_words]
        counts = count_pairs(split_words, wrong)
    return [left + right for left, right in merges] if "merged-strings" in wrong else merges


def choose_pair(counts: dict[Pair, int], wrong: Switches) -> Pair:
    if "ties-first-seen" in wrong:
        return max(counts, key=lambda pair: counts[pair])
    if "ties-last-seen" in wrong:
        return max(reversed(counts), key=lambda pair: counts[pair])
    if "ties-largest" in wrong:
        return max(counts, key=lambda pair: (counts[pair], pair))
    if "rarest-pair" in wrong:
        return min(counts, key=lambda pair: (counts[pair], pair))
    return min(counts, key=lambda pair: (-counts[pair], pair))


NO_END_MARK = Mistake(
    "no-end-mark",
    "the symbol </w> at the end of a word is missing",
    "With which symbols does a word start out?",
    "Letters, and one more symbol behind them that marks the end of the word.",
)
END_MARK_SPLIT = Mistake(
    "end-mark-split",
    "</w> is split into its four characters; it is one symbol",
    "Print the list of symbols of one word before the first merge. How long is it?",
    "First make a list of the letters, then append </w> to the list.",
)
END_MARK_GLUED = Mistake(
    "end-mark-glued",
    "</w> is joined to the last letter from the start; here it is a symbol of its own",
    "How many symbols has the word low at the start? There should be four.",
    "Append </w> to the list of the letters, not to the last letter. (Later versions of the authors' program do it "
    "your way.)",
)

LEARN_MERGES_MISTAKES = (
    COUNTS_IGNORED,
    NO_END_MARK,
    END_MARK_SPLIT,
    END_MARK_GLUED,
    Mistake(
        "words-not-updated",
        "the merges are not carried out in the words, so each round finds the same pair again",
        "What are the symbols of the words when your second round begins?",
        "Merge the chosen pair in all words, and keep the result for the next round. merge_pair returns a new list.",
    ),
    Mistake(
        "counted-once",
        "all merges come from one count; a merge makes new pairs, so they have to be counted again",
        "After e and s have become es, which new pairs are there?",
        "Each round does three things: count, choose, merge. The count stands inside the loop.",
    ),
    Mistake(
        "ties-broken",
        "of pairs that occur equally often, the wrong one is chosen: it should be the smallest",
        "Which pair does your code choose if two occur equally often? Read what the exercise says.",
        "max returns the first of equal entries, in the order of the dict. Sort the pairs before, or compare counts "
        "and pairs together.",
        ways=("ties-first-seen", "ties-last-seen"),
    ),
    Mistake(
        "ties-largest",
        "of pairs that occur equally often, the largest is chosen: it should be the smallest",
        "Is ('a', 'z') smaller or larger than ('b', 'a')? Which should be chosen?",
        "The larger count wins, but the smaller pair: the two are compared in opposite directions.",
    ),
    Mistake(
        "rarest-pair",
        "the pair that occurs least often is chosen",
        "How often does the pair that you choose first occur? Is there one that occurs more often?",
        "Look for the largest count, not the smallest.",
    ),
    Mistake(
        "one-merge-too-few",
        "there is one merge too few",
        "How often does your loop run?",
        "Count the rounds: with n_merges = 1, there is one.",
    ),
    Mistake(
        "one-merge-too-many",
        "there is one merge too many",
        "How often does your loop run?",
        "Count the rounds: with n_merges = 1, there is one. When is the length of the list compared?",
    ),
    Mistake(
        "stops-at-one",
        "it stops when every pair occurs only once; it should stop only when no pair is left",
        "What does your code do if the largest count is 1?",
        "A pair that occurs once is still merged. (Programs for large texts do stop there; here the rule is simpler.)",
    ),
    Mistake(
        "merged-strings",
        "the new symbols are returned; expected are the pairs, with left and right separate",
        "What does apply_merges need to know about a merge?",
        "Append the pair itself to the list: (left, right), not left + right.",
    ),
)

PAPER_WORDS = {"low": 5, "lower": 2, "newest": 6, "widest": 3}


def check_order_of_merges(n_merges: int) -> Callable[[Any], str | None]:
    def check(merges: Any) -> str | None:
        made: set[str] = set()
        for i, (left, right) in enumerate(merges):
            for symbol in (left, right):
                if len(symbol) > 1 and symbol != END and symbol not in made:
                    return f"merges[{i}] uses the symbol '{symbol}', but no merge before it makes this symbol."
            made.add(left + right)
        return None if len(merges) == n_merges else f"There are {len(merges)} merges; asked for were {n_merges}."

    return check


def check_no_merge_twice(merges: Any) -> str | None:
    pairs = [tuple(pair) for pair in merges]
    i = next((i for i, pair in enumerate(pairs) if pair in pairs[:i]), None)
    return None if i is None else f"merges[{i}] is {pairs[i]}, as is merges[{pairs.index(pairs[i])}]."


TWO_SMALL_WORDS = Case("two words, three merges", ({"low": 5, "lot": 2}, 3))

LEARN_MERGES = ExercisePart(
    "learn_merges",
    ("words", "n_merges"),
    ("merges",),
    learn_merges,
    cases=(
        TWO_SMALL_WORDS,
        Case("one merge", ({"hug": 2, "bug": 1, "bun": 3}, 1)),
        Case("the words of the paper, six merges", (PAPER_WORDS, 6)),
        Case("many pairs that occur equally often", ({"ca": 1, "db": 1, "cb": 1, "da": 1, "ee": 1}, 7)),
        Case("the same letter in a row", ({"aaaa": 3, "baaa": 2}, 3)),
        Case("fewer pairs than merges", ({"ab": 2, "abc": 1}, 10)),
    ),
    mistakes=LEARN_MERGES_MISTAKES,
    properties=(
        Property("no pair is learned twice", (TWO_SMALL_WORDS,), check_no_merge_twice),
        Property("merges build on earlier ones", (TWO_SMALL_WORDS,), check_order_of_merges(3)),
    ),
    hint="Do the first two merges of the smallest case by hand, and print what your code does in each round.",
    strong_hint="Write each word as a list of symbols first. A round counts all pairs, chooses one, and merges it in "
    "all words. count_pairs and merge_pair do most of this.",
    thought="Start with single letters, because they can spell every word. Each round adds one symbol: the pair that "
    "occurs most often, as one symbol. So frequent words become one symbol, and rare ones stay in pieces. A merge "
    "changes the neighbours, so the next round counts again. Equal counts need a rule, otherwise two programs learn "
    "different merges from the same text.",
)


def apply_merges(word: str, merges: Sequence[Pair], wrong: Switches = NO_MISTAKES) -> list[str]:
    """The tokens of a word: merge the pair that was learned first wherever it occurs, then the second, ..."""
    symbols = mark_end(word, wrong)
    if "longest-first" in wrong:
        return take_longest(symbols, merges)
    if "leftmost-first" in wrong:
        return merge_leftmost(symbols, merges)
    for pair in reversed(merges) if "merges-reversed" in wrong else merges:
        before, symbols = symbols, merge_pair(symbols, pair, wrong)
        if "first-merge-only" in wrong and symbols != before:
            break
    if "end-mark-dropped" in wrong:
        return [token.removesuffix(END) for token in symbols if token != END]
    return symbols


def take_longest(symbols: list[str], merges: Sequence[Pair]) -> list[str]:
    known = {left + right for left, right in merges}
    tokens: list[str] = []
    while symbols:
        n = next((n for n in range(len(symbols), 1, -1) if "".join(symbols[:n]) in known), 1)
        tokens.append("".join(symbols[:n]))
        symbols = symbols[n:]
    return tokens


def merge_leftmost(symbols: list[str], merges: Sequence[Pair]) -> list[str]:
    pairs = {tuple(pair) for pair in merges}
    while True:
        i = next((i for i, pair in enumerate(pairwise(symbols)) if pair in pairs), None)
        if i is None:
            return symbols
        symbols = [*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :]]


APPLY_MERGES_MISTAKES = (
    NO_END_MARK,
    END_MARK_SPLIT,
    END_MARK_GLUED,
    Mistake(
        "end-mark-dropped",
        "</w> is removed from the tokens; it belongs to them",
        "How could decode know where a word ends?",
        "Return the tokens with </w>, as they are after the last merge.",
    ),
    Mistake(
        "merges-reversed",
        "the merges are applied in the opposite order: the last one learned comes first",
        "Which merge comes first, and which symbols does it need?",
        "merges[0] was learned first and is applied first. Later merges use the symbols that earlier ones made.",
    ),
    Mistake(
        "leftmost-first",
        "the leftmost pair is merged first; it should be the pair that was learned first",
        "Two pairs share the letter b in a b c. Which of them is merged?",
        "Go through the merges in their order, and for each of them through the word. Not the other way round.",
    ),
    Mistake(
        "longest-first",
        "the longest token that fits is taken first; BPE carries out the merges in the order of learning",
        "Which tokens do you get if you carry out the merges one by one, by hand?",
        "Do not look for long tokens in the word. Start with letters and merge pairs, the pair learned first first. "
        "(To take the longest token is what WordPiece does.)",
    ),
    Mistake(
        "first-merge-only",
        "only one merge is carried out",
        "When does your function return?",
        "Is the return, or a break, inside the loop over the merges? All merges are tried, one after the other.",
    ),
    FIRST_ONLY,
    TEXT_REPLACED,
)

PAPER_MERGES: list[Pair] = learn_merges(PAPER_WORDS, 10)
NESTED_MERGES: list[Pair] = [("b", "c"), ("a", "b"), ("a", "bc"), ("c", "d")]
LOWER = Case("two merges after each other", ("lower", [("l", "o"), ("lo", "w"), ("r", END)]))

APPLY_MERGES = ExercisePart(
    "apply_merges",
    ("word", "merges"),
    ("tokens",),
    apply_merges,
    cases=(
        LOWER,
        Case("two pairs that share a letter", ("abc", [("b", "c"), ("a", "b")])),
        Case("a merge with </w> before others", ("low", [("l", "o"), ("w", END), ("lo", "w")])),
        Case("a pair at two places", ("banana", [("a", "n"), ("b", "an"), ("a", END)])),
        Case("many merges", ("lowest", PAPER_MERGES)),
        Case("three pairs that share letters", ("abcdab", NESTED_MERGES)),
        Case("a pair that is also the end of a longer symbol", ("babab", [("b", "a"), ("a", "b"), ("ba", "ba")])),
        Case("letters without merges", ("xyz", PAPER_MERGES)),
        Case("the same letter in a row", ("aaaaa", [("a", "a"), ("aa", "aa"), ("aa", "a")])),
        Case("no merges", ("low", [])),
    ),
    mistakes=APPLY_MERGES_MISTAKES,
    properties=(Property("the tokens are the word", (LOWER,), check_word_is_kept("lower" + END)),),
    hint="Start with the letters and </w>, and carry out the merges by hand, one after the other.",
    strong_hint="The outer loop goes through the merges, in the order of the list. For each of them, merge_pair goes "
    "through the word.",
    thought="The tokens of a new word should be those that it would have had among the words of learn_merges. There, "
    "the first merge was carried out in all words before the second was chosen. So do here the same: all letters, "
    "then merge after merge in the order of learning. A merge that does not occur in the word changes nothing.",
)


def encode(
    text: str, merges: Sequence[Pair], vocabulary: dict[str, int], unknown: int, wrong: Switches = NO_MISTAKES
) -> list[Any]:
    """Ids of the tokens of all words"""
    words = split_text(text.lower() if "lower-case" in wrong else text, wrong)
    tokens = [apply_merges(word, () if "merges-ignored" in wrong else merges, wrong) for word in words]
    if "tokens-returned" in wrong:
        return [token for word in tokens for token in word]
    ids = [look_up(word, vocabulary, unknown, wrong) for word in tokens]
    return ids if "list-for-each-word" in wrong else [i for word in ids for i in word]


def split_text(text: str, wrong: Switches) -> list[str]:
    if "whole-text" in wrong:
        return [text]
    if "spaces-removed" in wrong:
        return ["".join(text.split())]
    if "split-at-one-space" in wrong:
        return text.split(" ")
    words = text.split()
    if "first-word-only" in wrong:
        return words[:1]
    return words[-1:] if "last-word-only" in wrong else words


def look_up(tokens: list[str], vocabulary: dict[str, int], unknown: int, wrong: Switches) -> list[Any]:
    if "whole-word-unknown" in wrong and any(token not in vocabulary for token in tokens):
        return [unknown]
    if "unknown-dropped" in wrong:
        return [vocabulary[token] for token in tokens if token in vocabulary]
    if "zero-is-unknown" in wrong:
        return [vocabulary.get(token) or unknown for token in tokens]
    if "unknown-is-zero" in wrong:
        unknown = 0
    return [vocabulary.get(token, None if "unknown-is-none" in wrong else unknown) for token in tokens]


ENCODE_MISTAKES = (
    Mistake(
        "text-not-split",
        "the text is not split into words",
        "Which words does apply_merges get from you?",
        "Split the text at white space first. Each word has its own </w>.",
        ways=("whole-text", "spaces-removed"),
    ),
    Mistake(
        "split-at-one-space",
        "the text is split at single spaces: two spaces in a row give an empty word, and a line end stays in a word",
        "What does your split make of a text with two spaces in a row, or with a line end?",
        "split() without an argument splits at all white space; split(' ') does not.",
    ),
    Mistake(
        "one-word",
        "only one of the words is encoded",
        "How many words has the text, and how many of them are in your ids?",
        "Is the return inside the loop, or is the list replaced with each word? The ids of all words are collected.",
        ways=("first-word-only", "last-word-only"),
    ),
    Mistake(
        "merges-ignored",
        "the merges are not used: every letter is a token",
        "What are your tokens before you look them up?",
        "Each word goes through apply_merges first.",
    ),
    Mistake(
        "lower-case",
        "capital letters become small ones",
        "Would decode give the text back?",
        "Leave the text as it is. A letter without an id is unknown, that is all.",
    ),
    Mistake(
        "zero-is-unknown",
        "the token with the id 0 is taken for unknown",
        "What is `0 or 1` in Python?",
        "0 counts as false. Ask whether the token is in the vocabulary, not whether its id is true.",
    ),
    Mistake(
        "unknown-ignored",
        "the id in the argument unknown is not used",
        "Which id do you give to a token that is not in the vocabulary?",
        "It is the argument unknown, not 0 and not None.",
        ways=("unknown-is-zero", "unknown-is-none"),
    ),
    Mistake(
        "unknown-dropped",
        "tokens that are not in the vocabulary are left out",
        "How many tokens are there, and how many ids do you return?",
        "Each token has one id; for a token that is not in the vocabulary it is the argument unknown.",
    ),
    Mistake(
        "whole-word-unknown",
        "one unknown token makes its whole word unknown",
        "Which tokens of the word are in the vocabulary?",
        "Look up each token by itself. Only those that are missing get the id unknown.",
    ),
    Mistake(
        "list-for-each-word",
        "each word has a list of its own; expected is one list of ids",
        "How deep are the brackets in your result?",
        "Add the ids of a word to the list (extend), not the list as one entry (append).",
    ),
    Mistake(
        "tokens-returned",
        "the tokens are returned; expected are their ids",
        "What is the vocabulary for?",
        "Look up each token in the vocabulary, and return the numbers.",
    ),
)

MERGES: list[Pair] = [("l", "o"), ("lo", "w"), ("e", "r"), ("low", END), ("er", END)]
# An entry for each letter, so that a text that is not split, or not merged, is not all unknown
TOKENS = ["low", "<unk>", "low</w>", "er</w>", "er", "lo", "l", "o", "w", "e", "r", END]
VOCABULARY = {token: i for i, token in enumerate(TOKENS)}


def check_decoded(text: str) -> Callable[[Any], str | None]:
    def check(ids: Any) -> str | None:
        decoded = decode([int(i) for i in ids], TOKENS)
        return None if decoded == text else f"Decoded, your ids are '{decoded}'; the text is '{text}'."

    return check


TWO_WORDS = Case("two words", ("low lower", MERGES, VOCABULARY, 1))

ENCODE = ExercisePart(
    "encode",
    ("text", "merges", "vocabulary", "unknown"),
    ("ids",),
    encode,
    cases=(
        TWO_WORDS,
        Case("tokens that are unknown", ("slow flower", MERGES, VOCABULARY, 1)),
        Case("several spaces, and a line end", ("  low  lower\nlow ", MERGES, VOCABULARY, 1)),
        Case("capital letters", ("Low LOW", MERGES, VOCABULARY, 1)),
        Case("another id for unknown tokens", ("oxo low", MERGES[:2], VOCABULARY, 77)),
        Case("no words", (" ", MERGES, VOCABULARY, 1)),
    ),
    mistakes=ENCODE_MISTAKES,
    properties=(Property("decode gives the text back", (TWO_WORDS,), check_decoded("low lower")),),
    hint="Write down the words of the smallest text, then their tokens, then the ids.",
    strong_hint="Three steps: split the text at white space, split each word with apply_merges, and look up each "
    "token.",
    thought="A text is a list of words, a word is a list of tokens, a token has one id. So there are two loops, and "
    "the ids go into one list. The order stays, so the text can be read again. A token that is missing in the "
    "vocabulary gets the id unknown; its neighbours keep theirs.",
)


def decode(ids: Sequence[int], tokens: list[str], wrong: Switches = NO_MISTAKES) -> str:
    """Join the tokens; </w> becomes the space between two words."""
    pieces = [tokens[i] for i in ids]
    if "unfinished-word-lost" in wrong:
        while pieces and not pieces[-1].endswith(END):
            pieces = pieces[:-1]
    pieces = [strip_characters(piece, wrong) for piece in pieces]
    text = (" " if {"joined-with-spaces", "joined-with-spaces-stripped"} & wrong else "").join(pieces)
    text = text.replace(END, next((mark for name, mark in MARKS.items() if name in wrong), " "))
    if "last-character-removed" in wrong:
        return text[:-1]
    return text if "space-at-end" in wrong else text.rstrip()


MARKS = {"mark-kept": END, "mark-kept-with-space": END + " ", "no-spaces": "", "joined-with-spaces-stripped": ""}


def strip_characters(token: str, wrong: Switches) -> str:
    is_end = token.endswith(END)
    if {"strip-all", "rstrip-all"} & wrong or (is_end and {"strip-ended", "rstrip-ended"} & wrong):
        stripped = token.rstrip(END) if {"rstrip-all", "rstrip-ended"} & wrong else token.strip(END)
        return stripped + (END if is_end else "")
    return token


DECODE_MISTAKES = (
    Mistake(
        "mark-kept",
        "</w> is still in the text",
        "What does a reader see at the end of a word?",
        "Each </w> becomes a space.",
        ways=("mark-kept", "mark-kept-with-space"),
    ),
    Mistake(
        "no-spaces",
        "there are no spaces between the words",
        "Which part of a token says that the word ends there?",
        "Each </w> becomes a space, except the one at the end of the text.",
    ),
    Mistake(
        "spaces-between-tokens",
        "there are spaces between the tokens; they belong between the words only",
        "Where does a word end, and where only a token?",
        "Join the tokens without anything between them. The spaces come from </w>.",
        ways=("joined-with-spaces", "joined-with-spaces-stripped"),
    ),
    Mistake(
        "space-at-end",
        "there is a space at the end of the text",
        "Print your text with repr: where does it end?",
        "There is a space between two words only. Remove the one after the last word.",
    ),
    Mistake(
        "characters-stripped",
        "letters are lost: strip removes the characters <, /, w and > in any order, not the text </w>",
        "What is 'low</w>'.rstrip('</w>') in Python?",
        "removesuffix and replace work with the whole text </w>; strip works with single characters.",
        ways=("strip-all", "rstrip-all", "strip-ended", "rstrip-ended"),
    ),
    Mistake(
        "last-character-removed",
        "the last letter is lost if the text ends within a word",
        "Is the last character of your text always a space?",
        "A text that ends within a word has no </w> there. Remove a space, not any character.",
    ),
    Mistake(
        "unfinished-word-lost",
        "the last word is lost if it has no </w>",
        "What happens to the tokens after the last </w>?",
        "After the loop, a word may be left over that is not yet in the text.",
    ),
)


def check_letters(n_letters: int) -> Callable[[Any], str | None]:
    def check(text: Any) -> str | None:
        found = sum(len(word) for word in text.split())
        if END in text:
            return f"The text contains {text.count(END)} times </w>."
        return None if found == n_letters else f"Your text has {found} letters; the tokens have {n_letters}."

    return check


LOWER_LOW = Case("two words", ([0, 3, 2], TOKENS))

DECODE = ExercisePart(
    "decode",
    ("ids", "tokens"),
    ("text",),
    decode,
    cases=(
        LOWER_LOW,
        Case("an unfinished word at the end", ([2, 0, 4, 3, 5], TOKENS)),
        Case("single letters, and </w> alone", ([8, 7, 8, 11, 8, 9, 11, 8, 2], TOKENS)),
        Case("no ids", ([], TOKENS)),
    ),
    mistakes=DECODE_MISTAKES,
    properties=(Property("no letter is lost", (LOWER_LOW,), check_letters(8)),),
    hint="Write the tokens of the ids side by side. Which characters have to change?",
    strong_hint="Join the tokens, and only then turn each </w> into a space. What should happen at the end of the "
    "text?",
    thought="The merges need no inverse: a token already contains its letters, so joining the tokens gives the words. "
    "Where one word ends and the next begins, encode has put </w>. So each </w> is the place of a space. Only the last "
    "one has no word after it. A model can also stop within a word; then there is no last </w>.",
)


def pad_batch(texts: list[list[int]], pad: int, wrong: Switches = NO_MISTAKES) -> Any:
    """[B, T], padding on the right"""
    lengths = [len(text) for text in texts]
    if "pad-is-zero" in wrong:
        pad = 0
    if "cut-to-shortest" in wrong:
        return [text[: min(lengths)] for text in texts]
    width = max(lengths) + ("one-column-too-many" in wrong)
    if "width-of-first" in wrong:
        return [[*text, *[pad] * (lengths[0] - len(text))] for text in texts]
    batch: Array = np.full((len(texts), width), pad)
    if "cut-to-first" in wrong:
        batch = batch[:, : lengths[0]]
    for row, text in zip(batch, texts, strict=True):
        n = min(len(text), len(row))
        if "padded-on-the-left" in wrong:
            row[len(row) - n :] = text[:n]
        else:
            row[:n] = text[:n]
    return batch.T if "batch-transposed" in wrong else batch


PAD_BATCH_MISTAKES = (
    Mistake(
        "padded-on-the-left",
        "the padding stands on the left",
        "Where in its row does a short text begin?",
        "A text begins in column 0. What is left of the row, on the right, is padding.",
    ),
    Mistake(
        "pad-ignored",
        "the rows are filled with 0, not with the id in the argument pad",
        "What does your code do with the argument pad?",
        "Fill the array with pad before you write the texts into it. (pad_sequence has an argument for it.)",
        ways=("pad-is-zero",),
    ),
    Mistake(
        "batch-transposed",
        "the texts are columns; they should be rows",
        "What should the shape be, [B, T] or [T, B]?",
        "One row for each text. (pad_sequence of PyTorch makes columns unless batch_first=True.)",
    ),
    Mistake(
        "cut-to-shortest",
        "all texts are cut to the length of the shortest",
        "How many ids are lost?",
        "T is the length of the longest text. (zip ends with the shortest.)",
    ),
    Mistake(
        "width-of-first",
        "the first text decides how long the rows are; it should be the longest",
        "What happens if the first text is not the longest?",
        "Find the largest of all lengths first.",
        ways=("width-of-first", "cut-to-first"),
    ),
    Mistake(
        "one-column-too-many",
        "there is one column too many: even the longest text is padded",
        "How many places has the longest text, and how many columns has your array?",
        "T is the length of the longest text, not one more.",
    ),
)


def check_texts_are_kept(texts: list[list[int]], pad: int) -> Callable[[Any], str | None]:
    def check(batch: Any) -> str | None:
        n_pads = sum(max(map(len, texts)) - len(text) for text in texts)
        rows = np.asarray(batch).tolist()
        for i, (row, text) in enumerate(zip(rows, texts, strict=True)):
            if row[: len(text)] != text:
                return f"Text {i} is {text}, but row {i} begins with {row[: len(text)]}."
        found = sum(row.count(pad) for row in rows)
        return None if found == n_pads else f"The id {pad} stands at {found} places; {n_pads} places are padding."

    return check


SHORT_LONG = [[5, 6, 7], [8]]


def check_whole_numbers(batch: Any) -> str | None:
    dtype = getattr(batch, "dtype", None)
    if dtype is None or dtype.kind in "iu":
        return None
    return f"The batch holds numbers of the type {dtype}. Ids are whole numbers: others cannot be an index of a table."


PAD_BATCH = ExercisePart(
    "pad_batch",
    ("texts", "pad"),
    ("batch",),
    pad_batch,
    cases=(
        Case("two texts", (SHORT_LONG, 9)),
        Case("the longest text in the middle", ([[4, 5], [1, 2, 3, 4, 5], [6, 7, 8]], 9)),
        Case("an empty text", ([[3, 1, 4, 2], [], [5]], 7)),
        Case("padding with the id 0", ([[3], [1, 4], [1, 5, 2]], 0)),
        Case("one text", ([[2, 3, 4]], 9)),
        Case("texts of the same length", ([[1, 2], [3, 4], [5, 6]], 9)),
    ),
    mistakes=PAD_BATCH_MISTAKES,
    properties=(
        Property("texts and padding", (Case("two texts", (SHORT_LONG, 9)),), check_texts_are_kept(SHORT_LONG, 9)),
        Property("whole numbers", (Case("two texts", (SHORT_LONG, 9)),), check_whole_numbers),
    ),
    hint="Draw the array for the smallest case: which shape has it, and what stands in each place?",
    strong_hint="Two steps: an array of the shape [B, T] that contains only pad, and then the texts, row by row.",
    thought="An array needs rows of the same length, texts have different lengths. So the longest text decides how "
    "long the rows are, and no text is cut. A shorter text fills the start of its row, and pad the rest. On the "
    "right, because then position 0 is the first token of every text.",
)


def make_batches(lengths: list[int], budget: int, wrong: Switches = NO_MISTAKES) -> list[list[int]]:
    """Fill batches from the shortest to the longest text; texts · longest ≤ budget."""
    order = order_of(lengths, wrong)
    batches: list[list[int]] = []
    batch: list[int] = []
    for i in order:
        is_long = lengths[i] > budget
        if is_long and "too-long-dropped" in wrong:
            continue
        if is_long and "empty-around-long" in wrong:
            batches += [batch, [i]]
            batch = []
            continue
        if exceeds(batch, i, lengths, budget, wrong) and (batch or {"empty-before", "empty-at-start"} & wrong):
            batches.append(batch)
            batch = []
            if "text-lost" in wrong:
                continue
        batch.append(i)
    ends_empty = {"empty-after", "empty-around-long", "empty-at-start"} & wrong
    if "last-batch-lost" not in wrong and (batch or ends_empty):
        batches.append(batch)
    if "lengths-returned" in wrong:
        return [[lengths[i] for i in batch] for batch in batches]
    if "places-returned" in wrong:
        return [[order.index(i) for i in batch] for batch in batches]
    return batches


def order_of(lengths: list[int], wrong: Switches) -> list[int]:
    indices = range(len(lengths))
    if "not-sorted" in wrong:
        return list(indices)
    if "longest-first" in wrong:
        return sorted(indices, key=lambda i: -lengths[i])
    if "longest-first-reversed" in wrong:
        return sorted(indices, key=lambda i: lengths[i])[::-1]
    if "ties-reversed" in wrong:
        return sorted(indices, key=lambda i: (lengths[i], -i))
    return sorted(indices, key=lambda i: lengths[i])


def exceeds(batch: list[int], new: int, lengths: list[int], budget: int, wrong: Switches) -> bool:
    """Decide whether the new text needs another batch."""
    before = [lengths[i] for i in batch]
    size = (len(batch) + 1) * max([*before, lengths[new]])
    if "padding-not-counted" in wrong:
        size = sum(before) + lengths[new]
    if "longest-not-updated" in wrong:
        size = (len(batch) + 1) * max(before, default=lengths[new])
    if "texts-counted" in wrong:
        size = len(batch) + 1
    if {"closed-too-late", "closed-when-full"} & wrong:
        size = len(batch) * max(before, default=0)
        return size >= budget if "closed-when-full" in wrong else size > budget
    return size >= budget if "budget-not-reached" in wrong else size > budget


MAKE_BATCHES_MISTAKES = (
    Mistake(
        "not-sorted",
        "the texts are taken in the order of the list; they should be taken from the shortest to the longest",
        "Is the text of your second batch longer than those of the first?",
        "Sort the indices by the lengths before you fill the batches.",
    ),
    Mistake(
        "longest-first",
        "the texts are taken from the longest to the shortest",
        "Which text is in your first batch?",
        "Begin with the shortest text.",
        ways=("longest-first", "longest-first-reversed"),
    ),
    Mistake(
        "ties-reversed",
        "texts of the same length are in the opposite order; they should keep their order",
        "Two texts have the same length. Which of them comes first in your batch?",
        "Sort by length only, with a stable sort such as Python's sorted.",
    ),
    Mistake(
        "padding-not-counted",
        "the lengths are added up: this does not count the padding",
        "How many places has a batch of two texts with 2 and 5 tokens, padding included?",
        "Every row is as long as the longest text: multiply the number of texts with the longest length.",
    ),
    Mistake(
        "longest-not-updated",
        "the new text is counted with the length of the texts before it, though it makes their rows longer",
        "If a text of 5 tokens joins one of 2, how long are the rows?",
        "Compute the size with the new text in the batch, for the number of texts and for the longest.",
    ),
    Mistake(
        "texts-counted",
        "the budget counts texts; it should count places, padding included",
        "What does the budget of 8 mean for texts of 4 tokens?",
        "Multiply the number of texts with the length of the longest one.",
    ),
    Mistake(
        "budget-not-reached",
        "a batch with exactly `budget` places is not allowed, but should be",
        "Is it < or <=?",
        "A batch may be full to the last place: the size is at most the budget.",
    ),
    Mistake(
        "closed-too-late",
        "the size is compared before the new text is in it, so a batch can exceed the budget",
        "Which places does your code count when it decides: with the new text, or without?",
        "Compute the size that the batch would have with the new text. If this is too much, the text begins a new "
        "batch.",
        ways=("closed-too-late", "closed-when-full"),
    ),
    Mistake(
        "text-lost",
        "the text that does not fit into a batch is lost; the next batch should begin with it",
        "Count the texts in your batches. Which are missing?",
        "After closing a batch, the new text still has to go somewhere: it is the first one of the next batch.",
    ),
    Mistake(
        "last-batch-lost",
        "the last batch is missing",
        "What is in your variables when the loop ends?",
        "A batch gets into the list when the next one begins. Nothing comes after the last one, so add it after the "
        "loop.",
    ),
    Mistake(
        "too-long-dropped",
        "texts that are longer than the budget are left out; each should get a batch of its own",
        "Which texts are missing in your batches?",
        "A batch of one text is always allowed, however long the text is.",
    ),
    Mistake(
        "empty-batch",
        "there is an empty batch",
        "When does your code close a batch in which no text is yet?",
        "Add a batch to the list only if it contains a text: at the start, before a text that is too long, and at the "
        "end.",
        ways=("empty-before", "empty-around-long", "empty-after", "empty-at-start"),
    ),
    Mistake(
        "lengths-returned",
        "the batches contain lengths; they should contain indices of texts",
        "What do the numbers in your batches stand for?",
        "Sort and collect indices: 0 is the first text. Look up its length where you need it.",
    ),
    Mistake(
        "places-returned",
        "the batches contain places in the sorted list; expected are indices into lengths",
        "Does your number 0 stand for the first text of lengths, or for the shortest one?",
        "Sort the indices, not the lengths, and put the indices into the batches.",
    ),
)


def check_batches(check: Callable[[list[list[int]], list[int], int], str | None], case: Case) -> Property:
    """A property of the batches of this case. Only the first case needs no description: it is printed."""
    lengths, budget = case.arguments
    start = "" if case is FOUR_TEXTS else f"With the lengths {lengths} and the budget {budget}: "

    def check_result(batches: Any) -> str | None:
        says = check([[int(i) for i in batch] for batch in batches], lengths, budget)
        return start + says if says else None

    return Property(str(check.__doc__), (case,), check_result)


def every_text_once(batches: list[list[int]], lengths: list[int], budget: int) -> str | None:
    """every text is in one batch"""
    found = [i for batch in batches for i in batch]
    for i in range(len(lengths)):
        if found.count(i) != 1:
            return f"Text {i} is in {found.count(i)} batches." if found.count(i) else f"Text {i} is in no batch."
    return None


def within_budget(batches: list[list[int]], lengths: list[int], budget: int) -> str | None:
    """no batch is larger than the budget"""
    for number, batch in enumerate(batches):
        longest = max((lengths[i] for i in batch), default=0)
        if not batch:
            return f"Batch {number} is empty."
        if len(batch) > 1 and len(batch) * longest > budget:
            size = len(batch) * longest
            return (
                f"Batch {number} has {len(batch)} texts of up to {longest} tokens: {size}, and the budget is {budget}."
            )
    return None


def as_full_as_possible(batches: list[list[int]], lengths: list[int], budget: int) -> str | None:
    """no two batches could be one"""
    for number, (batch, following) in enumerate(pairwise(batches)):
        size = (len(batch) + 1) * max(lengths[i] for i in (*batch, following[0]))
        if size <= budget:
            return (
                f"Text {following[0]} would fit into batch {number}: it would have {size} places, "
                f"and the budget is {budget}."
            )
    return None


def little_padding(batches: list[list[int]], lengths: list[int], budget: int) -> str | None:
    """there is as little padding as with sorted texts"""

    def padding_of(batches: list[list[int]]) -> int:
        return sum(len(batch) * max(lengths[i] for i in batch) - sum(lengths[i] for i in batch) for batch in batches)

    found, least = padding_of(batches), padding_of(make_batches(lengths, budget))
    return None if found <= least else f"{found} places are padding; with texts sorted by length it would be {least}."


def same_length_in_order(batches: list[list[int]], lengths: list[int], budget: int) -> str | None:
    """texts of the same length keep their order"""
    found = [i for batch in batches for i in batch]
    for i, j in pairwise(found):
        if lengths[i] == lengths[j] and i > j:
            return f"Texts {j} and {i} have the same length, {lengths[i]}, but {i} comes before {j}: use a stable sort."
    return None


FOUR_TEXTS = Case("four texts", ([2, 5, 2, 4], 8))
SEVEN_TEXTS = Case("seven texts", ([5, 3, 1, 4, 3, 5, 2], 12))

MAKE_BATCHES = ExercisePart(
    "make_batches",
    ("lengths", "budget"),
    ("batches",),
    make_batches,
    cases=(
        FOUR_TEXTS,
        SEVEN_TEXTS,
        Case("many texts of the same length", ([3, 2, 3, 2, 3, 2, 3, 3], 9)),
        Case("texts that are longer than the budget", ([7, 2, 9, 3, 2, 7], 6)),
        Case("all texts are longer than the budget", ([8, 9, 7], 6)),
        Case("one text", ([4], 10)),
        Case("no texts", ([], 10)),
        Case("twenty texts", ([6, 2, 9, 4, 4, 1, 7, 3, 8, 2, 5, 5, 3, 6, 1, 9, 2, 7, 4, 6], 24)),
    ),
    mistakes=MAKE_BATCHES_MISTAKES,
    properties=tuple(
        check_batches(check, case)
        for case in (FOUR_TEXTS, SEVEN_TEXTS)
        for check in (every_text_once, within_budget, as_full_as_possible, little_padding, same_length_in_order)
    ),
    hint="Sort the lengths of the smallest case by hand, and fill the batches. Compare the number of places of each.",
    strong_hint="Keep the current batch in a list. For each text, in sorted order, ask: how many places would the "
    "batch have with this text?",
    thought="A batch costs as many places as its longest text times the number of texts, because the others are "
    "padded. So texts of similar length belong together: sort first. Then take text after text. In sorted order the "
    "new text is the longest, so the size with it is (texts + 1) · its length. If this exceeds the budget, the batch "
    "is finished and the text begins the next one. After the loop, one batch is still open.",
)

EXERCISE = Exercise(
    10,
    "tokens_and_batches",
    "Tokens and batches",
    parts=(COUNT_PAIRS, MERGE_PAIR, LEARN_MERGES, APPLY_MERGES, ENCODE, DECODE, PAD_BATCH, MAKE_BATCHES),
)
