"""cutaway serve: help and errors. tests/serve tests the server."""

from helpers import run_cutaway


def test_help_has_examples_and_every_limit(tmp_path):
    result = run_cutaway("serve", "--help-all", cwd=tmp_path)
    assert result.returncode == 0
    assert "cutaway serve runs/demo" in result.stdout
    for option in ("--token", "--allow-origin", "--engine", "--dtype", "--[no-]batching", "--max-waiting", "--timeout"):
        assert option in result.stdout


def test_a_missing_run_is_an_error(tmp_path):
    assert run_cutaway("serve", cwd=tmp_path).returncode == 2
    result = run_cutaway("serve", "runs/nothing", cwd=tmp_path)
    assert (result.returncode, "Traceback" in result.stderr) == (1, False)
    assert "runs/nothing" in result.stderr.replace("\n", "")
