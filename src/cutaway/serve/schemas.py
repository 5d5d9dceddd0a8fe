"""What the endpoints take and give: the JSON of our own API. (That of OpenAI's is in openai_schemas.py.)"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

A_LOT = 1_000_000  # bounds that only keep numbers sane; what a server takes is in limits.py
LONG = 100_000  # the same for lists. Each of them ends at its first mistake: a list of mistakes takes much more room


def is_text(text: str) -> str:
    """JSON can hold half of a surrogate pair, "\\ud800", which no tokenizer and no encoding takes."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise PydanticCustomError("no_text", "it holds half of a surrogate pair, which is no text") from None
    return text


Text = Annotated[str, AfterValidator(is_text)]
ListOfTexts = Annotated[list[Text], Field(max_length=LONG, fail_fast=True)]
Texts = Annotated[
    Text | ListOfTexts,
    Field(description="One text, or a list of texts. The results are a list in the same order in either case."),
]
ModelName = Annotated[
    Text | None,
    Field(description="The run to use, by its name; by default the first that can do this."),
]


class Strict(BaseModel):
    """A misspelt setting is refused rather than ignored, and a number is a number."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def one_unknown_name_is_enough(cls, given: Any) -> Any:
        """Of a hundred thousand names that nobody knows, the first is refused, and the others are not looked at."""
        if not isinstance(given, dict):
            return given
        unknown = [name for name in given if name not in cls.model_fields]
        return {name: given[name] for name in (*cls.model_fields, *unknown[:1]) if name in given}


# Settings of a search, which both APIs know. None: as the run's own settings are.
Strategy = Annotated[
    Literal["greedy", "beam", "sample"] | None,
    Field(description="greedy takes the likeliest token, beam follows several beginnings, sample draws."),
]
BeamSize = Annotated[
    Annotated[int, Field(ge=1, le=16)] | None, Field(description="beam: how many beginnings are followed.")
]
LengthPenalty = Annotated[
    Annotated[float, Field(ge=0, le=10)] | None, Field(description="beam: above 0 favours longer texts.")
]
CoveragePenalty = Annotated[
    Annotated[float, Field(ge=0, le=10)] | None,
    Field(description="beam, translation: above 0 favours texts that looked at every word of the source."),
]
TopK = Annotated[
    Annotated[int, Field(ge=0, le=A_LOT)] | None,
    Field(description="sample: draw from the k likeliest tokens only; 0: from all."),
]
MinP = Annotated[
    Annotated[float, Field(ge=0, le=1)] | None,
    Field(description="sample: draw no token that is less likely than this share of the likeliest."),
]
RepetitionPenalty = Annotated[
    Annotated[float, Field(ge=0.01, le=100)] | None,
    Field(description="Above 1: what was written becomes less likely."),
]
NoRepeatNgram = Annotated[
    Annotated[int, Field(ge=0, le=100)] | None,
    Field(description="No n tokens in a row are written twice; 0: they may be."),
]
MinLength = Annotated[Annotated[int, Field(ge=0, le=A_LOT)] | None, Field(description="At least so many tokens.")]


class Decoding(Strict):
    """How a text is searched for. What is left out is as in the run's own settings."""

    strategy: Strategy = None
    beam_size: BeamSize = None
    length_penalty: LengthPenalty = None
    coverage_penalty: CoveragePenalty = None
    temperature: Annotated[
        Annotated[float, Field(ge=0.01, le=100)] | None, Field(description="sample: below 1 safer, above 1 bolder.")
    ] = None
    top_k: TopK = None
    top_p: Annotated[
        Annotated[float, Field(ge=0.0001, le=1)] | None,
        Field(description="sample: draw from the likeliest tokens that make up p."),
    ] = None
    min_p: MinP = None
    seed: Annotated[
        Annotated[int, Field(ge=0, le=2**53 - 1)] | None,
        Field(description="sample: the same seed draws the same text."),
    ] = None
    repetition_penalty: RepetitionPenalty = None
    no_repeat_ngram: NoRepeatNgram = None
    min_length: MinLength = None
    max_length: Annotated[
        Annotated[int, Field(ge=1, le=A_LOT)] | None, Field(description="Tokens that may be written, at most.")
    ] = None

    def given(self) -> dict[str, Any]:
        """The settings of the search that were given."""
        return {name: value for name in Decoding.model_fields if (value := getattr(self, name)) is not None}


