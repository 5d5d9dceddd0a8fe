"""Comparing and describing texts, lists and dicts."""

import numpy as np
import pytest

from cutaway.course.differences import describe_differences, is_same
from cutaway.course.feedback import value_lines
from cutaway.course.grader import MIN_EVIDENCE, count_differences
from cutaway.course.values import UnsupportedValue, pack, unpack


@pytest.mark.parametrize(
    ("given", "right", "same"),
    [
        ("low", "low", True),
        ("low", "lot", False),
        (3, "3", False),
        (None, None, True),
        (UnsupportedValue("set"), UnsupportedValue("set"), True),
        (["a", "b"], ("a", "b"), True),
        ([("e", "s")], [["e", "s"]], True),
        (np.array([1, 2]), [1, 2], True),
        (np.array([]), [], True),
        ([[0, 1], [2]], [[0, 1], [2]], True),
        ([np.array(0), np.array(1)], [0, 1], True),
        (np.ones((2, 2)), (np.ones(2), np.ones(2)), False),  # two returned values are not one array
        ({"a": np.ones(2)}, {"a": np.ones(2)}, True),
        (unpack(pack({("l", "o"): 7})), {("l", "o"): 7}, True),
        ({"lo": 7}, {("l", "o"): 7}, False),
    ],
)
def test_texts_lists_and_dicts_are_compared(given, right, same):
    assert is_same(given, right) is same


@pytest.mark.parametrize(
    ("given", "right", "facts"),
    [
        (["l", "o", "ow"], ["l", "o", "low"], ["tokens[2] is 'ow'; expected is 'low'."]),
        (["l"], ["l", "o"], ["The tokens have 1 entry; expected are 2.", "tokens[1] is missing; expected is 'o'."]),
        (
            ["l", "o"],
            ["l"],
            ["The tokens have 2 entries; expected is 1.", "tokens[1] is 'o'; nothing more is expected."],
        ),
        (
            ["b", "a"],
            ["a", "b"],
            ["tokens[0] is 'b'; expected is 'a'.", "The entries are the right ones, in another order."],
        ),
        ([[0], [1]], [[0], [1, 2]], ["tokens[1] is [1]; expected is [1, 2]."]),
        (None, ["a"], ["The tokens are None; expected is ['a']. Is a return missing?"]),
        ("low ", "low", ["The tokens are 'low '; expected is 'low'."]),
        ({"('l', 'o')": 7}, {("l", "o"): 8}, ["tokens[('l', 'o')] is 7; expected is 8."]),
        ({"a": 1, "c": 2}, {"a": 1}, ["The tokens have an unexpected entry 'c'."]),
        ({}, {"a": 1, "b": 2}, ["The tokens have no entry 'a' (1 more like that)."]),
        (
            {"w": np.ones(3)},
            {"w": np.zeros(3)},
            ["Of the tokens['w'], all numbers differ; the first is tokens['w'][0], 1 instead of 0."],
        ),
    ],
)
def test_the_first_difference_is_described(given, right, facts):
    assert describe_differences(given, right, ("tokens",)) == facts


def test_evidence_in_lists_and_dicts():
    assert count_differences(["a", "b", "c"], ["a", "b", "c"], False) == 0
    assert count_differences(["x", "y", "c"], ["a", "b", "c"], False) >= MIN_EVIDENCE
    assert count_differences(["a"], ["a", "b"], False) >= MIN_EVIDENCE
    assert count_differences([[0, 1], [2]], [[0, 2], [1]], False) == 2
    assert count_differences({"a": 1, "b": 2}, {"a": 1, "b": 3}, False) == 1


def test_small_values_are_printed_as_in_python():
    assert value_lines("your tokens", ["low", "er</w>"]) == ["  your tokens = ['low', 'er</w>']"]
    assert value_lines("batches", [[np.array(0), np.array(1)], [np.array(2)]]) == ["  batches = [[0, 1], [2]]"]
    assert value_lines("counts", {"('l', 'o')": 7}) == ["  counts = {('l', 'o'): 7}"]
    assert value_lines("words", {"low": 5, "lower": 2}) == ["  words = {'low': 5, 'lower': 2}"]
    assert value_lines("weights", {"b": np.ones(2)}) == ["  weights['b'] = [1., 1.]"]
