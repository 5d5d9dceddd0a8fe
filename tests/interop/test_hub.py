"""Fetching by name: the real client, against a hub of one model on this machine."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from helpers import cutaway_here

from cutaway.errors import DataError, MissingExtra
from cutaway.interop.hub import find_folder

COMMIT = "0" * 39 + "1"
FILES = {
    "config.json": b'{"model_type": "gpt2"}',
    "model.safetensors": b"weights",
    "vocab.txt": b"[PAD]\n",
    "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
    "pytorch_model.bin": b"a program",
    "README.md": b"# a model",
}


class Hub(BaseHTTPRequestHandler):
    """What of the hub's protocol the client asks for."""

    asked: list[str]
    files: dict[str, bytes]

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        path = self.path.partition("?")[0]
        type(self).asked.append(path)
        if path.startswith("/api/models/someone/small"):
            siblings = [{"rfilename": name} for name in self.files]
            told = json.dumps(
                {"id": "someone/small", "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}
            )
            if "/tree/" in path:
                told = json.dumps(
                    [{"type": "file", "path": n, "size": len(c), "oid": "1" * 40} for n, c in self.files.items()]
                )
            return self.send(told.encode(), {"Content-Type": "application/json"}, body)
        name = path.removeprefix(f"/someone/small/resolve/{COMMIT}/").removeprefix("/someone/small/resolve/main/")
        if name in self.files:
            content = self.files[name]
            etag = hashlib.sha1(content).hexdigest()
            return self.send(content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, body)
        return self.send(b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"}, body, 404)

    def send(self, content, headers, body, status=200):
        self.send_response(status)
        for key, value in {**headers, "Content-Length": len(content)}.items():
            self.send_header(key, str(value))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def hub():
    """A server on this machine: its address, and what it was asked."""
    handler = type("OneHub", (Hub,), {"asked": [], "files": dict(FILES)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def fetch(name, address, cache, offline="0"):
    """In a process of its own: the client reads its settings once, when it is imported."""
    code = (
        "import sys\nfrom cutaway.errors import CutawayError\nfrom cutaway.interop.hub import find_folder\n"
        "try:\n    print(find_folder(sys.argv[1]))\nexcept CutawayError as error:\n    sys.exit(f'told: {error}')"
    )
    settings = {"HF_ENDPOINT": address, "HF_HOME": str(cache), "HF_HUB_OFFLINE": offline, "HF_HUB_DISABLE_XET": "1",
                "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "HF_HUB_DISABLE_TELEMETRY": "1"}  # fmt: skip
    return subprocess.run(
        [sys.executable, "-c", code, name], env={**os.environ, **settings}, capture_output=True, text=True, timeout=60
    )


@pytest.mark.slow
def test_a_model_is_fetched_by_its_name(hub, tmp_path):
    handler, address = hub
    done = fetch("someone/small", address, tmp_path)
    assert done.returncode == 0, done.stderr
    folder = done.stdout.strip()
    for name, content in FILES.items():
        path = os.path.join(folder, name)
        if name in ("pytorch_model.bin", "README.md"):
            assert not os.path.exists(path)
        else:
            assert Path(path).read_bytes() == content
    assert not any("pytorch_model.bin" in path for path in handler.asked)


@pytest.mark.slow
def test_what_was_fetched_before_needs_no_network(hub, tmp_path):
    handler, address = hub
    folder = fetch("someone/small", address, tmp_path).stdout
    asked = len(handler.asked)
    for place, offline in ((address, "1"), ("http://127.0.0.1:9", "0")):  # forbidden; and nobody is there
        again = fetch("someone/small", place, tmp_path, offline)
        assert (again.stdout, again.returncode) == (folder, 0), again.stderr
    assert len(handler.asked) == asked
    other = fetch("someone/other", "http://127.0.0.1:9", tmp_path)
    assert "told: there is no folder 'someone/other' here, and no model of that name could be fetched" in other.stderr
    assert "Traceback" not in other.stderr


@pytest.mark.slow
def test_a_model_without_safetensors_is_refused(hub, tmp_path):
    handler, address = hub
    handler.files.pop("model.safetensors")
    done = fetch("someone/small", address, tmp_path)
    assert "told: the model 'someone/small' has no .safetensors on the hub, only pytorch_model.bin" in done.stderr
    assert "save_pretrained" in done.stderr
    assert not any("resolve" in path for path in handler.asked)


@pytest.mark.slow
def test_a_name_that_nobody_knows(hub, tmp_path):
    done = fetch("nobody/knows", hub[1], tmp_path)
    assert done.returncode == 1
    assert "told: there is no folder 'nobody/knows' here, and no model of that name could be fetched" in done.stderr
    assert "Traceback" not in done.stderr


def test_paths_that_are_no_folder(tmp_path):
    assert find_folder(str(tmp_path)) == tmp_path
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="is a file. Give the folder"):
        find_folder(str(tmp_path / "config.json"))
    with pytest.raises(DataError, match="there is no folder './no/such/place'"):
        find_folder("./no/such/place")


def test_without_the_client_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=r"'someone/gpt2' is no folder here.*pip install 'cutaway\[hub\]'"):
        find_folder("someone/gpt2")


@pytest.mark.parametrize(
    "source", ["nosuch", "gpt2", "./nosuch", "../nosuch", "nosuch/", "/nosuch", "a/b/c", "-a/b", "a/b..c", "ä/b"]
)
def test_what_cannot_be_a_name_is_not_looked_up(monkeypatch, tmp_path, source):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cutaway.interop.hub.fetched", lambda name: pytest.fail(f"asked the hub for {name!r}"))
    with pytest.raises(DataError, match=r"there is no folder '.*owner/name, as in openai-community/gpt2"):
        find_folder(source)


@pytest.mark.parametrize("source", ["a/b", "Helsinki-NLP/opus-mt-en-de", "google/flan-t5-small", "x_1.y/Z_2.0-z"])
def test_a_name_is_owner_and_name(monkeypatch, tmp_path, source):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cutaway.interop.hub.fetched", lambda name: Path("kept") / name)
    assert find_folder(source) == Path("kept") / source


def test_the_command_says_at_once_that_there_is_no_such_folder(tmp_path):
    told = cutaway_here("import", "nosuch", "run", cwd=tmp_path)
    assert (told.returncode, told.stdout) == (1, "")
    assert "there is no folder 'nosuch'. Give one" in told.stderr
