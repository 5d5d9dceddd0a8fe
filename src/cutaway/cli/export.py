"""cutaway export RUN --to hf|onnx|ct2|run FOLDER"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.markup import escape

from cutaway.cli.console import command, err, out, say
from cutaway.errors import ConfigError, did_you_mean


def export(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/demo.")],
    folder: Annotated[Path, typer.Argument(help="The folder to write.")],
    to: Annotated[
        str,
        typer.Option(help="hf: Hugging Face's format; onnx; ct2: CTranslate2; run: a run on its own, adapters merged."),
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what an export left in this folder.")] = False,
    check: Annotated[bool, typer.Option(help="onnx, ct2: run what was written, and compare.")] = True,
    dtype: Annotated[str, typer.Option(help="ct2: float32, or int8 for a file of a quarter of the size.")] = "float32",
) -> None:
    """Write a run in the format of other programs.

    hf     config.json, model.safetensors and tokenizer, as transformers loads them, and what reads their format

    onnx   a graph of any batch and length, checked against the model with onnxruntime

    ct2    a translator or text generator for CTranslate2, checked against the NumPy twin

    run    of a run that was fine-tuned with LoRA: base and adapter as one ordinary run

    Examples:  cutaway export runs/demo exported/demo --to hf

               cutaway export runs/python-tagger exported/tagger --to onnx

               cutaway export runs/demo exported/ct2 --to ct2 --dtype int8
    """
    if to not in WAYS:
        raise ConfigError(f"there is no format {to!r} to export to. {did_you_mean(to, WAYS)}")
    if not check and to not in CHECKED:
        raise ConfigError(f"--no-check has no effect with --to {to}: it is for {' and '.join(CHECKED)}. Leave it out.")
    if dtype != "float32" and to != "ct2":
        raise ConfigError(f"--dtype {dtype} has no effect with --to {to}: it is for ct2. Leave it out.")
    if to == "ct2":
        to_ct2(run, folder, overwrite, check, dtype)
    elif to == "onnx":
        to_onnx(run, folder, overwrite, check)
    else:
        WAYS[to](run, folder, overwrite)


def to_hugging_face(run: Path, folder: Path, overwrite: bool) -> None:
    from cutaway.interop.huggingface import export_folder

    with err.status(f"writing {folder} ..."), whole(run) as complete:
        written = export_folder(complete, folder, overwrite)
    out.print(f"{written.architecture}: {written.parameters:,} parameters, {written.tensors:,} tensors")
    for note in written.notes:
        say(f"Note: {note}")
    say(f"It is in {folder}: {', '.join(written.files)}.")
    say(f'Load it with transformers:  {written.architecture}.from_pretrained("{folder}")')


def to_onnx(run: Path, folder: Path, overwrite: bool, check: bool = True) -> None:
    from cutaway.inference.pipelines import load_pipeline
    from cutaway.interop.onnx import export_onnx

    with err.status(f"writing {folder}: torch is building the graph, and onnxruntime tries it ..."):
        written = export_onnx(load_pipeline(run, "cpu"), folder, check, overwrite)
    for line in written.told():
        out.print(escape(line))
    for note in written.notes:
        say(f"Note: {note}")
    say(f"It is in {folder}: {', '.join(written.files)}.")


def to_ct2(run: Path, folder: Path, overwrite: bool, check: bool = True, dtype: str = "float32") -> None:
    from cutaway.inference.engines.ct2_converter import export_ct2

    with err.status(f"writing {folder}: NumPy reads the run, and CTranslate2 tries it ..."):
        written = export_ct2(run, folder, dtype, check, overwrite)
    for line in written.told():
        out.print(escape(line))
    for note in written.notes:
        say(f"Note: {note}")
    say(f"It is in {folder}: {', '.join(written.files)}.")
    say(f"Use it:  {written.used()}")


def to_run(run: Path, folder: Path, overwrite: bool) -> None:
    from cutaway.runs.merge import merge_run

    merge_run(run, folder, overwrite)
    say(f"The run is in {folder}. Next:  {command('runs', folder)}")


@contextmanager
def whole(run: Path) -> Iterator[Path]:
    """A run with weights of its own: of an adapter, one that is merged for the occasion."""
    from cutaway.runs import RunFolder
    from cutaway.runs.merge import merge_run

    if not RunFolder(run).require().read_config().finetune.is_adapter:
        yield run
        return
    with TemporaryDirectory() as temporary:
        merged = Path(temporary) / "merged"
        merge_run(run, merged)
        yield merged


WAYS = {"hf": to_hugging_face, "onnx": to_onnx, "ct2": to_ct2, "run": to_run}
CHECKED = ("onnx", "ct2")  # what is run after it was written
