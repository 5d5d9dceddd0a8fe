"""The model as a tree of parts, and the details of one part: equation, source code, inputs and outputs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.errors import ConfigError, nearest
from cutaway.explore.equations import formula_of, kind_of, length_axis, type_of
from cutaway.explore.traced_example import TracedExample
from cutaway.explore.values import slices, summarize_value, truncation_note
from cutaway.finetune.text_probe import TextProbe
from cutaway.nn.probe import Probe
from cutaway.nn.recording import record_activations

PACKAGE = Path(__file__).parents[1]
TITLES = {
    "source_embedding": "Source embedding",
    "target_embedding": "Target embedding",
    "embedding": "Embedding",
    "encoder": "Encoder",
    "decoder": "Decoder",
    "self_attention": "Self-attention",
    "cross_attention": "Cross-attention",
    "feed_forward": "Feed-forward",
    "self_attention_residual": "Add & norm around self-attention",
    "cross_attention_residual": "Add & norm around cross-attention",
    "feed_forward_residual": "Add & norm around feed-forward",
    "residual": "Add & norm around all sub-layers",
    "norm": "Norm",
    "head": "Output",
    "output": "Output projection",
    "q": "Queries",
    "k": "Keys",
    "v": "Values",
    "stream": "Residual stream",
}


def part_tree(model: nn.Module, name: str = "") -> dict[str, Any]:
    """A part with its sub-parts. A ModuleList is skipped, so the layers are children of their stack."""
    module = model.get_submodule(name)
    children = [f"{name}.{child}" if name else child for child in children_of(module)]
    return {
        "name": name,
        "kind": kind_of(module),
        "title": title_of(name),
        "parameters": sum(p.numel() for p in module.parameters()),
        "parts": [part_tree(model, child) for child in children],
    }


def children_of(module: nn.Module) -> list[str]:
    found = []
    for name, child in module.named_children():
        if isinstance(child, nn.ModuleList):
            found += [f"{name}.{i}" for i in range(len(child))]
        elif kind_of(child) not in ("Identity", "Dropout", "Position"):
            found.append(name)
    return found


def title_of(name: str) -> str:
    last = name.rpartition(".")[2]
    if last.isdigit():
        kind = "Expert" if ".experts." in name else "Layer"
        return f"{kind} {last}"
    return TITLES.get(last, last.replace("_", " ").capitalize() or "The whole model")


@torch.no_grad()
def describe_part(model: nn.Module, example: TracedExample, name: str) -> dict[str, Any]:
    """The details of one part, with its values for this example."""
    try:
        module = model.get_submodule(name)
    except AttributeError:
        hint = nearest(name, [n for n, _ in model.named_modules()])
        raise ConfigError(f"this model has no part {name!r}. {hint}Run cutaway trace for their names.") from None
    formula = formula_of(model, name)
    inputs, output = record_inputs_and_output(model, module, example)
    return {
        "name": name,
        "kind": kind_of(module),
        "title": title_of(name),
        "equation": formula.equation,
        "doc": inspect.getdoc(type_of(module)) or "",
        "parameters": {key: list(p.shape) for key, p in module.named_parameters()},
        "source": source_of(owner_of(model, name)),
        "inputs": [value_of(k, v, input_axes(model, name, k, v), example, name) for k, v in inputs],
        "outputs": [] if output is None else [value_of("result", output, formula.axes, example, name)],
    }


def owner_of(model: nn.Module, name: str) -> nn.Module:
    """The module whose source code computes this value: for a probe, its parent."""
    module = model.get_submodule(name)
    return model.get_submodule(name.rpartition(".")[0]) if isinstance(module, Probe) else module


def record_inputs_and_output(
    model: nn.Module, module: nn.Module, example: TracedExample
) -> tuple[list[tuple[str, Tensor]], Tensor | None]:
    """The input tensors of a part, by argument name, and its output."""
    inputs: list[tuple[str, Tensor]] = []
    outputs: list[Tensor] = []

    def hook(module: nn.Module, positional: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        names = list(inspect.signature(module.forward).parameters)
        pairs = [*zip(names, positional, strict=False), *keywords.items()]
        inputs[:] = [(key, value) for key, value in pairs if isinstance(value, Tensor) and value.dtype != torch.bool]
        outputs[:] = [output] if isinstance(output, Tensor) else []
        if isinstance(module, TextProbe):
            inputs[:] = [(key, module.text(value)) for key, value in inputs]
            outputs[:] = [module.text(value) for value in outputs]

    with ExitStack() as hooks, record_activations(model, "*_attention.weights"):
        hooks.callback(module.register_forward_hook(hook, with_kwargs=True).remove)
        example.logits(model)
    return inputs, outputs[0] if outputs else None


def source_of(module: nn.Module) -> dict[str, Any] | None:
    """The source code of a part; None for PyTorch's own modules."""
    kind = type_of(module)
    if not kind.__module__.startswith("cutaway."):
        return None
    lines, first = inspect.getsourcelines(kind)
    file = Path(inspect.getfile(kind)).relative_to(PACKAGE).as_posix()
    return {"file": f"src/cutaway/{file}", "line": first, "code": "".join(lines)}


def value_of(key: str, value: Tensor, axes: str, example: TracedExample, name: str) -> dict[str, Any]:
    axes = axes if len(axes.split()) == value.dim() else " ".join(["·"] * value.dim())
    is_softmax = name.endswith("_attention.weights") and key == "result"
    rows, columns = labels_of(value, axes.split(), example, name)
    return {
        "name": key,
        **summarize_value(value, axes, is_softmax).as_json(),
        "rows": rows,
        "columns": columns,
        "slices": slices(value),
        "shown": truncation_note(value),
    }


def input_axes(model: nn.Module, name: str, key: str, value: Tensor) -> str:
    """The axes of an input: a probe's are those of its output; ids are [B, T]; most others end in D."""
    module, length = model.get_submodule(name), length_axis(model, name)
    if isinstance(module, Probe):
        return formula_of(model, name).axes
    if not value.is_floating_point():
        return f"B {'S' if key == 'source' else length}"
    if value.dim() == 3:
        length = "S" if key == "memory" else length
        return f"B {length} {INPUT_WIDTHS.get(name.rpartition('.')[2], 'D')}"
    if value.dim() == 2:
        return "N F" if name.endswith("contract") else "N D" if ".experts." in name else "B D"
    return {"query_norm": "B H Q E", "key_norm": "B G K E"}.get(name.rpartition(".")[2], "B C height width")


INPUT_WIDTHS = {"contract": "F", "output": "H·E"}


def labels_of(
    value: Tensor, axes: Sequence[str], example: TracedExample, name: str
) -> tuple[list[str] | None, list[str] | None]:
    """The tokens of the rows and columns of the last two axes; None if an axis is not a sequence of tokens."""
    reads_source = not example.target_in or name.startswith(("encoder", "source_embedding"))
    own = example.source if reads_source else example.target_in
    other = example.source if ".cross_attention" in name else own

    def tokens_of(axis: str, size: int) -> list[str] | None:
        tokens = {"S": example.source, "K": other}.get(axis, own)
        is_length = axis in ("T", "S", "Q", "K", "N")
        return tokens if is_length and len(tokens) == size else None

    if value.dim() < 2:
        return None, None
    return tokens_of(axes[-2], value.shape[-2]), tokens_of(axes[-1], value.shape[-1])
