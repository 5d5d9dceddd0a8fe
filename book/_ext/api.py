"""The Python reference, from signatures and docstrings.

    ```{api} cutaway      every public name of the package, in the groups of docs/api.md
    ```

docs/api.md has a table for each group. The methods that it names in the row of a class are listed below the class.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from cutaway_book import ROOT
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

GROUPS = ROOT / "docs" / "api.md"
CODE = re.compile(r"(`[^`]*`)")


class ApiDirective(SphinxDirective):
    """The public names of a package. A name without a group fails the build."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        package = importlib.import_module(self.arguments[0])
        self.env.note_dependency(GROUPS)
        folder = Path(self.env.doc2path(self.env.docname)).parent
        lines, described = [], []
        for heading, rows in read_groups(GROUPS.read_text("utf-8")):
            lines += [f"## {heading}", ""]
            for name, description in rows:
                described.append(name)
                lines += describe(package, name, description, folder)
                self.env.note_dependency(source_of(getattr(package, name))[0])
        if missing := set(package.__all__) ^ set(described):
            raise self.error(f"{GROUPS.name} and {package.__name__}.__all__ differ: {', '.join(sorted(missing))}.")
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def read_groups(text: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Each heading of docs/api.md that has a table of names, with its rows: (name, description)."""
    for section in text.split("\n## ")[1:]:
        if rows := re.findall(r"^\| `(\w+).*?` \| (.*) \|$", section, re.MULTILINE):
            yield section.partition("\n")[0], rows


def describe(package: ModuleType, name: str, description: str, folder: Path) -> list[str]:
    """The entry of one name, as Markdown with the directives of Sphinx's Python domain."""
    value = getattr(package, name)
    if not isinstance(value, type):
        return entry("function", package.__name__, name + signature_of(value), value, description, folder)
    methods = [word for word in re.findall(r"`(\w+)`", description) if callable(getattr(value, word, None))]
    body = [line for word in methods for line in describe_method(value, word, folder)]
    kind = "exception" if issubclass(value, Exception) else "class"
    signature, more = signature_of(value), ""
    if table := table_of(package, value):
        signature, more = (
            "(...)",
            f" Its fields are the table [`[{table}]`]({relative('docs/settings.md', folder)}#{table}).",
        )
    return entry(kind, package.__name__, name + signature, value, description, folder, more, body)


def describe_method(owner: type, name: str, folder: Path) -> list[str]:
    method = getattr(owner, name)
    kind = {classmethod: "classmethod", staticmethod: "staticmethod"}.get(
        type(inspect.getattr_static(owner, name)), "method"
    )
    return entry(
        kind, "", name + signature_of(method).replace("(self, ", "(").replace("(self)", "()"), method, "", folder
    )


def entry(
    kind: str,
    module: str,
    signature: str,
    value: Any,
    description: str,
    folder: Path,
    more: str = "",
    body: list[str] | None = None,
) -> list[str]:
    """One directive: the signature, the first paragraph of the docstring or else the description, and a source link."""
    path, line = source_of(value)
    name = path.relative_to(ROOT).as_posix()
    docstring = inspect.getdoc(value)
    text = escape(docstring.partition("\n\n")[0]) if docstring else moved(description, folder)
    directive = "method" if kind.endswith("method") else kind
    fence = "`" * (5 if body else 4)
    return [
        f"{fence}{{py:{directive}}} {signature}",
        *([f":module: {module}"] if module else []),
        *([f":{kind}:"] if kind in ("classmethod", "staticmethod") else []),
        "",
        text + more,
        "",
        f"[`{name}`, line {line}]({relative(name, folder)}#L{line})",
        "",
        *(body or []),
        fence,
        "",
    ]


def signature_of(value: Any) -> str:
    """The signature as in the source: annotations without quotes, functions as defaults by their name."""
    try:
        signature = inspect.signature(value)
    except ValueError:  # an exception without an __init__ of its own
        return ""
    parameters = [
        each.replace(annotation=plain(each.annotation), default=readable_default(each.default))
        for each in signature.parameters.values()
    ]
    returns = inspect.Signature.empty if isinstance(value, type) else plain(signature.return_annotation)
    return str(signature.replace(parameters=parameters, return_annotation=returns))


class Plain(str):
    """Text that a signature shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def plain(annotation: Any) -> Any:
    return Plain(annotation) if isinstance(annotation, str) else annotation


def readable_default(value: Any) -> Any:
    if inspect.isfunction(value):
        return Plain(value.__name__)
    return Plain("...") if repr(value) == "<factory>" else value  # a dataclass makes a new object each time


def table_of(package: ModuleType, value: type) -> str:
    """The table of a recipe that a class holds, such as "model" for ModelConfig; else ""."""
    return next((each.name for each in dataclasses.fields(package.Config) if each.default_factory is value), "")


def source_of(value: Any) -> tuple[Path, int]:
    value = inspect.unwrap(value)
    return Path(inspect.getsourcefile(value) or "").resolve(), inspect.getsourcelines(value)[1]


def relative(name: str, folder: Path) -> str:
    return Path(os.path.relpath(ROOT / name, folder)).as_posix()


def moved(text: str, folder: Path) -> str:
    """A description of docs/api.md as a sentence of a page in another folder. Its links lead to the same pages."""
    text = re.sub(r"\]\(([^):]+)\)", lambda link: f"]({relative('docs/' + link[1], folder)})", text)
    return f"{text[:1].upper()}{text[1:]}."


def escape(text: str) -> str:
    """Docstrings use Markdown only for `code`."""
    parts = CODE.split(" ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([<*\[\]])", r"\\\1", part) for part in parts)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("api", ApiDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
