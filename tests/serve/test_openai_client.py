"""The `openai` client with our server."""

import base64
import json

import numpy as np
import openai
import pytest
from serving import HOME, ask, serve_in_thread, tiny_runs

from cutaway.config import DecodeConfig
from cutaway.inference.pipelines import Embedder, TextGenerator, Translator
from cutaway.search.request import Request
from cutaway.serve.middleware import Access

pytestmark = pytest.mark.slow  # importing the client is slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def served(runs):
    with serve_in_thread(runs, Access("secret", HOME)) as found:
        yield found


@pytest.fixture(scope="module")
def client(served):
    with openai.OpenAI(
        base_url=f"http://127.0.0.1:{served.port}/v1", api_key="secret", max_retries=0, timeout=30
    ) as one:
        yield one


@pytest.fixture(scope="module")
def writer(runs):
    return TextGenerator.load(runs[1], "cpu", dtype="float64")


def continuation(writer, prompt, number=0, **settings):
    """The text that the pipeline generates after the prompt."""
    request = Request(prompt, number=number)
    [[found]] = writer.search([request], DecodeConfig(**settings))
    return writer.output_text(request, found), found


def test_models(client):
    assert [model.id for model in client.models.list()] == ["translator", "writer", "classifier", "tagger"]


def test_a_completion(client, writer):
    found = client.completions.create(model="writer", prompt="a b c", max_tokens=7, temperature=0)
    text, hypothesis = continuation(writer, "a b c", strategy="greedy", max_length=7)
    assert found.object == "text_completion"
    [choice] = found.choices
    assert (choice.text, choice.index) == (text, 0)
    assert choice.finish_reason == ("stop" if hypothesis.finished else "length")
    assert found.usage.prompt_tokens == 4  # with <s>
    assert found.usage.completion_tokens == len(hypothesis.tokens)
    assert found.usage.total_tokens == 4 + len(hypothesis.tokens)


def test_a_translation(client, runs):
    found = client.completions.create(
        model="translator", prompt=["a b", "c"], extra_body={"strategy": "beam", "beam_size": 3}
    )
    expected = Translator.load(runs[0], "cpu", dtype="float64").translate(
        ["a b", "c"], DecodeConfig(strategy="beam", beam_size=3)
    )
    assert [choice.text for choice in found.choices] == expected


def test_choices_differ_and_follow_from_the_seed(client, writer):
    options = {
        "model": "writer",
        "prompt": ["a b", "c"],
        "max_tokens": 6,
        "temperature": 0.9,
        "top_p": 0.9,
        "n": 3,
        "seed": 5,
    }
    found = client.completions.create(**options)
    texts = [choice.text for choice in found.choices]
    assert [choice.index for choice in found.choices] == list(range(6))
    expected = [
        continuation(writer, prompt, 3 * i + j, strategy="sample", temperature=0.9, top_p=0.9, seed=5, max_length=6)[0]
        for i, prompt in enumerate(["a b", "c"])
        for j in range(3)
    ]
    assert texts == expected
    assert len(set(texts)) > 2
    assert [choice.text for choice in client.completions.create(**options).choices] == texts
    without = {name: value for name, value in options.items() if name != "seed"}
    assert (
        len({client.completions.create(**without).choices[0].text for _ in range(8)}) > 1
    )  # a new random seed each time


def test_the_best_of_several(client):
    options = {"model": "writer", "prompt": "a b", "max_tokens": 5, "temperature": 1.5, "seed": 5, "logprobs": 0}
    several = client.completions.create(**options, n=6).choices
    best = client.completions.create(**options, n=2, best_of=6)

    def mean_log_probability(choice):
        return np.mean(choice.logprobs.token_logprobs)

    cut = [choice for choice in several if choice.finish_reason == "length"]  # without the end token
    assert best.usage.completion_tokens > sum(len(choice.logprobs.tokens) for choice in best.choices)
    assert mean_log_probability(best.choices[0]) >= max(map(mean_log_probability, cut)) - 1e-9


