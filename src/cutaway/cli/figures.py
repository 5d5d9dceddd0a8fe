"""cutaway figures RUN [TEXT]"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cutaway.cli.console import err, out, say
from cutaway.cli.options import Device, Run
from cutaway.errors import ConfigError, DataError, did_you_mean
from cutaway.runs import RunFolder
from cutaway.runs.summary import History

if TYPE_CHECKING:
    from cutaway.explore.budget import Budget
    from cutaway.explore.heads import HeadTable
    from cutaway.explore.trace import Trace
    from cutaway.inference.pipelines import Pipeline

MAX_EXAMPLES, MAX_TOKENS = 200, 12_000  # for head statistics, so that they take a few seconds
FORMATS = ("png", "svg", "pdf")


def figures(
    run: Run,
    text: Annotated[str | None, typer.Argument(help="A text. Default: a short example.", metavar="TEXT")] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Write to this folder. Default: RUN/figures.", metavar="FOLDER")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only the figure with this name. Repeat it for more.",
            metavar="NAME",
            autocompletion=lambda incomplete: [name for name in FIGURES if name.startswith(incomplete)],
        ),
    ] = None,
    format: Annotated[str, typer.Option(help=f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")] = "png",
    device: Device = "auto",
) -> None:
    """Draw figures of a run: attention, heads, masks, loss, schedule.

    Examples:  cutaway figures runs/demo "The small cat sleeps."
               cutaway figures runs/python-gpt --only heads --only roles --format svg
    """
    if format not in FORMATS:
        raise ConfigError(f"--format {format} is not a choice. {did_you_mean(format, FORMATS)}")
    for name in only or []:
        if name not in FIGURES:
            raise ConfigError(f"--only {name} is not a figure. {did_you_mean(name, FIGURES)}")
    from cutaway.inference.pipelines import load_pipeline

    folder = RunFolder(run)
    subject = Subject(folder, load_pipeline(run, device), text)
    if text is not None and subject.is_vision:
        raise ConfigError("this run reads images. Leave TEXT out: an example image is used.")
    failed: dict[str, list[str]] = {}  # reason -> figures
    for name in only or FIGURES:
        try:
            figure = draw(subject, name)
        except DataError as error:  # the data files are missing; other figures need no data
            if only:
                raise
            failed.setdefault(str(error), []).append(name)
            continue
        if figure is not None:
            save_figure(figure, (out_folder or folder.figures) / f"{name}.{format}", FIGURES[name].shows)
        elif only:
            raise ConfigError(f"--only {name} cannot be drawn for this run. It needs {FIGURES[name].needs}.")
    for reason, names in failed.items():
        say(f"Note: no {', '.join(names)}: {reason}")


def draw(subject: Subject, name: str) -> Any:
    with err.status(f"drawing {name} ..."):
        return FIGURES[name].draw(subject)


def save_figure(figure: Any, path: Path, shows: str) -> None:
    from cutaway.explore.figures import save

    try:
        out.print(f"{save(figure, path)}  {shows}", markup=False)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}. Choose another folder with --out.") from None


@dataclass
class Subject:
    """The run and text to draw. Expensive values are computed once, when a figure needs them."""

    run: RunFolder
    pipeline: Pipeline
    text: str | None

    @property
    def is_vision(self) -> bool:
        return self.pipeline.config.model.family == "vision"

    @cached_property
    def steps(self) -> int:
        """Steps trained so far; 0 for imported weights."""
        return History.of(self.run.read_metrics()).last_step

    @cached_property
    def examples(self) -> Sequence[Any]:
        from cutaway.explore.inputs import some_examples

        return some_examples(self.pipeline)

    @cached_property
    def example(self) -> Any:
        """The given text, or an example of the run's data."""
        from cutaway.explore.inputs import short_example

        return short_example(self.pipeline, self.examples) if self.text is None else self.text

    @cached_property
    def trace(self) -> Trace:
        from cutaway.explore.trace import trace

        if hasattr(self.example, "target"):
            return trace(self.pipeline, self.example.source, self.example.target)
        if self.pipeline.config.model.task == "language_model":
            return trace(self.pipeline, self.example, "")  # without a continuation
        return trace(self.pipeline, getattr(self.example, "pixels", self.example))

    @cached_property
    def sample(self) -> Sequence[Any]:
        """The examples for head statistics and the budget."""
        from cutaway.explore.inputs import encode_examples

        examples = self.examples[:MAX_EXAMPLES]
        if self.is_vision:
            return examples
        tokens = count = 0
        for row in encode_examples(self.pipeline, examples, longest=256):
            tokens += len(row.encoder) + len(row.decoder)
            count += 1
            if tokens > MAX_TOKENS:
                break
        return examples[:count]

    @cached_property
    def heads(self) -> HeadTable:
        from cutaway.explore.heads import head_statistics

        say(f"computing head statistics over {len(self.sample):,} examples ...")
        return head_statistics(self.pipeline, self.sample)

    @cached_property
    def budget(self) -> Budget:
        from cutaway.explore.budget import budget
        from cutaway.explore.inputs import collate_examples, encode_examples, image_inputs

        examples = self.sample[:32]
        if self.is_vision:
            return budget(self.pipeline.model, *image_inputs(self.pipeline, examples).arguments)
        longest = min(256, self.pipeline.config.longest_text)
        return budget(
            self.pipeline.model,
            *collate_examples(self.pipeline, encode_examples(self.pipeline, examples, longest)).arguments,
        )


