"""The JSON API of a real server on loopback: same results as the pipelines, and error messages for invalid requests."""

import hashlib
import http.client
import json
import queue
import socket
import threading
import time
from base64 import b64encode
from dataclasses import replace

import pytest
from serving import HOME, ask, ask_json, events, serve_in_thread, tiny_runs, until, write_run
from starlette.datastructures import Headers
from untrained import untrained_pipeline

from cutaway.config import DecodeConfig
from cutaway.errors import ConfigError, DataError
from cutaway.explore.trace import trace
from cutaway.inference.pipelines import Classifier, Embedder, Tagger, TextGenerator, Translator
from cutaway.search.request import Request
from cutaway.serve.docs_page import docs_page, resolve_ref
from cutaway.serve.middleware import Access, parse_origins

TEXTS = ["a b c d", "e", "h g f e d c b a , .", "", "b b b"]
HOSTILE = [
    "<script>alert(1)</script>", "a \u202eb c\u202c", "a\u200bb\u200d\ufeff c", "👩‍👩‍👧‍👦 🇫🇷 e\u0301", "\x00\x01\x7f",
    "</s> <s> <pad> <unk>", "\ud7ff\ue000\uffff", " \t\r\n\u2028\u2029 ", "ａｂｃ ﷽ \U0010ffff", "e" + "\u0301" * 300,
]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def served(runs):
    with serve_in_thread(runs) as found:
        yield found


@pytest.fixture(scope="module")
def port(served):
    return served.port


def load(kind, run):
    return kind.load(run, "cpu", dtype="float64")


SEARCHES = [
    {"strategy": "greedy"},
    {"strategy": "beam", "beam_size": 3, "length_penalty": 0.6},
    {"strategy": "sample", "temperature": 0.9, "top_k": 5, "seed": 7},
    {"strategy": "sample", "top_p": 0.8, "min_p": 0.01, "seed": 3, "max_length": 6},
    {"strategy": "greedy", "repetition_penalty": 1.3, "no_repeat_ngram": 2, "min_length": 2, "max_length": 9},
]


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: "-".join(map(str, search.values())))
def test_texts_are_equal_to_the_pipelines(port, runs, search):
    answer = ask_json(port, "/translate", {"text": TEXTS, **search})
    translator = load(Translator, runs[0])
    expected = translator.translate(TEXTS, DecodeConfig(**search))
    assert answer["model"] == "translator"
    assert [one["text"] for one in answer["results"]] == expected
    found = translator.hypotheses(TEXTS, DecodeConfig(**search))
    for one, hypotheses in zip(answer["results"], found, strict=True):
        if hypotheses:
            assert one["log_probability"] == pytest.approx(hypotheses[0].log_probability)
            assert (one["tokens"], one["finished"]) == (len(hypotheses[0].tokens), hypotheses[0].finished)
            assert one["reason"] == ("stop" if hypotheses[0].finished else "length")
    answer = ask_json(port, "/generate", {"text": TEXTS, **search})
    generated = load(TextGenerator, runs[1]).generate(TEXTS, DecodeConfig(**search))
    assert [text + one["text"] for text, one in zip(TEXTS, answer["results"], strict=True)] == generated


@pytest.mark.parametrize("path", ["/translate", "/generate"])
@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: "-".join(map(str, search.values())))
def test_a_stream_has_the_same_text(port, path, search):
    body = {"text": TEXTS, **search}
    whole = ask_json(port, path, body)["results"]
    answer = events(port, path, body)
    for index, one in enumerate(whole):
        own = [event for event in answer if event["index"] == index]
        assert "".join(event["text"] for event in own[:-1]) == one["text"]
        assert {**own[-1], "text": one["text"], "others": []} == {**one, "index": index}


def test_a_stream_has_several_pieces(port):
    answer = events(port, "/generate", {"text": "a b", "strategy": "greedy", "max_length": 8})
    assert len([event for event in answer if event.get("text")]) >= 4  # (some tokens have no text)
    assert (
        len(events(port, "/generate", {"text": "a b", "strategy": "beam", "max_length": 8})) == 2
    )  # beam search: one piece


