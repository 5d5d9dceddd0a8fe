"""TensorBoard as one more observer of a training."""

from __future__ import annotations

from cutaway.errors import MissingExtra
from cutaway.runs import RunFolder
from cutaway.train.observers import Measured, Observer, StepReport, Watched


class TensorBoard(Observer):
    def __init__(self, run: RunFolder):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("tensorboard", "all") from None
        self.make_writer = lambda: SummaryWriter(str(run.path / "tensorboard"))

    def on_start(self, trainer: Watched) -> None:
        self.writer = self.make_writer()  # not before the folder was cleared for a new run

    def on_step(self, trainer: Watched, report: StepReport) -> None:
        if report.step % trainer.config.log_every == 0:
            for name in ("loss", "nll", "lr", "gradient_norm"):
                self.writer.add_scalar(f"train/{name}", getattr(report, name), report.step)

    def on_validation(self, trainer: Watched, measured: Measured) -> None:
        self.writer.add_scalar("valid/loss", measured.nll, trainer.state.step)
        self.writer.add_scalar("valid/accuracy", measured.accuracy, trainer.state.step)

    def on_end(self, trainer: Watched) -> None:
        self.writer.close()
