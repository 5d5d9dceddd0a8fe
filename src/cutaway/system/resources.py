"""Folders that are installed with Cutaway: recipes, lessons, exercises, experiments."""

from __future__ import annotations

from pathlib import Path

from cutaway.errors import ConfigError, did_you_mean


def shipped_folder(name: str) -> Path:
    """The folder `name`: inside the package if a wheel is installed, at the top of a checkout."""
    package = Path(__file__).parents[1]
    installed = package / name
    return installed if installed.is_dir() else package.parents[1] / name


def shipped_names(folder: str) -> list[str]:
    """The names of the built-in recipes or experiments."""
    return sorted(path.stem for path in shipped_folder(folder).glob("*.toml"))


def find_toml(folder: str, what: str, name: str, beside: Path = Path()) -> Path:
    """Find a TOML file by its path, relative to the current folder or to `beside`, or a built-in one by its name."""
    built_in = shipped_folder(folder) / f"{name.removesuffix('.toml')}.toml"
    for path in (Path(name), beside / name, *(() if "/" in name else (built_in,))):
        if path.is_file():
            return path
    raise ConfigError(
        f"there is no {what} {name!r}, neither a file nor a built-in one. {did_you_mean(name, shipped_names(folder))}"
    )
