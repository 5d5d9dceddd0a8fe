"""The doctor: for each check, observations with a finding, and observations without."""

import dataclasses
import json
import math
from statistics import pstdev

import pytest
from observing import CLASSES, FACTS, LANGUAGE, OTHER, SAMPLE, make_observations

from cutaway.config import Config, DataConfig, ModelConfig, TrainConfig
from cutaway.data.prepare import prepare
from cutaway.diagnose import curve_checks as curves
from cutaway.diagnose.curve_checks import repetition
from cutaway.diagnose.doctor import CHECKS, diagnose, observe
from cutaway.diagnose.observations import HeldOutOverlap, Observations
from cutaway.runs import RunFolder
from cutaway.runs.files import write_json, write_text
from cutaway.runs.summary import History
from cutaway.train.observers import StepReport, SumsSinceLog

SEVEN_TIMES = "the quick brown fox jumps over the lazy dog near the river bank today . " * 7
SMALL = dataclasses.replace(FACTS, valid_examples=20, valid_answers=60)


def with_accuracies(observed, *accuracies):
    rows = [dict(row, valid_accuracy=a) for row, a in zip(observed.history.validations, accuracies, strict=True)]
    return dataclasses.replace(observed, history=History(observed.history.steps, tuple(rows)))


CASES = {
    # check: [(observations, expected severity)], [observations without a finding]
    "overfitting": (
        [
            (make_observations([4, 2, 0.5, 0.1, 0.05, 0.03], [3.0, 2.5, 4.0, 5.3]), "problem"),
            (make_observations([4, 2, 0.03], [5.3]), "problem"),  # a single validation is enough
            (make_observations([6, 4, 3, 2.5, 2.3, 2.2], [3.0, 2.5, 2.7]), "warning"),
            (make_observations([4, 2, 0.5, 0.4, 0.3, 0.3], [1.5, 1.0, 1.4], train={"best_by": "accuracy"}), "problem"),
            (make_observations([4, 1, 0.1, 0.001, 0.0, 0.0], [0.5, 0.063, 0.086]), "warning"),
            (make_observations([0.0] * 6, [0.063, 0.07, 0.08, 0.086]), "warning"),  # the training loss is already 0
            (make_observations([3, 1, 0.2, 0.002, 0.001, 0.001], [1, 0.3, 0.3, 0.3]), "note"),  # memorized, but not worse
        ],
        [
            make_observations(),
            make_observations([5, 4, 3.5], [5, 4.5, 4.6]),
            make_observations([3, 1, 0.01, 0.001], [1, 0.02, 0.04], data=SMALL),
            make_observations([3, 1, 0.1, 0.01, 0.01, 0.01], [1, 0.02, 0.03, 0.019, 0.028, 0.018, 0.027]),
            make_observations([5, 3, 1, 3, 5, 5], [5, 3, 1.1, 3, 5]),  # the training loss rises too: `rate_too_high`
        ],
    ),
    "not_a_number": (
        [
            (make_observations([5, 4, math.nan]), "problem"),
            (make_observations(rows={"skipped": 3}), "warning"),
            (make_observations(rows={"skipped": 200}), "problem"),
            (make_observations(rows={"skipped": 5}, train={"precision": "float16"}), "note"),
        ],
        [make_observations()],
    ),
    "stuck": (
        [
            (make_observations([6.2, 6.05, 6.0, 6.0, 6.0, 6.0]), "problem"),  # no better than answer frequencies
            (make_observations([6.93, 6.92, 6.91, 6.91, 6.91], data=None), "problem"),  # no better than guessing
            (make_observations([6.93, 5.0, 5.0, 5.0, 5.0, 5.0], data=None), "problem"),
        ],
        [make_observations(), make_observations(data=None), make_observations([6, 3, 2, 8, 9, 9])],
    ),
    "rate_too_high": (
        [
            (make_observations([5, 3, 2.5, 4, 5, 6, 6, 6]), "problem"),
            (make_observations([5, 3, 2.5, 2.4, 2.3, 4.5, 2.2, 2.1, 2.0, 1.9, 1.9]), "warning"),
            (make_observations([2.0] * 12, rows={"gradient_norm": [1.0] * 8 + [30.0] * 4}), "warning"),
            (make_observations([3, 1, 0.1, 0.05, 0.15, 0.15, 0.16, 0.15]), "problem"),
            (make_observations([0.69, 0.5, 0.3, 0.2, 0.32, 0.34, 0.35, 0.35], model=CLASSES), "problem"),
        ],
        [make_observations(), make_observations([5, 3, 0.02, 0.01, 0.03, 0.01, 0.02]), make_observations(rows={"gradient_norm": list(range(1, 11))})],
    ),
    "warmup": (
        [
            (make_observations(train={"warmup": 4000}), "problem"),
            (make_observations(train={"warmup": 1000}), "problem"),
            (make_observations(train={"warmup": 600}), "warning"),
        ],
        [make_observations(), make_observations(train={"warmup": 0, "schedule": "cosine"}), make_observations(train={"warmup": 500})],
    ),
    "leakage": (
        [
            (make_observations(data=dataclasses.replace(FACTS, overlaps={"test": HeldOutOverlap(80, 1000)})), "problem"),
            (make_observations(data=dataclasses.replace(FACTS, overlaps={"valid": HeldOutOverlap(10, 1000)})), "warning"),
            (make_observations(data=dataclasses.replace(FACTS, overlaps={"valid": HeldOutOverlap(1, 1000)})), "note"),
        ],
        [make_observations()],
    ),
    "majority": (
        [(make_observations(model=CLASSES, data=dataclasses.replace(FACTS, majority=("yes", 0.62), answer_entropy=9)), "problem")],
        [
            make_observations(model=CLASSES, data=dataclasses.replace(FACTS, majority=("yes", 0.3), answer_entropy=9)),
            make_observations(model=CLASSES),
        ],
    ),
    "samples": (
        [
            (make_observations(samples=[{**SAMPLE, "written": ""}]), "problem"),
            (make_observations(samples=[SAMPLE, {**OTHER, "written": SAMPLE["written"]}]), "problem"),
            (make_observations(samples=[{**SAMPLE, "written": "le " * 20}, {**OTHER, "written": "un le " * 9}]), "warning"),
            (make_observations(model=LANGUAGE, samples=[{"given": "def", "written": " the" * 20, "right": ""}]), "note"),
            (make_observations(samples=[{**SAMPLE, "written": SEVEN_TIMES}, OTHER, {**OTHER, "given": "x"}]), "note"),  # one of three
            (make_observations(samples=[{**SAMPLE, "written": SEVEN_TIMES}]), "warning"),
        ],
        [make_observations(), make_observations(samples=[]), make_observations(samples=[{"given": "a a a a a a", "written": "a a a a a a", "right": "a a a a a a"}])],
    ),
    "still_improving": (
        [(make_observations(valid=[4, 3.5, 3.0, 2.5, 2.0]), "warning"), (make_observations(valid=[3, 2.5, 2.2, 2.15, 2.1]), "note")],
        [make_observations(), make_observations(valid=[3, 2.5, 2.0, 2.1, 2.2]), make_observations([3, 2, 1], [3, 2.5, 2.0], train={"steps": 5000})],
    ),
    "too_small": (
        [
            (make_observations(valid=[2.0, 1.925, 1.921, 1.92, 1.92]), "note"),
            (with_accuracies(make_observations(valid=[1.92, 1.92, 1.92]), 0.0, 0.0, 0.0), "note"),
            (make_observations([0.6, 0.5, 0.46, 0.45, 0.45, 0.45], [0.5, 0.451, 0.45, 0.45], model=CLASSES), "note"),
        ],
        [make_observations(), with_accuracies(make_observations(valid=[1.92, 1.92, 1.92]), 0.1, 0.5, 0.97)],
    ),
    "no_validation": (
        [(make_observations(valid=[], settings={"valid": ()}), "warning"), (make_observations(valid=[]), "note")],
        [make_observations()],
    ),
    "small_validation": (
        [
            (make_observations(data=dataclasses.replace(FACTS, valid_examples=20, valid_answers=200)), "warning"),
            (make_observations(data=dataclasses.replace(FACTS, valid_examples=200, valid_answers=2000)), "note"),
        ],
        [make_observations(), make_observations(valid=[4.0, 3.0, 2.0], data=dataclasses.replace(FACTS, valid_examples=400, valid_answers=9000))],
    ),
    "unknown_tokens": (
        [
            (make_observations(data=dataclasses.replace(FACTS, unknown=0.2)), "problem"),
            (make_observations(data=dataclasses.replace(FACTS, unknown=0.03)), "warning"),
            (make_observations(data=dataclasses.replace(FACTS, unknown=0.003)), "note"),
        ],
        [make_observations(), make_observations(data=dataclasses.replace(FACTS, unknown=None))],
    ),
    "left_out": (
        [
            (make_observations(data=dataclasses.replace(FACTS, left_out=300)), "warning"),
            (make_observations(data=dataclasses.replace(FACTS, left_out=30)), "note"),
        ],
        [make_observations(), make_observations(data=dataclasses.replace(FACTS, left_out=3))],
    ),
    "other_data": ([(make_observations(data=dataclasses.replace(FACTS, is_other_data=True)), "warning")], [make_observations()]),
    "comparable_bleu": (
        [
            (make_observations(scores={"bleu": 30.0, "bleu_signature": "nrefs:1|case:lc|tok:13a"}), "warning"),
            (make_observations(scores={"bleu": 30.0, "bleu_signature": "nrefs:1|case:mixed|tok:none"}), "warning"),
            (
                make_observations(
                    scores={"bleu": 30.0, "bleu_signature": "case:mixed|tok:13a"},
                    data=dataclasses.replace(FACTS, lower_cased=1.0, tokenized=0.9),
                ),
                "warning",
            ),
            (make_observations(train={"best_by": "bleu"}, scores={"x": 1}, data=dataclasses.replace(FACTS, unknown=0.05)), "warning"),
        ],
        [
            make_observations(scores={"bleu": 30.0, "bleu_signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"}),
            make_observations(data=dataclasses.replace(FACTS, lower_cased=1.0)),  # there are no scores
        ],
    ),
    "old_scores": (
        [(make_observations(scores={"bleu": 1.0, "checkpoint": "step_000100"}, kept="step_000200"), "note")],
        [make_observations(scores={"bleu": 1.0, "checkpoint": "step_000200"}, kept="step_000200"), make_observations(scores={"bleu": 1.0}, kept="a")],
    ),
    "clipping": (
        [
            (make_observations(rows={"gradient_norm": 3.0, "clipped": 0.98}), "note"),
            (make_observations(rows={"gradient_norm": 30.0, "clipped": 1.0}), "warning"),
        ],
        [make_observations(), make_observations(rows={"gradient_norm": 3.0, "clipped": 1.0}, train={"clip_norm": 0.0})],
    ),
    "noisy_steps": (
        [
            (make_observations(rows={"nll_spread": 0.5, "tokens": 60_000}), "note"),
            (make_observations(rows={"nll_spread": 1.5, "tokens": 60_000}), "warning"),
        ],
        [make_observations(), make_observations(rows={"nll_spread": 1.5}), make_observations(rows={"tokens": 60_000})],
    ),
    "padding": (
        [
            (make_observations(data=dataclasses.replace(FACTS, padding=0.2)), "note"),
            (make_observations(data=dataclasses.replace(FACTS, padding=0.5)), "warning"),
        ],
        [make_observations(), make_observations(data=dataclasses.replace(FACTS, padding=None))],
    ),
    "slow_input": (
        [(make_observations(rows={"waiting": 40.0}), "warning"), (make_observations(rows={"waiting": 15.0}), "note")],
        [make_observations()],
    ),
    "unfinished": ([(make_observations(train={"steps": 4000}), "note")], [make_observations()]),
}  # fmt: skip


