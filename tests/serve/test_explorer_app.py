"""The explorer over HTTP, on a real server on loopback: results, errors, hostile texts."""

import http.client
import inspect
import json
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers import small_recipe

from cutaway.cli.explore import explore, listen, load_explorer
from cutaway.errors import ConfigError
from cutaway.explore import explorer as explorer_module
from cutaway.explore.causes import patching, why
from cutaway.explore.trace import trace
from cutaway.explore.values import dumps
from cutaway.inference.pipelines import load_pipeline
from cutaway.inference.training.setup import start_training
from cutaway.nn.recording import edit_activations, without_head
from cutaway.runs import RunFolder
from cutaway.serve.connections import BoundedServer
from cutaway.serve.explorer_app import PAGE, explorer_app
from cutaway.serve.limits import Limits

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a \u202eb c\u202c",
    "a\u200bb\u200d\ufeff c",
    "👩‍👩‍👧‍👦 🇫🇷 e\u0301",
    "\x00\x01\x7f",
    "</s> <s> <pad> <unk>",
    "{{7*7}} ${x} %s %n",
    "\ud7ff\ue000\uffff",
    " \t\r\n\u2028\u2029 ",
    "ａｂｃ ﷽ \U0010ffff",
]


@contextmanager
def serve_explorer(explorer, **options):
    """Run a server in a thread. Yield its port."""
    listening = listen("127.0.0.1", 0)
    server = BoundedServer(explorer_app(explorer, **options), Limits())
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listening.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "reverse"
    start_training(small_recipe(snapshots=2), RunFolder(folder)).trainer.run()
    return folder


@pytest.fixture(scope="module")
def port(run):
    with serve_explorer(load_explorer([run], "cpu")) as number:
        yield number


