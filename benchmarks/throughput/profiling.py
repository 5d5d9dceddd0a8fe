"""Profile Cutaway's training step: time for each operator, and for each part of the model.

The time of an operator does not include the operators it calls. An operator belongs to the innermost module around it;
a backward operator belongs to the part of its forward operator (torch gives both the same sequence number). The
remaining time is Python and the profiler; compare with a step without the profiler.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from cutaway.data.prepare import PreparedData

from .implementations import Cutaway
from .pairs import SEED, batches_of
from .shape import Shape

# class or base class of a module -> part
PARTS = {
    "Linear": "linear maps (attention's and feed-forward's)",
    "MultiHeadAttention": "attention itself, with masks, splitting and merging heads",
    "FeedForward": "ReLU",
    "Dropout": "dropout",
    "LayerNorm": "norms",
    "Residual": "residual additions",
    "InputEmbedding": "embeddings",
    "LanguageHead": "logits",
}
LOSS = "loss, and selecting target tokens"
# operators outside of all modules -> part; all others outside are the loss
OUTSIDE = {
    "_fused_adam": "optimizer",
    "_foreach": "norm of the gradient, and clipping",
    "linalg_vector_norm": "norm of the gradient, and clipping",
    "stack": "norm of the gradient, and clipping",
    "AccumulateGrad": "accumulating gradients",
    "arange": "batches",
    "to": "batches",
    "copy_": "batches",
}
MARK = "part: "
WARM_UP, TIMED, PROFILED = 4, 6, 6


def profile_cutaway(shape: Shape, prepared: PreparedData, threads: int) -> str:
    torch.set_num_threads(threads)
    torch.manual_seed(SEED)
    cutaway, batches = Cutaway(shape, prepared), batches_of(prepared, shape)
    train(cutaway, batches, WARM_UP)
    unprofiled, tokens = train(cutaway, batches, TIMED)
    with (
        mark_modules(cutaway.trainer.model),
        profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler,
    ):
        profiled, _ = train(cutaway, batches, PROFILED)
    operators = profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=15, max_name_column_width=60)
    times = by_part(profiler.events())
    times["Python, and the profiler"] = profiled - sum(times.values())
    lines = [
        f"attention dropout {shape.attention_dropout}, {threads} thread{'s' if threads > 1 else ''}: "
        f"{1e3 * unprofiled / TIMED:.0f} ms per step ({tokens / unprofiled:,.0f} target tokens/s), "
        f"{1e3 * profiled / PROFILED:.0f} ms with the profiler",
        "",
        operators,
        "| part of the model, forward and backward | ms per step | fraction |",
        "|---|---:|---:|",
    ]
    for part, seconds in sorted(times.items(), key=lambda item: -item[1]):
        lines.append(f"| {part} | {1e3 * seconds / PROFILED:.1f} | {seconds / profiled:.1%} |")
    return "\n".join(lines)


def train(cutaway: Cutaway, batches: Any, steps: int) -> tuple[float, int]:
    """Return seconds and target tokens."""
    before, tokens = time.perf_counter(), 0
    for _ in range(steps):
        batch = next(batches)
        cutaway.step(batch)
        tokens += batch.tokens
    return time.perf_counter() - before, tokens


@contextmanager
def mark_modules(model: nn.Module) -> Iterator[None]:
    """Mark the start and end of each module in the profile."""
    handles, open_marks = [], []

    def begin(part: str) -> None:
        mark = record_function(MARK + part)
        mark.__enter__()
        open_marks.append(mark)

    def end() -> None:
        open_marks.pop().__exit__(None, None, None)

    for module in model.modules():
        part = next((PARTS[kind.__name__] for kind in type(module).__mro__ if kind.__name__ in PARTS), None)
        if part:
            handles.append(module.register_forward_pre_hook(lambda *_, part=part: begin(part)))
            handles.append(module.register_forward_hook(lambda *_: end()))
    yield
    for handle in handles:
        handle.remove()


def by_part(events: Any) -> dict[str, float]:
    """Return the seconds of the operators of each part."""
    forward: dict[int, str] = {}  # sequence number -> part of the last operator with it
    backward = []
    times: dict[str, float] = defaultdict(float)
    for event in events:
        if is_backward(event):
            backward.append(event)
        elif not event.name.startswith(MARK):
            part = part_of(event)
            times[part] += event.self_cpu_time_total / 1e6
            if event.sequence_nr >= 0:
                forward[event.sequence_nr] = part
    for event in backward:
        times[backward_part(event, forward)] += event.self_cpu_time_total / 1e6
    return times


def with_callers(event: Any) -> Iterator[Any]:
    """An event, then its caller, and so on."""
    while event is not None:
        yield event
        event = event.cpu_parent


def is_backward(event: Any) -> bool:
    return any(one.name.startswith("autograd::engine") for one in with_callers(event))


def part_of(event: Any) -> str:
    for one in with_callers(event):
        if one.name.startswith(MARK):
            return str(one.name.removeprefix(MARK))
    return outside(event)


def outside(event: Any) -> str:
    for one in with_callers(event):
        for name, what in OUTSIDE.items():
            if one.name.removeprefix("aten::").startswith(name):
                return what
    return LOSS


def backward_part(event: Any, forward: Mapping[int, str]) -> str:
    for one in with_callers(event):
        if "AccumulateGrad" in one.name:
            return OUTSIDE["AccumulateGrad"]
        if one.sequence_nr in forward:
            return forward[one.sequence_nr]
    return LOSS