def test_several_versions_and_a_prefix(port, runs):
    body = {"text": "a b c", "strategy": "beam", "beam_size": 4, "n_best": 3, "prefix": "c"}
    [one] = ask_json(port, "/translate", body)["results"]
    assert len(one["others"]) == 2
    scores = [one["score"], *(other["score"] for other in one["others"])]
    assert scores == sorted(scores, reverse=True)
    assert all(text.startswith("c") for text in (one["text"], *(other["text"] for other in one["others"])))
    expected = load(Translator, runs[0]).translate(["a b c"], DecodeConfig(strategy="beam", beam_size=4), prefix="c")
    assert [one["text"]] == expected


def test_choices(port, runs):
    choices = ["a b", "c", "d e f"]
    for path, kind, run in (("/translate", Translator, 0), ("/generate", TextGenerator, 1)):
        pipeline = load(kind, runs[run])
        for search in ({}, {"strategy": "greedy"}, {"strategy": "sample", "seed": 3}):
            body = {"text": TEXTS[:3], "choices": choices, **search}
            decode = DecodeConfig(**search) if search else None
            expected = pipeline.answers(TEXTS[:3], decode, choices=choices)
            assert [one["text"] for one in ask_json(port, path, body)["results"]] == expected
            assert {text.strip() for text in expected} <= set(choices)
    response, content = ask(port, "/translate", {"text": "a", "choices": ["a", "zebra"]})
    assert (response.status, "the choice 'zebra' cannot be generated" in content.decode()) == (400, True)
    assert ask(port, "/translate", {"text": "a", "choices": [""]})[0].status == 422


def test_unknown_words_are_reported(port):
    found = ask_json(port, "/translate", {"text": ["a b", "a zebra"], "strategy": "greedy"})["results"]
    assert [one.get("unknown") for one in found] == [None, ["zebra"]]
    response, content = ask(port, "/translate", {"text": "a", "prefix": "zebra"})
    assert (response.status, "the prefix 'zebra' cannot be generated" in content.decode()) == (400, True)