def ask(port, path, body=None, headers=None, method=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    given = {"Content-Type": "application/json"} if data is not None else {}
    connection.request(method or ("GET" if data is None else "POST"), path, data, {**given, **(headers or {})})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response, content


def ask_json(port, path, body=None):
    response, content = ask(port, path, body)
    assert response.status == 200, content
    return json.loads(content)


def test_info(port, run):
    answer = ask_json(port, "/api/info")
    [one] = answer["runs"]
    assert one["task"] == "translation"
    assert one["snapshots"] == [1, 12]
    assert [kind["kind"] for kind in one["attention"]] == ["encoder", "decoder", "cross"]
    assert {switch["id"] for switch in one["switches"]} >= {
        "encoder.layers.0.self_attention.heads.1",
        "decoder.layers.1.feed_forward",
    }
    assert one["examples"]


def test_a_trace_is_equal_to_the_pipelines(port, run):
    pipeline = load_pipeline(run, "cpu")
    answer = ask_json(port, "/api/trace", {"text": "a b c"})
    own = trace(pipeline, "a b c")
    assert answer["output"] == own.output == pipeline.translate(["a b c"])[0]
    assert answer["attention"] == own.attention
    assert answer["log_p"] == pytest.approx(own.log_p)
    off = ask_json(
        port, "/api/trace", {"text": "a b c", "target": "c b a", "off": ["decoder.layers.1.cross_attention.heads.1"]}
    )
    with edit_activations(pipeline.model, {"decoder.layers.1.cross_attention.heads": without_head(1)}):
        expected = trace(pipeline, "a b c", target="c b a")
    assert off["log_p"] == pytest.approx(expected.log_p)
    assert off["steps"] == expected.steps
    assert off["steps"] != trace(pipeline, "a b c", target="c b a").steps
    again = ask_json(port, "/api/trace", {"text": "a b c"})
    assert {**again, "milliseconds": 0} == {**answer, "milliseconds": 0}  # the ablation has no effect on later requests


def test_the_other_paths(port, run):
    text = {"text": "a b c"}
    assert ask_json(port, "/api/beam", {**text, "beam_size": 3})["beam_size"] == 3
    assert ask_json(port, "/api/part", {**text, "name": "encoder.norm"})["kind"]
    ablated = ask_json(port, "/api/ablations", text)
    assert len(ablated["rows"]) == len(ask_json(port, "/api/info")["runs"][0]["switches"])
    first, *rest = [json.loads(line) for line in ask(port, "/api/snapshots", text)[1].splitlines()]
    assert first["steps"] == [1, 12, None]
    assert [line["step"] for line in rest] == [1, 12, None]
    final = ask_json(port, "/api/trace", text)
    assert rest[-1]["output"] == final["output"]
    assert rest[-1]["attention"] == final["attention"]
    assert rest[-1]["log_p"] == pytest.approx(final["log_p"])
    early = load_pipeline(run, "cpu").load(run, "cpu", RunFolder(run).snapshot(1))
    assert rest[0]["output"] == early.translate(["a b c"])[0]
    assert rest[0]["log_p"] == pytest.approx(trace(early, "a b c", target=final["output"]).log_p, abs=1e-4)
    last = json.loads(
        ask(port, "/api/score", {**text, "sentences": 5, "off": ["decoder.layers.1.cross_attention"]})[1].splitlines()[
            -1
        ]
    )
    assert last["sentences"] == 5
    assert last["before"].keys() == last["after"].keys() >= {"bleu", "exact match", "perplexity"}
    assert last["before"]["perplexity"] != last["after"]["perplexity"]
    assert len(ask_json(port, "/api/heads?run=0")["rows"]) == 12


def test_causes_are_equal_to_the_pipelines(port, run, monkeypatch):
    monkeypatch.setattr(patching, "MIN_DIFFERENCE", 0)  # this model hardly reads its source yet
    pipeline = load_pipeline(run, "cpu")
    given = {"text": "a b c", "target": "c b a", "step": 1}
    rival = ask_json(port, "/api/trace", given)["steps"][1]["ids"][3]
    found = ask_json(port, "/api/why", {**given, "rival": rival, "methods": ["rollout"]})
    own = why(pipeline, "a b c", "b", pipeline.tokenizer.tokens([rival])[0], 1, "c b a", ["rollout"])
    assert found == json.loads(own.to_json())
    assert [each["method"] for each in found["attributions"]] == ["occlusion", "rollout"]
    [head] = [part for part in found["parts"] if part["id"] == "decoder.layers.1.cross_attention.heads.1"]
    off = ask_json(port, "/api/why", {**given, "rival": rival, "methods": [], "off": [head["id"]]})
    assert off["margin"] == pytest.approx(found["margin"] + head["effect"], abs=1e-4)
    patched = ask_json(port, "/api/patching", {**given, "rival": rival, "other": "x y z"})
    assert patched["margin"] == pytest.approx(found["margin"], abs=1e-5)
    other = ask_json(port, "/api/why", {**given, "text": "x y z", "rival": rival, "methods": []})
    assert patched["other_margin"] == pytest.approx(other["margin"], abs=1e-5)
    assert patched["grids"][0]["others"] == [*"xyz", "</s>"]
    # the texts differ in this token only
    given = {"text": "a b c", "other": "x b c", "place": "encoder embedding", "position": 0}
    assert ask_json(port, "/api/patched", given) == {"output": pipeline.translate(["x b c"])[0]}


def test_causes_that_would_take_minutes_are_refused(port, monkeypatch):
    monkeypatch.setattr(explorer_module, "MAX_WORK", 1e6)
    for path in ("/api/why", "/api/patching"):
        response, content = ask(port, path, {"text": "a b c", "other": "x y z"})
        assert response.status == 400
        assert "too many for this model" in json.loads(content)["error"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_accepted(port, text):
    response, content = ask(port, "/api/trace", {"text": text})
    answer = json.loads(content)
    if text.strip():
        assert response.status == 200, content
        assert answer["text"] == text
    else:
        assert response.status == 400
        assert answer["error"].startswith("there is nothing to translate")
    assert response.headers["content-type"].startswith("application/json")


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/api/trace", {"text": "a" * 100_000}, 400, "the text has 100,000 characters; the explorer takes at most 20,000"),
        ("/api/trace", {"text": "a " * 5_000}, 400, "this model has positions for 64"),
        ("/api/trace", {}, 422, "text: Field required"),
        ("/api/trace", {"text": 5}, 422, "text: Input should be a valid string"),
        ("/api/trace", {"text": "a", "run": 7}, 400, "there is no run 7"),
        ("/api/trace", {"text": "a", "snapshot": 5}, 400, "has no snapshot of step 5. Available: 1, 12"),
        ("/api/trace", {"text": "a", "off": ["x"]}, 400, "this model has no head or sub-layer 'x'"),
        ("/api/trace", {"text": "a", "prefix": [1] * 60}, 400, "the prefix has 60 tokens"),
        ("/api/trace", b"{", 422, "JSON"),
        ("/api/trace", b"x" * (2 << 20), 413, "larger than"),
        ("/api/part", {"text": "a", "name": "__class__"}, 400, "no part '__class__'"),
        ("/api/beam", {"text": "a", "beam_size": 1000}, 422, "beam_size"),
        ("/api/beam", {"text": "a", "prefix": [10**9]}, 400, "1000000000 is not a token id"),
        ("/api/beam", {"text": "a", "prefix": [-1]}, 400, "-1 is not a token id"),
        ("/api/beam", {"text": "a", "prefix": [10**30]}, 400, "is not a token id"),
        ("/api/why", {"text": "a", "step": 99}, 400, "there is no step 99"),
        ("/api/why", {"text": "a", "step": 0, "token": 10**6}, 400, "no token with the id 1000000"),
        ("/api/why", {"text": "a", "step": 0, "token": 5, "rival": 5}, 400, "two different tokens"),
        ("/api/why", {"text": "a", "step": -1}, 422, "step"),
        ("/api/why", {"text": "a", "methods": ["magic"]}, 422, "methods.0"),
        ("/api/patching", {"text": "a"}, 422, "other: Field required"),
        ("/api/patching", {"text": "a b", "other": "a"}, 400, "the texts have 3 and 2 tokens"),
        ("/api/patching", {"text": "a b", "other": "a b"}, 400, "no difference to explain"),
        ("/api/patched", {"text": "a b", "other": "a"}, 422, "place: Field required"),
        ("/api/patched", {"text": "a b", "other": "a", "place": "x"}, 400, "the texts have 3 and 2 tokens"),
        ("/api/patched", {"text": "a b", "other": "b a", "place": "x"}, 400, "no part 'x'"),
        ("/api/patched", {"text": "a", "other": "b", "place": "encoder layer 0", "position": 9}, 400, "no token 9"),
        ("/api/nothing", {"text": "a"}, 405, ""),
        ("/../../../etc/passwd", None, 404, "there is no path"),
        ("/%2e%2e/explorer.py", None, 404, "there is no path"),
        ("/%00", None, 404, "there is no path"),
        ("/" + "x" * 300, None, 404, "there is no path"),
        ("/openapi.json", None, 404, "there is no path"),
        ("/api/trace", {"text": "  "}, 400, "there is nothing to translate"),
        ("/views/../../explorer.py", None, 404, "there is no path"),
    ],
)  # fmt: skip
def test_errors_say_why(port, path, body, status, message):
    response, content = ask(port, path, body)
    assert response.status == status, content
    assert message in content.decode()
    assert "Traceback" not in content.decode()


