"""The doctor: for each check, rows at which it must speak, and rows at which it must not."""

import dataclasses
import json
import math
from statistics import pstdev

import pytest
from observing import CLASSES, FACTS, LANGUAGE, OTHER, SAMPLE, seen

from cutaway.config import Config, DataConfig, ModelConfig, TrainConfig
from cutaway.data.prepare import prepare
from cutaway.diagnose import curve_checks as curves
from cutaway.diagnose.curve_checks import repetition
from cutaway.diagnose.doctor import CHECKS, diagnose, observe
from cutaway.diagnose.observations import HeldOutOverlap, Observations
from cutaway.runs import RunFolder
from cutaway.runs.files import write_json, write_text
from cutaway.runs.summary import History
from cutaway.train.observers import StepReport, Sums

SEVEN_TIMES = "the quick brown fox jumps over the lazy dog near the river bank today . " * 7
SMALL = dataclasses.replace(FACTS, valid_examples=20, valid_answers=60)


def with_accuracies(observed, *accuracies):
    rows = [dict(row, valid_accuracy=a) for row, a in zip(observed.history.validations, accuracies, strict=True)]
    return dataclasses.replace(observed, history=History(observed.history.steps, tuple(rows)))


CASES = {
    # check: [(what was observed, severity it must have)], [what it must not speak at]
    "overfitting": (
        [
            (seen([4, 2, 0.5, 0.1, 0.05, 0.03], [3.0, 2.5, 4.0, 5.3]), "problem"),
            (seen([4, 2, 0.03], [5.3]), "problem"),  # a single validation is enough
            (seen([6, 4, 3, 2.5, 2.3, 2.2], [3.0, 2.5, 2.7]), "warning"),
            (seen([4, 2, 0.5, 0.4, 0.3, 0.3], [1.5, 1.0, 1.4], train={"best_by": "accuracy"}), "problem"),
            (seen([4, 1, 0.1, 0.001, 0.0, 0.0], [0.5, 0.063, 0.086]), "warning"),
            (seen([0.0] * 6, [0.063, 0.07, 0.08, 0.086]), "warning"),  # the training loss cannot fall any more
            (seen([3, 1, 0.2, 0.002, 0.001, 0.001], [1, 0.3, 0.3, 0.3]), "note"),  # by heart, and no worse for it
        ],
        [
            seen(),
            seen([5, 4, 3.5], [5, 4.5, 4.6]),
            seen([3, 1, 0.01, 0.001], [1, 0.02, 0.04], data=SMALL),
            seen([3, 1, 0.1, 0.01, 0.01, 0.01], [1, 0.02, 0.03, 0.019, 0.028, 0.018, 0.027]),
            seen([5, 3, 1, 3, 5, 5], [5, 3, 1.1, 3, 5]),  # it has lost what it learned: `rate_too_high`
        ],
    ),
    "not_a_number": (
        [
            (seen([5, 4, math.nan]), "problem"),
            (seen(rows={"skipped": 3}), "warning"),
            (seen(rows={"skipped": 200}), "problem"),
            (seen(rows={"skipped": 5}, train={"precision": "float16"}), "note"),
        ],
        [seen()],
    ),
    "stuck": (
        [
            (seen([6.2, 6.05, 6.0, 6.0, 6.0, 6.0]), "problem"),  # as good as knowing frequencies
            (seen([6.93, 6.92, 6.91, 6.91, 6.91], data=None), "problem"),  # blind
            (seen([6.93, 5.0, 5.0, 5.0, 5.0, 5.0], data=None), "problem"),
        ],
        [seen(), seen(data=None), seen([6, 3, 2, 8, 9, 9])],
    ),
    "rate_too_high": (
        [
            (seen([5, 3, 2.5, 4, 5, 6, 6, 6]), "problem"),
            (seen([5, 3, 2.5, 2.4, 2.3, 4.5, 2.2, 2.1, 2.0, 1.9, 1.9]), "warning"),
            (seen([2.0] * 12, rows={"gradient_norm": [1.0] * 8 + [30.0] * 4}), "warning"),
            (seen([3, 1, 0.1, 0.05, 0.15, 0.15, 0.16, 0.15]), "problem"),
            (seen([0.69, 0.5, 0.3, 0.2, 0.32, 0.34, 0.35, 0.35], model=CLASSES), "problem"),
        ],
        [seen(), seen([5, 3, 0.02, 0.01, 0.03, 0.01, 0.02]), seen(rows={"gradient_norm": list(range(1, 11))})],
    ),
    "warmup": (
        [
            (seen(train={"warmup": 4000}), "problem"),
            (seen(train={"warmup": 1000}), "problem"),
            (seen(train={"warmup": 600}), "warning"),
        ],
        [seen(), seen(train={"warmup": 0, "schedule": "cosine"}), seen(train={"warmup": 500})],
    ),
    "leakage": (
        [
            (seen(data=dataclasses.replace(FACTS, overlaps={"test": HeldOutOverlap(80, 1000)})), "problem"),
            (seen(data=dataclasses.replace(FACTS, overlaps={"valid": HeldOutOverlap(10, 1000)})), "warning"),
            (seen(data=dataclasses.replace(FACTS, overlaps={"valid": HeldOutOverlap(1, 1000)})), "note"),
        ],
        [seen()],
    ),
    "majority": (
        [(seen(model=CLASSES, data=dataclasses.replace(FACTS, majority=("yes", 0.62), answer_entropy=9)), "problem")],
        [
            seen(model=CLASSES, data=dataclasses.replace(FACTS, majority=("yes", 0.3), answer_entropy=9)),
            seen(model=CLASSES),
        ],
    ),
    "samples": (
        [
            (seen(samples=[{**SAMPLE, "written": ""}]), "problem"),
            (seen(samples=[SAMPLE, {**OTHER, "written": SAMPLE["written"]}]), "problem"),
            (seen(samples=[{**SAMPLE, "written": "le " * 20}, {**OTHER, "written": "un le " * 9}]), "warning"),
            (seen(model=LANGUAGE, samples=[{"given": "def", "written": " the" * 20, "right": ""}]), "note"),
            (seen(samples=[{**SAMPLE, "written": SEVEN_TIMES}, OTHER, {**OTHER, "given": "x"}]), "note"),  # one of three
            (seen(samples=[{**SAMPLE, "written": SEVEN_TIMES}]), "warning"),
        ],
        [seen(), seen(samples=[]), seen(samples=[{"given": "a a a a a a", "written": "a a a a a a", "right": "a a a a a a"}])],
    ),
    "still_improving": (
        [(seen(valid=[4, 3.5, 3.0, 2.5, 2.0]), "warning"), (seen(valid=[3, 2.5, 2.2, 2.15, 2.1]), "note")],
        [seen(), seen(valid=[3, 2.5, 2.0, 2.1, 2.2]), seen([3, 2, 1], [3, 2.5, 2.0], train={"steps": 5000})],
    ),
    "too_small": (
        [
            (seen(valid=[2.0, 1.925, 1.921, 1.92, 1.92]), "note"),
            (with_accuracies(seen(valid=[1.92, 1.92, 1.92]), 0.0, 0.0, 0.0), "note"),
            (seen([0.6, 0.5, 0.46, 0.45, 0.45, 0.45], [0.5, 0.451, 0.45, 0.45], model=CLASSES), "note"),
        ],
        [seen(), with_accuracies(seen(valid=[1.92, 1.92, 1.92]), 0.1, 0.5, 0.97)],
    ),
    "no_validation": (
        [(seen(valid=[], settings={"valid": ()}), "warning"), (seen(valid=[]), "note")],
        [seen()],
    ),
    "small_validation": (
        [
            (seen(data=dataclasses.replace(FACTS, valid_examples=20, valid_answers=200)), "warning"),
            (seen(data=dataclasses.replace(FACTS, valid_examples=200, valid_answers=2000)), "note"),
        ],
        [seen(), seen(valid=[4.0, 3.0, 2.0], data=dataclasses.replace(FACTS, valid_examples=400, valid_answers=9000))],
    ),
    "unknown_tokens": (
        [
            (seen(data=dataclasses.replace(FACTS, unknown=0.2)), "problem"),
            (seen(data=dataclasses.replace(FACTS, unknown=0.03)), "warning"),
            (seen(data=dataclasses.replace(FACTS, unknown=0.003)), "note"),
        ],
        [seen(), seen(data=dataclasses.replace(FACTS, unknown=None))],
    ),
    "left_out": (
        [
            (seen(data=dataclasses.replace(FACTS, left_out=300)), "warning"),
            (seen(data=dataclasses.replace(FACTS, left_out=30)), "note"),
        ],
        [seen(), seen(data=dataclasses.replace(FACTS, left_out=3))],
    ),
    "other_data": ([(seen(data=dataclasses.replace(FACTS, is_other_data=True)), "warning")], [seen()]),
    "comparable_bleu": (
        [
            (seen(scores={"bleu": 30.0, "bleu_signature": "nrefs:1|case:lc|tok:13a"}), "warning"),
            (seen(scores={"bleu": 30.0, "bleu_signature": "nrefs:1|case:mixed|tok:none"}), "warning"),
            (
                seen(
                    scores={"bleu": 30.0, "bleu_signature": "case:mixed|tok:13a"},
                    data=dataclasses.replace(FACTS, lower_cased=1.0, tokenized=0.9),
                ),
                "warning",
            ),
            (seen(train={"best_by": "bleu"}, scores={"x": 1}, data=dataclasses.replace(FACTS, unknown=0.05)), "warning"),
        ],
        [
            seen(scores={"bleu": 30.0, "bleu_signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"}),
            seen(data=dataclasses.replace(FACTS, lower_cased=1.0)),  # nobody scored it
        ],
    ),
    "old_scores": (
        [(seen(scores={"bleu": 1.0, "checkpoint": "step_000100"}, kept="step_000200"), "note")],
        [seen(scores={"bleu": 1.0, "checkpoint": "step_000200"}, kept="step_000200"), seen(scores={"bleu": 1.0}, kept="a")],
    ),
    "clipping": (
        [
            (seen(rows={"gradient_norm": 3.0, "clipped": 0.98}), "note"),
            (seen(rows={"gradient_norm": 30.0, "clipped": 1.0}), "warning"),
        ],
        [seen(), seen(rows={"gradient_norm": 3.0, "clipped": 1.0}, train={"clip_norm": 0.0})],
    ),
    "noisy_steps": (
        [
            (seen(rows={"nll_spread": 0.5, "tokens": 60_000}), "note"),
            (seen(rows={"nll_spread": 1.5, "tokens": 60_000}), "warning"),
        ],
        [seen(), seen(rows={"nll_spread": 1.5}), seen(rows={"tokens": 60_000})],
    ),
    "padding": (
        [
            (seen(data=dataclasses.replace(FACTS, padding=0.2)), "note"),
            (seen(data=dataclasses.replace(FACTS, padding=0.5)), "warning"),
        ],
        [seen(), seen(data=dataclasses.replace(FACTS, padding=None))],
    ),
    "slow_input": (
        [(seen(rows={"waiting": 40.0}), "warning"), (seen(rows={"waiting": 15.0}), "note")],
        [seen()],
    ),
    "unfinished": ([(seen(train={"steps": 4000}), "note")], [seen()]),
}  # fmt: skip


