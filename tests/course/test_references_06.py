"""The references of exercise 6 against Cutaway's decoding, against exhaustive search, and the model that they call."""

import json

import numpy as np
import pytest
import torch

from cutaway.course.exercises import decoding as exercise_6
from cutaway.course.grader import grade_file
from cutaway.course.values import TableModel, as_arrays, as_tensors, pack, unpack
from cutaway.decode import beam as library_beam
from cutaway.decode import filters
from cutaway.decode import sampling as library_sampling
from cutaway.decode.stepper import Stepper
from cutaway.search.request import Hypothesis
from cutaway.system.resources import shipped_folder

RNG = np.random.default_rng(0)
V, START, END = 5, 0, 1
SOLUTIONS = shipped_folder("exercises") / "solutions"


def random_model(size=V, spread=1.5):
    return TableModel(spread * RNG.normal(size=(size, size, size)))


# --- the model -----------------------------------------------------------------------------------------------------


def test_a_table_model_gives_logits_of_the_library_of_its_ids():
    model = random_model()
    ids = np.array([[0, 2, 3], [0, 1, 3]])
    logits = model(ids)
    assert logits.shape == (2, V)
    np.testing.assert_allclose(logits, model.table[[2, 1], [3, 3]], atol=0.1001)
    np.testing.assert_array_equal(model(ids.tolist()), logits)
    np.testing.assert_allclose(as_tensors(model)(ids), logits, atol=1e-6)  # an array gives an array
    assert isinstance(as_tensors(model)(ids), np.ndarray)
    for given in (
        as_tensors(model)(ids.tolist()),
        as_tensors(model)(torch.from_numpy(ids)),
        model(torch.from_numpy(ids)),
    ):
        assert given.dtype == torch.float32
        np.testing.assert_allclose(given, logits, atol=1e-6)
    assert isinstance(as_arrays(as_tensors(model)).table, torch.Tensor), "as_arrays changes arrays only"


def test_a_table_model_takes_one_text_or_several():
    model, ids = random_model(), RNG.integers(0, V, size=(4, 6))
    np.testing.assert_allclose(model(ids), np.concatenate([model(row[None]) for row in ids]))
    np.testing.assert_array_equal(model(ids[:, :1]), model([[int(i)] for i in ids[:, 0]]))
    assert not np.allclose(model(ids), model(ids[:, -2:])), "the whole text has a small effect"
    np.testing.assert_allclose(model(ids), model(ids[:, -2:]), atol=0.2001)


def test_a_table_model_is_carried_to_the_sandbox():
    model = random_model()
    carried, number = unpack(json.loads(json.dumps(pack((model, 3)))))
    assert number == 3
    np.testing.assert_array_equal(carried([[0, 2]]), model([[0, 2]]))
    copied = as_arrays(carried)
    copied.table[:] = 0
    assert carried.table.any()


@pytest.mark.parametrize("ids", [[0, 1], [[]], [[0.0, 1.0]], np.zeros((1, 2)), [[[0]]]])
def test_a_table_model_rejects_other_ids(ids):
    with pytest.raises(ValueError, match=r"the model takes integers \[N, T\], but got"):
        random_model()(ids)


# --- filters and sampling ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 7])
def test_top_k_agrees_with_the_library(k):
    logits = RNG.normal(size=(20, 7))
    np.testing.assert_array_equal(exercise_6.keep_top_k(logits, k), filters.top_k(k)(torch.from_numpy(logits)))


@pytest.mark.parametrize("p", [0.05, 0.5, 0.8, 0.99])
def test_top_p_agrees_with_the_library(p):
    logits = RNG.normal(size=(20, 7))
    logits[::3, 2] = -np.inf
    np.testing.assert_array_equal(exercise_6.keep_top_p(logits, p), filters.top_p(p)(torch.from_numpy(logits)))


class StubStepper(Stepper):
    """A stepper of the library with a TableModel behind it."""

    def __init__(self, model, start):
        self.model, self.ids, self.start = model, None, start

    def step(self, tokens):
        self.ids = tokens[:, None] if self.ids is None else torch.cat([self.ids, tokens[:, None]], dim=1)
        return self.model(self.ids).double()

    def keep(self, rows):
        self.ids = self.ids[rows]


