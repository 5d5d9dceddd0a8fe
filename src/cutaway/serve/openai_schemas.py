"""JSON schemas of /v1/completions and /v1/embeddings, compatible with OpenAI's clients."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cutaway.serve.schemas import (
    MAX_LIST,
    MAX_NUMBER,
    BeamSize,
    CoveragePenalty,
    LengthPenalty,
    ListOfTexts,
    MinLength,
    MinP,
    NoRepeatNgram,
    RepetitionPenalty,
    Strategy,
    StrictModel,
    Text,
    TopK,
)

Id = Annotated[int, Field(ge=0, le=2**31)]
Ids = Annotated[list[Id], Field(max_length=MAX_LIST, fail_fast=True)]
Input = Annotated[
    Text | ListOfTexts | Ids | Annotated[list[Ids], Field(max_length=MAX_LIST, fail_fast=True)],
    Field(description="A text, a list of texts, a list of token ids, or a list of such lists."),
]
ModelId = Annotated[Text, Field(description="The name of the model.")]
REFUSED = "Not supported: an error unless the value has no effect."
Stop = Annotated[Text, Field(min_length=1, max_length=200)]


class StreamOptions(BaseModel):
    """Other options that clients send here, such as include_obfuscation, are ignored."""

    include_usage: bool = False
    model_config = ConfigDict(extra="ignore", strict=True)


class CompletionRequest(StrictModel):
    """The fields from strategy to min_length are not in OpenAI's API: send them with `extra_body`."""

    model: ModelId
    prompt: Input = ""
    max_tokens: Annotated[
        Annotated[int, Field(ge=1, le=MAX_NUMBER)] | None, Field(description="Most tokens to generate.")
    ] = None
    temperature: Annotated[
        Annotated[float, Field(ge=0, le=2)] | None,
        Field(description="Below 1: more predictable; above 1: more varied; 0: greedy search."),
    ] = None
    top_p: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None,
        Field(description="Sample from the fewest likeliest tokens whose probabilities reach p."),
    ] = None
    n: Annotated[Annotated[int, Field(ge=1, le=16)] | None, Field(description="Number of texts for each prompt.")] = (
        None
    )
    best_of: Annotated[
        Annotated[int, Field(ge=1, le=16)] | None, Field(description="Generate this many texts and return the best n.")
    ] = None
    stop: Annotated[
        Stop | Annotated[list[Stop], Field(max_length=4, fail_fast=True)] | None,
        Field(description="Strings that end the text. They are not part of it."),
    ] = None
    seed: Annotated[
        Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None,
        Field(description="The same seed samples the same text."),
    ] = None
    stream: Annotated[bool | None, Field(description="Send the text piece by piece, as server-sent events.")] = None
    stream_options: Annotated[
        StreamOptions | None, Field(description="include_usage: the last event holds the token counts.")
    ] = None
    logprobs: Annotated[
        Annotated[int, Field(ge=0, le=5)] | None,
        Field(description="Log-probabilities of generated tokens: 0, or 1 with greedy search (also as top_logprobs)."),
    ] = None
    echo: Annotated[bool | None, Field(description="Put the prompt before the text.")] = None
    user: Annotated[Text | None, Field(description="Ignored.")] = None
    suffix: Annotated[Text | None, Field(description=REFUSED)] = None
    presence_penalty: Annotated[Annotated[float, Field(ge=-2, le=2)] | None, Field(description=REFUSED)] = None
    frequency_penalty: Annotated[Annotated[float, Field(ge=-2, le=2)] | None, Field(description=REFUSED)] = None
    logit_bias: Annotated[dict[str, Any] | None, Field(description=REFUSED)] = None
    strategy: Strategy = None  # from here on, not in OpenAI's API
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


class CompletionChoice(BaseModel):
    text: str
    index: int
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length"] | None


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionResponse(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class EmbeddingRequest(StrictModel):
    model: ModelId
    input: Input
    encoding_format: Annotated[
        Literal["float", "base64"] | None, Field(description="float: numbers; base64: float32 in base64.")
    ] = None
    dimensions: Annotated[
        Annotated[int, Field(ge=1, le=MAX_NUMBER)] | None, Field(description="Only the model's own width is supported.")
    ] = None
    user: Annotated[Text | None, Field(description="Ignored.")] = None
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "demo", "input": ["A cat sleeps.", "A kitten naps."]}]}
    )


class EmbeddingItem(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: Annotated[list[float | None] | str, Field(description="Numbers, or float32 in base64.")]


class PromptUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(BaseModel):
    object: Literal["list"]
    data: list[EmbeddingItem]
    model: str
    usage: PromptUsage


class OpenAIErrorResponse(BaseModel):
    class Details(BaseModel):
        message: str
        type: str
        param: str | None
        code: str | None

    error: Details


Chunk = dict[str, Any]  # an event of a stream: a CompletionResponse whose usage may be missing