def test_a_stream(client):
    options = {
        "model": "writer",
        "prompt": ["a b c", "d"],
        "max_tokens": 9,
        "temperature": 0.8,
        "seed": 3,
        "echo": True,
    }
    whole = client.completions.create(**options)
    texts, reasons, usage = ["", ""], [None, None], None
    for chunk in client.completions.create(**options, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
        usage = chunk.usage or usage
    assert texts == [choice.text for choice in whole.choices]
    assert texts[0].startswith("a b c")
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert usage == whole.usage


def test_the_server_survives_a_stream_that_is_closed_early(client, served):
    for _ in range(3):
        stream = client.completions.create(model="writer", prompt="a b", max_tokens=20, temperature=0, stream=True)
        next(iter(stream))
        stream.close()
    assert client.completions.create(model="writer", prompt="a", max_tokens=2).choices


def test_logprobs(client, writer):
    [choice] = client.completions.create(model="writer", prompt="a b", max_tokens=6, temperature=0, logprobs=1).choices
    _, hypothesis = continuation(writer, "a b", strategy="greedy", max_length=6)
    logprobs = choice.logprobs
    assert "".join(logprobs.tokens) == choice.text
    assert logprobs.text_offset == [sum(map(len, logprobs.tokens[:i])) for i in range(len(logprobs.tokens))]
    values = {round(value, 6) for value in logprobs.token_logprobs}
    assert values <= {round(value, 6) for value in hypothesis.token_log_probs}
    assert all(
        list(top.values()) == [value] for top, value in zip(logprobs.top_logprobs, logprobs.token_logprobs, strict=True)
    )


def test_logprobs_of_a_text_with_a_stop_string(client):
    options = {"model": "writer", "prompt": "a b", "max_tokens": 8, "temperature": 0, "logprobs": 0}
    stop = client.completions.create(**options).choices[0].text.split()[1]
    [choice] = client.completions.create(**options, stop=stop).choices
    assert choice.text.endswith(" ")  # the token has a space before the stop string
    assert "".join(choice.logprobs.tokens) == choice.text


@pytest.mark.parametrize(
    ("theirs", "same"),
    [
        ({"top_p": 0, "seed": 1}, {"temperature": 0}),
        ({"temperature": 1, "seed": -1}, {"temperature": 1, "seed": 2**63 - 1}),
        ({"temperature": 1e-310}, {"temperature": 0}),
        ({"temperature": 0, "top_p": 0.5}, {"temperature": 0}),
        (
            {"temperature": 1, "top_p": 1, "extra_body": {"beam_size": 3, "strategy": "beam"}},
            {"extra_body": {"beam_size": 3, "strategy": "beam"}},
        ),
    ],
)
def test_values_at_the_ends_of_openais_ranges(client, theirs, same):
    first, second = (
        client.completions.create(model="writer", prompt="a b", max_tokens=6, **options).choices[0].text
        for options in (theirs, same)
    )
    assert first == second


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"temperature": 0.7, "extra_body": {"strategy": "beam"}}, "temperature has no effect on strategy 'beam'"),
        ({"temperature": 0, "extra_body": {"strategy": "greedy", "top_k": 3}}, "top_k has no effect"),
        ({"temperature": 0, "extra_body": {"strategy": "sample"}}, "temperature 0 cannot sample"),
        ({"n": 3, "best_of": 2, "temperature": 1}, "best_of = 2 is less than n = 3"),
        ({"best_of": 2, "temperature": 1, "stream": True}, "cannot be streamed"),
    ],
)
def test_settings_without_effect_are_rejected(client, options, why):
    with pytest.raises(openai.BadRequestError, match=why):
        client.completions.create(model="writer", prompt="a b", max_tokens=6, **options)


def test_best_of_1_can_be_streamed(client):
    assert list(client.completions.create(model="writer", prompt="a b", max_tokens=3, best_of=1, stream=True))


def test_other_stream_options_are_ignored(client):
    options = {"include_usage": True, "include_obfuscation": False}
    *_, last = client.completions.create(model="writer", prompt="a", max_tokens=2, stream=True, stream_options=options)
    assert last.usage.prompt_tokens == 2


def test_one_model(client):
    assert client.models.retrieve("writer").owned_by == "cutaway"
    with pytest.raises(openai.NotFoundError, match="unknown model 'gpt-4'"):
        client.models.retrieve("gpt-4")


def test_a_stop_string(client):
    whole = client.completions.create(model="writer", prompt="a b", max_tokens=8, temperature=0).choices[0].text
    stop = " " + whole.split()[1]
    [choice] = client.completions.create(model="writer", prompt="a b", max_tokens=8, temperature=0, stop=stop).choices
    assert (choice.text, choice.finish_reason) == (whole[: whole.index(stop)], "stop")


def test_ids_instead_of_text(client, writer):
    options = {"model": "writer", "max_tokens": 5, "temperature": 0}
    ids = writer.tokenizer.encode("a b c")
    text = client.completions.create(prompt="a b c", **options).choices[0].text
    assert client.completions.create(prompt=ids, **options).choices[0].text == text
    assert client.completions.create(prompt=[ids, ids], **options).choices[1].text == text


def test_vectors(client, served, runs):
    expected = np.array(Embedder.load(runs[1], "cpu", dtype="float64").embed(["a b", "c d e"]))
    found = client.embeddings.create(model="writer", input=["a b", "c d e"])  # the client requests base64
    np.testing.assert_allclose([one.embedding for one in found.data], expected, rtol=1e-5, atol=1e-7)
    assert [one.index for one in found.data] == [0, 1]
    assert found.usage.prompt_tokens == found.usage.total_tokens == 7
    plain = client.embeddings.create(model="writer", input="a b", encoding_format="float", dimensions=8)
    np.testing.assert_allclose(plain.data[0].embedding, expected[0])
    _, content = ask(
        served.port, "/v1/embeddings", {"model": "writer", "input": "a b", "encoding_format": "base64"},
        {"Authorization": "Bearer secret"},
    )  # fmt: skip
    raw = json.loads(content)["data"][0]["embedding"]
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(raw), "<f4"), expected[0], rtol=1e-6)


def test_errors_have_the_clients_types(client, served):
    with pytest.raises(openai.NotFoundError, match="unknown model 'gpt-4'"):
        client.completions.create(model="gpt-4", prompt="a")
    with pytest.raises(openai.BadRequestError, match="has 501 tokens; the limit of the model 'writer' is 32") as caught:
        client.completions.create(model="writer", prompt="a " * 500)
    assert caught.value.body["type"] == "invalid_request_error"
    with pytest.raises(openai.BadRequestError, match="suffix is not supported"):
        client.completions.create(model="writer", prompt="a", suffix="b")
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model="writer", prompt="a", temperature=9)
    with pytest.raises(openai.BadRequestError, match="dimensions = 3"):
        client.embeddings.create(model="writer", input="a", dimensions=3)
    with pytest.raises(openai.NotFoundError, match="there is no path /v1/chat/completions"):
        client.chat.completions.create(model="writer", messages=[{"role": "user", "content": "a"}])
    wrong = openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError, match="wrong token"):
        wrong.completions.create(model="writer", prompt="a")
    served.app_state.status.stopping = "the server is shutting down"
    try:
        with pytest.raises(openai.InternalServerError, match="the server is shutting down") as caught:
            client.completions.create(model="writer", prompt="a")
        assert (caught.value.status_code, caught.value.response.headers["retry-after"]) == (503, "5")
    finally:
        served.app_state.status.stopping = ""
