"""Shell completion: run folders, recipes, experiments, lessons. Nothing here imports torch."""

from __future__ import annotations

from pathlib import Path

from cutaway.system.resources import shipped_folder, shipped_names

MAX_PATHS = 200


def complete_runs(incomplete: str) -> list[str]:
    """Run folders under runs/; for a path, the folders that it may continue with."""
    runs = [path.parent.as_posix() for path in sorted(Path("runs").glob("*/config.json"))]
    found = [run for run in runs if run.startswith(incomplete)]
    return found or complete_paths(incomplete, "")


def complete_recipes(incomplete: str) -> list[str]:
    return complete_toml("recipes", incomplete)


def complete_experiments(incomplete: str) -> list[str]:
    return complete_toml("experiments", incomplete)


def complete_lessons(incomplete: str) -> list[tuple[str, str]]:
    files = sorted(shipped_folder("lessons").glob("[0-9][0-9]_*.py"))
    lessons = [(str(int(file.name[:2])), file.stem[3:].replace("_", " ")) for file in files]
    return [lesson for lesson in lessons if lesson[0].startswith(incomplete)]


def complete_exercises(incomplete: str) -> list[tuple[str, str]]:
    files = sorted(shipped_folder("exercises").glob("exercise_[0-9][0-9]_*.py"))
    exercises = [(str(int(file.stem[9:11])), file.stem[12:].replace("_", " ")) for file in files]
    return [exercise for exercise in exercises if exercise[0].startswith(incomplete)]


def complete_toml(folder: str, incomplete: str) -> list[str]:
    """Built-in names, and .toml files by path."""
    names = [name for name in shipped_names(folder) if name.startswith(incomplete)]
    return names + complete_paths(incomplete, ".toml")


def complete_paths(incomplete: str, suffix: str) -> list[str]:
    """Folders, and files with this suffix if it is not empty, whose path starts with `incomplete`."""
    folder, _, start = incomplete.rpartition("/")
    root = f"{folder}/" if "/" in incomplete else ""
    try:
        paths = sorted(path for path in Path(root or ".").iterdir() if path.name.startswith(start))
    except OSError:
        return []
    visible = [path for path in paths if start.startswith(".") or not path.name.startswith(".")]
    matches = [path for path in visible if path.is_dir() or (suffix and path.suffix == suffix)]
    return [f"{root}{path.name}{'/' if path.is_dir() else ''}" for path in matches[:MAX_PATHS]]
