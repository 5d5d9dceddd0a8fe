"""Directives of part II of the book. They read the files of `cutaway check`, so a page cannot differ from the grader.

    ```{exercise} 1      the statement of exercise 1: what to implement, without the solution
    ```
    ```{mistakes} 1      the mistakes that the grader names in exercise 1
    :functions: softmax attention      optional: only the mistakes of these functions
    ```

A number or a function that does not exist is an error of the build (`make book`).
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import dedent

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cutaway.course import exercises
from cutaway.course.exercise import Exercise
from cutaway.course.exercises import get_exercise
from cutaway.course.feedback import sentence
from cutaway.errors import DataError

ROOT = Path(__file__).parents[2]
MAX_ROWS = 12  # a longer table is folded
# A line of a list of arguments: "x: [B, T, D]" or "-> [B, T, D]".
ARGUMENT = re.compile(r"[a-z_]\w*(, [a-z_]\w*)*: |->")


@dataclass(frozen=True)
class Block:
    """A paragraph, or lines whose layout matters: equations, drawings, shapes."""

    text: str
    is_preformatted: bool


@dataclass(frozen=True)
class Function:
    name: str
    signature: str
    blocks: list[Block]


@dataclass(frozen=True)
class Statement:
    """An exercise as the learner reads it."""

    file: str
    title: str  # "Exercise 1. Scaled dot-product attention"
    reference: str  # "the paper, section 3.2.1; lesson 1"
    blocks: list[Block]
    given: str  # the import of functions that the exercise provides, or ""
    functions: list[Function]


def find_exercise(number: str) -> Exercise:
    try:
        return get_exercise(int(number))
    except DataError as error:
        raise LookupError(str(error)) from None
    except ValueError:
        raise LookupError(f"{number!r} is not the number of an exercise.") from None


def read_statement(exercise: Exercise) -> Statement:
    """Read the docstrings and signatures of an exercise file. Other code stays out."""
    text = (ROOT / "exercises" / exercise.file).read_text("utf-8")
    module = ast.parse(text)
    first, _, rest = (ast.get_docstring(module) or "").partition("\n")
    title, _, reference = first.partition("  ")
    given = [node for node in module.body if isinstance(node, ast.ImportFrom) and node.module == "cutaway.course.given"]
    lines = text.splitlines()
    return Statement(
        exercise.file,
        title,
        reference.strip().removeprefix("(").removesuffix(")"),
        split_blocks(rest),
        "\n".join(line for node in given for line in lines[node.lineno - 1 : node.end_lineno]),
        [read_function(node) for node in module.body if isinstance(node, ast.FunctionDef)],
    )


def read_function(node: ast.FunctionDef) -> Function:
    blocks = split_blocks(ast.get_docstring(node) or "")
    return Function(node.name, f"{node.name}({ast.unparse(node.args)})", blocks)


def split_blocks(docstring: str) -> list[Block]:
    """Split a docstring at its empty lines. Preformatted parts of the same kind stay together, with the empty line."""
    blocks: list[Block] = []
    for text in re.split(r"\n\s*\n", docstring.strip("\n")):
        if not text.strip():
            continue
        is_preformatted = is_layout(text)
        is_same_kind = bool(blocks) and blocks[-1].is_preformatted and blocks[-1].text[0].isspace() == text[0].isspace()
        if is_preformatted and is_same_kind:
            blocks[-1] = Block(f"{blocks[-1].text}\n\n{text}", True)
        else:
            blocks.append(Block(text if is_preformatted else " ".join(text.split()), is_preformatted))
    return [Block(fit_page(block.text), True) if block.is_preformatted else block for block in blocks]


def is_layout(text: str) -> bool:
    """Whether line breaks and spaces matter: indented lines, arguments with their shapes, columns."""
    lines = text.splitlines()
    return lines[0].startswith(" ") or any(ARGUMENT.match(line) or "  " in line for line in lines)


def fit_page(text: str) -> str:
    """Remove the indentation, and move a note from the far right ("equation 1") next to its line."""
    text = re.sub(r" {8,}((?:equation|section) [\d.]+)$", r"    (\1)", dedent(text), flags=re.MULTILINE)
    return text.strip("\n")


def named_mistakes(exercise: Exercise, functions: list[str]) -> list[tuple[list[str], str]]:
    """The mistakes that the grader knows: (functions where it looks for it, the sentence that names it)."""
    known = [part.name for part in exercise.parts]
    if unknown := [name for name in functions if name not in known]:
        raise LookupError(f"exercise {exercise.number} has no function {unknown[0]!r}. It has: {', '.join(known)}.")
    found: dict[str, list[str]] = {}
    for part in exercise.parts:
        for mistake in part.mistakes if part.name in (functions or known) else ():
            names = found.setdefault(sentence(mistake.message), [])
            names += [part.name] if part.name not in names else []
    return [(names, message) for message, names in found.items()]


class ExerciseDirective(SphinxDirective):
    """The statement of an exercise."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        from cutaway_book import REPOSITORY

        try:
            exercise = find_exercise(self.arguments[0])
        except LookupError as error:
            raise self.error(str(error)) from None
        self.env.note_dependency(str(ROOT / "exercises" / exercise.file))
        statement = read_statement(exercise)
        link = nodes.reference("", statement.file, refuri=f"{REPOSITORY}exercises/{statement.file}")
        reference = statement.reference[:1].upper() + statement.reference[1:]
        head = nodes.paragraph("", "", nodes.Text(f"{reference}. File: "), link)
        result: list[nodes.Node] = [head, *map(block_node, statement.blocks)]
        if statement.given:
            result.append(nodes.literal_block(statement.given, statement.given, language="python"))
        functions = nodes.definition_list(classes=["exercise"])
        for function in statement.functions:
            term = nodes.term("", "", nodes.literal("", function.signature, classes=["signature"]))
            term["ids"] = [f"exercise-{exercise.number}-{function.name}".replace("_", "-")]
            body = nodes.definition("", *map(block_node, function.blocks))
            functions += nodes.definition_list_item("", term, body)
        return [*result, functions]


