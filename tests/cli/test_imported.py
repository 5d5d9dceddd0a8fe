"""Commands on imported weights, which have neither data nor metrics. All kinds: interop/test_imported_runs.py"""

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


def test_mask_uses_a_plain_sentence(folder):
    result = run_cutaway("mask", "runs/it", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Nothing leaks" in result.stdout


def test_there_is_no_figure_of_a_training(folder):
    result = run_cutaway("figures", "runs/it", "--only", "schedule", cwd=folder)
    assert "It needs the metrics of a training, which imported weights do not have." in result.stderr
    assert not (folder / "runs/it/figures").exists()


def test_doctor_names_another_command(folder):
    result = run_cutaway("doctor", "runs/it", cwd=folder)
    assert result.returncode == 1
    assert "was not trained here" in result.stderr
    assert "cutaway evaluate runs/it --data FILE" in result.stderr


def test_evaluate_on_files(folder):
    (folder / "a.txt").write_text("w5 w6 w7 w8 w9\n", encoding="utf-8")
    result = run_cutaway("evaluate", "runs/it", "--data", "a.txt", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    without = run_cutaway("evaluate", "runs/it", cwd=folder)
    assert "this run has no test data. Give text files: --data FILE." in without.stderr
