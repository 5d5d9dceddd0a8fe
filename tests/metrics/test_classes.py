import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.cli.class_tables import print_classes, print_confusion
from cutaway.errors import DataError
from cutaway.inference.evaluation import class_figures
from cutaway.metrics.classes import Confusion, SpanScore, accuracy, has_spans, span_f1, span_scores, spans_of

tags = st.lists(st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y"]), max_size=8)
pairs_of_tags = tags.flatmap(lambda gold: st.tuples(st.permutations(gold), st.just(gold)))


def test_accuracy():
    assert accuracy(["a", "b", "c", "a"], ["a", "b", "b", "a"]) == 0.75


classes = st.lists(st.tuples(*[st.sampled_from(["a", "b", "c", "d"])] * 2), min_size=1, max_size=30)


@pytest.mark.filterwarnings("ignore:A single label was found")
@given(classes)
def test_scores_of_classes_against_scikit_learn(pairs):
    from sklearn.metrics import classification_report, confusion_matrix

    predicted, gold = zip(*pairs, strict=True)
    ours = Confusion.of(predicted, gold)
    report = classification_report(gold, predicted, output_dict=True, zero_division=0)
    assert ours.counts.tolist() == confusion_matrix(gold, predicted, labels=ours.labels).tolist()
    figures = class_figures(predicted, gold)
    for label, score in figures["classes"].items():
        theirs = report[label]
        assert score["support"] == theirs["support"]
        assert [score["precision"], score["recall"], score["f1"]] == pytest.approx(
            [theirs["precision"], theirs["recall"], theirs["f1-score"]]
        )
    assert figures["macro_f1"] == pytest.approx(report["macro avg"]["f1-score"])
    kept = json.loads(json.dumps(figures))
    assert Confusion.read(kept).counts.tolist() == ours.counts.tolist()


@pytest.mark.parametrize(
    "damaged", [{}, {"confusion": 3}, {"confusion": {"labels": ["a"], "counts": [[1, 2]]}},
                {"confusion": {"labels": ["a"], "counts": [["x"]]}}, {"confusion": {"labels": [], "counts": []}}]
)  # fmt: skip
def test_invalid_confusion_matrix_is_none(damaged):
    assert Confusion.read(damaged) is None


@given(st.lists(pairs_of_tags, min_size=1))
def test_span_scores_of_each_label(pairs):
    predicted, gold = zip(*pairs, strict=True)
    of_labels = {
        label: span_f1([[t if t[2:] == label else "O" for t in row] for row in predicted],
                       [[t if t[2:] == label else "O" for t in row] for row in gold])
        for label in "xy"
    }  # fmt: skip
    for label, score in span_scores(predicted, gold).items():
        assert score[:3] == pytest.approx((of_labels[label].precision, of_labels[label].recall, of_labels[label].f1))


def test_tables_with_many_classes_are_short(capsys):
    gold = [f"class {i:03}" for i in range(300)]
    predicted = [*gold[1:4], *gold[3:]]
    figures = class_figures(predicted, gold)
    print_classes(figures["classes"], "class")
    print_confusion(**figures["confusion"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 40
    assert f"{'class 001':20} predicted as {'class 002':20}       1  100.0%" in text
    assert "--json prints all 300" in text
    print_confusion(["[red]", "b"], [[3, 1], [0, 2]])
    assert capsys.readouterr().out.split() == ["predicted:", "[red]", "b", "[red]", "3", "1", "b", "0", "2"]


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("", []),
        ("O O", []),
        ("B-x I-x O B-x", [(0, 2, "x"), (3, 4, "x")]),
        ("B-x B-x I-x", [(0, 1, "x"), (1, 3, "x")]),
        ("I-x I-x", [(0, 2, "x")]),
        ("B-x I-y I-y O I-x", [(0, 1, "x"), (1, 3, "y"), (4, 5, "x")]),
        ("B-a-b I-a-b", [(0, 2, "a-b")]),
    ],
)
def test_spans_by_hand(tags, spans):
    assert spans_of(tags.split()) == spans


@given(tags)
def test_spans_against_their_definition(tags):
    """A span starts at B- or at a new label, continues with I- of this label, and ends where that stops."""

    def starts(i):
        return tags[i] != "O" and (tags[i][0] == "B" or i == 0 or tags[i - 1][2:] != tags[i][2:])

    def is_span(i, j):
        inside = all(tags[k] == "I-" + tags[i][2:] for k in range(i + 1, j))
        return starts(i) and inside and (j == len(tags) or tags[j] != "I-" + tags[i][2:])

    n = len(tags)
    expected = [(i, j, tags[i][2:]) for i in range(n) for j in range(i + 1, n + 1) if is_span(i, j)]
    assert spans_of(tags) == expected


@given(st.lists(pairs_of_tags, min_size=1))
def test_f1_against_sets(pairs):
    predicted, gold = zip(*pairs, strict=True)
    found = {(n, span) for n, row in enumerate(predicted) for span in spans_of(row)}
    wanted = {(n, span) for n, row in enumerate(gold) for span in spans_of(row)}
    score = span_f1(predicted, gold)
    if found and wanted and found & wanted:
        precision, recall = len(found & wanted) / len(found), len(found & wanted) / len(wanted)
        f1 = 2 * precision * recall / (precision + recall)
        assert (score.precision, score.recall, score.f1) == pytest.approx((precision, recall, f1))
    else:
        assert score.f1 == 0


def test_f1_by_hand():
    gold = [["B-x", "I-x", "O", "B-y"], ["O", "B-x"]]
    assert span_f1(gold, gold) == SpanScore(1, 1, 1)
    assert span_f1([["B-x", "O", "O", "B-y"], ["B-x", "B-x"]], gold) == SpanScore(0.5, 2 / 3, pytest.approx(4 / 7))
    assert span_f1([["O"] * 4, ["O"] * 2], gold) == SpanScore(0, 0, 0)


def test_has_spans():
    assert has_spans(["O", "B-x", "I-x", "B-y"])
    assert has_spans({"B-x"})
    for tags in (["NOUN", "VERB"], ["O"], [], ["I-x", "O"], ["B-x", "NOUN"], ["B-", "O"], ["B", "I", "O"]):
        assert not has_spans(tags)


def test_errors_name_both_lengths():
    with pytest.raises(DataError, match="1 predicted classes cannot be compared with 2 gold classes"):
        accuracy(["a"], ["a", "b"])
    with pytest.raises(DataError, match="at least one"):
        accuracy([], [])
    with pytest.raises(DataError, match="0 predicted sequences cannot be compared with 1 gold"):
        span_f1([], [["O"]])
    with pytest.raises(DataError, match="1 predicted tags of sequence 2 cannot be compared with 3 gold"):
        span_f1([["O"], ["O"]], [["O"], ["O"] * 3])
    with pytest.raises(DataError, match="tag 2 is 'NOUN'. Spans need BIO tags"):
        spans_of(["O", "NOUN"])