def test_every_check_is_tried():
    assert set(CASES) == {check.name for check in CHECKS}


@pytest.mark.parametrize("name", CASES)
def test_a_check_speaks_when_it_must_and_only_then(name):
    fires, silent = CASES[name]
    for observed, severity in fires:
        found = [finding for finding in diagnose(observed).findings if finding.check == name]
        assert [finding.severity for finding in found] == [severity]
        assert found[0].evidence.endswith(".")
        assert found[0].remedy.strip().endswith(".")
        assert not found[0].title.endswith(".")
    for observed in silent:
        assert name not in [finding.check for finding in diagnose(observed).findings]


def test_a_healthy_run_is_told_so():
    diagnosis = diagnose(seen())
    assert diagnosis.findings == ()
    assert not diagnosis.has_problem
    assert "no overfitting" in diagnosis.in_order
    assert diagnosis.not_checked == {}


def test_the_evidence_of_overfitting_has_both_losses():
    [finding] = diagnose(seen([4, 2, 0.5, 0.1, 0.05, 0.03], [3.0, 2.5, 4.0, 5.3])).of("problem")
    assert "Training loss 0.050, validation loss 5.300, risen from 2.500 at step 500." in finding.evidence
    assert "model.dropout" in finding.remedy


def test_a_loss_that_rises_while_the_answers_get_better_is_no_problem():
    observed = seen([4, 2, 0.5, 0.4, 0.3, 0.3], [1.5, 1.0, 1.4], train={"best_by": "accuracy"})
    [finding] = [f for f in diagnose(with_accuracies(observed, 0.5, 0.6, 0.7)).findings if f.check == "overfitting"]
    assert finding.severity == "note"


