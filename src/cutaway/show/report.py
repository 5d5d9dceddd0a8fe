"""One self-contained HTML page from pieces: headings, text, numbers, tables, figures. No script, no network."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from cutaway.runs import write_text

STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --dim: #5b6670; --paper: #fbfaf7; --card: #fff; --line: #dfdcd3;
        --right: #00734f; --wrong: #b04a00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e6e1; --dim: #9aa4ad; --paper: #16191c; --card: #1f2327; --line: #343a40; --right: #4fc79a; --wrong: #f0975a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 17px/1.6 Georgia, "Noto Serif", serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 5rem; }
h1 { font-size: 2.1rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .5rem; }
p { max-width: 44rem; margin: .6rem 0; }
.lead { color: var(--dim); font-size: 1.1rem; }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem; margin: 1.6rem 0; padding: 0; }
.numbers div { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .8rem 1rem; }
.numbers dt { color: var(--dim); font-size: .85rem; line-height: 1.35; }
.numbers dd { margin: 0 0 .2rem; font-size: 1.7rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .95rem; }
th { text-align: left; color: var(--dim); font-weight: normal; font-size: .85rem; }
th, td { padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.right { color: var(--right); } .wrong { color: var(--wrong); }
figure { margin: 1.2rem 0; background: #fff; border: 1px solid var(--line); border-radius: .5rem; padding: .8rem; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
figcaption { color: #5b6670; font-size: .9rem; line-height: 1.45; padding-top: .6rem; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .8rem 1rem; overflow-x: auto;
      font: .88rem/1.55 ui-monospace, "DejaVu Sans Mono", monospace; }
"""


class Report:
    """A page that grows from top to bottom. All text that is given is shown as text, whatever it contains."""

    def __init__(self, title: str, lead: str):
        self.title = title
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
        body = "".join(_translation_row(*row) for row in rows)
        head = "<tr><th></th><th>source</th><th>translation</th><th>reference, where it differs</th></tr>"
        self.parts.append(f'<div class="wide"><table>{head}{body}</table></div>')

    def figure(self, png: Path, caption: str) -> None:
        data = base64.b64encode(png.read_bytes()).decode()
        self.parts.append(
            f'<figure><img src="data:image/png;base64,{data}" alt="{escape(caption)}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )

    def code(self, text: str) -> None:
        self.parts.append(f"<pre>{escape(text)}</pre>")

    def html(self) -> str:
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
            + "\n".join(self.parts)
            + "\n</main></body></html>\n"
        )

    def write(self, path: Path) -> Path:
        write_text(path, self.html())
        return path


def _translation_row(source: str, translation: str, reference: str) -> str:
    right = translation == reference
    mark = '<td class="right">✓</td>' if right else '<td class="wrong">✗</td>'
    return f"<tr>{mark}<td>{escape(source)}</td><td>{escape(translation)}</td><td>{'' if right else escape(reference)}</td></tr>"
