"""Downloading by name: the real client, with a local hub of one model."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from helpers import run_cutaway

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
    """The part of the hub's protocol that the client uses."""

    paths: list[str]
    files: dict[str, bytes]

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        path = self.path.partition("?")[0]
        type(self).paths.append(path)
        if path.startswith("/api/models/someone/small"):
            siblings = [{"rfilename": name} for name in self.files]
            answer = json.dumps(
                {"id": "someone/small", "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}
            )
            if "/tree/" in path:
                answer = json.dumps(
                    [{"type": "file", "path": n, "size": len(c), "oid": "1" * 40} for n, c in self.files.items()]
                )
            return self.send(answer.encode(), {"Content-Type": "application/json"}, body)
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
    """A local server: its handler, which records the requested paths, and its address."""
    handler = type("OneHub", (Hub,), {"paths": [], "files": dict(FILES)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def fetch(name, address, cache, offline="0"):
    """Call `find_folder` in a separate process: the client reads its settings on import."""
    code = (
        "import sys\nfrom cutaway.errors import CutawayError\nfrom cutaway.interop.hub import find_folder\n"
        "try:\n    print(find_folder(sys.argv[1]))\nexcept CutawayError as error:\n    sys.exit(f'error: {error}')"
    )
    settings = {"HF_ENDPOINT": address, "HF_HOME": str(cache), "HF_HUB_OFFLINE": offline, "HF_HUB_DISABLE_XET": "1",
                "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "HF_HUB_DISABLE_TELEMETRY": "1"}  # fmt: skip
    return subprocess.run(
        [sys.executable, "-c", code, name], env={**os.environ, **settings}, capture_output=True, text=True, timeout=60
    )


@pytest.mark.slow
def test_a_model_is_downloaded_by_name(hub, tmp_path):
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
    assert not any("pytorch_model.bin" in path for path in handler.paths)


@pytest.mark.slow
def test_a_cached_model_needs_no_network(hub, tmp_path):
    handler, address = hub
    folder = fetch("someone/small", address, tmp_path).stdout
    requests = len(handler.paths)
    for server, offline in ((address, "1"), ("http://127.0.0.1:9", "0")):  # offline mode; unreachable server
        again = fetch("someone/small", server, tmp_path, offline)
        assert (again.stdout, again.returncode) == (folder, 0), again.stderr
    assert len(handler.paths) == requests
    other = fetch("someone/other", "http://127.0.0.1:9", tmp_path)
    assert "error: there is no folder 'someone/other', and no model with that name could be downloaded" in other.stderr
    assert "Traceback" not in other.stderr


@pytest.mark.slow
def test_a_model_without_safetensors_raises(hub, tmp_path):
    handler, address = hub
    handler.files.pop("model.safetensors")
    done = fetch("someone/small", address, tmp_path)
    assert "error: the model 'someone/small' has no .safetensors on the hub, only pytorch_model.bin" in done.stderr
    assert "save_pretrained" in done.stderr
    assert not any("resolve" in path for path in handler.paths)


@pytest.mark.slow
def test_an_unknown_name(hub, tmp_path):
    done = fetch("nobody/knows", hub[1], tmp_path)
    assert done.returncode == 1
    assert "error: there is no folder 'nobody/knows', and no model with that name could be downloaded" in done.stderr
    assert "Traceback" not in done.stderr


def test_paths_that_are_not_folders(tmp_path):
    assert find_folder(str(tmp_path)) == tmp_path
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="is a file. Give its folder"):
        find_folder(str(tmp_path / "config.json"))
    with pytest.raises(DataError, match="there is no folder './no/such/place'"):
        find_folder("./no/such/place")


def test_without_the_client_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=r"'someone/gpt2' is not a folder.*pip install 'cutaway\[hub\]'"):
        find_folder("someone/gpt2")


@pytest.mark.parametrize(
    "source", ["nosuch", "gpt2", "./nosuch", "../nosuch", "nosuch/", "/nosuch", "a/b/c", "-a/b", "a/b..c", "ä/b"]
)
def test_invalid_names_are_not_looked_up(monkeypatch, tmp_path, source):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cutaway.interop.hub.download", lambda name: pytest.fail(f"asked the hub for {name!r}"))
    with pytest.raises(DataError, match=r"there is no folder '.*owner/name, as in openai-community/gpt2"):
        find_folder(source)


@pytest.mark.parametrize("source", ["a/b", "Helsinki-NLP/opus-mt-en-de", "google/flan-t5-small", "x_1.y/Z_2.0-z"])
def test_a_name_is_owner_and_name(monkeypatch, tmp_path, source):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cutaway.interop.hub.download", lambda name: Path("cache") / name)
    assert find_folder(source) == Path("cache") / source


def test_the_command_reports_a_missing_folder(tmp_path):
    result = run_cutaway("import", "nosuch", "run", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert "there is no folder 'nosuch'. Give a folder" in result.stderr