def test_the_remedy_for_a_stuck_run_depends_on_its_rate():
    flat = [6.9, 6.9, 6.9, 6.9, 6.9]
    assert "raise train.lr" in curves.stuck(seen(flat, rows={"lr": 1e-6})).remedy
    assert "lower train.lr" in curves.stuck(seen(flat, rows={"lr": 0.05})).remedy


def test_a_warmup_is_called_as_long_as_it_is():
    titles = {w: curves.warmup(seen(train={"steps": 2, "warmup": w})).title for w in (2, 3)}
    assert titles == {2: "The warmup is as long as the training", 3: "The warmup is longer than the training"}
    ended_early = seen(valid=[3.0, 2.0, 2.1, 2.2, 2.3], train={"steps": 9000, "warmup": 1000, "patience": 3})
    assert "1,000 of 1,000 steps" in curves.warmup(ended_early).evidence


def test_what_is_not_known_is_not_called_in_order():
    """For each check, what is observed too little of."""
    rows, few = {"nll_spread": None, "tokens": 60_000}, [5.0, 4.9, 4.8]
    unclear = {
        "overfitting": [seen(valid=[2.125]), seen([3, 1, 0.01, 0.001], [1, 0.02, 0.04], data=SMALL)],
        "stuck": [seen([6.2, 6.1, 6.0]), seen(model=CLASSES, data=dataclasses.replace(FACTS, answer_entropy=0.0))],
        "still_improving": [seen(train={"steps": 5000}), seen(few, valid=[])],
        "too_small": [seen(train={"steps": 5000}), seen([4.0, 3.0, 2.5], [4.0, 3.0, 2.5])],
        "leakage": [seen(data=dataclasses.replace(FACTS, overlaps={})), seen(data=None)],
        "other_data": [seen(data=dataclasses.replace(FACTS, is_other_data=None))],
        "old_scores": [seen(scores={"bleu": 1.0}, kept="step_000200")],
        "clipping": [seen(train={"warmup": 4000}, rows={"clipped": 1.0}), seen(rows={"gradient_norm": None})],
        "noisy_steps": [seen(rows=rows), seen([5, 1, 0.01, 0.01, 0.01], rows={"tokens": 60_000})],
    }
    ok_text = {check.name: check.ok_text for check in CHECKS}
    for name, cases in unclear.items():
        for observed in cases:
            diagnosis = diagnose(observed)
            assert name in diagnosis.not_checked, (name, diagnosis)
            assert ok_text[name] not in diagnosis.in_order
            assert name not in [finding.check for finding in diagnosis.findings]