def test_ids_outside_the_vocabulary_are_rejected(port):
    for prefix in ([10_000], [-1]):
        response, content = ask(port, "/api/trace", {"text": "a", "prefix": prefix})
        assert response.status == 400, content
        assert "is not a token id" in json.loads(content)["error"]


def test_foreign_host_names_and_cross_site_requests_are_rejected(port):
    response, content = ask(port, "/api/info", headers={"Host": "evil.example:80"})
    assert response.status == 421
    assert "the host name 'evil.example' is not accepted" in json.loads(content)["error"]
    response, _ = ask(port, "/api/heads?run=0", headers={"Sec-Fetch-Site": "cross-site"})
    assert response.status == 403
    chunked = {"Transfer-Encoding": "chunked"}
    assert ask(port, "/api/trace", iter([b"{}"]), headers=chunked)[0].status == 411
    assert ask(port, "/api/trace", iter([b"{}"]), headers={**chunked, "Content-Length": "2"})[0].status == 400
    response, _ = ask(port, "/")
    assert "default-src 'self'" in response.headers["content-security-policy"]
    assert "access-control-allow-origin" not in response.headers


def test_the_page_and_its_modules_are_served(port):
    for file in PAGE.rglob("*.*"):
        response, content = ask(port, "/" + file.relative_to(PAGE).as_posix())
        assert (response.status, content) == (200, file.read_bytes()), file
    assert ask(port, "/")[1] == (PAGE / "index.html").read_bytes()


def test_parallel_requests_are_independent(port):
    alone = {
        off: ask_json(port, "/api/trace", {"text": "a b c", "off": off.split()})["log_p"]
        for off in ("", "encoder.layers.0.feed_forward")
    }
    found = []

    def client(off):
        found.extend(
            (off, ask_json(port, "/api/trace", {"text": "a b c", "off": off.split()})["log_p"]) for _ in range(5)
        )

    threads = [threading.Thread(target=client, args=[off]) for off in (*alone, *alone)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert all(log_p == alone[off] for off, log_p in found)


def test_nan_and_infinity_become_null():
    assert dumps({"a": [1.0, float("nan")], "b": (float("inf"), "x")}) == '{"a": [1.0, null], "b": [null, "x"]}'


def test_the_default_host_is_local(port):
    assert inspect.signature(explore).parameters["host"].default == "127.0.0.1"
    with pytest.raises(ConfigError, match=rf"cannot listen at 127.0.0.1:{port} .*Choose another address with --port"):
        listen("127.0.0.1", port)


def test_the_page_parses_no_html():
    """Text is only shown as text, and nothing is loaded from other hosts."""
    for file in Path(PAGE).rglob("*.*"):
        code = file.read_text("utf-8")
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "http://",
            "https://",
        ):
            assert word not in code.replace("http://www.w3.org/", ""), f"{file.name} holds {word}"
