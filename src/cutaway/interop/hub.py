"""A model by its name on the Hugging Face hub: its files in a local folder. Everything else works on folders."""

from __future__ import annotations

import re
from pathlib import Path

from cutaway.errors import DataError, MissingExtra

# What a model is read from. Never `.bin`: those files are programs.
WANTED = ["*.json", "*.safetensors", "*.spm", "*.model", "vocab.txt", "merges.txt"]
NAME = re.compile(r"([\w.-]+/)?[\w.-]+")


def find_folder(source: str) -> Path:
    """The folder of this path; or, if there is none, that of the model of this name, fetched."""
    if Path(source).is_dir():
        return Path(source)
    if Path(source).exists():
        raise DataError(f"{source!r} is a file. Give the folder that it is in.")
    if not NAME.fullmatch(source):
        raise DataError(f"there is no folder {source!r}. Give one that holds config.json and model.safetensors.")
    return fetched(source)


def fetched(name: str) -> Path:
    """Fetch what is not yet in the hub's cache on this machine (HF_HOME says where that is)."""
    try:
        from huggingface_hub import HfApi, snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
    except ImportError:
        what = f"{name!r} is no folder here, and fetching a model of that name"
        raise MissingExtra("huggingface_hub", "hub", what) from None
    try:
        files = HfApi().list_repo_files(name)
        if not any(file.endswith(".safetensors") for file in files):
            others = [file for file in files if file.endswith((".bin", ".pt", ".ckpt", ".h5", ".msgpack"))]
            raise DataError(
                f"the model {name!r} has no .safetensors on the hub{', only ' + ', '.join(others) if others else ''}. "
                "Weights that can run code are not read. Convert them where you trust them: AutoModel"
                f".from_pretrained({name!r}).save_pretrained(FOLDER) with transformers; then import FOLDER."
            )
        return Path(snapshot_download(name, allow_patterns=WANTED))
    except (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, OSError) as error:
        if isinstance(error, DataError):
            raise
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(
            f"there is no folder {name!r} here, and no model of that name could be fetched from the hub: {reason} "
            "Give the path of a folder that holds config.json and model.safetensors, or check the name."
        ) from None