def test_of_a_run_without_a_training_nothing_is_said():
    """Imported weights: neither trouble nor health."""
    diagnosis = diagnose(Observations(seen().config, History()))
    assert (diagnosis.findings, diagnosis.in_order) == ((), ())


def test_what_could_not_be_looked_at_is_said():
    diagnosis = diagnose(seen(data=None, valid=[]))
    assert diagnosis.not_checked["leakage"] == "the data was not looked at"
    assert diagnosis.not_checked["overfitting"] == "there was no validation"
    nothing = diagnose(Observations(seen().config, History()))
    assert nothing.of("problem") == []


def test_rows_of_older_runs_can_be_read():
    """Without the fields that came later."""
    rows = [
        {k: row[k] for k in ("step", "loss", "nll", "lr", "gradient_norm", "tokens", "seconds")}
        for row in seen().history.steps
    ]
    assert diagnose(Observations(seen().config, History.of(rows))).of("problem", "warning") == []


def test_repetition():
    assert repetition("the the the the the the") == 1.0
    assert repetition("a b a b a b a b") == 1.0
    assert repetition("no text that says anything twice in a row") == 0.0
    assert repetition("hahahahahaha") == 1.0
    assert repetition("") == 0.0


def test_sums_tell_how_far_steps_lie_apart_and_how_often_they_are_clipped():
    sums, losses = Sums(), [3.0, 2.5, 2.0, 2.6]
    for i, loss in enumerate(losses):
        sums.add(StepReport(i, loss, loss, 1e-3, gradient_norm=2.0 * (i % 2), tokens=10), clip_norm=1.0)
    assert sums.nll_spread == pytest.approx(pstdev(losses))
    assert (sums.clipped, sums.steps, sums.tokens) == (2, 4, 40)
    sums.add(StepReport(9, math.inf, math.inf, 1e-3, math.nan, tokens=10), clip_norm=0.0)
    assert sums.clipped == 2


