"""Recorded answers: what the explorer answers to the requests of a page about some texts, stored as plain data.

A training's report and `cutaway explore RUN --export PAGE.html --recorded` have them, so the page needs no model.
For a request that was not recorded, the page shows a message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from cutaway.errors import CutawayError, DataError
from cutaway.explore.ablation import ablation_targets
from cutaway.explore.examples import NO_IMAGES
from cutaway.explore.explorer import Explorer, ExplorerRequest
from cutaway.explore.parts import describe_part
from cutaway.inference.pipelines import GenerationPipeline

DEFAULT_TEXTS = 3  # examples that are recorded if no text is given
REPORT_VIEWS = ["attention", "writing", "lens", "timelapse"]  # views of the explorer in a report
MAX_BEAM_SIZE, MAX_LENGTH_PENALTY = 8, 2.0  # ends of the page's sliders
FEW_CANDIDATES = 12  # kept for each step of a recorded experiment

OnProgress = Callable[[str], None]
Recording = tuple[str, dict[str, Any], Any]  # endpoint, request, answer


def ignore_progress(what: str) -> None:
    pass


def record(explorer: Explorer, texts: Sequence[str], on_progress: OnProgress = ignore_progress) -> dict[str, Any]:
    """The answers to every request of the page about these texts."""
    info = explorer.info()
    answers: dict[str, Any] = {}
    for number, run in enumerate(info["runs"]):
        chosen = choose_texts(run, texts)
        for text in chosen:
            request = ExplorerRequest(text, run=number)
            for recording in (record_text(explorer, request), record_experiments(explorer, request, on_progress)):
                answers |= {answer_key(endpoint, query): answer for endpoint, query, answer in recording}
        run["examples"] = recorded_examples(run, chosen)
        try:
            answers[answer_key("heads", {"run": number})] = explorer.heads(number)
        except CutawayError:  # no held-out data; the page says that this was not recorded
            continue
    return {"info": {**info, "recorded": True}, "answers": answers}


def record_for_report(explorer: Explorer, texts: Sequence[str]) -> dict[str, Any]:
    """The answers for the report of a training: fewer views, quick to record."""
    info = explorer.info()
    [run] = info["runs"]
    chosen = choose_texts(run, texts)
    found = (recording for text in chosen for recording in record_text(explorer, ExplorerRequest(text)))
    answers = {answer_key(endpoint, query): answer for endpoint, query, answer in found}
    run["examples"] = recorded_examples(run, chosen)
    return {"info": {**info, "recorded": True, "views": REPORT_VIEWS}, "answers": answers}


def choose_texts(run: Mapping[str, Any], texts: Sequence[str]) -> list[str]:
    """The given texts, or the first examples. An image is given by its number."""
    first = [str(e["number"]) if isinstance(e, dict) else e for e in run["examples"][:DEFAULT_TEXTS]]
    if not texts and not first:
        if run["task"] == "image_classification":
            raise DataError(f"{run['path']}: {NO_IMAGES}")
        raise DataError(f"{run['path']} has no example texts. Give a text to record: --text '...'")
    return list(texts) or first


def recorded_examples(run: Mapping[str, Any], chosen: Sequence[str]) -> list[Any]:
    """The examples that the page offers: the recorded texts or images."""
    images = [example for example in run["examples"] if isinstance(example, dict)]
    return [image for image in images if str(image["number"]) in chosen] if images else list(chosen)


def record_text(explorer: Explorer, request: ExplorerRequest) -> Iterator[Recording]:
    """Trace, snapshots and beam search of one text."""
    run, query = explorer.run(request), request_json(request)
    yield "trace", query, explorer.trace(request)
    yield "snapshots", query, list(explorer.snapshots(request))
    if isinstance(run.final, GenerationPipeline):
        decode = run.final.config.decode
        size, penalty = min(decode.beam_size, MAX_BEAM_SIZE), min(decode.length_penalty, MAX_LENGTH_PENALTY)
        answer = explorer.beam(request, size, penalty)
        yield "beam", {**query, "beam_size": size, "length_penalty": penalty}, answer


def record_experiments(explorer: Explorer, request: ExplorerRequest, on_progress: OnProgress) -> Iterator[Recording]:
    """Every part of the model, the trace at each snapshot, and the trace with each head and sub-layer switched off."""
    run, query, title = explorer.run(request), request_json(request), request.text[:40]
    on_progress(f"the parts of the model for “{title}”")
    has_answers = run.final.config.model.task != "embedding"
    if has_answers:
        yield "ablations", query, explorer.ablations(request)
    with explorer.ablated_model(request) as pipeline:
        example = explorer.prepare(pipeline, request)
        parts = {name: describe_part(pipeline.model, example, name) for name, _ in pipeline.model.named_modules()}
    for name, part in parts.items():
        yield "part", {**query, "name": name}, part
    for step in run.snapshots:
        on_progress(f"“{title}” at step {step:,}")
        earlier = replace(request, snapshot=step)
        yield "trace", request_json(earlier), explorer.trace(earlier)
        if isinstance(run.final, GenerationPipeline) and example.finished:  # the comparison forces the final answer
            forced = replace(earlier, prefix=tuple(example.answers[example.prompt :]))
            yield "trace", request_json(forced), explorer.trace(forced)
    for target in ablation_targets(run.final.model).values() if has_answers else ():
        on_progress(f"“{title}” without {target.title}")
        ablated = replace(request, off=(target.id,))
        yield "trace", request_json(ablated), shrink_trace(explorer.trace(ablated))


def shrink_trace(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace with fewer named candidates, to keep the file small."""
    return {**trace, "steps": [drop_candidates(step) for step in trace["steps"]]}


def drop_candidates(step: dict[str, Any]) -> dict[str, Any]:
    """Move all but the first candidates into the tail, so that the probabilities stay the same."""
    few = {name: step[name][:FEW_CANDIDATES] for name in ("ids", "tokens", "logits")}
    return {**step, **few, "tail": [[logit, 1] for logit in step["logits"][FEW_CANDIDATES:]] + step["tail"]}


def request_json(request: ExplorerRequest) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(request).items()}


def answer_key(endpoint: str, request: Mapping[str, Any]) -> str:
    """The key of a recorded answer: the endpoint and the non-default fields. page/source.js computes the same key."""
    fields = {k: v for k, v in request.items() if v is not None and v != [] and (k, v) != ("run", 0)}
    fields = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in fields.items()}
    return endpoint + "\n" + json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
