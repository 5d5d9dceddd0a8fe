"""What hostile or careless requests may cost, and for how long: wrong types, long searches, no length at all."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pydantic import ValidationError
from serving import ask, ask_json, serve_in_thread, tiny_runs, until

from cutaway.data.tokenizer import Tokenizer
from cutaway.serve import requests as asking
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


def mistakes(schema, **given):
    with pytest.raises(ValidationError) as caught:
        schema.model_validate(given)
    return caught.value.error_count()


@pytest.mark.parametrize("kind", WRONG)
def test_a_list_of_wrong_things_is_one_mistake(kind):
    """One for each kind of thing that it could be, rather than one for each element of it."""
    assert mistakes(TranslateRequest, text=WRONG[kind]) <= 2
    assert mistakes(CompletionRequest, model="m", prompt=WRONG[kind]) <= 4
    assert mistakes(CompletionRequest, model="m", stop=WRONG[kind]) <= 2
    assert mistakes(TranslateRequest, text="a", stop=WRONG[kind]) == 1


def test_many_unknown_names_are_one_mistake():
    unknown = dict.fromkeys(map(str, range(MANY)), 0)
    assert mistakes(TranslateRequest, text="a", **unknown) == 1
    assert mistakes(CompletionRequest, model=1, logit_bias={**unknown, "0": "a"}) == 1  # the model's name


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def bounded(runs):
    with serve_in_thread(runs[:2], new_tokens=3) as found:
        yield found


def test_such_requests_are_answered_in_a_line(bounded):
    for path, name in (("/translate", "text"), ("/v1/completions", "prompt"), ("/v1/embeddings", "input")):
        body = json.dumps({"model": "writer", name: WRONG["objects"]}).encode()
        response, content = ask(bounded.port, path, body)
        assert (response.status, len(content) < 300) == (400 if "/v1" in path else 422, True), content
    response, content = ask(bounded.port, "/translate", {"text": "a", "model": "x" * 300_000})
    assert (response.status, len(content) < 300) == (404, True)
    response, content = ask(bounded.port, "/v1/completions", {"model": "writer", "prompt": [[1]] * 300})
    assert (response.status, b"256 prompts" in content) == (400, True)


def test_the_greatest_length_holds_though_no_length_is_asked_for(bounded):
    for path in ("/translate", "/generate"):
        [found] = ask_json(bounded.port, path, {"text": "a b c", "strategy": "greedy", "min_length": 3})["results"]
        assert found["tokens"] == 3
    told = ask_json(
        bounded.port, "/v1/completions", {"model": "writer", "prompt": "a", "temperature": 0, "min_length": 3}
    )
    assert told["usage"]["completion_tokens"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_a_beam_search_ends_when_its_time_is_over(runs, monkeypatch, stream):
    """It is asked at every step whether to go on; each takes a fifth of a second here."""
    with serve_in_thread(runs[1:2], seconds=3) as served:
        pipeline = served.app_state.workers[0].model.pipeline
        asked, own = [], pipeline.written

        def slowly(wishes, *rest, **named):
            def wanted(still=wishes[0].wanted):
                time.sleep(0.2)
                asked.append(still())
                return asked[-1]

            return own([replace(wishes[0], wanted=wanted)], *rest, **named)

        monkeypatch.setattr(pipeline, "written", slowly)
        body = {"text": "a", "strategy": "beam", "beam_size": 3, "max_length": 30, "min_length": 30, "stream": stream}
        response, _ = ask(served.port, "/generate", body)
        assert response.status == 503
        until(lambda: asked and asked[-1] is False)
        monkeypatch.undo()
        last = {"text": "a", "strategy": "greedy", "max_length": 1}
        until(lambda: ask(served.port, "/generate", last)[0].status == 200)
        assert len(asked) < 20  # of 30


def test_long_texts_are_counted_in_another_thread(bounded, monkeypatch):
    begun = []
    monkeypatch.setattr(asking.asyncio, "to_thread", lambda work: begun.append(work) or later(work))

    async def later(work):
        return work()

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
        before = len(begun)
        assert ask(bounded.port, path, body)[0].status in (400, 422)  # too long for the model
        assert len(begun) > before, path
    before = len(begun)
    ask_json(bounded.port, "/translate", {"text": "a"})
    assert len(begun) == before


def test_a_server_that_is_ending_is_not_opened_by_its_models():
    app_state = AppState(workers=[SimpleNamespace(served=True)], state=ServerStatus(ending="the server is ending"))
    app_state.loaded(None)
    assert (app_state.state.closed, app_state.state.loading) == ("the server is ending", "")


@pytest.mark.parametrize("scheme", ["byte", "bpe"])
@pytest.mark.parametrize("before", ["", "a b", "né"])
def test_what_tokens_add_is_the_text_though_characters_are_cut(scheme, before):
    tokenizer = Tokenizer.train(["a b c né €uro"], scheme, 320)
    text = " a€é 😀b" if before else "a€é 😀b"
    ids, prompt = tokenizer.encode(text), tokenizer.encode(before)
    pieces = token_texts(tokenizer, ids, prompt)
    whole = tokenizer.decode([*prompt, *ids])[len(tokenizer.decode(prompt)) :]
    assert len(pieces) == len(ids)
    assert "".join(pieces) == whole
    assert "\ufffd" not in "".join(pieces)