def block_node(block: Block) -> nodes.Element:
    if block.is_preformatted:
        return nodes.literal_block(block.text, block.text, language="none")
    paragraph = nodes.paragraph()
    for i, text in enumerate(block.text.split("`")):
        paragraph += nodes.literal("", text) if i % 2 else nodes.Text(text)
    return paragraph


class MistakesDirective(SphinxDirective):
    """A table of the mistakes that the grader names, folded if it is long."""

    required_arguments = 1
    option_spec = {"functions": directives.unchanged_required}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        try:
            exercise = find_exercise(self.arguments[0])
            rows = named_mistakes(exercise, self.options.get("functions", "").split())
        except LookupError as error:
            raise self.error(str(error)) from None
        self.env.note_dependency(str(Path(exercises.__file__).with_name(f"{exercise.name}.py")))
        table = mistake_table(rows)
        if len(rows) <= MAX_ROWS:
            return [table]
        summary = escape(f"Exercise {exercise.number}: {len(rows)} mistakes that the grader names")
        start = nodes.raw("", f'<details class="mistakes"><summary>{summary}</summary>', format="html")
        return [start, table, nodes.raw("", "</details>", format="html")]


def mistake_table(rows: list[tuple[list[str], str]]) -> nodes.table:
    group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in (1, 3)), cols=2)
    table = nodes.table("", group, classes=["mistakes", "colwidths-auto"])
    header = nodes.row("", *(nodes.entry("", nodes.paragraph("", text)) for text in ("function", "mistake")))
    body = nodes.tbody()
    for names, message in rows:
        cell = nodes.paragraph()
        for i, name in enumerate(names):
            cell += [nodes.Text(", ")] if i else []
            cell += nodes.literal("", name)
        body += nodes.row("", nodes.entry("", cell), nodes.entry("", nodes.paragraph("", message)))
    group += [nodes.thead("", header), body]
    return table


def setup_course(app: Sphinx) -> None:
    app.add_css_file("course.css")
    app.add_directive("exercise", ExerciseDirective)
    app.add_directive("mistakes", MistakesDirective)