def test_the_last_event_of_a_stream_has_the_other_versions(port):
    body = {"text": "a b c", "strategy": "beam", "beam_size": 4, "n_best": 3}
    [whole] = ask_json(port, "/translate", body)["results"]
    *pieces, last = events(port, "/translate", body)
    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    assert last["others"] == whole["others"]
    assert len(last["others"]) == 2


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_a_stop_string_ends_a_text(port, strategy):
    body = {"text": "a b", "strategy": strategy, "max_length": 12}
    [whole] = ask_json(port, "/generate", body)["results"]
    words = whole["text"].split()
    stop = " " + words[len(words) // 2]
    [cut] = ask_json(port, "/generate", {**body, "stop": [stop, "nothing of the kind"]})["results"]
    assert cut["text"] == whole["text"][: whole["text"].index(stop)]
    assert cut["reason"] == "stop"
    answer = events(port, "/generate", {**body, "stop": [stop]})
    assert "".join(event.get("text", "") for event in answer) == cut["text"]
    if strategy == "greedy":
        assert cut["tokens"] < whole["tokens"]  # generation stopped; the text was not only cut


def test_labels_tags_and_vectors(port, runs):
    texts = ["a b", "c d e f g"]
    answer = ask_json(port, "/classify", {"text": texts, "top": 2})
    rows = load(Classifier, runs[2]).probabilities(texts)
    for one, row in zip(answer["results"], rows, strict=True):
        assert one["probability"] == pytest.approx(max(row))
        assert [label["probability"] for label in one["labels"]] == pytest.approx(sorted(row, reverse=True)[:2])
        assert one["label"] == f"label {row.index(max(row))}"
    answer = ask_json(port, "/tag", {"text": texts})
    tagger = load(Tagger, runs[3])
    assert [one["tags"] for one in answer["results"]] == tagger.tag([tagger.words(text) for text in texts])
    assert answer["results"][0]["words"] == ["a", "b"]
    for name, run in (("translator", runs[0]), ("writer", runs[1]), ("tagger", runs[3])):
        answer = ask_json(port, "/embed", {"text": texts, "model": name, "pooling": "max"})
        expected = load(Embedder, run).embed(texts, "max")
        assert [one["vector"] for one in answer["results"]] == [pytest.approx(vector) for vector in expected]


def test_a_prompt_is_put_before_embedded_texts(tmp_path):
    made = untrained_pipeline("encoder", head="vectors", pooling="mean")
    data = replace(made.config.data, prompts={"query": "a b ", "passage": "c "}, prompt="query")
    made.config = replace(made.config, data=data)
    run = write_run(tmp_path / "vectors", made)
    embedder = load(Embedder, run)
    with serve_in_thread([run]) as served:
        for prompt, before in ((None, "a b "), ("query", "a b "), ("passage", "c "), ("", "")):
            answer = ask_json(served.port, "/embed", {"text": "d e", "prompt": prompt})
            assert answer["results"][0]["vector"] == pytest.approx(embedder.embed([before + "d e"], prompt="")[0])
        response, content = ask(served.port, "/embed", {"text": "d e", "prompt": "qery"})
        assert response.status == 400
        assert b"there is no prompt 'qery'. Did you mean 'query'?" in content
        answer = ask_json(served.port, "/v1/embeddings", {"model": "vectors", "input": "d e"})
        assert answer["data"][0]["embedding"] == pytest.approx(embedder.embed(["d e"])[0])
        assert answer["usage"]["prompt_tokens"] == 6  # <s> a b d e </s>


def test_a_trace_is_equal_to_the_pipelines(port, runs):
    own = trace(load(Translator, runs[0]), "a b c")
    answer = ask_json(port, "/trace", {"text": "a b c"})
    assert (answer["output"], answer["source"]) == (own.output, own.source)
    assert answer["log_p"] == pytest.approx(own.log_p)
    forced = ask_json(port, "/trace", {"text": "a b c", "target": "c b a"})
    assert forced["output"] == "c b a"


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_accepted(port, text):
    for path in ("/translate", "/generate", "/classify", "/tag", "/embed"):
        assert len(ask_json(port, path, {"text": [text]})["results"]) == 1
    answer = ask_json(port, "/v1/completions", {"model": "writer", "prompt": text, "max_tokens": 2, "echo": True})
    assert answer["choices"][0]["text"].startswith(text)


# (path, body, status, part of the message)
INVALID = [
    ("/translate", b"{", 422, "not JSON"),
    ("/translate", b"", 422, "Send a JSON object"),
    ("/translate", b"[]", 422, "Send a JSON object"),
    ("/translate", b"\xff\xfe", 422, "not JSON"),
    ("/translate", b'{"text": "\xff"}', 400, ""),
    ("/translate", b"[" * 100_000, 400, ""),
    ("/translate", b'{"text": ' + b"1" * 5000 + b"}", 400, ""),
    ("/translate", b'{"text": "\\ud800"}', 422, "surrogate pair"),
    ("/translate", b'{"text": ["a", "\\ud800"]}', 422, "surrogate pair"),
    ("/translate", b'{"text": "a", "prefix": "\\udfff"}', 422, "surrogate pair"),
    ("/generate", b'{"text": "a", "stop": ["\\udfff"]}', 422, "surrogate pair"),
    ("/trace", b'{"text": "a", "target": "\\udfff"}', 422, "surrogate pair"),
    ("/translate", b'{"text": "a", "model": "\\udfff"}', 422, "surrogate pair"),
    ("/v1/completions", b'{"model": "writer", "prompt": ["\\udfff"]}', 400, "surrogate pair"),
    ("/v1/completions", b'{"model": "writer", "prompt": "a", "stop": "\\udfff"}', 400, "surrogate pair"),
    ("/v1/embeddings", b'{"model": "writer", "input": "\\udfff"}', 400, "surrogate pair"),
    ("/translate", {"text": "a", "strategy": "beam", "beam_size": "4"}, 422, "beam_size: Input should be a valid integer"),
    ("/translate", {"text": "a", "stream": "yes"}, 422, "stream: Input should be a valid boolean"),
    ("/translate", b'{"text": "a", "\\ud800": 1}', 422, "the request"),
    ("/translate", b'{"text": "a", "strategy": "sample", "temperature": NaN}', 422, "temperature"),
    ("/translate", b'{"text": "a", "strategy": "sample", "temperature": 1e999}', 422, "temperature"),
    ("/translate", b"x" * (2 << 20), 413, "larger than"),
    ("/translate", {}, 422, "text: Field required"),
    ("/translate", {"text": 5}, 422, "text: Input should be a valid string"),
    ("/translate", {"text": []}, 422, "list of texts is empty"),
    ("/translate", {"text": ["a"] * 300}, 422, "300 texts; the limit is 256"),
    ("/translate", {"text": "a" * 30_000}, 422, "30,000 characters; the limit is 20,000"),
    ("/translate", {"text": "a " * 500}, 422, "has 501 tokens; the limit of the model 'translator' is 32"),
    ("/translate", {"text": "a", "prefix": "a " * 500}, 422, "has 501 tokens; the limit of the model 'translator' is 32"),
    ("/translate", {"text": "a", "beams": 4}, 422, "unknown field 'beams'. Did you mean 'beam_size'?"),
    ("/translate", {"text": "a", "model": "transalator"}, 404, "Did you mean 'translator'?"),
    ("/translate", {"text": "a", "model": "tagger"}, 400, "'tagger' cannot translate. It can: tag, embed, trace"),
    ("/translate", {"text": "a", "strategy": "greedy", "beam_size": 4}, 400, "beam_size has no effect on strategy"),
    ("/translate", {"text": "a", "strategy": "best"}, 422, "strategy: Input should be 'greedy'"),
    ("/translate", {"text": "a", "strategy": "greedy", "n_best": 3}, 400, "n_best = 3 needs strategy 'beam'"),
    ("/translate", {"text": "a", "max_length": 5000}, 422, "max_length = 5,000 is too large. The limit is 1,024 tokens"),
    ("/translate", {"text": "a", "max_length": 3, "min_length": 4}, 400, "min_length = 4 is more than max_length = 3"),
    ("/generate", {"text": "a " * 32}, 422, "has 33 tokens"),
    ("/generate", {"text": "a", "strategy": "beam", "coverage_penalty": 0.2}, 400, "needs a source text"),
    ("/embed", {"text": "a " * 500}, 422, "the limit of the model"),
    ("/embed", {"text": "a", "pooling": "cls", "model": "writer"}, 400, "pooling 'cls'"),
    ("/trace", {"text": ""}, 400, "there is nothing to translate"),
    ("/trace", {"text": "a", "target": "b", "model": "tagger"}, 400, "takes no target and no prefix"),
    ("/nothing", {"text": "a"}, 404, "there is no path /nothing"),
    ("/health", {"text": "a"}, 405, "/health does not accept POST"),
    ("/v1/completions", {"prompt": "a"}, 400, "model: Field required"),
    ("/v1/completions", {"model": "gpt-4", "prompt": "a"}, 404, "unknown model 'gpt-4'"),
    ("/v1/completions", {"model": "tagger", "prompt": "a"}, 400, "cannot generate or translate"),
    ("/v1/completions", {"model": "writer", "prompt": "a", "suffix": "b"}, 400, "suffix is not supported. These models only continue a text."),
    ("/v1/completions", {"model": "writer", "prompt": "a", "logit_bias": {"1": 2}}, 400, "logit_bias"),
    ("/v1/completions", {"model": "writer", "prompt": [10**6]}, 400, "1000000 is not a token id"),
    ("/v1/completions", {"model": "writer", "prompt": []}, 400, "list of texts is empty"),
    ("/v1/completions", {"model": "writer", "prompt": "a", "n": 3, "temperature": 0}, 400, "n = 3"),
    ("/v1/completions", {"model": "writer", "prompt": "a", "n": 3, "best_of": 2}, 400, "best_of = 2"),
    ("/v1/completions", {"model": "writer", "prompt": "a", "logprobs": 3}, 400, "logprobs = 3"),
    ("/v1/completions", {"model": "translator", "prompt": "a", "echo": True}, 400, "echo"),
    ("/v1/completions", {"model": "writer", "prompt": "a", "max_tokens": 5000}, 400, "max_tokens = 5,000"),
    ("/v1/completions", {"model": "writer", "prompt": "a", "max_tokens": 3, "min_length": 4}, 400, "than max_tokens = 3"),
    ("/v1/embeddings", {"model": "writer", "input": "a", "dimensions": 3}, 400, "dimensions = 3"),
    ("/v1/embeddings", {"model": "writer", "input": []}, 400, "list of texts is empty"),
    ("/v1/chat/completions", {"model": "writer"}, 404, "there is no path /v1/chat/completions"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "status", "message"), INVALID)
def test_errors_say_why(port, path, body, status, message):
    response, content = ask(port, path, body)
    assert response.status == status, content
    error = json.loads(content)["error"]
    if path.startswith("/v1/"):
        assert set(error) == {"message", "type", "param", "code"}
        error = error["message"]
    assert message in error
    assert "Traceback" not in error


def test_content_types_and_chunked_bodies(port):
    response, content = ask(port, "/translate", b'{"text": "a"}', {"Content-Type": "text/plain"})
    assert (response.status, "application/json" in content.decode()) == (415, True)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    chunks = iter([b'{"text": ', b'"a b"}'])
    connection.request("POST", "/translate", chunks, {"Content-Type": "application/json"}, encode_chunked=True)
    assert connection.getresponse().status == 200  # a body in chunks is read, up to the same limit
    connection.close()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    large = iter([b"x" * 100_000] * 12)
    connection.request("POST", "/translate", large, {"Content-Type": "application/json"}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_foreign_host_names_and_cross_site_requests_are_rejected(port):
    response, content = ask(port, "/translate", {"text": "a"}, {"Host": "evil.example:80"})
    assert (response.status, "the host name 'evil.example' is not accepted" in content.decode()) == (421, True)
    response, _ = ask(port, "/translate", {"text": "a"}, {"Sec-Fetch-Site": "cross-site"})
    assert response.status == 403
    response, _ = ask(port, "/models", headers={"Origin": "https://example.org"})
    assert "access-control-allow-origin" not in response.headers


def test_host_names_ignore_case_and_links_to_pages_are_allowed(port):
    assert ask(port, "/models", headers={"Host": f"LocalHost:{port}"})[0].status == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    for path in ("/docs", "/", "/openapi.json"):
        assert ask(port, path, headers=link)[0].status in (200, 307)
    assert ask(port, "/docs", headers={**link, "Sec-Fetch-Mode": "no-cors"})[0].status == 403
    assert ask(port, "/models", headers=link)[0].status == 403
    assert ask(port, "/translate", {"text": "a"}, link)[0].status == 403


@pytest.mark.parametrize("given", ["*", "https://Example.org/", "https://example.org"])
def test_allowed_origins(given):
    access = Access(origins=parse_origins([given]))
    headers = {"origin": "https://example.org", "sec-fetch-site": "cross-site"}
    assert access.allows_origin(Headers(headers), "POST", "/translate")
    others = Headers({**headers, "origin": "https://evil.example"})
    assert access.allows_origin(others, "POST", "/translate") is (given == "*")
    assert access.origins == (("*",) if given == "*" else ("https://example.org",))


@pytest.mark.parametrize("given", ["example.org", "https://", "https://example.org/page", ""])
def test_invalid_origins_raise(given):
    with pytest.raises(ConfigError, match="is not an origin"):
        parse_origins([given])


def test_a_token_and_an_origin(runs):
    access = Access("voilà", HOME, ("https://example.org",))  # its last byte looks like a space
    with serve_in_thread(runs[:1], access) as served:
        for path in ("/health", "/ready", "/docs", "/openapi.json"):
            assert ask(served.port, path)[0].status == 200
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic voilà".encode()}):
            response, content = ask(served.port, "/translate", {"text": "a"}, header)
            assert response.status == 401, content
            assert response.headers["www-authenticate"] == "Bearer"
            assert ask(served.port, "/metrics", headers=header)[0].status == 401
        right = {"Authorization": "Bearer voilà".encode()}
        assert ask_json(served.port, "/translate", {"text": "a"}, headers=right)["results"]
        page = {**right, "Origin": "https://example.org", "Sec-Fetch-Site": "cross-site"}
        response, _ = ask(served.port, "/translate", {"text": "a"}, page)
        assert (response.status, response.headers["access-control-allow-origin"]) == (200, "https://example.org")
        preflight = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
        assert ask(served.port, "/translate", headers=preflight, method="OPTIONS")[0].status == 200
        assert (
            ask(served.port, "/translate", {"text": "a"}, {**page, "Origin": "https://evil.example"})[0].status == 403
        )


def test_models_health_and_readiness(port):
    answer = ask_json(port, "/models")
    assert answer == ask_json(port, "/v1/models")
    assert {card["id"]: card["can"][0] for card in answer["data"]} == {
        "translator": "translate", "writer": "generate", "classifier": "classify", "tagger": "tag",
    }  # fmt: skip
    assert ask_json(port, "/v1/models/writer") == answer["data"][1]
    response, content = ask(port, "/v1/models/writter")
    assert (response.status, json.loads(content)["error"]["type"]) == (404, "not_found_error")
    assert "Did you mean 'writer'?" in content.decode()
    assert ask_json(port, "/health") == {
        "status": "alive",
    }
    assert ask_json(port, "/ready")["models"]["writer"] == "language_model"


def test_the_docs_page_has_every_path_and_loads_nothing(port):
    page = ask(port, "/docs")[1].decode()
    document = ask_json(port, "/openapi.json")
    for path, methods in document["paths"].items():
        assert path in page
        for operation in methods.values():
            if "requestBody" in operation:
                assert "503" in operation["responses"]
                assert ("422" in operation["responses"]) is not path.startswith("/v1/")  # there it is 400
    for path in ("/translate", "/generate", "/v1/completions"):
        kinds = document["paths"][path]["post"]["responses"]["200"]["content"]
        assert set(kinds) == {"application/json", "text/event-stream"}
        assert kinds["text/event-stream"]["schema"]["required"] == ["data"]
    for word in ("<script src", "<link", "<img", "https://", "@import", "url(", "import "):
        assert word not in page
    policy = ask(port, "/docs")[0].headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    own = hashlib.sha256(page.partition("<script>")[2].partition("</script>")[0].encode()).digest()
    assert f"script-src 'sha256-{b64encode(own).decode()}'" in policy
    assert "script-src" not in ask(port, "/models")[0].headers["content-security-policy"]
    assert ask(port, "/")[0].headers["location"] == "/docs"


def test_the_docs_page_describes_every_field_and_names_served_models(port):
    document = ask_json(port, "/openapi.json")
    for methods in document["paths"].values():
        for operation in methods.values():
            if "requestBody" not in operation:
                continue
            schema = resolve_ref(operation["requestBody"]["content"]["application/json"]["schema"], document)
            for name, field in schema["properties"].items():
                assert field.get("description"), name
            assert {example.get("model", "writer") for example in schema["examples"]} <= {"writer", "translator"}
    page = ask(port, "/docs")[1].decode()
    assert "integer (1 to 16)" in page
    assert f"curl http://127.0.0.1:{port}/translate --json" in page
    assert "curl http://127.0.0.1:8643/ready" in docs_page(document, "http://a'b;rm -rf/")  # not a host name


@pytest.mark.slow
def test_metrics(runs):
    with serve_in_thread(runs[:1]) as served:
        ask_json(served.port, "/translate", {"text": ["a b", "c"], "strategy": "greedy", "max_length": 3})
        ask(served.port, "/translate", {})
        ask(served.port, "/elsewhere")
        text = ask(served.port, "/metrics")[1].decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['cutaway_requests_total{path="/translate",status="200"}'] == "1"
    assert lines['cutaway_requests_total{path="/translate",status="422"}'] == "1"
    assert lines['cutaway_requests_total{path="other",status="404"}'] == "1"
    assert lines['cutaway_batch_texts_sum{model="translator"}'] == "2"
    assert lines['cutaway_batch_texts_bucket{model="translator",le="1"}'] == "0"
    assert lines['cutaway_batch_texts_bucket{model="translator",le="+Inf"}'] == "1"
    assert lines['cutaway_tokens_total{model="translator",kind="read"}'] == "5"
    assert 0 < int(lines['cutaway_tokens_total{model="translator",kind="written"}']) <= 6
    assert lines["cutaway_requests_in_flight"] == "1"
    assert lines['cutaway_texts_waiting{model="translator"}'] == "0"


class HeldWorker:
    """Holds a worker at its next batch until `go` is set, and records its batches."""

    def __init__(self, worker):
        self.worker, self.go, self.batches = worker, threading.Event(), []
        self.own = worker.model.run
        worker.model.run = self.run

    def run(self, jobs):
        self.batches.append([job.index for job in jobs])
        assert self.go.wait(20)
        return self.own(jobs)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.go.set()
        del self.worker.model.run


def in_threads(calls):
    found = [None] * len(calls)

    def run(i):
        found[i] = calls[i]()

    threads = [threading.Thread(target=run, args=[i]) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    return threads, found


def test_waiting_texts_share_a_batch(served):
    worker = served.app_state.workers[0]
    one = {"text": "a b", "strategy": "greedy", "max_length": 2}
    with HeldWorker(worker) as held:
        first, _ = in_threads([lambda: ask_json(served.port, "/translate", one)])
        until(lambda: held.batches)
        body = [
            {**one, "text": f"a {'b ' * n}", "max_length": 2 + n} for n in range(5)
        ]  # texts of different lengths may share it
        other = {**one, "strategy": "beam", "beam_size": 2}
        later, found = in_threads(
            [lambda b=b: ask_json(served.port, "/translate", b) for b in (*body, other, {**other, "text": ["a"] * 3})]
        )
        until(lambda: len(worker.queue) == 9)
        held.go.set()
        for thread in first + later:
            thread.join(20)
    assert sorted(map(len, held.batches)) == [1, 4, 5]
    assert all(found)


@pytest.mark.slow
def test_a_full_queue_rejects_requests(runs):
    with serve_in_thread(runs[:1], waiting=4, texts=4) as served, HeldWorker(served.app_state.workers[0]) as held:
        body = {"text": ["a"], "strategy": "greedy", "max_length": 2}
        first, _ = in_threads([lambda: ask_json(served.port, "/translate", body)])
        until(lambda: held.batches)
        later, found = in_threads([lambda: ask_json(served.port, "/translate", {**body, "text": ["a"] * 3})])
        until(lambda: len(served.app_state.workers[0].queue) == 3)
        response, content = ask(served.port, "/translate", {**body, "text": ["a"] * 2})
        assert (response.status, response.headers["retry-after"]) == (429, "1")
        assert "2 more do not fit" in content.decode()
        response, content = ask(served.port, "/v1/completions", {"model": "translator", "prompt": ["a", "a"]})
        assert (response.status, json.loads(content)["error"]["type"]) == (429, "rate_limit_error")
        held.go.set()
        for thread in first + later:
            thread.join(20)
        assert len(found[0]["results"]) == 3
        assert ask_json(served.port, "/translate", {**body, "text": ["a"] * 4})["results"]


@pytest.mark.slow
def test_requests_time_out(runs):
    with serve_in_thread(runs[:1], seconds=0.3) as served, HeldWorker(served.app_state.workers[0]) as held:
        response, content = ask(served.port, "/translate", {"text": "a"})
        assert (response.status, "within 0.3 seconds" in content.decode()) == (503, True)
        assert response.headers["retry-after"]
        response, _ = ask(served.port, "/translate", {"text": "a", "stream": True})
        assert response.status == 503
        assert len(served.app_state.workers[0].queue) == 0  # waiting texts are removed
        held.go.set()
        until(lambda: len(held.batches) == 1)


def send_only(port, body):
    """Send a request, and return the connection without reading the response."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    head = f"POST /generate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_requests_of_disconnected_clients_are_cancelled(served, stream):
    worker = served.app_state.workers[1]
    body = {"text": "a", "strategy": "greedy", "max_length": 5, "stream": stream}
    with HeldWorker(worker) as held:
        first = send_only(served.port, body)
        until(lambda: held.batches)
        second = send_only(served.port, {**body, "text": ["a", "b"]})
        until(lambda: len(worker.queue) == 2)
        second.close()
        until(lambda: len(worker.queue) == 0)  # removed while the worker is busy
        first.close()
        until(lambda: served.app_state.metrics.in_flight == 0)
    assert ask_json(served.port, "/generate", {"text": "a", "max_length": 2})["results"]
    assert held.batches[0] == [0]


def test_generation_stops_when_the_client_of_a_stream_disconnects(served, monkeypatch):
    worker, own = served.app_state.workers[1], served.app_state.workers[1].model.pipeline.search
    results = queue.SimpleQueue()

    def slowly(requests, *rest, **more):
        def on_token(token, log_prob, own_callback=requests[0].on_token):
            time.sleep(0.2)  # gives a busy machine time to notice the disconnect
            return own_callback(token, log_prob)

        found = own([requests[0].__class__(**{**vars(requests[0]), "on_token": on_token})], *rest, **more)
        results.put(found[0][0])
        return found

    monkeypatch.setattr(worker.model.pipeline, "search", slowly)
    client = send_only(served.port, {"text": "a b", "strategy": "greedy", "max_length": 30, "stream": True})
    assert b"data: " in client.recv(4096) + client.recv(4096)
    client.close()
    [[whole]] = own([Request("a b")], DecodeConfig(strategy="greedy", max_length=30))
    partial = results.get(timeout=10)
    assert (whole.finished, partial.finished) == (True, False)
    assert len(partial.tokens) < len(whole.tokens)


def test_one_bad_text_does_not_fail_the_others_of_its_batch(served):
    worker = served.app_state.workers[0]
    own = worker.model.run

    def fails(jobs):
        if any(job.content.request.text == "bad" for job in jobs):
            raise RuntimeError("an internal error")
        return own(jobs)

    body = {"strategy": "greedy", "max_length": 3}
    expected = ask_json(served.port, "/translate", {**body, "text": "a b"})
    with HeldWorker(worker) as held:
        held.own = fails
        first, _ = in_threads([lambda: ask(served.port, "/translate", {**body, "text": "a"})])
        until(lambda: held.batches)
        later, found = in_threads(
            [lambda text=text: ask(served.port, "/translate", {**body, "text": text}) for text in ("a b", "bad", "a b")]
        )
        until(lambda: len(worker.queue) == 3)
        held.go.set()
        for thread in first + later:
            thread.join(20)
    assert [response.status for response, _ in found] == [200, 500, 200]
    assert json.loads(found[0][1]) == json.loads(found[2][1]) == expected
    assert "See the server's log" in found[1][1].decode()
    assert held.batches[1:] == [[0, 0, 0], [0], [0], [0]]


def test_a_stream_continues_after_a_failed_batch(served, caplog):
    """The text is generated again, alone. Only the part that was not yet sent is sent."""
    worker = served.app_state.workers[1]
    own = worker.model.run
    body = {"strategy": "greedy", "max_length": 9}
    expected = ask_json(served.port, "/generate", {**body, "text": "a b"})["results"][0]["text"]

    def fails(jobs):
        if len(jobs) > 1:  # after the first piece of each
            for job in jobs:
                job.pending.send_text(job.index, expected[:3])
            raise RuntimeError("an internal error")
        if jobs[0].content.request.text == "bad":
            raise DataError("this text is invalid.")
        return own(jobs)

    with HeldWorker(worker) as held:
        held.own = fails
        first, _ = in_threads([lambda: ask(served.port, "/generate", {**body, "text": "a"})])
        until(lambda: held.batches)
        later, found = in_threads(
            [lambda text=text: events(served.port, "/generate", {**body, "text": text}) for text in ("a b", "bad")]
        )
        until(lambda: len(worker.queue) == 2)
        held.go.set()
        for thread in first + later:
            thread.join(20)
    assert "".join(event.get("text", "") for event in found[0]) == expected
    assert len([event for event in found[0] if "text" in event]) > 1
    assert found[1][-1] == {"error": "this text is invalid."}
    assert "a batch of 2 texts failed; retrying each text alone" in caplog.text
    assert "an internal error" in caplog.text


def test_a_second_attempt_that_differs_is_an_error(served, caplog):
    """A text that was generated again must start with the part that was already sent."""
    worker = served.app_state.workers[1]
    own = worker.model.run

    def has_sent(jobs):
        jobs[0].pending.sent[0] = "something else"
        return own(jobs)

    with HeldWorker(worker) as held:
        held.own = has_sent
        held.go.set()
        response, content = ask(
            served.port, "/generate", {"strategy": "greedy", "max_length": 9, "text": "a b", "stream": True}
        )
    assert (response.status, "internal server error" in content.decode()) == (500, True)
    assert "differs from the part that was already sent" in caplog.text


@pytest.mark.slow
def test_a_stopped_worker_is_reported(runs):
    with serve_in_thread(runs[:1]) as served:
        worker = served.app_state.workers[0]
        worker.stop()
        worker.thread.join(10)
        response, _ = ask(served.port, "/ready")
        assert response.status == 503
        assert ask(served.port, "/health")[0].status == 200
        response, content = ask(served.port, "/translate", {"text": "a"})
        assert (response.status, bool(response.headers["retry-after"])) == (503, True), content


def test_requests_are_rejected_while_loading_and_shutting_down(served):
    for field, why in (("loading", "the models are being loaded"), ("stopping", "the server is shutting down")):
        setattr(served.app_state.status, field, why)
        try:
            for path in ("/translate", "/v1/completions"):
                response, content = ask(served.port, path, {"model": "writer"})
                assert (response.status, response.headers["retry-after"], why in content.decode()) == (503, "5", True)
            assert ask(served.port, "/ready")[0].status == 503
            assert ask(served.port, "/health")[0].status == 200
        finally:
            setattr(served.app_state.status, field, "")
