"""What commands say of imported weights, which have neither data nor a training. All kinds: interop/test_imported_runs.py"""

import pytest
from foreign import write_theirs
from helpers import run_cutaway, tiny_of

from cutaway.interop.huggingface import import_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("imported")
    write_theirs(folder / "theirs", tiny_of("decoder", vocab_size=40, max_length=64, position="learned",
                                            norm_placement="pre", feed_forward="gelu_tanh", embedding_scale="one"))  # fmt: skip
    import_folder(folder / "theirs", folder / "runs/it")
    return folder


def test_a_mask_is_shown_of_a_plain_sentence(folder):
    told = run_cutaway("mask", "runs/it", cwd=folder)
    assert (told.returncode, told.stderr) == (0, "")
    assert "Nothing leaks" in told.stdout


def test_no_figure_of_a_training_that_never_was(folder):
    told = run_cutaway("figures", "runs/it", "--only", "schedule", cwd=folder)
    assert "It needs the metrics of its training, which imported weights do not have." in told.stderr
    assert not (folder / "runs/it/figures").exists()


def test_the_doctor_says_what_it_is(folder):
    told = run_cutaway("doctor", "runs/it", cwd=folder)
    assert told.returncode == 1
    assert "was not trained here" in told.stderr
    assert "cutaway evaluate runs/it --data FILE" in told.stderr


def test_it_can_be_scored_on_files(folder):
    (folder / "a.txt").write_text("w5 w6 w7 w8 w9\n", encoding="utf-8")
    told = run_cutaway("evaluate", "runs/it", "--data", "a.txt", cwd=folder)
    assert (told.returncode, told.stderr) == (0, "")
    without = run_cutaway("evaluate", "runs/it", cwd=folder)
    assert "this run names no test data to be scored on. Give text files: --data FILE." in without.stderr
