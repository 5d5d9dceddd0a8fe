"""The model as a tree of parts, and the details of one part: equation, source code, inputs and outputs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
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
RESULT = "result"  # the name of an output
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
    """A part with its sub-parts. A ModuleList is skipped, so the layers are children of their stack.

    A shared parameter counts in the first part that has it, so that the parts add up to the model. In a later part it
    counts as `shared`; `shared_with` has the title of the first part.
    """
    module, owners = model.get_submodule(name), parameter_owners(model)
    own = [p for p in module.parameters() if is_part_of(owners[p], name)]
    shared = [p for p in module.parameters() if not is_part_of(owners[p], name)]
    children = [f"{name}.{child}" if name else child for child in children_of(module)]
    return {
        "name": name,
        "kind": kind_of(module),
        "title": title_of(name),
        "parameters": sum(p.numel() for p in own),
        "shared": sum(p.numel() for p in shared),
        "shared_with": sorted({owner_title(owners[p], name) for p in shared}),
        "parts": [part_tree(model, child) for child in children],
    }


def parameter_owners(model: nn.Module) -> dict[nn.Parameter, str]:
    """The first module that has each parameter."""
    return {p: name.rpartition(".")[0] for name, p in model.named_parameters()}  # yields a shared parameter once


def is_part_of(name: str, whole: str) -> bool:
    return not whole or name == whole or name.startswith(f"{whole}.")


def owner_title(owner: str, part: str) -> str:
    """The title of the owner's top-level part, or its name if the part is inside the same one."""
    top = owner.partition(".")[0]
    return owner if is_part_of(part, top) else title_of(top)


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
    call = record_calls(model, [name], example)[name]
    axes = call.axes(model)
    return {
        **part_facts(model, name),
        "inputs": [value_of(k, v, axes[k], example, name) for k, v in call.inputs.items()],
        "outputs": [value_of(k, v, axes[k], example, name) for k, v in call.outputs.items()],
    }


@torch.no_grad()
def describe_parts(model: nn.Module, example: TracedExample, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The details of many parts without values: of inputs and outputs, only their names and those of their axes."""
    found = {}
    for name, call in record_calls(model, names, example).items():
        axes = call.axes(model)
        fields = {
            field: [{"name": key, "axes": axes[key].split()} for key in values]
            for field, values in (("inputs", call.inputs), ("outputs", call.outputs))
        }
        found[name] = {**part_facts(model, name), **fields}
    return found


def part_facts(model: nn.Module, name: str) -> dict[str, Any]:
    """What is known of a part without running the model."""
    module = model.get_submodule(name)
    return {
        "name": name,
        "kind": kind_of(module),
        "title": title_of(name),
        "equation": formula_of(model, name).equation,
        "doc": inspect.getdoc(type_of(module)) or "",
        "parameters": {key: list(p.shape) for key, p in module.named_parameters()},
        "source": source_of(owner_of(model, name)),
    }


def owner_of(model: nn.Module, name: str) -> nn.Module:
    """The module whose source code computes this value: for a probe, its parent."""
    module = model.get_submodule(name)
    return model.get_submodule(name.rpartition(".")[0]) if isinstance(module, Probe) else module


@dataclass
class PartCall:
    """The tensors of a call of one part: inputs by argument name, and the output as `result`."""

    name: str
    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)

    def hook(self, module: nn.Module, positional: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        names = list(inspect.signature(module.forward).parameters)
        pairs = [*zip(names, positional, strict=False), *keywords.items()]
        self.inputs = {key: value for key, value in pairs if isinstance(value, Tensor) and value.dtype != torch.bool}
        self.outputs = {RESULT: output} if isinstance(output, Tensor) else {}
        if isinstance(module, TextProbe):
            self.inputs = {key: module.text(value) for key, value in self.inputs.items()}
            self.outputs = {key: module.text(value) for key, value in self.outputs.items()}

    def axes(self, model: nn.Module) -> dict[str, str]:
        """The names of the axes of each input and of the result; "·" where they are not known."""
        axes = {key: input_axes(model, self.name, key, value) for key, value in self.inputs.items()}
        axes |= dict.fromkeys(self.outputs, formula_of(model, self.name).axes)
        return {key: fit_axes(axes[key], value) for key, value in (self.inputs | self.outputs).items()}


def record_calls(model: nn.Module, names: Sequence[str], example: TracedExample) -> dict[str, PartCall]:
    """Run the model once, and record the call of each of these parts (the last one of a part that is shared)."""
    calls = {name: PartCall(name) for name in names}
    with ExitStack() as hooks, record_activations(model, "*_attention.weights"):
        for name, call in calls.items():
            hook = require_part(model, name).register_forward_hook(call.hook, with_kwargs=True)
            hooks.callback(hook.remove)
        example.logits(model)
    return calls


def require_part(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError:
        hint = nearest(name, [n for n, _ in model.named_modules()])
        raise ConfigError(f"this model has no part {name!r}. {hint}Run cutaway trace for their names.") from None


def fit_axes(axes: str, value: Tensor) -> str:
    return axes if len(axes.split()) == value.dim() else " ".join(["·"] * value.dim())


def source_of(module: nn.Module) -> dict[str, Any] | None:
    """The source code of a part; None for PyTorch's own modules."""
    kind = type_of(module)
    if not kind.__module__.startswith("cutaway."):
        return None
    lines, first = inspect.getsourcelines(kind)
    file = Path(inspect.getfile(kind)).relative_to(PACKAGE).as_posix()
    return {"file": f"src/cutaway/{file}", "line": first, "code": "".join(lines)}


def value_of(key: str, value: Tensor, axes: str, example: TracedExample, name: str) -> dict[str, Any]:
    is_softmax = name.endswith("_attention.weights") and key == RESULT
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