@pytest.fixture
def folder(tmp_path):
    """A run on files of its own, half of whose test sentences stand in the training data."""
    sentences = [f"the cat number {i} sleeps ." for i in range(40)]
    files = {
        "train": sentences,
        "valid": [s.upper() for s in sentences[:2]] + ["the dog runs ."] * 2,
        "test": sentences[:5] + ["new ."] * 5,
    }
    for name, lines in files.items():
        for side in ("a", "b"):
            (tmp_path / f"{name}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    paths = {name: (f"{name}.a", f"{name}.b") for name in files}
    run = RunFolder(tmp_path / "run")
    data = DataConfig(root=str(tmp_path), tokenizer="word", vocab_size=30, max_tokens=64, batch_tokens=128, **paths)
    config = Config(model=ModelConfig(vocab_size=30), data=data, train=TrainConfig(steps=10))
    write_text(run.config, config.to_json())
    write_json(run.data, {"fingerprint": "0", "examples": 40})
    run.append_metrics({"step": 5, "nll": 3.0, "loss": 3.0, "tokens": 100, "seconds": 1.0})
    return run


def test_the_data_of_a_run_is_looked_at(folder):
    observed = observe(folder)
    assert observed.data_error == ""
    facts = observed.data
    assert facts.overlaps == {
        "valid": HeldOutOverlap(2, 4),
        "test": HeldOutOverlap(5, 10),
    }  # in capitals, it is the same sentence
    assert (facts.train_examples, facts.valid_examples, facts.valid_answers) == (40, 4, 2 * 7 + 2 * 5)
    assert 0.1 < facts.unknown < 0.9  # capitals are not in the vocabulary
    assert facts.lower_cased == facts.tokenized == 1.0
    assert facts.is_other_data
    assert facts.padding == 0.0
    assert "leakage" in [finding.check for finding in diagnose(observed).of("problem")]


def test_data_that_is_gone_is_no_reason_to_give_up(folder):
    (folder.path.parent / "train.a").unlink()
    observed = observe(folder)
    assert observed.data is None
    assert "train.a" in observed.data_error
    assert "train.a" in diagnose(observed).not_checked["leakage"]
    assert diagnose(observe(folder, with_data=False)).not_checked["leakage"] == "the data was not looked at"


@pytest.mark.parametrize("harm", [lambda file: file.unlink(), lambda file: file.write_text("")], ids=["gone", "empty"])
def test_without_the_test_files_the_rest_is_looked_at(folder, harm):
    before = observe(folder)
    for side in ("a", "b"):
        harm(folder.path.parent / f"test.{side}")
    observed = observe(folder)
    assert observed.data_error == ""
    assert observed.data.lower_cased == 0.5  # of the validation data
    assert observed.data == dataclasses.replace(
        before.data, overlaps={"valid": HeldOutOverlap(2, 4)}, lower_cased=0.5, tokenized=1.0
    )


def test_the_data_is_looked_at_with_the_tokenizer_of_the_run(folder):
    config = folder.read_config()
    prepared = prepare(replace_data(config, vocab_size=200).data, "translation")
    known = observe(folder)
    write_text(folder.tokenizer, prepared.tokenizer)
    write_json(folder.data, {"fingerprint": prepared.fingerprint, "examples": 40})
    observed = observe(folder)
    assert not observed.data.is_other_data
    assert observed.data.answer_entropy > known.data.answer_entropy  # it tells all numbers apart


def test_texts_leak_as_a_whole_and_not_by_their_lines(folder):
    """Programs have lines in common. A text that is there twice is another matter."""
    licence = "# This line is long enough to be compared, and in every file.\n"
    files = {
        "train": [licence + "a = 1\n", licence + "b = 2\n"],
        "valid": [licence.upper() + "A  = 1\n", licence],
    }
    for name, texts in files.items():
        (folder.path.parent / f"{name}.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    config = replace_data(
        folder.read_config(), train=("train.jsonl",), valid=("valid.jsonl",), test=(), tokenizer="char"
    )
    write_text(folder.config, dataclasses.replace(config, model=LANGUAGE).to_json())
    assert observe(folder).data.overlaps == {"valid": HeldOutOverlap(1, 2)}


def replace_data(config, **settings):
    return dataclasses.replace(config, data=dataclasses.replace(config.data, **settings))


def test_a_diagnosis_is_json():
    assert json.loads(json.dumps(diagnose(seen([5, 4, math.nan])).as_json()))["findings"][0]["severity"] == "problem"