def test_every_check_has_cases():
    assert set(CASES) == {check.name for check in CHECKS}


@pytest.mark.parametrize("name", CASES)
def test_findings_of_each_check(name):
    with_finding, without = CASES[name]
    for observed, severity in with_finding:
        found = [finding for finding in diagnose(observed).findings if finding.check == name]
        assert [finding.severity for finding in found] == [severity]
        assert found[0].evidence.endswith(".")
        assert found[0].remedy.strip().endswith(".")
        assert not found[0].title.endswith(".")
    for observed in without:
        assert name not in [finding.check for finding in diagnose(observed).findings]


def test_a_healthy_run_has_no_findings():
    diagnosis = diagnose(make_observations())
    assert diagnosis.findings == ()
    assert not diagnosis.has_problem
    assert "no overfitting" in diagnosis.in_order
    assert diagnosis.not_checked == {}


def test_the_evidence_of_overfitting_has_both_losses():
    [finding] = diagnose(make_observations([4, 2, 0.5, 0.1, 0.05, 0.03], [3.0, 2.5, 4.0, 5.3])).of("problem")
    assert "Training loss 0.050, validation loss 5.300, risen from 2.500 at step 500." in finding.evidence
    assert "model.dropout" in finding.remedy


def test_a_rising_loss_is_a_note_if_accuracy_improves():
    observed = make_observations([4, 2, 0.5, 0.4, 0.3, 0.3], [1.5, 1.0, 1.4], train={"best_by": "accuracy"})
    [finding] = [f for f in diagnose(with_accuracies(observed, 0.5, 0.6, 0.7)).findings if f.check == "overfitting"]
    assert finding.severity == "note"


