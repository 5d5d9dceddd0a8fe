"""Limits on the cost of a request: wrong types, long searches, no length given."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pydantic import ValidationError
from serving import ask, ask_json, serve_in_thread, tiny_runs, until

from cutaway.data.tokenizer import Tokenizer
from cutaway.serve import requests as serve_requests
from cutaway.serve.middleware import ServerStatus
from cutaway.serve.openai_api import token_texts
from cutaway.serve.openai_schemas import CompletionRequest
from cutaway.serve.schemas import TranslateRequest
from cutaway.serve.state import AppState

MANY = 90_000
WRONG = {
    "objects": [{}] * MANY,
    "numbers and a text": [*[1] * MANY, "a"],
    "texts and a number": [*["a"] * MANY, 1],
    "lists of texts": [["a"]] * MANY,
    "a list of lists": [[[]] * MANY],
    "nothing": [None] * MANY,
    "too many": [""] * 200_000,
}


def count_errors(schema, **given):
    with pytest.raises(ValidationError) as caught:
        schema.model_validate(given)
    return caught.value.error_count()


@pytest.mark.parametrize("kind", WRONG)
def test_a_list_of_wrong_types_is_one_error(kind):
    """One error for each member of the union type, not one for each element."""
    assert count_errors(TranslateRequest, text=WRONG[kind]) <= 2
    assert count_errors(CompletionRequest, model="m", prompt=WRONG[kind]) <= 4
    assert count_errors(CompletionRequest, model="m", stop=WRONG[kind]) <= 2
    assert count_errors(TranslateRequest, text="a", stop=WRONG[kind]) == 1


def test_many_unknown_names_are_one_error():
    unknown = dict.fromkeys(map(str, range(MANY)), 0)
    assert count_errors(TranslateRequest, text="a", **unknown) == 1
    assert count_errors(CompletionRequest, model=1, logit_bias={**unknown, "0": "a"}) == 1  # the type of `model`


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def bounded(runs):
    with serve_in_thread(runs[:2], new_tokens=3) as found:
        yield found


def test_error_messages_are_short(bounded):
    for path, name in (("/translate", "text"), ("/v1/completions", "prompt"), ("/v1/embeddings", "input")):
        body = json.dumps({"model": "writer", name: WRONG["objects"]}).encode()
        response, content = ask(bounded.port, path, body)
        assert (response.status, len(content) < 300) == (400 if "/v1" in path else 422, True), content
    response, content = ask(bounded.port, "/translate", {"text": "a", "model": "x" * 300_000})
    assert (response.status, len(content) < 300) == (404, True)
    response, content = ask(bounded.port, "/v1/completions", {"model": "writer", "prompt": [[1]] * 300})
    assert (response.status, b"256 prompts" in content) == (400, True)


def test_the_length_limit_holds_without_max_length(bounded):
    for path in ("/translate", "/generate"):
        [found] = ask_json(bounded.port, path, {"text": "a b c", "strategy": "greedy", "min_length": 3})["results"]
        assert found["tokens"] == 3
    answer = ask_json(
        bounded.port, "/v1/completions", {"model": "writer", "prompt": "a", "temperature": 0, "min_length": 3}
    )
    assert answer["usage"]["completion_tokens"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_a_beam_search_stops_at_the_timeout(runs, monkeypatch, stream):
    """Beam search calls `should_continue` at each step. Here each step takes 0.2 s."""
    with serve_in_thread(runs[1:2], seconds=3) as served:
        pipeline = served.app_state.workers[0].model.pipeline
        calls, own = [], pipeline.search

        def slowly(requests, *rest, **named):
            def should_continue(own_check=requests[0].should_continue):
                time.sleep(0.2)
                calls.append(own_check())
                return calls[-1]

            return own([replace(requests[0], should_continue=should_continue)], *rest, **named)

        monkeypatch.setattr(pipeline, "search", slowly)
        body = {"text": "a", "strategy": "beam", "beam_size": 3, "max_length": 30, "min_length": 30, "stream": stream}
        response, _ = ask(served.port, "/generate", body)
        assert response.status == 503
        until(lambda: calls and calls[-1] is False)
        monkeypatch.undo()
        last = {"text": "a", "strategy": "greedy", "max_length": 1}
        until(lambda: ask(served.port, "/generate", last)[0].status == 200)
        assert len(calls) < 20  # of 30


def test_long_texts_are_tokenized_in_another_thread(bounded, monkeypatch):
    calls = []
    monkeypatch.setattr(serve_requests.asyncio, "to_thread", lambda make: calls.append(make) or call_later(make))

    async def call_later(make):
        return make()

    long = "a " * 4_000
    for path, body in (
        ("/translate", {"text": long}),
        ("/generate", {"text": "a", "prefix": long}),
        ("/embed", {"text": ["a", long]}),
        ("/trace", {"text": long}),
        ("/v1/completions", {"model": "writer", "prompt": long}),
        ("/v1/completions", {"model": "writer", "prompt": [4] * 4_000}),
        ("/v1/embeddings", {"model": "writer", "input": long}),
    ):
        before = len(calls)
        assert ask(bounded.port, path, body)[0].status in (400, 422)  # too long for the model
        assert len(calls) > before, path
    before = len(calls)
    ask_json(bounded.port, "/translate", {"text": "a"})
    assert len(calls) == before


def test_loaded_models_do_not_reopen_a_server_that_shuts_down():
    reason = "the server is shutting down"
    app_state = AppState(workers=[SimpleNamespace(model=True)], status=ServerStatus(stopping=reason))
    app_state.on_loaded(None)
    assert (app_state.status.unavailable_reason, app_state.status.loading) == (reason, "")


@pytest.mark.parametrize("scheme", ["byte", "bpe"])
@pytest.mark.parametrize("before", ["", "a b", "né"])
def test_token_texts_join_to_the_text_if_tokens_split_characters(scheme, before):
    tokenizer = Tokenizer.train(["a b c né €uro"], scheme, 320)
    text = " a€é 😀b" if before else "a€é 😀b"
    ids, prompt = tokenizer.encode(text), tokenizer.encode(before)
    pieces = token_texts(tokenizer, ids, prompt)
    whole = tokenizer.decode([*prompt, *ids])[len(tokenizer.decode(prompt)) :]
    assert len(pieces) == len(ids)
    assert "".join(pieces) == whole
    assert "\ufffd" not in "".join(pieces)
