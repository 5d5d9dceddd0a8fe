"""cutaway figures RUN [TEXT]"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cutaway.cli.console import err, out, say
from cutaway.cli.texts import Device
from cutaway.errors import ConfigError, DataError, did_you_mean
from cutaway.runs import RunFolder
from cutaway.runs.summary import History

if TYPE_CHECKING:
    from cutaway.explore.budget import Budget
    from cutaway.explore.heads import HeadTable
    from cutaway.explore.trace import Trace
    from cutaway.inference.pipelines import Pipeline

COUNTED = 200  # examples over which heads are counted ...
TOKENS = 12_000  # ... if they have no more tokens than these together
FORMATS = ("png", "svg", "pdf")


def figures(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/demo.")],
    text: Annotated[
        str | None, typer.Argument(help="A text; default: a short one of the run's data, or a plain sentence.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--out", help="Where to put them; default: RUN/figures.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only the figure of this name; may be given again.")] = None,
    format: Annotated[str, typer.Option(help=f"{', '.join(FORMATS)}.")] = "png",
    device: Device = "auto",
) -> None:
    """Draw what a run learned and what is inside its model: attention, heads, masks, positions, curves, costs.

    Examples:  cutaway figures runs/demo "The small cat sleeps."

               cutaway figures runs/python-gpt --only heads --only roles --format svg
    """
    if format not in FORMATS:
        raise ConfigError(f"--format {format} is not a choice. {did_you_mean(format, FORMATS)}")
    for name in only or []:
        if name not in FIGURES:
            raise ConfigError(f"--only {name}: there is no such figure. {did_you_mean(name, FIGURES)}")
    from cutaway.inference.pipelines import load_pipeline

    folder = RunFolder(run)
    subject = Subject(folder, load_pipeline(run, device), text)
    if text is not None and subject.is_vision:
        raise ConfigError("this run reads images: leave the text out, and one of its own images is taken.")
    left_out: dict[str, list[str]] = {}  # reason -> figures
    for name in only or FIGURES:
        try:
            drawn = draw(subject, name)
        except DataError as error:  # of examples that are no longer there: the other figures need none
            if only:
                raise
            left_out.setdefault(str(error), []).append(name)
            continue
        if drawn is not None:
            print_saved(drawn, (to or folder.figures) / f"{name}.{format}", FIGURES[name].shows)
        elif only:
            raise ConfigError(f"--only {name}: of this run there is nothing to draw. It needs {FIGURES[name].needs}.")
    for reason, names in left_out.items():
        say(f"Note: no {', '.join(names)}: {reason}")


def draw(subject: Subject, name: str) -> Any:
    with err.status(f"drawing {name} ..."):
        return FIGURES[name].draw(subject)


def print_saved(figure: Any, path: Path, shows: str) -> None:
    from cutaway.explore.figures import save

    try:
        out.print(f"{save(figure, path)}  {shows}", markup=False)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}. Choose another folder with --out.") from None


@dataclass
class Subject:
    """What is drawn; whatever takes long is computed when the first figure asks for it."""

    run: RunFolder
    pipeline: Pipeline
    text: str | None

    @property
    def is_vision(self) -> bool:
        return self.pipeline.config.model.family == "vision"

    @cached_property
    def steps(self) -> int:
        """That were trained here: imported weights have none, whatever their config.json would have trained."""
        return History.of(self.run.read_metrics()).last_step

    @cached_property
    def examples(self) -> Sequence[Any]:
        from cutaway.explore.inputs import some_examples

        return some_examples(self.pipeline)

    @cached_property
    def example(self) -> Any:
        """What the figures of one example show: the text that was given, or one of the run's data."""
        from cutaway.explore.inputs import short_example

        return short_example(self.pipeline, self.examples) if self.text is None else self.text

    @cached_property
    def trace(self) -> Trace:
        from cutaway.explore.trace import trace

        if hasattr(self.example, "target"):
            return trace(self.pipeline, self.example.source, self.example.target)
        if self.pipeline.config.model.task == "language_model":
            return trace(self.pipeline, self.example, "")  # the text alone, without what the model would add
        return trace(self.pipeline, getattr(self.example, "pixels", self.example))

    @cached_property
    def counted(self) -> Sequence[Any]:
        """The examples that are counted: no more than can be counted in a few seconds."""
        from cutaway.explore.inputs import encode_examples

        examples = self.examples[:COUNTED]
        if self.is_vision:
            return examples
        left, enough = TOKENS, 0
        for row in encode_examples(self.pipeline, examples, longest=256):
            left -= len(row.encoder) + len(row.decoder)
            enough += 1
            if left < 0:
                break
        return examples[:enough]

    @cached_property
    def heads(self) -> HeadTable:
        from cutaway.explore.heads import head_statistics

        say(f"counting what each head does in {len(self.counted):,} examples ...")
        return head_statistics(self.pipeline, self.counted)

    @cached_property
    def budget(self) -> Budget:
        from cutaway.explore.budget import budget
        from cutaway.explore.inputs import collate_examples, encode_examples, image_inputs

        examples = self.counted[:32]
        if self.is_vision:
            return budget(self.pipeline.model, *image_inputs(self.pipeline, examples).arguments)
        longest = min(256, self.pipeline.config.longest_text)
        return budget(
            self.pipeline.model,
            *collate_examples(self.pipeline, encode_examples(self.pipeline, examples, longest)).arguments,
        )


def attention(kind: str, subject: Subject) -> Any:
    from cutaway.explore.figures import attention_grid

    return attention_grid(subject.trace, kind) if subject.trace.n_layers(kind) else None