def test_the_remedy_for_a_stuck_run_depends_on_its_rate():
    flat = [6.9, 6.9, 6.9, 6.9, 6.9]
    assert "raise train.lr" in curves.stuck(make_observations(flat, rows={"lr": 1e-6})).remedy
    assert "lower train.lr" in curves.stuck(make_observations(flat, rows={"lr": 0.05})).remedy


def test_titles_of_the_warmup_check():
    titles = {w: curves.warmup(make_observations(train={"steps": 2, "warmup": w})).title for w in (2, 3)}
    assert titles == {2: "The warmup is as long as the training", 3: "The warmup is longer than the training"}
    ended_early = make_observations(
        valid=[3.0, 2.0, 2.1, 2.2, 2.3], train={"steps": 9000, "warmup": 1000, "patience": 3}
    )
    assert "1,000 of 1,000 steps" in curves.warmup(ended_early).evidence


def test_unclear_checks_are_not_in_order():
    """For each check, observations with too little information."""
    rows, few = {"nll_spread": None, "tokens": 60_000}, [5.0, 4.9, 4.8]
    unclear = {
        "overfitting": [
            make_observations(valid=[2.125]),
            make_observations([3, 1, 0.01, 0.001], [1, 0.02, 0.04], data=SMALL),
        ],
        "stuck": [
            make_observations([6.2, 6.1, 6.0]),
            make_observations(model=CLASSES, data=dataclasses.replace(FACTS, answer_entropy=0.0)),
        ],
        "still_improving": [make_observations(train={"steps": 5000}), make_observations(few, valid=[])],
        "too_small": [make_observations(train={"steps": 5000}), make_observations([4.0, 3.0, 2.5], [4.0, 3.0, 2.5])],
        "leakage": [make_observations(data=dataclasses.replace(FACTS, overlaps={})), make_observations(data=None)],
        "other_data": [make_observations(data=dataclasses.replace(FACTS, is_other_data=None))],
        "old_scores": [make_observations(scores={"bleu": 1.0}, kept="step_000200")],
        "clipping": [
            make_observations(train={"warmup": 4000}, rows={"clipped": 1.0}),
            make_observations(rows={"gradient_norm": None}),
        ],
        "noisy_steps": [
            make_observations(rows=rows),
            make_observations([5, 1, 0.01, 0.01, 0.01], rows={"tokens": 60_000}),
        ],
    }
    ok_text = {check.name: check.ok_text for check in CHECKS}
    for name, cases in unclear.items():
        for observed in cases:
            diagnosis = diagnose(observed)
            assert name in diagnosis.not_checked, (name, diagnosis)
            assert ok_text[name] not in diagnosis.in_order
            assert name not in [finding.check for finding in diagnosis.findings]


