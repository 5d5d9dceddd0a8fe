"""Whatever schemathesis can think of to ask: no mistake of ours, every answer as the document says, none lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from serving import answered, ask, served_apart, tiny_runs


@pytest.mark.parametrize(
    ("requests", "examples"),
    [
        pytest.param(1_000, 10, id="1000", marks=pytest.mark.slow),
        pytest.param(10_000, 1_300, id="10000", marks=pytest.mark.soak),
    ],
)
def test_no_request_is_answered_wrongly(tmp_path, requests, examples):
    with served_apart(tiny_runs(tmp_path)) as served:
        program = Path(sys.executable).with_name("schemathesis")
        result = subprocess.run(
            [
                program, "run", f"http://127.0.0.1:{served.port}/openapi.json", "--max-examples", str(examples),
                # what the schema allows may still be too long for a model, and is then refused
                "--exclude-checks", "positive_data_acceptance",
                "--phases", "examples,coverage,fuzzing", "--continue-on-failure", "--seed", "1", "--no-color",
            ],
            cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", errors="replace",
            timeout=300 if requests < 5_000 else 3_000, env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
        assert result.returncode == 0, result.stdout[-5_000:]
        counts = dict(line.rsplit(" ", 1) for line in ask(served.port, "/metrics")[1].decode().splitlines())
        answers = {name: int(n) for name, n in counts.items() if name.startswith("cutaway_requests_total")}
        assert sum(answers.values()) >= requests
        assert not [name for name in answers if 'status="5' in name]
        assert counts["cutaway_requests_in_flight"] == "1"  # none is still waiting, but for the one that asks
        assert all(counts[name] == "0" for name in counts if name.startswith("cutaway_texts_waiting"))
        assert len(answered(served.port, "/models")["data"]) == 4
        assert not [line for line in served.told if "Traceback" in line]
