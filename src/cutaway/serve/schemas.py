"""JSON schemas of our own API. (openai_schemas.py has those of the OpenAI-compatible routes.)"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

MAX_NUMBER = 1_000_000  # a sanity bound; the server's limits are in limits.py
MAX_LIST = 100_000  # the same for lists; with fail_fast, since a list of many errors takes much memory


def check_surrogates(text: str) -> str:
    """Reject lone surrogates such as "\\ud800": JSON can hold them, UTF-8 and tokenizers cannot."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise PydanticCustomError(
                "no_text", "the text has half of a surrogate pair, which is not valid Unicode"
            ) from None
    return text


Text = Annotated[str, AfterValidator(check_surrogates)]
ListOfTexts = Annotated[list[Text], Field(max_length=MAX_LIST, fail_fast=True)]
TextOrTexts = Annotated[
    Text | ListOfTexts,
    Field(description="One text or a list of texts. `results` is always a list, in the same order."),
]
ModelName = Annotated[
    Text | None,
    Field(description="The name of the model. Default: the first that supports this path."),
]


class StrictModel(BaseModel):
    """Rejects unknown fields and wrong types."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def keep_one_unknown_name(cls, given: Any) -> Any:
        """Keep only the first unknown field: one error is enough, and thousands would take much memory."""
        if not isinstance(given, dict):
            return given
        unknown = [name for name in given if name not in cls.model_fields]
        return {name: given[name] for name in (*cls.model_fields, *unknown[:1]) if name in given}


# Decode settings that both APIs share. None: the run's own setting.
Strategy = Annotated[
    Literal["greedy", "beam", "sample"] | None,
    Field(description="greedy: the likeliest token; beam: beam search; sample: random sampling."),
]
BeamSize = Annotated[Annotated[int, Field(ge=1, le=16)] | None, Field(description="beam: number of hypotheses.")]
LengthPenalty = Annotated[
    Annotated[float, Field(ge=0, le=10)] | None, Field(description="beam: above 0 favours longer texts.")
]
CoveragePenalty = Annotated[
    Annotated[float, Field(ge=0, le=10)] | None,
    Field(description="beam, translation: above 0 favours texts that attend to every source token."),
]
TopK = Annotated[
    Annotated[int, Field(ge=0, le=MAX_NUMBER)] | None,
    Field(description="sample: only the k likeliest tokens; 0: all."),
]
MinP = Annotated[
    Annotated[float, Field(ge=0, le=1)] | None,
    Field(description="sample: only tokens with at least this share of the largest probability."),
]
RepetitionPenalty = Annotated[
    Annotated[float, Field(ge=0.01, le=100)] | None,
    Field(description="Above 1: tokens that already occurred become less likely."),
]
NoRepeatNgram = Annotated[
    Annotated[int, Field(ge=0, le=100)] | None,
    Field(description="Generate no n-gram of this length twice; 0: off."),
]
MinLength = Annotated[
    Annotated[int, Field(ge=0, le=MAX_NUMBER)] | None, Field(description="Fewest tokens to generate.")
]


class Decoding(StrictModel):
    """Decode settings. Default: the run's own."""

    strategy: Strategy = None
    beam_size: BeamSize = None
    length_penalty: LengthPenalty = None
    coverage_penalty: CoveragePenalty = None
    temperature: Annotated[
        Annotated[float, Field(ge=0.01, le=100)] | None,
        Field(description="sample: below 1: more predictable; above 1: more varied."),
    ] = None
    top_k: TopK = None
    top_p: Annotated[
        Annotated[float, Field(ge=0.0001, le=1)] | None,
        Field(description="sample: only the fewest likeliest tokens whose probabilities reach p."),
    ] = None
    min_p: MinP = None
    seed: Annotated[
        Annotated[int, Field(ge=0, le=2**53 - 1)] | None,
        Field(description="sample: the same seed samples the same text."),
    ] = None
    repetition_penalty: RepetitionPenalty = None
    no_repeat_ngram: NoRepeatNgram = None
    min_length: MinLength = None
    max_length: Annotated[
        Annotated[int, Field(ge=1, le=MAX_NUMBER)] | None, Field(description="Most tokens to generate.")
    ] = None

    def given(self) -> dict[str, Any]:
        """The decode settings that the request has."""
        return {name: value for name in Decoding.model_fields if (value := getattr(self, name)) is not None}


