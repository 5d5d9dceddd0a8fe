"""One self-contained HTML page from pieces: headings, text, numbers, tables, figures, and a recorded explorer.

No network, and no script but the explorer's own modules, if there is one.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from cutaway.runs.files import write_text

STYLE = Path(__file__).with_suffix(".css")


class HtmlReport:
    """A page that grows from top to bottom. All text that is given is shown as text, whatever it contains."""

    def __init__(self, title: str, lead: str):
        self.title, self.has_explorer = title, False
        self.parts = [f"<h1>{escape(title)}</h1>", f'<p class="lead">{escape(lead)}</p>']

    def heading(self, text: str) -> None:
        self.parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, *paragraphs: str) -> None:
        self.parts += [f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs]

    def numbers(self, values: Sequence[tuple[str, str]]) -> None:
        """(value, what it is), as cards."""
        cards = "".join(f"<div><dd>{escape(value)}</dd><dt>{escape(name)}</dt></div>" for value, name in values)
        self.parts.append(f'<dl class="numbers">{cards}</dl>')

    def translations(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """(source, translation, reference): a mark for right or wrong, and the reference where it differs."""
        if not rows:
            return
        body = "".join(_translation_row(*row) for row in rows)
        head = "<tr><th></th><th>source</th><th>translation</th><th>reference, where it differs</th></tr>"
        self.parts.append(f'<div class="wide"><table>{head}{body}</table></div>')

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Any table; a row may be shorter than the head."""
        lines = [f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"]
        lines += [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
        self.parts.append(f'<div class="wide"><table>{"".join(lines)}</table></div>')

    def development(self, given: str, written: Sequence[tuple[int, str]], right: str) -> None:
        """One text, and what was made of it: (step, what was written), and what would have been right, if anything."""
        rows = [f"<tr><td>{step:,}</td><td>{escape(text)}</td></tr>" for step, text in written]
        if right:
            rows.append(f'<tr class="right"><td>right</td><td>{escape(right)}</td></tr>')
        head = f"<tr><th>step</th><th>{escape(given)}</th></tr>"
        self.parts.append(f'<div class="wide"><table class="development">{head}{"".join(rows)}</table></div>')

    def figure(self, png: Path, caption: str) -> None:
        data = base64.b64encode(png.read_bytes()).decode()
        self.parts.append(
            f'<figure><img src="data:image/png;base64,{data}" alt="{escape(caption)}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )

    def drawing(self, svg: str, caption: str) -> None:
        self.parts.append(_drawn(svg, caption))

    def drawings(self, charts: Sequence[tuple[str, str]]) -> None:
        """(svg, caption), side by side where there is room."""
        self.parts.append(f'<div class="charts">{"".join(_drawn(*chart) for chart in charts)}</div>')

    def finding(self, severity: str, title: str, evidence: str, remedy: str) -> None:
        """Something that deserves attention; severity is "problem", "warning" or "note"."""
        self.parts.append(
            f'<div class="finding {escape(severity)}"><p><b>{escape(severity)}</b> {escape(title)}.</p>'
            f'<p>{escape(evidence)}</p><p class="remedy">{escape(remedy)}</p></div>'
        )

    def code(self, text: str) -> None:
        self.parts.append(f"<pre>{escape(text)}</pre>")

    def explorer(self, recorded: Mapping[str, Any]) -> None:
        """The explorer's views of what was recorded (explore/export.py). A page has room for one."""
        from cutaway.explore.export import body

        self.has_explorer = True
        self.parts.append(f'</main></div>{body(recorded)}<div class="report"><main>')

    def details(self, summary: str, text: str) -> None:
        """Something long that most readers skip: shown when asked for."""
        self.parts.append(f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>")

    def html(self) -> str:
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<title>{escape(self.title)}</title>{self.style()}</head>\n<body><div class="report"><main>\n'
            + "\n".join(self.parts)
            + "\n</main></div></body></html>\n"
        )

    def style(self) -> str:
        """With an explorer the page is drawn in the explorer's style, and the report's own rules keep to the report."""
        own = STYLE.read_text(encoding="utf-8")
        if not self.has_explorer:
            return f"<style>{own}</style>"
        from cutaway.explore.export import head

        return f"{head()}<style>.report {{ {own} }}</style>"

    def write(self, path: Path) -> Path:
        write_text(path, self.html())
        return path


def _drawn(svg: str, caption: str) -> str:
    return f'<figure class="drawn"><figcaption>{escape(caption)}</figcaption>{svg}</figure>'


def _translation_row(source: str, translation: str, reference: str) -> str:
    right = translation == reference
    mark = '<td class="right">✓</td>' if right else '<td class="wrong">✗</td>'
    cells = (source, translation, "" if right else reference)
    return f"<tr>{mark}{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