class ToWrite(Decoding):
    """What /translate and /generate have in common."""

    model: ModelName = None
    prefix: Annotated[Text, Field(description="What every answer begins with, whatever the model thinks of it.")] = ""
    stop: Annotated[
        list[Annotated[Text, Field(min_length=1, max_length=200)]],
        Field(max_length=8, fail_fast=True, description="A text ends before the first of these."),
    ] = []
    choices: Annotated[
        list[Annotated[Text, Field(min_length=1, max_length=2_000)]],
        Field(max_length=64, fail_fast=True, description="If given, every answer is exactly one of these."),
    ] = []
    n_best: Annotated[int, Field(ge=1, le=16, description="So many versions; more than one needs beam search.")] = 1
    stream: Annotated[bool, Field(description="Send the text as it is written, as server-sent events.")] = False


class TranslateRequest(ToWrite):
    text: Texts
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"text": "The small cat sleeps."},
                {"text": ["A dog eats.", "The old man sleeps."], "strategy": "beam", "beam_size": 4},
            ]
        }
    )


class GenerateRequest(ToWrite):
    text: Texts
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"text": "def ", "max_length": 40, "strategy": "sample", "temperature": 0.8, "seed": 1}]
        }
    )


class VersionAnswer(BaseModel):
    """`finished`: the model ended the text itself. `reason`: "stop", or "length" if it was cut off."""

    text: str
    finished: bool
    reason: Literal["stop", "length"]
    tokens: int
    log_probability: float | None
    score: float | None


class WrittenAnswer(VersionAnswer):
    """`unknown`: what of a text to translate is not in the model's vocabulary; left out if there is nothing."""

    unknown: list[str] | None = None
    others: Annotated[list[VersionAnswer], Field(description="The next best versions, if `n_best` asked for them.")]


class Written(BaseModel):
    model: str
    results: list[WrittenAnswer]


class ClassifyRequest(Strict):
    text: Texts
    model: ModelName = None
    top: Annotated[int, Field(ge=1, le=A_LOT, description="So many labels for each text, likeliest first.")] = 1
    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "len(a) + b[0]", "top": 3}]})


class Label(BaseModel):
    label: str
    probability: float | None


class LabelsAnswer(Label):
    """`cut`: the text is longer than the model reads, and its beginning was classified; left out if it is not."""

    cut: bool | None = None
    labels: Annotated[list[Label], Field(description="The likeliest labels, as many as `top` asked for.")]


class Classified(BaseModel):
    model: str
    results: list[LabelsAnswer]


class TagRequest(Strict):
    text: Texts
    model: ModelName = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "def area(r): return 3.14 * r"}]})


class TagsAnswer(BaseModel):
    """`parts`: how many parts a text was tagged in that is longer than the model reads at once; else left out."""

    parts: int | None = None
    words: list[str]
    tags: list[str]


class Tagged(BaseModel):
    model: str
    results: list[TagsAnswer]


class EmbedRequest(Strict):
    text: Texts
    model: ModelName = None
    pooling: Annotated[
        Literal["auto", "mean", "cls", "max"],
        Field(
            description="How the vectors of the tokens become one: their mean, the first, the largest of each number."
        ),
    ] = "auto"
    normalize: Annotated[bool, Field(description="Vectors of length 1, so that a dot product is a cosine.")] = True
    cut: Annotated[bool, Field(description="Of a text that is too long, the beginning stands for all of it.")] = False
    prompt: Annotated[
        str | None, Field(description="Which of the model's prompts to put before each text; empty: none of them.")
    ] = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"text": ["A cat sleeps.", "A kitten naps."]}]})


class VectorAnswer(BaseModel):
    vector: list[float | None]


class Embedded(BaseModel):
    model: str
    results: list[VectorAnswer]


class TraceRequest(Strict):
    text: Annotated[Text, Field(description="The text that is to be followed through the model.")]
    model: ModelName = None
    target: Annotated[
        Text | None, Field(description="An answer that the model is led through, instead of its own.")
    ] = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "The small cat sleeps."}]})


class ModelCard(BaseModel):
    """A run that is served. `id`, `object` and `owned_by` are what OpenAI's clients look for."""

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


# of each event of a stream
EVENT = {
    "type": "object",
    "properties": {"data": {"type": "string", "description": "A JSON object; [DONE] at the end."}},
    "required": ["data"],
}
OR_A_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The texts; or, if `stream` asked for it, server-sent events of JSON, and [DONE] at the end.",
        "content": {"text/event-stream": {"schema": EVENT}},
    }
}


class Problem(BaseModel):
    error: Annotated[str, Field(description="What was given, what was expected, and what to do.")]
