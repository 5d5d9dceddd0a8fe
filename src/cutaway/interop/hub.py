"""A model by its name on the Hugging Face hub: its files in a local folder. Everything else works on folders."""

from __future__ import annotations

import re
from pathlib import Path

from cutaway.errors import DataError, MissingExtra

# What a model is read from. Never `.bin`: those files are programs.
WANTED = ["*.json", "*.safetensors", "*.spm", "*.model", "vocab.txt", "merges.txt"]
# A name on the hub is owner/name, and neither part begins or ends with a dot or a hyphen: ./folder is no name.
NAME = re.compile(r"(?!.*(--|\.\.))\w([\w.-]*\w)?/\w([\w.-]*\w)?", re.ASCII)


def find_folder(source: str) -> Path:
    """The folder of this path; or, if there is none, that of the model of this name, fetched."""
    if Path(source).is_dir():
        return Path(source)
    if Path(source).exists():
        raise DataError(f"{source!r} is a file. Give the folder that it is in.")
    if not NAME.fullmatch(source):
        raise DataError(
            f"there is no folder {source!r}. Give one that holds config.json and model.safetensors, or a name on the "
            "hub, which is owner/name, as in openai-community/gpt2."
        )
    return fetched(source)


def fetched(name: str) -> Path:
    """What of it is not yet in the hub's cache on this machine (HF_HOME says where that is) is fetched."""
    try:
        from huggingface_hub import HfApi, snapshot_download
    except ImportError:
        what = f"{name!r} is no folder here, and fetching a model of that name"
        raise MissingExtra("huggingface_hub", "hub", what) from None
    try:
        # not list_repo_files, which tries for half a minute where there is no network
        files = [file.rfilename for file in HfApi().model_info(name).siblings or ()]
    except Exception as error:  # of several libraries: no such name, no network, no permission
        if (kept := in_cache(name)) is not None:
            return kept
        raise DataError(
            f"there is no folder {name!r} here, and no model of that name could be fetched from the hub: "
            f"{first_line(error)} Give the path of a folder that holds config.json and model.safetensors, or check "
            "the name."
        ) from None
    if not any(file.endswith(".safetensors") for file in files):
        others = [file for file in files if file.endswith((".bin", ".pt", ".ckpt", ".h5", ".msgpack"))]
        raise DataError(
            f"the model {name!r} has no .safetensors on the hub{', only ' + ', '.join(others) if others else ''}. "
            "Weights that can run code are not read. Convert them where you trust them, with transformers and the "
            'class that its config.json names under "architectures", as in '
            f"MarianMTModel.from_pretrained({name!r}).save_pretrained(FOLDER); then import FOLDER."
        )
    try:
        return Path(snapshot_download(name, allow_patterns=WANTED))
    except Exception as error:
        raise DataError(
            f"the model {name!r} could not be fetched from the hub: {first_line(error)} Try again."
        ) from None


def in_cache(name: str) -> Path | None:
    """Where an earlier fetch put it."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=WANTED, local_files_only=True))
    except Exception:
        return None


def first_line(error: Exception) -> str:
    told = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return told if told.endswith((".", "!", "?")) else told + "."
