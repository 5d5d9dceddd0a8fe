"""The explorer as one file: the page, its modules and the recorded answers, with no server and no network behind it.

    page/*.js ──▶ data: URLs in an import map      page/*.css ──▶ <style>      answers ──▶ gzip, base64

Modules cannot be loaded from a disk by their paths (browsers forbid it), but they can by a name that an import map
resolves; so each import of "./dom.js" becomes one of "cutaway/dom.js". The file holds what was recorded and says so
when it is asked for more.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import Any

from cutaway.errors import CutawayError, DataError
from cutaway.explore.ablation import ablation_targets
from cutaway.explore.examples import NO_IMAGES
from cutaway.explore.explorer import Explorer, ExplorerRequest
from cutaway.explore.parts import describe_part
from cutaway.explore.values import dumps
from cutaway.inference.pipelines import GenerationPipeline
from cutaway.runs.files import write_text

PAGE = Path(__file__).parent / "page"
RECORDED = 3  # texts, if none are named
IN_REPORTS = ["attention", "writing", "lens", "timelapse"]  # views that a report has the answers for
IMPORT = re.compile(r'^((?:import|export) .*from )"(?:\./|\.\./)(?:views/)?([\w-]+\.js)";$', re.MULTILINE)
WIDEST, STRONGEST = 8, 2.0  # what the page's sliders for beam search go up to
FEW = 12  # candidates of each step that are kept in recorded experiments

OnProgress = Callable[[str], None]


def ignore_progress(what: str) -> None:
    pass


def export_page(
    explorer: Explorer, file: Path, texts: Sequence[str] = (), on_progress: OnProgress = ignore_progress
) -> Path:
    """Record these texts (or some examples of the runs) and write the page."""
    recorded = record(explorer, texts, on_progress)
    write_text(file, whole_page(recorded["info"]["title"], recorded))
    return file


def record(explorer: Explorer, texts: Sequence[str], on_progress: OnProgress = ignore_progress) -> dict[str, Any]:
    """All that the page will ask about these texts."""
    info, answers = explorer.info(), {}
    for number, run in enumerate(info["runs"]):
        chosen = choose_texts(run, texts)
        for text in chosen:
            asked = ExplorerRequest(text, run=number)
            for endpoint, request, answer in (
                *answers_about(explorer, asked),
                *experiments(explorer, asked, on_progress),
            ):
                answers[answer_key(endpoint, request)] = answer
        run["examples"] = only_recorded(run, chosen)
        try:
            answers[answer_key("heads", {"run": number})] = explorer.heads(number)
        except CutawayError:  # no held-out data to count over: the page says that it is not recorded
            continue
    return {"info": {**info, "recorded": True}, "answers": answers}


def record_for_report(explorer: Explorer, texts: Sequence[str]) -> dict[str, Any]:
    """What stands in the report of a training: fewer views, and quickly made."""
    info = explorer.info()
    [run] = info["runs"]
    chosen = choose_texts(run, texts)
    found = (answer for text in chosen for answer in answers_about(explorer, ExplorerRequest(text)))
    answers = {answer_key(endpoint, request): answer for endpoint, request, answer in found}
    run["examples"] = only_recorded(run, chosen)
    return {"info": {**info, "recorded": True, "views": IN_REPORTS}, "answers": answers}


def choose_texts(run: Mapping[str, Any], texts: Sequence[str]) -> list[str]:
    """The given texts, or the first examples; a picture goes by its number."""
    first = [str(e["number"]) if isinstance(e, dict) else e for e in run["examples"][:RECORDED]]
    if not texts and not first:
        if run["task"] == "image_classification":
            raise DataError(f"{run['path']}: {NO_IMAGES}")
        raise DataError(f"{run['path']} has no example sentences at hand. Say what to record: --text '...'")
    return list(texts) or first


def only_recorded(run: Mapping[str, Any], chosen: Sequence[str]) -> list[Any]:
    """What can be picked in the page: texts, or those of the pictures that were chosen."""
    pictures = [example for example in run["examples"] if isinstance(example, dict)]
    return [picture for picture in pictures if str(picture["number"]) in chosen] if pictures else list(chosen)


def answers_about(explorer: Explorer, asked: ExplorerRequest) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """(endpoint, request, answer) for one text, as it is."""
    run, request = explorer.run(asked), request_of(asked)
    yield "trace", request, explorer.trace(asked)
    yield "snapshots", request, list(explorer.snapshots(asked))
    if isinstance(run.final, GenerationPipeline):
        decode = run.final.config.decode
        size, penalty = min(decode.beam_size, WIDEST), min(decode.length_penalty, STRONGEST)
        of_beam = {"beam_size": size, "length_penalty": penalty}
        yield "beam", {**request, **of_beam}, explorer.beam(asked, size, penalty)


def experiments(
    explorer: Explorer, asked: ExplorerRequest, on_progress: OnProgress
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """... and every part laid open, the model at each snapshot, and with each switch off."""
    run, request, shown = explorer.run(asked), request_of(asked), asked.text[:40]
    on_progress(f"the parts of the model at work on “{shown}”")
    is_asked = run.final.config.model.task != "embedding"  # else there is no answer that could become less likely
    if is_asked:
        yield "ablations", request, explorer.ablations(asked)
    with explorer.ablated_model(asked) as pipeline:
        example = explorer.prepare(pipeline, asked)
        parts = {name: describe_part(pipeline.model, example, name) for name, _ in pipeline.model.named_modules()}
    for name, laid_open in parts.items():
        yield "part", {**request, "name": name}, laid_open
    for step in run.snapshots:
        on_progress(f"“{shown}” at step {step:,}")
        young = replace(asked, snapshot=step)
        yield "trace", request_of(young), explorer.trace(young)
        if (
            isinstance(run.final, GenerationPipeline) and example.finished
        ):  # as it is compared: with the final answer forced on it
            led = replace(young, prefix=tuple(example.answers[example.prompt :]))
            yield "trace", request_of(led), explorer.trace(led)
    for target in ablation_targets(run.final.model).values() if is_asked else ():
        on_progress(f"“{shown}” without {target.title}")
        changed = replace(asked, off=(target.id,))
        yield "trace", request_of(changed), shrink_trace(explorer.trace(changed))


def shrink_trace(trace: dict[str, Any]) -> dict[str, Any]:
    """A trace with fewer candidates by name: enough for experiments, of which there are many."""
    return {**trace, "steps": [drop_candidates(step) for step in trace["steps"]]}


def drop_candidates(step: dict[str, Any]) -> dict[str, Any]:
    """Those that lose their name are still counted, or the others would seem likelier than they are."""
    few = {name: step[name][:FEW] for name in ("ids", "tokens", "logits")}
    return {**step, **few, "tail": [[logit, 1] for logit in step["logits"][FEW:]] + step["tail"]}


def request_of(asked: ExplorerRequest) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(asked).items()}


def answer_key(endpoint: str, request: Mapping[str, Any]) -> str:
    """The name under which an answer is found again; page/source.js makes the same one."""
    said = {k: v for k, v in request.items() if v is not None and v != [] and (k, v) != ("run", 0)}
    whole = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in said.items()}
    return endpoint + "\n" + json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def whole_page(title: str, recorded: Mapping[str, Any]) -> str:
    """The page with everything in it."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)} · Cutaway</title>{head()}</head>\n<body>{body(recorded)}</body></html>\n"
    )


