"""cutaway export RUN --to hf|onnx|ct2|web|run FOLDER"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.markup import escape

from cutaway.cli.console import command, err, out, say
from cutaway.cli.options import Run
from cutaway.errors import ConfigError, did_you_mean

FORMATS = ("hf", "onnx", "ct2", "web", "run")
DEFAULT_DTYPES = {"ct2": "float32", "web": "float16"}


def export(
    run: Run,
    folder: Annotated[Path, typer.Argument(help="The folder to write.", metavar="FOLDER")],
    to: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(FORMATS)} (required).",
            metavar="FORMAT",
            autocompletion=lambda incomplete: [name for name in FORMATS if name.startswith(incomplete)],
        ),
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export in FOLDER.")] = False,
    check: Annotated[bool, typer.Option(help="onnx, ct2: compare with the model. Default: on.")] = True,
    dtype: Annotated[
        str | None,
        typer.Option(help="ct2: float32 (default) or int8. web: float16 (default), float32 or int8.", metavar="DTYPE"),
    ] = None,
) -> None:
    """Write a run in the format of another program.

    Examples:  cutaway export runs/demo exported/demo --to hf
               cutaway export runs/python-tagger exported/tagger --to onnx
               cutaway export runs/demo exported/ct2 --to ct2 --dtype int8
               cutaway export runs/demo exported/web --to web

    hf writes config.json, model.safetensors and the tokenizer for Hugging Face. onnx writes a graph for any batch and
    length. ct2 writes a translator or text generator for CTranslate2. web writes the model and a JavaScript engine for
    web pages, with an example page. run writes a run folder with base and LoRA merged.
    """
    if to not in FORMATS:
        raise ConfigError(f"--to {to} is not a format. {did_you_mean(to, FORMATS)}")
    if not check and to not in ("onnx", "ct2"):
        raise ConfigError(f"--no-check has no effect with --to {to}: it is for onnx and ct2. Leave it out.")
    if dtype and to not in DEFAULT_DTYPES:
        raise ConfigError(f"--dtype {dtype} has no effect with --to {to}: it is for ct2 and web. Leave it out.")
    dtype = dtype or DEFAULT_DTYPES.get(to, "")
    if to == "ct2":
        to_ct2(run, folder, overwrite, check, dtype)
    elif to == "web":
        to_web(run, folder, overwrite, dtype)
    elif to == "onnx":
        to_onnx(run, folder, overwrite, check)
    elif to == "hf":
        to_hugging_face(run, folder, overwrite)
    else:
        to_run(run, folder, overwrite)


def to_hugging_face(run: Path, folder: Path, overwrite: bool) -> None:
    from cutaway.interop.huggingface import export_folder

    with err.status(f"writing {folder} ..."), merged_run(run) as complete:
        written = export_folder(complete, folder, overwrite)
    out.print(f"{written.architecture}: {written.parameters:,} parameters, {written.tensors:,} tensors")
    for note in written.notes:
        say(f"Note: {note}")
    say(f"Wrote {folder}: {', '.join(written.files)}.")
    say(f'Load it with transformers:  {written.architecture}.from_pretrained("{folder}")')


def to_onnx(run: Path, folder: Path, overwrite: bool, check: bool = True) -> None:
    from cutaway.inference.pipelines import load_pipeline
    from cutaway.interop.onnx import export_onnx

    with err.status(f"writing {folder}: building the graph and checking it ..."):
        written = export_onnx(load_pipeline(run, "cpu"), folder, check, overwrite)
    for line in written.summary_lines():
        out.print(escape(line))
    for note in written.notes:
        say(f"Note: {note}")
    say(f"Wrote {folder}: {', '.join(written.files)}.")


def to_ct2(run: Path, folder: Path, overwrite: bool, check: bool = True, dtype: str = "float32") -> None:
    from cutaway.inference.engines.ct2_converter import export_ct2

    with err.status(f"writing {folder}: converting the run and checking the result ..."):
        written = export_ct2(run, folder, dtype, check, overwrite)
    for line in written.summary_lines():
        out.print(escape(line))
    for note in written.notes:
        say(f"Note: {note}")
    say(f"Wrote {folder}: {', '.join(written.files)}.")
    say(f"Use it:  {written.usage()}")


def to_web(run: Path, folder: Path, overwrite: bool, dtype: str) -> None:
    from cutaway.explore.web_export import export_web

    with err.status(f"writing {folder} ..."), merged_run(run) as complete:
        written = export_web(complete, folder, dtype, overwrite)
    for line in written.summary_lines():
        out.print(escape(line))
    say(f"Wrote {folder}: {', '.join(written.files)}.")
    say(f"Open {folder / 'index.html'} in a browser.")


def to_run(run: Path, folder: Path, overwrite: bool) -> None:
    from cutaway.runs.merge import merge_run

    merge_run(run, folder, overwrite)
    say(f"The run is in {folder}. Next:  {command('runs', folder)}")


@contextmanager
def merged_run(run: Path) -> Iterator[Path]:
    """The run itself, or, if it is an adapter, a temporary run with base and adapter merged."""
    from cutaway.runs import RunFolder
    from cutaway.runs.merge import merge_run

    if not RunFolder(run).require().read_config().finetune.is_adapter:
        yield run
        return
    with TemporaryDirectory() as temporary:
        merged = Path(temporary) / run.resolve().name
        merge_run(run, merged)
        yield merged
