"""Folders that come with Cutaway beside its code: recipes, lessons, exercises."""

from __future__ import annotations

from pathlib import Path

from cutaway.errors import ConfigError, did_you_mean


def shipped(name: str) -> Path:
    """In a wheel such a folder lies inside the package; in a checkout, at the top."""
    package = Path(__file__).parents[1]
    installed = package / name
    return installed if installed.is_dir() else package.parents[1] / name


def shipped_names(folder: str) -> list[str]:
    """What can be asked for by name: recipes, experiments."""
    return sorted(path.stem for path in shipped(folder).glob("*.toml"))


def find_toml(folder: str, what: str, name: str, beside: Path = Path()) -> Path:
    """By path, from here or from the folder `beside`; or by name, if Cutaway brings it along."""
    built_in = shipped(folder) / f"{name.removesuffix('.toml')}.toml"
    for path in (Path(name), beside / name, *(() if "/" in name else (built_in,))):
        if path.is_file():
            return path
    raise ConfigError(
        f"there is no {what} {name!r}, neither a file nor a built-in one. {did_you_mean(name, shipped_names(folder))}"
    )
