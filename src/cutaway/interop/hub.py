"""Download a model of the Hugging Face hub by its name. All other modules work on local folders."""

from __future__ import annotations

import re
from pathlib import Path

from cutaway.errors import DataError, MissingExtra

# Files to download. Never `.bin`: such files can run code.
PATTERNS = ["*.json", "*.safetensors", "*.spm", "*.model", "vocab.txt", "merges.txt"]
# A name on the hub is owner/name. Neither part starts or ends with a dot or a hyphen, so ./folder is not a name.
NAME = re.compile(r"(?!.*(--|\.\.))\w([\w.-]*\w)?/\w([\w.-]*\w)?", re.ASCII)


def find_folder(source: str) -> Path:
    """Return the folder with this path. If there is none, download the model with this name."""
    if Path(source).is_dir():
        return Path(source)
    if Path(source).exists():
        raise DataError(f"{source!r} is a file. Give its folder.")
    if not NAME.fullmatch(source):
        raise DataError(
            f"there is no folder {source!r}. Give a folder with config.json and model.safetensors, or a name on the "
            "hub: owner/name, as in openai-community/gpt2."
        )
    return download(source)


def download(name: str) -> Path:
    """Download the files that are not yet in the hub's local cache (see HF_HOME)."""
    try:
        from huggingface_hub import HfApi, snapshot_download
    except ImportError:
        what = f"{name!r} is not a folder, and downloading a model with that name"
        raise MissingExtra("huggingface_hub", "hub", what) from None
    try:
        # not list_repo_files, which takes half a minute to fail without a network
        files = [file.rfilename for file in HfApi().model_info(name).siblings or ()]
    except Exception as error:  # from several libraries: unknown name, no network, no permission
        if (cached := find_in_cache(name)) is not None:
            return cached
        raise DataError(
            f"there is no folder {name!r}, and no model with that name could be downloaded from the hub: "
            f"{first_line(error)} Give a folder with config.json and model.safetensors, or check the name."
        ) from None
    if not any(file.endswith(".safetensors") for file in files):
        others = [file for file in files if file.endswith((".bin", ".pt", ".ckpt", ".h5", ".msgpack"))]
        raise DataError(
            f"the model {name!r} has no .safetensors on the hub{', only ' + ', '.join(others) if others else ''}. "
            "Other formats can run code and are not read. If you trust them, convert them with transformers and the "
            'class that config.json has in "architectures", as in '
            f"MarianMTModel.from_pretrained({name!r}).save_pretrained(FOLDER). Then import FOLDER."
        )
    try:
        return Path(snapshot_download(name, allow_patterns=PATTERNS))
    except Exception as error:
        raise DataError(
            f"the model {name!r} could not be downloaded from the hub: {first_line(error)} Try again."
        ) from None


def find_in_cache(name: str) -> Path | None:
    """The folder of an earlier download."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=PATTERNS, local_files_only=True))
    except Exception:
        return None


def first_line(error: Exception) -> str:
    line = next((text.strip() for text in str(error).splitlines() if text.strip()), type(error).__name__)
    return line if line.endswith((".", "!", "?")) else line + "."
