"""cutaway import FOLDER RUN"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.console import command, err, out, print_json, say
from cutaway.cli.options import Json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cutaway.interop.huggingface import HuggingFaceImport

# task -> command for an imported run, with its arguments
USES = {
    "translation": ("translate", "TEXT"),
    "language_model": ("generate", "TEXT"),
    "masked_language_model": ("trace", "TEXT"),
    "classification": ("classify", "TEXT"),
    "tagging": ("tag", "TEXT"),
    "image_classification": ("classify", "photo.png"),
    "embedding": ("embed", "TEXT", "TEXT", "--similar"),
}


def import_(
    folder: Annotated[
        str,
        typer.Argument(help="A folder in Hugging Face's format, or a model name on their hub.", metavar="MODEL"),
    ],
    run: Annotated[Path, typer.Argument(help="The run folder to write, such as runs/gpt2.", metavar="RUN")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in RUN.")] = False,
    json: Json = False,
) -> None:
    """Import a model from Hugging Face.

    Examples:  cutaway import path/to/all-MiniLM-L6-v2 runs/minilm
               cutaway import openai-community/gpt2 runs/gpt2

    Supports GPT-2, Llama, BERT, T5, Marian, Pegasus and ViT. Reads config.json, the .safetensors files and the
    tokenizer. A tensor that is missing, unknown or of a wrong shape is an error. Files that can run code (.bin) are
    never opened.
    """
    from cutaway.interop.hub import find_folder
    from cutaway.interop.huggingface import import_folder

    with err.status(f"reading {folder} ..."):
        found = import_folder(find_folder(folder), run, overwrite)
    if json:
        print_json(as_json(found))
        return
    out.print(f"{found.architecture}: {found.parameters:,} parameters, {found.tensors:,} tensors")
    for reason, names in group_by_reason(found.left_out).items():
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
        say(f"Left out: {shown} ({reason}).")
    for note in found.notes:
        say(f"Note: {note}")
    say(f"Wrote the run {found.run}.")
    use, *rest = USES[found.task]
    say(f"Next:  {command(use, found.run, *rest)}   or   {command('explore', found.run)}")


def group_by_reason(left_out: Mapping[str, str]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        reasons.setdefault(reason, []).append(name)
    return reasons


def as_json(found: HuggingFaceImport) -> dict[str, object]:
    return {**vars(found), "run": str(found.run), "notes": list(found.notes)}
