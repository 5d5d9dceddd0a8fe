"""The explorer as one HTML file that needs no server and no network.

    page/*.js ──▶ data: URLs in an import map      page/*.css ──▶ <style>
    model, engine ──▶ scripts                      recorded answers ──▶ gzip, base64

The file has either the model itself, so that it answers any request (live.py), or recorded answers (recording.py).

Browsers do not load modules from file paths, but they load names that an import map resolves. So an import of
"../dom.js" in views/map.js becomes an import of "cutaway/dom.js".
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from cutaway.errors import CutawayError
from cutaway.explore.bundle import PAGE, bundle
from cutaway.explore.explorer import Explorer, ExplorerRequest
from cutaway.explore.live import describe_run, stored_run, stored_snapshot
from cutaway.explore.recording import OnProgress, ignore_progress, record, recorded_examples
from cutaway.explore.values import dumps
from cutaway.explore.web_export import WEIGHTS, check_page_size, describe_weights
from cutaway.runs.files import write_text

INCOMPLETE = "This file is incomplete: its end is missing. Copy or download it again."
# It comes first: in a file that was cut, #end is missing, and perhaps the scripts that start the page.
CHECK_END = f"""<script>document.addEventListener("DOMContentLoaded", () => {{
  if (document.getElementById("end")) return;
  document.body.insertAdjacentHTML("afterbegin", '<p class="banner" role="alert">{INCOMPLETE}</p>');
}});</script>"""
IMPORT = re.compile(r'^((?:import|export) .*from )"(\.\.?/[\w/-]+\.js)";$', re.MULTILINE)


def export_page(
    explorer: Explorer,
    file: Path,
    texts: Sequence[str] = (),
    dtype: str = "float16",
    snapshots: bool = False,
    on_progress: OnProgress = ignore_progress,
) -> Path:
    """Write a page with the models. `texts` are the examples that it offers; `snapshots` adds those of the training."""
    write_text(file, page_with_models(explorer, texts, dtype, snapshots, on_progress)[0])
    return file


def page_with_models(
    explorer: Explorer,
    texts: Sequence[str] = (),
    dtype: str = "float16",
    snapshots: bool = False,
    on_progress: OnProgress = ignore_progress,
) -> tuple[str, list[str]]:
    """The page as in export_page, and how the weights of each run are stored."""
    info = explorer.info()
    for number, run in enumerate(info["runs"]):
        run["snapshots"] = run["snapshots"] if snapshots else []
        for text in texts:
            explorer.require_readable(ExplorerRequest(text, run=number))
        if texts:
            run["examples"] = recorded_examples(run, texts)
    scripts = "".join(model_scripts(explorer, info, dtype, on_progress))
    return page_html(info["title"], scripts), [run["weights"] for run in info["runs"]]


def export_recorded_page(
    explorer: Explorer, file: Path, texts: Sequence[str] = (), on_progress: OnProgress = ignore_progress
) -> Path:
    """Record these texts (or examples of the runs) and write the page."""
    recorded = record(explorer, texts, on_progress)
    write_text(file, page_html(recorded["info"]["title"], answers_html(recorded)))
    return file


def model_scripts(
    explorer: Explorer, info: Mapping[str, Any], dtype: str, on_progress: OnProgress = ignore_progress
) -> Iterator[str]:
    """The scripts of a page with models: #live describes the runs; each weights file and the engine are separate.

    Adds to each run in `info` how its weights are stored.
    """
    described = []
    for number, run in enumerate(info["runs"]):
        on_progress(run["name"])
        model = stored_run(explorer, number, dtype)
        check_page_size(explorer.runs[number].folder, model, dtype, "--recorded for a page without the model")
        run["weights"] = describe_weights(dtype, model.error)
        described.append({**describe_run(explorer, number, model), "heads": recorded_heads(explorer, number)})
        yield weights_html(f"weights-{number}", model.files[WEIGHTS])
        for step in run["snapshots"]:
            on_progress(f"{run['name']} at step {step:,}")
            yield weights_html(f"weights-{number}-{step}", stored_snapshot(explorer, number, step, dtype))
    yield packed_html("live", {"info": info, "runs": described})
    yield f"<script>{bundle('live/index.js', 'CutawayExplorer', 'answerExplorerCalls')}</script>"


def recorded_heads(explorer: Explorer, number: int) -> dict[str, Any] | None:
    """The statistics of the heads, which need held-out data. None without such data."""
    try:
        return explorer.heads(number)
    except CutawayError:
        return None


def page_html(title: str, scripts: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)} · Cutaway</title>{head_html()}</head>\n<body>{body_html(scripts)}</body></html>\n"
    )


def head_html() -> str:
    """The explorer's style sheets and modules, for the head of a page."""
    return CHECK_END + style_html() + modules_html()


def body_html(scripts: str) -> str:
    """The explorer with its model or its recorded answers, for the body of a page."""
    return (
        '<a class="skip" href="#content" id="skip">Skip to the view</a><div id="page" class="shell"></div>'
        f'{scripts}<script type="module">import "cutaway/app.js";</script><i id="end" hidden></i>'
    )


def style_html() -> str:
    index = (PAGE / "index.html").read_text(encoding="utf-8")
    files = re.findall(r'<link rel="stylesheet" href="([^"]+)">', index)
    return "<style>" + "\n".join((PAGE / file).read_text(encoding="utf-8") for file in files) + "</style>"


def modules_html() -> str:
    """An import map with the modules of the page as data: URLs."""
    modules = {
        module_name(file): rewrite_imports(code, file) for file, code in imported_modules(PAGE / "app.js").items()
    }
    imports = {name: f"data:text/javascript;base64,{to_base64(code)}" for name, code in sorted(modules.items())}
    return f'<script type="importmap">{json.dumps({"imports": imports})}</script>'


def imported_modules(first: Path) -> dict[Path, str]:
    """The code of a module and of all modules that it needs."""
    found: dict[Path, str] = {}
    waiting = [first]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found[file] = file.read_text(encoding="utf-8")
            waiting += [(file.parent / path).resolve() for _, path in IMPORT.findall(found[file])]
    return found


def module_name(file: Path) -> str:
    return f"cutaway/{file.relative_to(PAGE).as_posix()}"


def rewrite_imports(code: str, file: Path) -> str:
    """Replace paths in the imports of a file with names of the import map. Each import must be on one line."""
    rewritten = IMPORT.sub(lambda found: f'{found[1]}"{module_name((file.parent / found[2]).resolve())}";', code)
    assert not re.search(r"""from ["']\.""", rewritten), "an import of the page is not on one line"
    return rewritten


def to_base64(code: str) -> str:
    return base64.b64encode(code.encode()).decode()


def answers_html(recorded: Mapping[str, Any]) -> str:
    return packed_html("recorded", recorded)


def packed_html(name: str, value: Mapping[str, Any]) -> str:
    """A script with plain data, compressed. In base64, no text in it can be parsed as HTML."""
    packed = base64.b64encode(gzip.compress(dumps(value).encode(), mtime=0)).decode()
    return f'<script type="application/gzip" id="{name}">{packed}</script>'


def weights_html(name: str, weights: bytes) -> str:
    return f'<script type="application/octet-stream" id="{name}">{base64.b64encode(weights).decode()}</script>'
