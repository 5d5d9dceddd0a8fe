"""OpenAI's dialect: what /v1/completions and /v1/embeddings take and give, so that ordinary clients work."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cutaway.serve.schemas import (
    A_LOT,
    LONG,
    BeamSize,
    CoveragePenalty,
    LengthPenalty,
    ListOfTexts,
    MinLength,
    MinP,
    NoRepeatNgram,
    RepetitionPenalty,
    Strategy,
    Strict,
    Text,
    TopK,
)

Id = Annotated[int, Field(ge=0, le=2**31)]
Ids = Annotated[list[Id], Field(max_length=LONG, fail_fast=True)]
Input = Annotated[
    Text | ListOfTexts | Ids | Annotated[list[Ids], Field(max_length=LONG, fail_fast=True)],
    Field(description="A text, a list of texts, the ids of a text's tokens, or a list of such."),
]
ModelId = Annotated[Text, Field(description="The run to use, by its name.")]
REFUSED = "Known, and refused unless it changes nothing."
Stop = Annotated[Text, Field(min_length=1, max_length=200)]


class StreamOptions(BaseModel):
    """What else clients send here (include_obfuscation, for one) has no effect, and is let through."""

    include_usage: bool = False
    model_config = ConfigDict(extra="ignore", strict=True)


class CompletionRequest(Strict):
    """What is not in OpenAI's API, strategy to min_length, is ours; the `openai` client sends it with `extra_body`."""

    model: ModelId
    prompt: Input = ""
    max_tokens: Annotated[
        Annotated[int, Field(ge=1, le=A_LOT)] | None, Field(description="Tokens that may be written, at most.")
    ] = None
    temperature: Annotated[
        Annotated[float, Field(ge=0, le=2)] | None,
        Field(description="Below 1 safer, above 1 bolder; 0: greedy search."),
    ] = None
    top_p: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None, Field(description="Draw from the likeliest tokens that make up p.")
    ] = None
    n: Annotated[Annotated[int, Field(ge=1, le=16)] | None, Field(description="So many texts for each prompt.")] = None
    best_of: Annotated[
        Annotated[int, Field(ge=1, le=16)] | None, Field(description="So many are written, and the best n returned.")
    ] = None
    stop: Annotated[
        Stop | Annotated[list[Stop], Field(max_length=4, fail_fast=True)] | None,
        Field(description="A text ends before the first of these."),
    ] = None
    seed: Annotated[
        Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None, Field(description="The same seed draws the same text.")
    ] = None
    stream: Annotated[bool | None, Field(description="Send the text as it is written, as server-sent events.")] = None
    stream_options: Annotated[
        StreamOptions | None, Field(description="include_usage: the last event counts the tokens.")
    ] = None
    logprobs: Annotated[
        Annotated[int, Field(ge=0, le=5)] | None,
        Field(description="The log-probability of each token, and of so many rivals."),
    ] = None
    echo: Annotated[bool | None, Field(description="The text begins with the prompt.")] = None
    user: Annotated[Text | None, Field(description="Read, and not used.")] = None
    suffix: Annotated[Text | None, Field(description=REFUSED)] = None
    presence_penalty: Annotated[Annotated[float, Field(ge=-2, le=2)] | None, Field(description=REFUSED)] = None
    frequency_penalty: Annotated[Annotated[float, Field(ge=-2, le=2)] | None, Field(description=REFUSED)] = None
    logit_bias: Annotated[dict[str, Any] | None, Field(description=REFUSED)] = None
    strategy: Strategy = None  # from here on ours
    beam_size: BeamSize = None
    length_penalty: LengthPenalty = None
    coverage_penalty: CoveragePenalty = None
    top_k: TopK = None
    min_p: MinP = None
    repetition_penalty: RepetitionPenalty = None
    no_repeat_ngram: NoRepeatNgram = None
    min_length: MinLength = None
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"model": "python-gpt", "prompt": "def ", "max_tokens": 40, "temperature": 0.8, "seed": 1}]
        }
    )


class Logprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None]] | None
    text_offset: list[int]


class Choice(BaseModel):
    text: str
    index: int
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length"] | None


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


class EmbeddingRequest(Strict):
    model: ModelId
    input: Input
    encoding_format: Annotated[
        Literal["float", "base64"] | None, Field(description="Numbers, or float32 in base64.")
    ] = None
    dimensions: Annotated[
        Annotated[int, Field(ge=1, le=A_LOT)] | None, Field(description="No other than the model's own is possible.")
    ] = None
    user: Annotated[Text | None, Field(description="Read, and not used.")] = None
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "demo", "input": ["A cat sleeps.", "A kitten naps."]}]}
    )


class Embedding(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: Annotated[list[float | None] | str, Field(description="Numbers; or float32 in base64.")]


class ReadUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class Embeddings(BaseModel):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: ReadUsage


class OpenAIProblem(BaseModel):
    class Details(BaseModel):
        message: str
        type: str
        param: str | None
        code: str | None

    error: Details


Chunk = dict[str, Any]  # a Completion in which usage may be missing: an event of a stream