def test_a_run_without_training_has_neither_findings_nor_passed_checks():
    """Imported weights."""
    diagnosis = diagnose(Observations(make_observations().config, History()))
    assert (diagnosis.findings, diagnosis.in_order) == ((), ())


def test_checks_that_could_not_run_have_a_reason():
    diagnosis = diagnose(make_observations(data=None, valid=[]))
    assert diagnosis.not_checked["leakage"] == "the data was not read"
    assert diagnosis.not_checked["overfitting"] == "there was no validation"
    nothing = diagnose(Observations(make_observations().config, History()))
    assert nothing.of("problem") == []


def test_rows_of_older_runs_can_be_read():
    """Without newer fields."""
    rows = [
        {k: row[k] for k in ("step", "loss", "nll", "lr", "gradient_norm", "tokens", "seconds")}
        for row in make_observations().history.steps
    ]
    assert diagnose(Observations(make_observations().config, History.of(rows))).of("problem", "warning") == []


def test_repetition():
    assert repetition("the the the the the the") == 1.0
    assert repetition("a b a b a b a b") == 1.0
    assert repetition("no text that says anything twice in a row") == 0.0
    assert repetition("hahahahahaha") == 1.0
    assert repetition("") == 0.0


def test_sums_have_the_spread_of_the_loss_and_count_clipped_steps():
    sums, losses = SumsSinceLog(), [3.0, 2.5, 2.0, 2.6]
    for i, loss in enumerate(losses):
        sums.add(StepReport(i, loss, loss, 1e-3, gradient_norm=2.0 * (i % 2), tokens=10), clip_norm=1.0)
    assert sums.nll_spread == pytest.approx(pstdev(losses))
    assert (sums.clipped, sums.steps, sums.tokens) == (2, 4, 40)
    sums.add(StepReport(9, math.inf, math.inf, 1e-3, math.nan, tokens=10), clip_norm=0.0)
    assert sums.clipped == 2


