"""Run the curl commands and the client code of docs/getting-started.md and docs/serving.md, on small models."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from serving import serve_in_process, write_run
from untrained import untrained_pipeline

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def blocks(page, language):
    text = (ROOT / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(page):
    """List the curl commands. A backslash continues a command on the next line."""
    lines = "\n".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    return [line for line in lines if re.match(r"curl .*127\.0\.0\.1:8643", line)]


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    runs = [
        write_run(folder / "demo", untrained_pipeline()),
        write_run(folder / "python-gpt", untrained_pipeline("decoder")),
    ]
    with serve_in_process(runs) as served:
        yield served.port


COMMANDS = {page: commands(page) for page in ("docs/getting-started.md", "docs/serving.md")}


@pytest.mark.parametrize("command", [command for found in COMMANDS.values() for command in found])
def test_every_curl_command_works(port, command):
    local = command.replace("127.0.0.1:8643", f"127.0.0.1:{port}").replace(
        "curl ", "curl --fail-with-body --silent ", 1
    )
    result = subprocess.run(["bash", "-c", local], capture_output=True, text=True, timeout=60)
    assert (result.returncode, bool(result.stdout)) == (0, True), result.stdout


def test_the_pages_have_commands():
    assert len(COMMANDS["docs/serving.md"]) >= 10
    assert any("/translate" in command for command in COMMANDS["docs/getting-started.md"])
    assert any("/v1/completions" in command for command in COMMANDS["docs/getting-started.md"])
    assert len(blocks("docs/serving.md", "py")) == 1


def test_the_client_works(port):
    [code] = blocks("docs/serving.md", "py")
    code = code.replace("127.0.0.1:8643", f"127.0.0.1:{port}")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "8"