def last_layer(subject: Subject) -> Any:
    from cutaway.explore.figures import layer_grid

    kind = subject.trace.kinds()[-1]
    return layer_grid(subject.trace, kind, subject.trace.n_layers(kind) - 1)


def alignment(subject: Subject) -> Any:
    """The head that agrees best with the gold alignment, and the alignment itself."""
    from cutaway.explore.alignment import gold_cells, has_alignments, words_of
    from cutaway.explore.figures import attention_heatmap

    pipeline: Any = subject.pipeline
    if not has_alignments([subject.example]):
        return None
    best = max((head for head in subject.heads if head.agreement is not None), key=lambda head: head.agreement or 0.0)
    gold = gold_cells(words_of(pipeline, subject.example), subject.example.alignment)
    return attention_heatmap(subject.trace, "cross", best.layer, best.head, gold)


def masks(subject: Subject) -> Any:
    from cutaway.explore.inputs import encode_examples
    from cutaway.explore.masks import mask_views
    from cutaway.explore.model_figures import mask_panel

    example = subject.example if subject.is_vision else encode_examples(subject.pipeline, [subject.example])[0]
    return mask_panel(mask_views(subject.pipeline, example))


def positions(subject: Subject) -> Any:
    from cutaway.explore.model_figures import SCHEMES, position_figure

    schemes: list[Any] = [part for part in subject.pipeline.model.modules() if isinstance(part, tuple(SCHEMES))]
    return position_figure(schemes[0]) if schemes else None


def of_model(name: str, what: str, subject: Subject) -> Any:
    """A figure of explore/model_figures.py, of one of the subject's things."""
    from cutaway.explore import model_figures

    return getattr(model_figures, name)(getattr(subject, what))


def loss(subject: Subject) -> Any:
    from cutaway.explore.figures import loss_curve

    return loss_curve(subject.run.read_metrics()) if subject.steps else None


def confusion(subject: Subject) -> Any:
    from cutaway.explore.figures import confusion_matrix
    from cutaway.metrics.classes import Confusion
    from cutaway.runs.summary import read_scores

    found = Confusion.read(read_scores(subject.run))
    return confusion_matrix(found.labels, found.shares) if found else None


def schedule(subject: Subject) -> Any:
    from cutaway.explore.figures import schedule_curve
    from cutaway.train.schedules import make_schedule

    config = subject.pipeline.config
    own = make_schedule(config.train, config.model.d_model)
    return schedule_curve(own, subject.steps) if subject.steps else None


def schedules(subject: Subject) -> Any:
    """The run's own, and others that climb as long and as high."""
    from cutaway.explore import training_figures
    from cutaway.train import schedules

    config, steps = subject.pipeline.config.train, subject.steps
    if not steps:
        return None
    own = schedules.make_schedule(config, subject.pipeline.config.model.d_model)
    peak = max(own(step, step / steps) for step in range(1, steps + 1))
    others = {
        "inverse_sqrt": schedules.inverse_sqrt(peak, config.warmup),
        "cosine": schedules.cosine(peak, config.warmup),
        "wsd": schedules.warmup_stable_decay(peak, config.warmup, 0.2),
        "constant": schedules.constant(peak),
    }
    if config.schedule == "noam":
        del others["inverse_sqrt"]  # the same curve
    return training_figures.schedules({config.schedule: own, **others} | {config.schedule: own}, steps, config.schedule)


def smoothing(subject: Subject) -> Any:
    from cutaway.explore.training_figures import smoothing_targets
    from cutaway.train.losses import smoothed_cross_entropy

    epsilon = subject.pipeline.config.train.label_smoothing
    if not (epsilon and subject.steps):
        return None
    said = list(dict.fromkeys(subject.trace.target_out or subject.pipeline.labels))[:8]
    return smoothing_targets(smoothed_cross_entropy, said, len(said) // 2, epsilon) if len(said) > 1 else None


class Drawing(NamedTuple):
    shows: str
    draw: Callable[[Subject], Any]  # None: there is nothing to draw
    needs: str = ""


TRAINED = "the metrics of its training, which imported weights do not have"
FIGURES: dict[str, Drawing] = {
    "loss": Drawing("how the loss fell", loss, TRAINED),
    "schedule": Drawing("the learning rate over the training", schedule, TRAINED),
    "schedules": Drawing("the learning rate beside other schedules that climb as high", schedules, TRAINED),
    "smoothing": Drawing(
        "what label smoothing aims at (the vocabulary reduced)", smoothing, f"{TRAINED}, and train.label_smoothing"
    ),
    "confusion": Drawing(
        "what each class is taken for, on the test data", confusion, "classes, and their scores: cutaway evaluate RUN"
    ),
    "positions": Drawing("how the model is told positions", positions, "a position scheme"),
    "masks": Drawing("who may attend to whom", masks),
    "encoder": Drawing("self-attention of the encoder, all heads", partial(attention, "encoder"), "an encoder"),
    "decoder": Drawing("self-attention of the decoder, all heads", partial(attention, "decoder"), "a decoder"),
    "cross": Drawing("cross-attention, all heads", partial(attention, "cross"), "cross-attention"),
    "last_layer": Drawing("the heads of the last layer, larger", last_layer),
    "alignment": Drawing(
        "the head that knows best which word translates which",
        alignment,
        "an example with a gold alignment: leave TEXT out",
    ),
    "roles": Drawing("what each head seems to do", partial(of_model, "head_roles", "heads")),
    "heads": Drawing("what each head looks at, in numbers", partial(of_model, "head_statistics_figure", "heads")),
    "parameters": Drawing("where the parameters are", partial(of_model, "parameter_budget", "budget")),
    "time": Drawing("where the time of a forward pass goes", partial(of_model, "time_budget", "budget")),
}