@pytest.fixture
def folder(tmp_path):
    """A run on its own files. Half of the test sentences are in the training data."""
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


def test_data_facts_of_a_run(folder):
    observed = observe(folder)
    assert observed.data_error == ""
    facts = observed.data
    assert facts.overlaps == {
        "valid": HeldOutOverlap(2, 4),
        "test": HeldOutOverlap(5, 10),
    }  # upper case counts as the same sentence
    assert (facts.train_examples, facts.valid_examples, facts.valid_answers) == (40, 4, 2 * 7 + 2 * 5)
    assert 0.1 < facts.unknown < 0.9  # capitals are not in the vocabulary
    assert facts.lower_cased == facts.tokenized == 1.0
    assert facts.is_other_data
    assert facts.padding == 0.0
    assert "leakage" in [finding.check for finding in diagnose(observed).of("problem")]


def test_missing_data_is_reported(folder):
    (folder.path.parent / "train.a").unlink()
    observed = observe(folder)
    assert observed.data is None
    assert "train.a" in observed.data_error
    assert "train.a" in diagnose(observed).not_checked["leakage"]
    assert diagnose(observe(folder, with_data=False)).not_checked["leakage"] == "the data was not read"


@pytest.mark.parametrize("harm", [lambda file: file.unlink(), lambda file: file.write_text("")], ids=["gone", "empty"])
def test_missing_test_files_are_ignored(folder, harm):
    before = observe(folder)
    for side in ("a", "b"):
        harm(folder.path.parent / f"test.{side}")
    observed = observe(folder)
    assert observed.data_error == ""
    assert observed.data.lower_cased == 0.5  # of the validation data
    assert observed.data == dataclasses.replace(
        before.data, overlaps={"valid": HeldOutOverlap(2, 4)}, lower_cased=0.5, tokenized=1.0
    )


def test_the_data_is_encoded_with_the_tokenizer_of_the_run(folder):
    config = folder.read_config()
    prepared = prepare(replace_data(config, vocab_size=200).data, "translation")
    known = observe(folder)
    write_text(folder.tokenizer, prepared.tokenizer)
    write_json(folder.data, {"fingerprint": prepared.fingerprint, "examples": 40})
    observed = observe(folder)
    assert not observed.data.is_other_data
    assert observed.data.answer_entropy > known.data.answer_entropy  # its vocabulary has all numbers


def test_overlap_of_texts_counts_whole_texts(folder):
    """Programs share lines, which is normal. A whole text that occurs twice is not."""
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
    assert (
        json.loads(json.dumps(diagnose(make_observations([5, 4, math.nan])).as_json()))["findings"][0]["severity"]
        == "problem"
    )