def head() -> str:
    """What the explorer needs in the head of a page."""
    return styles() + modules()


def body(recorded: Mapping[str, Any]) -> str:
    """... and where it is to stand."""
    return (
        '<a class="skip" href="#content" id="skip">Skip to the view</a><div id="page" class="shell"></div>'
        f'{embedded(recorded)}<script type="module">import "cutaway/app.js";</script>'
    )


def styles() -> str:
    index = (PAGE / "index.html").read_text(encoding="utf-8")
    files = re.findall(r'<link rel="stylesheet" href="([^"]+)">', index)
    return "<style>" + "\n".join((PAGE / file).read_text(encoding="utf-8") for file in files) + "</style>"


def modules() -> str:
    """An import map in which every module of the page stands whole."""
    files = sorted(PAGE.rglob("*.js"))
    found = {file.name: named_imports(file.read_text(encoding="utf-8")) for file in files}
    assert len(found) == len(files), "two modules of the page have one name"
    imports = {f"cutaway/{name}": f"data:text/javascript;base64,{encoded(code)}" for name, code in found.items()}
    return f'<script type="importmap">{json.dumps({"imports": imports})}</script>'


def named_imports(code: str) -> str:
    """Imports by path become imports by name; each must stand on a line of its own."""
    named = IMPORT.sub(r'\1"cutaway/\2";', code)
    assert not re.search(r"""from ["']\.""", named), "an import of the page does not stand on a line of its own"
    return named


def encoded(code: str) -> str:
    return base64.b64encode(code.encode()).decode()


def embedded(recorded: Mapping[str, Any]) -> str:
    """The answers, packed: as base64 no text in them can be taken for HTML."""
    packed = gzip.compress(dumps(recorded).encode(), mtime=0)
    return f'<script type="application/gzip" id="recorded">{base64.b64encode(packed).decode()}</script>'
