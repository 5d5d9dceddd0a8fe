"""Write the metrics of a training for TensorBoard."""

from __future__ import annotations

from cutaway.errors import MissingExtra
from cutaway.runs import RunFolder
from cutaway.train.observers import Observer, StepReport, TrainerView, ValidationResult


class TensorBoard(Observer):
    def __init__(self, run: RunFolder):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("tensorboard", "all") from None
        self.make_writer = lambda: SummaryWriter(str(run.path / "tensorboard"))

    def on_start(self, trainer: TrainerView) -> None:
        self.writer = self.make_writer()  # after the run folder was cleared

    def on_step(self, trainer: TrainerView, report: StepReport) -> None:
        if report.step % trainer.config.log_every == 0:
            for name in ("loss", "nll", "lr", "gradient_norm"):
                self.writer.add_scalar(f"train/{name}", getattr(report, name), report.step)

    def on_validation(self, trainer: TrainerView, result: ValidationResult) -> None:
        self.writer.add_scalar("valid/loss", result.nll, trainer.state.step)
        self.writer.add_scalar("valid/accuracy", result.accuracy, trainer.state.step)

    def on_end(self, trainer: TrainerView) -> None:
        self.writer.close()