class FixedRandom:
    def __init__(self, u):
        self.u = u

    def random(self):
        return self.u


def test_sampling_agrees_with_the_library():
    for u in np.linspace(0, 0.99, 60):
        logits, t, k, p = RNG.normal(size=7), RNG.uniform(0.3, 2), int(RNG.integers(1, 8)), RNG.uniform(0.2, 0.95)
        stepper = StubStepper(lambda ids, row=logits: torch.from_numpy(row[None]), 0)
        applied = [filters.temperature(t), filters.top_k(k), filters.top_p(p)]
        (text,) = library_sampling.sample(stepper, torch.tensor([0]), [1], 99, applied, [FixedRandom(u)])
        assert exercise_6.sample(logits, t, k, p, u) == text.tokens[0]


# --- greedy and beam search ----------------------------------------------------------------------------------------


def with_end(text: Hypothesis):
    return [*text.tokens, END] if text.finished else text.tokens


@pytest.mark.parametrize("max_length", [1, 2, 6])
def test_greedy_agrees_with_the_library(max_length):
    for _ in range(10):
        model = random_model()
        (text,) = library_sampling.greedy(StubStepper(model, START), torch.tensor([START]), [max_length], END)
        assert exercise_6.greedy(model, START, END, max_length).tolist() == with_end(text)