def attention_figure(kind: str, subject: Subject) -> Any:
    from cutaway.explore.figures import attention_grid

    return attention_grid(subject.trace, kind) if subject.trace.n_layers(kind) else None


def last_layer_figure(subject: Subject) -> Any:
    from cutaway.explore.figures import layer_grid

    kind = subject.trace.kinds()[-1]
    return layer_grid(subject.trace, kind, subject.trace.n_layers(kind) - 1)


def alignment_figure(subject: Subject) -> Any:
    """The head that agrees best with the gold alignment, with the gold alignment marked."""
    from cutaway.explore.alignment import gold_cells, has_alignments, words_of
    from cutaway.explore.figures import attention_heatmap

    pipeline: Any = subject.pipeline
    if not has_alignments([subject.example]):
        return None
    best = max((head for head in subject.heads if head.agreement is not None), key=lambda head: head.agreement or 0.0)
    gold = gold_cells(words_of(pipeline, subject.example), subject.example.alignment)
    return attention_heatmap(subject.trace, "cross", best.layer, best.head, gold)


def masks_figure(subject: Subject) -> Any:
    from cutaway.explore.inputs import encode_examples
    from cutaway.explore.masks import mask_views
    from cutaway.explore.model_figures import mask_panel

    example = subject.example if subject.is_vision else encode_examples(subject.pipeline, [subject.example])[0]
    return mask_panel(mask_views(subject.pipeline, example))


def positions_figure(subject: Subject) -> Any:
    from cutaway.explore.model_figures import SCHEMES, position_figure

    schemes: list[Any] = [part for part in subject.pipeline.model.modules() if isinstance(part, tuple(SCHEMES))]
    return position_figure(schemes[0]) if schemes else None


def model_figure(name: str, attribute: str, subject: Subject) -> Any:
    """A figure of explore/model_figures.py, drawn from an attribute of the subject."""
    from cutaway.explore import model_figures

    return getattr(model_figures, name)(getattr(subject, attribute))


def loss_figure(subject: Subject) -> Any:
    from cutaway.explore.figures import loss_curve

    return loss_curve(subject.run.read_metrics()) if subject.steps else None


def confusion_figure(subject: Subject) -> Any:
    from cutaway.explore.figures import confusion_matrix
    from cutaway.metrics.classes import Confusion
    from cutaway.runs.summary import read_scores

    found = Confusion.read(read_scores(subject.run))
    return confusion_matrix(found.labels, found.shares) if found else None


def schedule_figure(subject: Subject) -> Any:
    from cutaway.explore.figures import schedule_curve
    from cutaway.train.schedules import make_schedule

    config = subject.pipeline.config
    schedule = make_schedule(config.train, config.model.d_model)
    return schedule_curve(schedule, subject.steps) if subject.steps else None


def schedules_figure(subject: Subject) -> Any:
    """The run's schedule beside others with the same warm-up and peak."""
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


def smoothing_figure(subject: Subject) -> Any:
    from cutaway.explore.training_figures import smoothing_targets
    from cutaway.train.losses import smoothed_cross_entropy

    epsilon = subject.pipeline.config.train.label_smoothing
    if not (epsilon and subject.steps):
        return None
    tokens = list(dict.fromkeys(subject.trace.target_out or subject.pipeline.labels))[:8]
    return smoothing_targets(smoothed_cross_entropy, tokens, len(tokens) // 2, epsilon) if len(tokens) > 1 else None


class Drawing(NamedTuple):
    shows: str
    draw: Callable[[Subject], Any]  # returns None if the run lacks what it needs
    needs: str = ""


TRAINED = "the metrics of a training, which imported weights do not have"
FIGURES: dict[str, Drawing] = {
    "loss": Drawing("training and validation loss", loss_figure, TRAINED),
    "schedule": Drawing("the learning rate", schedule_figure, TRAINED),
    "schedules": Drawing("the learning rate beside other schedules", schedules_figure, TRAINED),
    "smoothing": Drawing(
        "the targets of label smoothing, for some tokens", smoothing_figure, f"{TRAINED}, and train.label_smoothing"
    ),
    "confusion": Drawing(
        "the confusion matrix on the test data", confusion_figure, "classes, and their scores: cutaway evaluate RUN"
    ),
    "positions": Drawing("the position scheme", positions_figure, "a position scheme"),
    "masks": Drawing("which position may attend to which", masks_figure),
    "encoder": Drawing("self-attention of the encoder, all heads", partial(attention_figure, "encoder"), "an encoder"),
    "decoder": Drawing("self-attention of the decoder, all heads", partial(attention_figure, "decoder"), "a decoder"),
    "cross": Drawing("cross-attention, all heads", partial(attention_figure, "cross"), "cross-attention"),
    "last_layer": Drawing("the heads of the last layer, larger", last_layer_figure),
    "alignment": Drawing(
        "the head that agrees best with the gold alignment",
        alignment_figure,
        "an example with a gold alignment: leave TEXT out",
    ),
    "roles": Drawing("the role of each head", partial(model_figure, "head_roles", "heads")),
    "heads": Drawing("statistics of each head", partial(model_figure, "head_statistics_figure", "heads")),
    "parameters": Drawing("where the parameters are", partial(model_figure, "parameter_budget", "budget")),
    "time": Drawing("where the time of a forward pass goes", partial(model_figure, "time_budget", "budget")),
}