class GenerationOptions(Decoding):
    """The fields that /translate and /generate share."""

    model: ModelName = None
    prefix: Annotated[Text, Field(description="A forced beginning of every answer.")] = ""
    stop: Annotated[
        list[Annotated[Text, Field(min_length=1, max_length=200)]],
        Field(max_length=8, fail_fast=True, description="Strings that end the text. They are not part of it."),
    ] = []
    choices: Annotated[
        list[Annotated[Text, Field(min_length=1, max_length=2_000)]],
        Field(max_length=64, fail_fast=True, description="If given, every answer is exactly one of these."),
    ] = []
    n_best: Annotated[int, Field(ge=1, le=16, description="Number of versions. More than one needs beam search.")] = 1
    stream: Annotated[bool, Field(description="Send the text piece by piece, as server-sent events.")] = False


class TranslateRequest(GenerationOptions):
    text: TextOrTexts
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"text": "The small cat sleeps."},
                {"text": ["A dog eats.", "The old man sleeps."], "strategy": "beam", "beam_size": 4},
            ]
        }
    )


class GenerateRequest(GenerationOptions):
    text: TextOrTexts
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"text": "def ", "max_length": 40, "strategy": "sample", "temperature": 0.8, "seed": 1}]
        }
    )


class TextVersion(BaseModel):
    """`finished`: the model ended the text itself. `reason`: "stop", or "length" if the text was cut off."""

    text: str
    finished: bool
    reason: Literal["stop", "length"]
    tokens: int
    log_probability: float | None
    score: float | None


class TextResult(TextVersion):
    """`unknown`: source words that are not in a translator's vocabulary; absent if there are none."""

    unknown: list[str] | None = None
    others: Annotated[list[TextVersion], Field(description="The next best versions, if `n_best` is above 1.")]


class TextResponse(BaseModel):
    model: str
    results: list[TextResult]


class ClassifyRequest(StrictModel):
    text: TextOrTexts
    model: ModelName = None
    top: Annotated[int, Field(ge=1, le=MAX_NUMBER, description="Number of labels for each text, likeliest first.")] = 1
    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "len(a) + b[0]", "top": 3}]})


class LabelProbability(BaseModel):
    label: str
    probability: float | None


class ClassifyResult(LabelProbability):
    """`cut`: true if the text was too long and only its beginning was classified; otherwise absent."""

    cut: bool | None = None
    labels: Annotated[list[LabelProbability], Field(description="The `top` likeliest labels.")]


class ClassifyResponse(BaseModel):
    model: str
    results: list[ClassifyResult]


class TagRequest(StrictModel):
    text: TextOrTexts
    model: ModelName = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "def area(r): return 3.14 * r"}]})


class TagResult(BaseModel):
    """`parts`: number of overlapping parts in which a long text was tagged; absent for one part."""

    parts: int | None = None
    words: list[str]
    tags: list[str]


class TagResponse(BaseModel):
    model: str
    results: list[TagResult]


class EmbedRequest(StrictModel):
    text: TextOrTexts
    model: ModelName = None
    pooling: Annotated[
        Literal["auto", "mean", "cls", "max"],
        Field(
            description="How token vectors become one: their mean, the first vector, or the maximum of each dimension."
        ),
    ] = "auto"
    normalize: Annotated[
        bool, Field(description="Scale vectors to length 1, so that a dot product is a cosine similarity.")
    ] = True
    cut: Annotated[bool, Field(description="Cut a text that is too long, instead of an error.")] = False
    prompt: Annotated[
        str | None, Field(description="The name of the model's prompt to put before each text; empty: none.")
    ] = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"text": ["A cat sleeps.", "A kitten naps."]}]})


class EmbedResult(BaseModel):
    vector: list[float | None]


class EmbedResponse(BaseModel):
    model: str
    results: list[EmbedResult]


class TraceRequest(StrictModel):
    text: Annotated[Text, Field(description="The text to trace.")]
    model: ModelName = None
    target: Annotated[Text | None, Field(description="Trace this answer instead of the model's own.")] = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "The small cat sleeps."}]})


class ModelCard(BaseModel):
    """A served model. OpenAI's clients need `id`, `object` and `owned_by`."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "cutaway"
    task: str
    can: list[str]
    engine: str
    longest_text: int
    decoding: dict[str, Any]


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class Health(BaseModel):
    status: str
    models: dict[str, str] | None = None


# the schema of each event of a stream
EVENT_SCHEMA = {
    "type": "object",
    "properties": {"data": {"type": "string", "description": "A JSON object; [DONE] in the last event."}},
    "required": ["data"],
}
STREAM_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The texts; with `stream`, server-sent events of JSON, and [DONE] at the end.",
        "content": {"text/event-stream": {"schema": EVENT_SCHEMA}},
    }
}


class ErrorResponse(BaseModel):
    error: Annotated[str, Field(description="What was given, what was expected, and what to do.")]