@pytest.mark.parametrize("stop", ["", *exercise_6.STOPS])
@pytest.mark.parametrize(("beam_size", "alpha"), [(2, 0.0), (2, 2.0), (3, 0.6), (4, 1.0), (9, 0.6)])
def test_beam_search_agrees_with_the_library(beam_size, alpha, stop):
    """However early it stops."""
    for max_length in (1, 2, 4, 6):
        model = random_model(spread=2.5)
        ids, score = exercise_6.beam_search(
            model, START, END, beam_size, alpha, max_length, wrong=frozenset([stop] if stop else [])
        )
        stepper = StubStepper(model, START)
        [[text]] = library_beam.beam_search(stepper, torch.tensor([START]), [max_length], END, beam_size, alpha)
        assert ids.tolist() == with_end(text)
        assert score == pytest.approx(text.score, abs=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_large_beam_finds_the_best_of_all_texts(alpha):
    for max_length in (1, 2, 3):
        model = random_model(4)
        scores = {
            tuple(text): exercise_6.log_probability(model, START, text) / ((5 + len(text)) / 6) ** alpha
            for text in exercise_6.all_texts(END, 4, max_length)
        }
        assert len(scores) == sum(3**n for n in range(max_length + 1))
        ids, score = exercise_6.beam_search(model, START, END, 100, alpha, max_length)
        best = max(scores, key=scores.get)
        assert tuple(ids.tolist()) == best
        assert score == pytest.approx(scores[best])


def test_a_beam_of_one_without_a_penalty_is_greedy():
    for _ in range(10):
        model = random_model()
        ids, _ = exercise_6.beam_search(model, START, END, 1, 0.0, 6)
        assert ids.tolist() == exercise_6.greedy(model, START, END, 6).tolist()


def test_the_length_penalty_agrees_with_the_library():
    for length, alpha in ((1, 0.6), (20, 0.6), (7, 2.0), (9, 0.0)):
        assert exercise_6.length_penalty(length, alpha) == library_beam.length_penalty(length, alpha)


# --- the cases -----------------------------------------------------------------------------------------------------


def test_the_example_has_the_probabilities_and_steps_of_the_stub():
    probabilities = {(0,): (0.1, 0.5, 0.4), (0, 2): (0.4, 0.35, 0.25), (0, 3): (0.9, 0.06, 0.04)}
    probabilities |= {(0, 3, 2): (0.4, 0.35, 0.25), (0, 2, 3): (0.9, 0.06, 0.04)}
    for ids, expected in probabilities.items():
        np.testing.assert_allclose(exercise_6.softmax(exercise_6.example_model([ids]))[0, 1:], expected, atol=1e-6)
    ids, score = exercise_6.beam_search(exercise_6.example_model, 0, 1, 2, 0.6, 3)
    assert (ids.tolist(), round(score, 4)) == ([3, 1], -0.9314)
    stub = (shipped_folder("exercises") / exercise_6.EXERCISE.file).read_text(encoding="utf-8")
    assert "The result is [3, 1] with the score -0.9314." in stub


def disturbed(value):
    """Change logits and models a little, and nothing else."""
    if isinstance(value, TableModel):
        return TableModel(disturbed(value.table))
    return value + 0.002 * RNG.normal(size=value.shape) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("part", exercise_6.EXERCISE.parts, ids=lambda part: part.name)
def test_no_case_has_near_ties(part):
    """So rounding, and the order of equal tokens, do not matter."""
    for case in part.all_cases:
        right = part.reference(*case.arguments)
        for _ in range(3):
            other = part.reference(*map(disturbed, case.arguments))
            for a, b in zip(right, other, strict=True) if isinstance(right, tuple) else [(right, other)]:
                np.testing.assert_allclose(b, a, atol=0.03)


def test_the_solution_is_right_in_the_sandbox():
    assert grade_file(exercise_6.EXERCISE, SOLUTIONS / "exercise_06_decoding.py").is_right


@pytest.mark.parametrize(
    ("old", "new", "part", "says"),
    [
        ("np.sort(logits, axis=-1)[..., -k, None]", "np.sort(logits, axis=-1)[..., -2, None] * 1.01", 2, "stay"),
        ("before < p", "before + probabilities < p**2", 3, "those that stay sum to 0.0, less than p = 0.6"),
        ("cumulative > u", "cumulative > u**2", 4, "it comes 4 times, not 2 times"),
        ("int(choose_token(logits[0]))", "int(np.argsort(logits[0])[-2])", 5, "comes 3 with the probability 0.40"),
        ("float(score)", "float(score) + 1", 7, "Divided by the penalty 1.0969 for the length 2 that is -0.9314, not"),
    ],
)
def test_properties_say_what_is_wrong(old, new, part, says, tmp_path):
    text = (SOLUTIONS / "exercise_06_decoding.py").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "exercise_06_decoding.py"
    path.write_text(text.replace(old, new), encoding="utf-8")
    mark = grade_file(exercise_6.EXERCISE, path).marks[part]
    assert mark.explanations == ()
    assert says in mark.violation


def test_other_types_and_an_earlier_or_no_stop_are_right(tmp_path):
    text = (SOLUTIONS / "exercise_06_decoding.py").read_text(encoding="utf-8")
    for old, new in {
        "return logits / temperature": "return (logits / temperature).tolist()",
        "return np.argmax(logits, axis=-1)": "return np.argmax(logits, axis=-1).tolist()",
        "return np.where(logits >= kth_largest, logits, -np.inf)": "return np.where(logits >= kth_largest, logits, -np.inf).astype(np.float32)",
        "return np.where(stays, logits, -np.inf)": "return np.where(stays, logits, -np.inf).tolist()",
        "logits = apply_temperature(logits, temperature)": "logits = np.array(apply_temperature(logits, temperature))",
        "logits = keep_top_p(logits, top_p)": "logits = np.array(keep_top_p(logits, top_p))",
        "return int(np.argmax(cumulative > u))": "return np.argmax(cumulative > u)",
        "    return ids[1:]\n\n\ndef length_penalty": "    return np.array(ids[1:])\n\n\ndef length_penalty",
        "next_logits(np.array(live))": "next_logits(np.array(live, np.int32)).astype(np.float32)",
        "elif finished and log_p[0] / length_penalty(max_length, alpha) <= max(finished)[0]:": "elif False:",
        "return ids[1:], float(score)": "return [np.array(ids[1:]), np.float32(score)]",
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    path = tmp_path / "exercise_06_decoding.py"
    path.write_text(text, encoding="utf-8")
    grade = grade_file(exercise_6.EXERCISE, path)
    assert grade.is_right, [(mark.part.name, mark.facts, mark.failure) for mark in grade.marks if not mark.is_right]
