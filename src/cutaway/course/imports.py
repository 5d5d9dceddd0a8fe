"""Read from a learner's file which functions call each other, and which it imports instead of writing them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

from cutaway.course.exercise import Exercise
from cutaway.system.resources import shipped_folder

GIVEN = "cutaway.course.given"
Import = tuple[str, str]  # module and name


def find_calls(names: Sequence[str], path: Path) -> dict[str, set[str]]:
    """Return the parts that each part calls, directly or through functions of the same file."""
    _, mentions = read_file(path)
    return {name: reached & set(names) - {name} for name, reached in mentions.items() if name in names}


def find_imports(exercise: Exercise, path: Path) -> dict[str, str]:
    """Return the parts that are imported, or that call something imported, although the exercise asks to write it.

    Each with a sentence about it. The functions that the stub of the exercise imports are allowed, and so are the
    learner's own files.
    """
    parts = [part.name for part in exercise.parts]
    tree, mentions = read_file(path)
    imported = imported_answers(tree, parts, stub_imports(exercise))
    imported = {name: source for name, source in imported.items() if name not in mentions}  # defined in the file
    found = {}
    for name in parts:
        used = next((n for n in sorted(mentions.get(name, ())) if n in imported), "") if name in mentions else name
        if used in imported:
            found[name] = f"This file imports {imported[used]}. Write it yourself: it is what this exercise asks for."
    return found


def read_file(path: Path) -> tuple[ast.Module, dict[str, set[str]]]:
    """Return the syntax tree of a file, empty if Python cannot read it, and the names that its functions use."""
    try:
        return parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return ast.Module([], []), {}


@lru_cache(maxsize=4)
def parse(source: bytes) -> tuple[ast.Module, dict[str, set[str]]]:
    tree = ast.parse(source)
    return tree, find_mentions(tree)


def find_mentions(tree: ast.Module) -> dict[str, set[str]]:
    """Return the names that each function (or variable) of a file uses, directly or through others of the file.

    Names of modules have dots: `given.attention` counts as "given" and as "given.attention".
    """
    direct: dict[str, set[str]] = {}
    for node in tree.body:
        used = {dotted_name(inner) for inner in ast.walk(node) if isinstance(inner, (ast.Name, ast.Attribute))} - {""}
        if isinstance(node, ast.FunctionDef):
            direct[node.name] = used
        elif isinstance(node, ast.Assign):
            direct |= {target.id: used - {target.id} for target in node.targets if isinstance(target, ast.Name)}
    reached = {name: set(uses) for name, uses in direct.items()}
    for _ in direct:
        for uses in reached.values():
            uses |= set().union(*(direct.get(name, set()) for name in uses))
    return reached


def dotted_name(node: ast.expr) -> str:
    """Return "a.b.c" for that expression, "" for any other."""
    if isinstance(node, ast.Attribute):
        before = dotted_name(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def imported_answers(tree: ast.Module, parts: Sequence[str], allowed: frozenset[Import]) -> dict[str, str]:
    """Return the names in the file that stand for imported answers, each as "attention from cutaway.course.given"."""
    found: dict[str, str] = {}
    wanted = [part for part in parts if (GIVEN, part) not in allowed]
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            path, name = f"{module}.{alias.name}".lstrip("."), alias.asname or alias.name
            if path.partition(".")[0] != "cutaway" and "solutions" not in path.split("."):
                continue  # a library, or a file of the learner
            if path == GIVEN:
                found |= {f"{name}.{part}": f"{part} from {GIVEN}" for part in wanted}
            elif alias.name == "*":
                found |= {part: f"{part} from {module}" for part in wanted}
            elif (module, alias.name) not in allowed and (module != GIVEN or alias.name in wanted):
                found[name] = f"{alias.name} from {module}" if module else alias.name
    return found


@cache
def stub_imports(exercise: Exercise) -> frozenset[Import]:
    """Return what the learner's file imports before it is edited."""
    tree, _ = read_file(shipped_folder("exercises") / exercise.file)
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return frozenset((node.module or "", alias.name) for node in nodes for alias in node.names)
