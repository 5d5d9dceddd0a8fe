"""A check for numbers that somebody typed: every number that looks like a result needs a source.

A comment above a paragraph, list or table names it. Where the source is in this repository, the numbers must be there:

    <!-- source: log.md#the-lab -->                       a section of docs/log.md
    <!-- source: src/cutaway/serve/limits.py -->          numbers in a file: Python, TOML, JSON
    <!-- source: default train.lr, model.dropout -->      the defaults of these settings
    <!-- source: Shaw et al. 2018, arXiv 1803.02155 -->   a publication, with its year
    <!-- source: example -->                              numbers that this page chooses, or arithmetic with them

Several sources are separated by "; ". Outputs of cells need none.
Numbers that look like results: 0.5, 12,000, 3 %, 5 times, 20 MB, 3 minutes, 65 million.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

from cutaway.config import Config

ROOT = Path(__file__).parents[2]
# Pages without the check: a record of measurements, pages generated from the source, and statements of exercises.
RECORDS = ("docs/log", "docs/settings", "docs/commands", "CHANGELOG")
FENCE = re.compile(r"\s*(```+|~~~+|:::+)")
COMMENT = re.compile(r"<!-- source: (.+?) -->")
UNITS = r"BLEU|million|M|ms|µs|seconds?|s|minutes?|min|hours?|times|[KMG]i?B|kB|points?|nats|tokens per second|tokens/s"
NUMBER = re.compile(
    r"(?<![\w.,/-])"
    r"(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+|(?<=BLEU )\d+"  # 12,000 or 0.5 or BLEU 28
    rf"|\d+(?= ?%(?! (?:confidence )?interval)| ?×(?! ?\d)|-?\s?(?:{UNITS})\b))"  # 3 %, 5 ×, 3 minutes
    r"(?![\d\w]|\.\d)( [KMG]i?B\b| million\b| M\b)?"
)
SCALES = {"KB": (1, 1e3), "MB": (1, 1e6), "GB": (1, 1e9), "KiB": (1, 2**10), "MiB": (1, 2**20), "GiB": (1, 2**30)}
SCALES |= {"million": (1, 1e6), "M": (1, 1e6)}
YEAR = re.compile(r"\b(19|20)\d\d\b")
NOT_PROSE = re.compile(r"`[^`]*`|\[[\d, ]+\]|\$[^$]*\$|\]\([^)]*\)|<!--.*?-->|<[^>]+>|https?://\S+")
LABEL = re.compile(  # names, not results: section 3.4, Python 3.11, Llama 3.1, arXiv 1706.03762
    r"(?i)\b(?:sections?|tables?|figures?|equations?|exercises?|lessons?|versions?|arxiv|python|torch|pytorch|llama|numpy"
    r"|sphinx|node|curl|qwen|gemma|cuda|t5|pip|opset)\s+v?\d+(?:\.\d+)*(?:(?:, | and | to )\d+(?:\.\d+)*)*"
)
logger = logging.getLogger(__name__)


def blocks(text: str) -> Iterator[tuple[int, str, str]]:
    """The paragraphs, lists and tables of a page outside of code: first line number, text, and the named source."""
    fence, lines, start, source = "", [], 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        marker = FENCE.match(line)
        if fence:
            fence = "" if marker and line.strip() == fence else fence
        elif marker:
            fence = marker[1]
        if comment := COMMENT.search(line):
            source = comment[1]
        elif not fence and not marker and line.strip() and not line.startswith("#"):
            start = start if lines else number
            lines.append(line)
            continue
        if lines:
            yield start, "\n".join(lines), source
            lines, source = [], comment[1] if comment else ""


def numbers_in(text: str) -> list[str]:
    """The numbers of a text that look like results, without commas; with the unit if it is a scale."""
    prose = LABEL.sub("", NOT_PROSE.sub(" ", text))
    return [match[1].replace(",", "") + (match[2] or "") for match in NUMBER.finditer(prose)]


def is_recorded(number: str, known: set[float]) -> bool:
    """Whether a number is a recorded one, perhaps rounded, in millions or in another unit of bytes."""
    digits, _, unit = number.partition(" ")
    decimals = len(digits.partition(".")[2])
    values = {value / size for value in known for size in SCALES.get(unit, (1,))}
    return any(abs(value - float(digits)) <= 0.5 * 10**-decimals + 1e-9 for value in values)


def unsourced(text: str) -> Iterator[tuple[int, str]]:
    """What is wrong with the numbers of a page: (line, sentence)."""
    for line, block, named in blocks(text):
        numbers, sources = numbers_in(block), named.split("; ") if named else []
        known: set[float] = set()
        for source in sources:
            if source.startswith("default "):
                names = source.removeprefix("default ").split(", ")
                known |= {value for name in names if (value := default_of(name)) is not None}
                yield from ((line, problem) for problem in wrong_defaults(block, names))
            elif (recorded := recorded_numbers(source)) is not None:
                known |= recorded
            elif not is_citation(source):
                yield line, f"the source {source!r} is neither a file nor a publication with a year."
        missing = [number for number in numbers if not is_recorded(number, known)]
        if missing and not sources:
            example = "<!-- source: log.md#the-demo -->"
            yield line, f"{', '.join(missing)}: is this a result? Compute it in a cell, or write above it: {example}"
        elif missing and not any(map(is_citation, sources)):
            yield line, f"{', '.join(missing)} not found in {named}."


def is_citation(source: str) -> bool:
    return source == "example" or bool(YEAR.search(source))


def wrong_defaults(block: str, names: list[str]) -> Iterator[str]:
    """The named settings whose default is not in the block."""
    written = {float(n) for n in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", re.sub(r"(?<=\d),(?=\d)", "", block))}
    for name in names:
        default = default_of(name)
        if default is None:
            yield f"there is no setting {name} with a number as default."
        elif default not in written:
            yield f"the default of {name} is {default:g}, which is not in this text."


def default_of(setting: str) -> float | None:
    table, _, key = setting.partition(".")
    for one in fields(Config):
        if one.name == table:
            defaults = one.default_factory() if one.default_factory is not MISSING else one.default
            value = getattr(defaults, key, None)
            return float(value) if isinstance(value, int | float) else None
    return None


def recorded_numbers(source: str) -> set[float] | None:
    """All numbers of a file or of a section of docs/log.md; None if the source is neither."""
    name, _, anchor = source.partition("#")
    path = ROOT / ("docs/log.md" if name == "log.md" else name)
    if not path.is_file():
        return None
    text = path.read_text("utf-8")
    if anchor:
        text = section(text, anchor)
    found = re.findall(r"(?<![\w.])\d[\d_,]*(?:\.\d+)?(?:e-?\d+)?", text)
    return {float(number.replace(",", "").replace("_", "")) for number in found}


def section(text: str, anchor: str) -> str:
    """The part of a page below the heading with this anchor, as GitHub makes anchors."""
    parts = re.split(r"^(#+ .+)$", text, flags=re.MULTILINE)
    for head, body in zip(parts[1::2], parts[2::2], strict=True):
        if re.sub(r"[^\w\- ]", "", head.lstrip("# ").lower()).replace(" ", "-") == anchor:
            return body
    return ""


def check_page(app: Sphinx, docname: str, content: list[str]) -> None:
    path = app.env.doc2path(docname)
    if path.suffix == ".md" and docname not in RECORDS:
        for line, problem in unsourced(content[0]):
            logger.warning("%s", problem, location=(docname, line), type="book", subtype="number")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", check_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
