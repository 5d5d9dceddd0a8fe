"""A report as one self-contained HTML file: headings, text, numbers, tables, figures, and a recorded explorer.

It loads nothing from the network. It has no scripts except the explorer's modules.
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
    """Each method adds something at the end of the page. All text is escaped."""

    def __init__(self, title: str, lead: str):
        self.title, self.has_explorer = title, False
        self.parts = [f"<h1>{escape(title)}</h1>", f'<p class="lead">{escape(lead)}</p>']

    def heading(self, text: str) -> None:
        self.parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, *paragraphs: str) -> None:
        self.parts += [f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs]

    def numbers(self, values: Sequence[tuple[str, str]]) -> None:
        """Cards with a value and its name."""
        cards = "".join(f"<div><dd>{escape(value)}</dd><dt>{escape(name)}</dt></div>" for value, name in values)
        self.parts.append(f'<dl class="numbers">{cards}</dl>')

    def translations(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """(source, translation, reference): a mark for right or wrong, and the reference if it differs."""
        if not rows:
            return
        body = "".join(_translation_row(*row) for row in rows)
        head = "<tr><th></th><th>source</th><th>translation</th><th>reference, if different</th></tr>"
        self.parts.append(f'<div class="wide"><table>{head}{body}</table></div>')

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table. A row may have fewer cells than the head."""
        lines = [f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"]
        lines += [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
        self.parts.append(f'<div class="wide"><table>{"".join(lines)}</table></div>')

    def sample_history(self, source: str, outputs: Sequence[tuple[int, str]], reference: str) -> None:
        """One input, the output at each step, and the reference if there is one."""
        rows = [f"<tr><td>{step:,}</td><td>{escape(text)}</td></tr>" for step, text in outputs]
        if reference:
            rows.append(f'<tr class="right"><td>correct</td><td>{escape(reference)}</td></tr>')
        head = f"<tr><th>step</th><th>{escape(source)}</th></tr>"
        self.parts.append(f'<div class="wide"><table class="development">{head}{"".join(rows)}</table></div>')

    def figure(self, png: Path, caption: str) -> None:
        data = base64.b64encode(png.read_bytes()).decode()
        self.parts.append(
            f'<figure><img src="data:image/png;base64,{data}" alt="{escape(caption)}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )

    def chart(self, svg: str, caption: str) -> None:
        self.parts.append(_chart_html(svg, caption))

    def charts(self, charts: Sequence[tuple[str, str]]) -> None:
        """(svg, caption), side by side if the page is wide enough."""
        self.parts.append(f'<div class="charts">{"".join(_chart_html(*chart) for chart in charts)}</div>')

    def finding(self, severity: str, title: str, evidence: str, remedy: str) -> None:
        """A finding of `cutaway doctor`. `severity`: "problem", "warning" or "note"."""
        self.parts.append(
            f'<div class="finding {escape(severity)}"><p><b>{escape(severity)}</b> {escape(title)}.</p>'
            f'<p>{escape(evidence)}</p><p class="remedy">{escape(remedy)}</p></div>'
        )

    def code(self, text: str) -> None:
        self.parts.append(f"<pre>{escape(text)}</pre>")

    def explorer(self, recorded: Mapping[str, Any]) -> None:
        """The explorer with recorded answers (explore/recording.py), once per page."""
        from cutaway.explore.export import answers_html, body_html

        self.has_explorer = True
        self.parts.append(f'</main></div>{body_html(answers_html(recorded))}<div class="report"><main>')

    def details(self, summary: str, text: str) -> None:
        """A long text that opens on a click."""
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
        """The report's style sheet. With an explorer it applies only inside `.report`, next to the explorer's style."""
        own = STYLE.read_text(encoding="utf-8")
        if not self.has_explorer:
            return f"<style>{own}</style>"
        from cutaway.explore.export import head_html

        return f"{head_html()}<style>.report {{ {own} }}</style>"

    def write(self, path: Path) -> Path:
        write_text(path, self.html())
        return path


def _chart_html(svg: str, caption: str) -> str:
    return f'<figure class="drawn"><figcaption>{escape(caption)}</figcaption>{svg}</figure>'


def _translation_row(source: str, translation: str, reference: str) -> str:
    right = translation == reference
    mark = '<td class="right">✓</td>' if right else '<td class="wrong">✗</td>'
    cells = (source, translation, "" if right else reference)
    return f"<tr>{mark}{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
