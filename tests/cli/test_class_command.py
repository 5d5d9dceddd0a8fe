"""cutaway class: a folder of submissions becomes a table."""

import csv
import json
import os

import pytest
from typer.testing import CliRunner

from cutaway.cli import app
from cutaway.course.exercises import get_exercise
from cutaway.system.resources import shipped_folder

NAME = get_exercise(1).file
RIGHT = (shipped_folder("exercises") / "solutions" / NAME).read_text(encoding="utf-8")
NO_SCALE = RIGHT.replace(" / np.sqrt(d_k)", "")


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    folder = tmp_path_factory.mktemp("handed-in")
    files = {
        f"ada/{NAME}": RIGHT,
        f"Ben/work/{NAME}": NO_SCALE,
        f"=cleo/{NAME}": NO_SCALE,
        f"dan/{NAME}": "def softmax(:",
        "ada/exercise_03_positional_encoding.py": "def sinusoidal(*a): return 1",
        "dan/notes.py": "",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def grade(*arguments):
    result = CliRunner().invoke(app, ["class", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result


def test_a_class_is_graded(handed_in, tmp_path):
    table = tmp_path / "grades.csv"
    result = grade(handed_in, "--exercise", 1, "--csv", table)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["ada", "all"] in lines
    assert ["dan", "cannot", "be", "read"] in lines
    parts = len(get_exercise(1).parts)
    assert ["Ben", str(parts - 1), "of", str(parts)] in lines
    assert ["1", "attention", "1", "of", "4"] in lines
    assert "2  exercise 1, attention: The scores are not divided by sqrt(d_k). (=cleo, Ben)" in result.stdout
    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    assert {row["student"] for row in rows} == {"ada", "Ben", "'=cleo", "dan"}
    [ben] = [row for row in rows if row["student"] == "Ben" and row["state"] == "wrong"]
    assert (ben["part"], ben["mistakes"]) == ("attention", "no-scale")
    assert ben["reason"] == "The scores are not divided by sqrt(d_k)."
    [dan] = [row for row in rows if row["student"] == "dan"]
    assert "SyntaxError" in dan["reason"]


def test_json_and_all_exercises(handed_in):
    found = json.loads(grade(handed_in, "--json").stdout)
    assert {row["exercise"] for row in found["parts"]} == {1, 3}
    assert found["mistakes"][0]["students"] == ["=cleo", "Ben"]


def test_the_newest_file_counts(tmp_path):
    old, new = tmp_path / "ada/old" / NAME, tmp_path / "ada/new" / NAME
    for path, text, age in ((old, NO_SCALE, 50), (new, RIGHT, 100)):
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
        os.utime(path, (age, age))
    result = grade(tmp_path)
    assert "ada      all" in result.stdout
    assert "only the newest file is graded" in result.stderr


@pytest.mark.parametrize(
    ("make", "message"),
    [(False, "there is no folder"), (True, "no submissions for exercise 2")],
    ids=["missing", "empty"],
)
def test_a_folder_without_submissions_is_an_error(tmp_path, make, message):
    folder = tmp_path / "class"
    if make:
        folder.mkdir()
    result = CliRunner().invoke(app, ["class", str(folder), "--exercise", "2"])
    assert message in str(result.exception)
