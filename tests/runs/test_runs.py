"""The run folder: atomic writing, and detection of damage."""

import stat

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import RunError
from cutaway.runs import RunFolder
from cutaway.runs.files import replacing, replacing_folder, write_bytes, write_text
from cutaway.runs.weights import read_sealed, seal_weights

TENSORS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, dtype=np.int64)}


def test_sealed_file_is_an_ordinary_safetensors_file(tmp_path):
    path = tmp_path / "w.safetensors"
    write_bytes(path, seal_weights(safetensors.numpy.save(TENSORS, {"made": "here"})))
    loaded = safetensors.numpy.load_file(path)
    assert all((loaded[name] == TENSORS[name]).all() for name in TENSORS)
    assert safetensors.numpy.load(read_sealed(path)).keys() == TENSORS.keys()
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata()["made"] == "here"


@given(st.data())
def test_damage_is_detected(tmp_path_factory, data):
    """A file that is cut anywhere, or has any flipped bit in its weights, raises an error."""
    path = tmp_path_factory.mktemp("x") / "w.safetensors"
    whole = seal_weights(safetensors.numpy.save(TENSORS))
    if data.draw(st.booleans(), "cut"):
        damaged = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        place = len(whole) - 1 - data.draw(st.integers(0, 47))  # the 48 bytes of the tensors
        damaged = whole[:place] + bytes([whole[place] ^ (1 << data.draw(st.integers(0, 7)))]) + whole[place + 1 :]
    path.write_bytes(damaged)
    with pytest.raises(RunError, match=r"w\.safetensors is damaged: .* Restore it"):
        read_sealed(path)


def test_failed_write_leaves_only_the_old_file(tmp_path):
    path = tmp_path / "f.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError, match="no space"), replacing(path) as temporary:
        temporary.write_text("half of the ne")
        raise RuntimeError("no space")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f.txt"]


def test_folder_is_replaced_atomically(tmp_path):
    folder = tmp_path / "step"
    with replacing_folder(folder) as temporary:
        (temporary / "a").write_text("1")
    with pytest.raises(RuntimeError, match="killed"), replacing_folder(folder) as temporary:
        (temporary / "a").write_text("2")
        raise RuntimeError("killed")
    assert (folder / "a").read_text() == "1"
    assert [p.name for p in tmp_path.iterdir()] == ["step"]


def test_files_can_be_read_by_others(tmp_path):
    """Temporary files are private. After the rename they must not be."""
    write_text(tmp_path / "f", "x")
    plain = tmp_path / "g"
    plain.write_text("x")
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_error_of_a_missing_run_lists_other_runs(tmp_path):
    with pytest.raises(RunError, match=r"there is no run folder .*nope.*Train one with `cutaway demo`"):
        RunFolder(tmp_path / "nope").require()
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "config.json").write_text("{}")
    with pytest.raises(RunError, match="Runs in .*: demo"):
        RunFolder(tmp_path / "nope").require()
    with pytest.raises(
        RunError, match=r"has no tokenizer.json and no model.safetensors. Its training has not saved weights"
    ):
        RunFolder(tmp_path / "demo").require()


def test_damaged_config(tmp_path):
    run = RunFolder(tmp_path)
    run.config.write_text('{"model": ')
    with pytest.raises(RunError, match="is damaged"):
        run.read_config()


def test_clear_removes_only_files_of_the_run(tmp_path):
    run = RunFolder(tmp_path / "run")
    write_text(run.config, "{}")
    write_text(run.path / "notes.txt", "mine")
    write_text(run.checkpoint(3) / "state.json", "{}")
    run.clear()
    assert [p.name for p in run.path.iterdir()] == ["notes.txt"]


def test_metrics_of_a_killed_run_can_be_read(tmp_path):
    run = RunFolder(tmp_path)
    run.append_metrics({"step": 1})
    run.append_metrics({"step": 2})
    with run.metrics.open("a") as file:
        file.write('{"step": 3, "lo')
    assert run.read_metrics() == [{"step": 1}, {"step": 2}]
    run.drop_metrics_after(1)
    assert run.read_metrics() == [{"step": 1}]


def test_pruning_keeps_the_best_checkpoint(tmp_path):
    run = RunFolder(tmp_path)
    for step in (1, 2, 3, 4, 1000000):
        run.checkpoint(step).mkdir(parents=True)
    run.set_pointer("best", run.checkpoint(2))
    run.set_pointer("latest", run.checkpoint(1000000))
    run.prune_checkpoints(2)
    assert {p.name for p in run.checkpoints.iterdir()} == {"step_000002", "step_000004", "step_1000000"}
    assert run.pointer("best") == run.checkpoint(2)
    assert run.pointer("nothing") is None
