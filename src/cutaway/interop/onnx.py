"""Export a trained model as ONNX files, for programs without Python or torch.

    family             file           inputs                                                 output
    decoder            model.onnx     ids [B,T]                                              logits [B,T,V]
    encoder            model.onnx     ids, mask, segments (if the model has them) [B,T]      logits, or vectors [B,D]
    encoder_decoder    encoder.onnx   source, source_mask [B,S]                              memory [B,S,D]
                       decoder.onnx   target_in [B,T], memory [B,S,D], source_mask [B,S]     logits [B,T,V]
    vision             model.onnx     images [B,C,H,W]                                       logits [B,C]

torch.export traces the `forward` of models/, for any batch size and length. A probe without a hook adds nothing to the
graph.

The folder also has the tokenizer, the labels, and a cutaway.json that describes inputs, outputs and special ids. A
graph for generation has no KV cache: it reads all tokens so far, and the caller uses the logits of the last one.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cutaway import __version__
from cutaway.config import Config, ModelConfig
from cutaway.data.tokenizer import ROLES, Tokenizer
from cutaway.errors import ConfigError, MissingExtra, RunError
from cutaway.inference.fast.int8 import Int8Product
from cutaway.inference.fast.prepare import undo_replacements
from cutaway.inference.pipelines import Pipeline
from cutaway.interop.obstacles import onnx_obstacles
from cutaway.models.build import Model
from cutaway.models.decoder import DecoderOnly
from cutaway.models.encoder import EncoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.vision import VisionTransformer
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.kernels import attend_exact
from cutaway.nn.recording import probes
from cutaway.runs.files import replacing_folder, write_json, write_text
from cutaway.runs.folder import check_target

OPSET = 18  # from 2022, so older runtimes work
MAX_INLINE_BYTES = 1_500_000_000  # larger weights get a separate file, since an ONNX file is limited to 2 GB
TOLERANCE = 1e-4  # largest difference between onnxruntime and torch, relative to the largest number (or to 1)
EXAMPLE = {"batch": 3, "length": 5, "source_length": 7}  # not 0 or 1, which torch would specialise
# (batch, length, source length) for the check, none used for tracing; lengths are cut to the model's positions
CHECK_SIZES = ((1, 1, 1), (4, 2, 3), (2, 19, 11), (1, 300, 200))
OUR_FILES = {"cutaway.json", "tokenizer.json", "tokenizer_config.json", "labels.json"}
OUR_FILES |= {name + data for name in ("model.onnx", "encoder.onnx", "decoder.onnx") for data in ("", ".data")}


@dataclass(frozen=True)
class GraphTensor:
    """An input or output of a graph. An axis of any size has a name."""

    name: str
    dtype: str
    axes: tuple[str | int, ...]
    description: str
    id_count: int = 0  # for ids: the number of valid ids

    def example(self, sizes: Mapping[str, int], draw: np.random.Generator) -> NDArray[Any]:
        """A random example: ids, masks of different lengths, or numbers."""
        shape = [axis if isinstance(axis, int) else sizes[axis] for axis in self.axes]
        if self.dtype == "int64":
            return draw.integers(0, self.id_count, shape)
        if self.dtype == "bool":  # at least one token in each row; the first row is full
            lengths = [shape[1], *draw.integers(1, shape[1] + 1, shape[0] - 1)]
            return np.arange(shape[1]) < np.array(lengths)[:, None]
        return draw.standard_normal(shape).astype(self.dtype)

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "type": self.dtype, "axes": list(self.axes), "says": self.description}


@dataclass(frozen=True)
class OnnxGraph:
    """A graph to write: a module whose `forward` takes the inputs by name."""

    file: str
    module: nn.Module
    inputs: tuple[GraphTensor, ...]
    output: GraphTensor
    longest: int  # largest length

    def examples(self, sizes: Mapping[str, int], seed: int = 0) -> dict[str, NDArray[Any]]:
        draw, sizes = np.random.default_rng(seed), self.limit_sizes(sizes)
        return {tensor.name: tensor.example(sizes, draw) for tensor in self.inputs}

    def limit_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        return {axis: size if axis == "batch" else min(size, self.longest) for axis, size in sizes.items()}

    def dynamic_axes(self) -> dict[str, dict[int, Any]]:
        """The axes of any size, for each input."""
        dims = {"batch": torch.export.Dim("batch", min=1)}
        if self.longest > 1:
            lengths = {axis for tensor in self.inputs for axis in tensor.axes if isinstance(axis, str)} - {"batch"}
            dims |= {axis: torch.export.Dim(axis, min=1, max=self.longest) for axis in lengths}
        return {tensor.name: {i: dims[a] for i, a in enumerate(tensor.axes) if a in dims} for tensor in self.inputs}

    def as_json(self) -> dict[str, Any]:
        inputs = [tensor.as_json() for tensor in self.inputs]
        return {"file": self.file, "inputs": inputs, "outputs": [self.output.as_json()]}


class OnnxEncoder(nn.Module):
    """The encoder of an encoder-decoder."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, source_mask: Tensor) -> Tensor:
        return self.model.encode(source, source_mask)


class OnnxDecoder(nn.Module):
    """The decoder and the output head. Padding on the right needs no mask, because attention is causal."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.model = model

    def forward(self, target_in: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        logits: Tensor = self.model.head(self.model.decode(target_in, memory, source_mask))
        return logits


IS_TOKEN = "True for tokens, False for padding"
NEXT = "logits of the next token, at each position: to continue a text, use those of its last token"
RIGHT = "pad on the right with any id"


def encoder_decoder_graphs(model: EncoderDecoder, config: ModelConfig, longest: int) -> list[OnnxGraph]:
    S, T, V = ("batch", "source_length"), ("batch", "length"), config.vocab_size
    source_mask = GraphTensor("source_mask", "bool", S, IS_TOKEN)
    memory = GraphTensor("memory", "float32", (*S, config.d_model), "the output of the encoder")
    source = GraphTensor("source", "int64", S, "ids of the source, with the end token", V)
    target_in = GraphTensor("target_in", "int64", T, f"the start token and the ids generated so far; {RIGHT}", V)
    logits = GraphTensor("logits", "float32", (*T, V), NEXT)
    return [
        OnnxGraph("encoder.onnx", OnnxEncoder(model), (source, source_mask), memory, longest),
        OnnxGraph("decoder.onnx", OnnxDecoder(model), (target_in, memory, source_mask), logits, longest),
    ]


def decoder_graphs(model: DecoderOnly, config: ModelConfig, longest: int) -> list[OnnxGraph]:
    T, S, V = ("batch", "length"), ("batch", "source_length"), config.vocab_size
    inputs = [GraphTensor("ids", "int64", T, f"ids of the text so far; {RIGHT}", V)]
    if config.cross_attention:
        inputs.append(GraphTensor("memory", "float32", (*S, config.d_model), "vectors for cross-attention"))
        inputs.append(GraphTensor("memory_mask", "bool", S, IS_TOKEN))
    return [OnnxGraph("model.onnx", model, tuple(inputs), GraphTensor("logits", "float32", (*T, V), NEXT), longest)]


def encoder_graphs(model: EncoderOnly, config: ModelConfig, longest: int) -> list[OnnxGraph]:
    T = ("batch", "length")
    inputs = [
        GraphTensor("ids", "int64", T, "ids of a text, with start and end token", config.vocab_size),
        GraphTensor("mask", "bool", T, IS_TOKEN),
    ]
    if config.segments:
        segments = "which text of a pair a token belongs to; 0: the first"
        inputs.append(GraphTensor("segments", "int64", T, segments, config.segments))
    outputs = {
        "language": GraphTensor("logits", "float32", (*T, config.vocab_size), "logits of the token at each position"),
        "tags": GraphTensor(
            "logits", "float32", (*T, config.n_classes), "logits of the tags of each token, as in labels.json"
        ),
        "classes": GraphTensor(
            "logits", "float32", ("batch", config.n_classes), "logits of the classes, as in labels.json"
        ),
        "vectors": GraphTensor("vectors", "float32", ("batch", config.d_model), "vectors, not normalised to length 1"),
    }
    return [OnnxGraph("model.onnx", model, tuple(inputs), outputs[config.head], longest)]


def vision_graphs(model: VisionTransformer, config: ModelConfig, longest: int) -> list[OnnxGraph]:
    shape = ("batch", config.channels, config.image_size, config.image_size)
    images = GraphTensor("images", "float32", shape, "pixels from 0 to 1: channels, rows, columns")
    logits = GraphTensor("logits", "float32", ("batch", config.n_classes), "logits of the classes, as in labels.json")
    return [OnnxGraph("model.onnx", model, (images,), logits, longest)]


GRAPHS: dict[str, Callable[[Any, ModelConfig, int], list[OnnxGraph]]] = {
    "encoder_decoder": encoder_decoder_graphs,
    "decoder": decoder_graphs,
    "encoder": encoder_graphs,
    "vision": vision_graphs,
}

# family -> the input sequence for a text
INPUT_SEQUENCES: dict[str, Callable[[Tokenizer], list[str]]] = {
    "encoder_decoder": lambda tokenizer: ["text", "eos"],
    "decoder": lambda tokenizer: ["bos", "text"] if tokenizer.adds_bos else ["text"],
    "encoder": lambda tokenizer: ["bos", "text", "eos"],
}


@dataclass(frozen=True)
class OnnxExport:
    """The result of an ONNX export."""

    folder: Path
    graphs: tuple[OnnxGraph, ...]
    files: tuple[str, ...]
    parameters: int
    difference: float | None  # largest relative difference from torch; None: not checked
    notes: tuple[str, ...]

    def summary_lines(self) -> list[str]:
        """One line for each graph, and one for the check."""
        lines = []
        for graph in self.graphs:
            tensors = [
                f"{tensor.name} [{', '.join(map(str, tensor.axes))}]" for tensor in (*graph.inputs, graph.output)
            ]
            lines.append(f"{graph.file}: {', '.join(tensors[:-1])} -> {tensors[-1]}")
        if self.difference is not None:
            lines.append(f"onnxruntime agrees with torch, to {self.difference:.1e}")
        return lines


def export_onnx(pipeline: Pipeline, folder: str | Path, check: bool = True, overwrite: bool = False) -> OnnxExport:
    """Write a model of any family as ONNX.

    `check`: compare onnxruntime with torch, on batch sizes and lengths that tracing did not use. The folder is written
    completely and checked, or not at all. `overwrite`: replace an earlier export, if the folder has no other files.
    """
    require_packages()
    folder, config = Path(folder), pipeline.config.model
    check_supported(config)
    check_target(folder, overwrite, is_export, OUR_FILES.__contains__)
    model = copy_model(pipeline)
    graphs = GRAPHS[config.family](model, config, pipeline.config.longest_text)
    notes, differences = [], []
    can_check = check and find_spec("onnxruntime") is not None
    if check and not can_check:
        notes.append(
            "the export was not checked: onnxruntime is not installed. Install it with: pip install 'cutaway[onnx]'"
        )
    with replacing_folder(folder) as new:
        for graph in graphs:
            write_graph(graph, new / graph.file, config.task)
            if can_check:
                differences.append(check_graph(graph, new / graph.file))
        write_extra_files(new, graphs, pipeline)
        files = sorted(path.name for path in new.iterdir())
    return OnnxExport(
        folder=folder,
        graphs=tuple(graphs),
        files=tuple(files),
        parameters=sum(p.numel() for p in model.parameters()),
        difference=max(differences, default=None),
        notes=tuple(notes),
    )


def require_packages() -> None:
    for package in ("onnx", "onnxscript"):
        if find_spec(package) is None:
            raise MissingExtra(package, "onnx", "export to ONNX")


def check_supported(config: ModelConfig) -> None:
    for obstacle in onnx_obstacles(config):
        raise ConfigError(obstacle.why)


def is_export(folder: Path) -> bool:
    try:
        return "graphs" in json.loads((folder / "cutaway.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def copy_model(pipeline: Pipeline) -> Model:
    """A copy of the model as it was built, on the CPU, in single precision."""
    model = pipeline.model
    if not isinstance(model, nn.Module) or any(isinstance(part, Int8Product) for part in model.modules()):
        raise RunError('only a PyTorch model can be exported. Load the run with engine="torch", dtype="float32".')
    watched = [name for name, probe in probes(model).items() if probe.is_watched]
    if watched:
        raise RunError(
            f"the probe {watched[0]!r} has a hook, which would become part of the graph. Export the model outside of "
            "`record_activations` and `edit_activations`."
        )
    exported: Any = undo_replacements(model).to("cpu", torch.float32).eval()
    return exported


def write_graph(graph: OnnxGraph, path: Path, task: str) -> None:
    examples = {name: torch.from_numpy(value) for name, value in graph.examples(EXAMPLE).items()}
    axes = graph.dynamic_axes()
    with silence_loggers(), exact_attention(graph.module), torch.no_grad():
        try:
            traced = torch.export.export(graph.module, (), examples, dynamic_shapes=axes, strict=False)
            program = torch.onnx.export(
                traced,
                kwargs=examples,
                dynamic_shapes=axes,
                input_names=[tensor.name for tensor in graph.inputs],
                output_names=[graph.output.name],
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
        except Exception as error:  # torch raises many types; only the first line is readable
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise RunError(
                f"torch cannot export {graph.file} of this model: {reason} Try another version of torch or onnxscript. "
                "(A long learned prompt is a known cause: train without one.)"
            ) from error
        assert program is not None
        describe(program.model, graph, task)
        program.save(path, external_data=weight_bytes(graph.module) > MAX_INLINE_BYTES)


@contextmanager
def exact_attention(module: nn.Module) -> Iterator[None]:
    """Use the exact attention kernel during tracing.

    torch would export the fused kernel as the same number of operations. But there, a query that may attend to nothing
    gets the mean of all values instead of zeros.
    """
    attentions = [part for part in module.modules() if isinstance(part, MultiHeadAttention)]
    kernels = [attention.kernel for attention in attentions]
    for attention in attentions:
        attention.kernel = attend_exact
    try:
        yield
    finally:
        for attention, kernel in zip(attentions, kernels, strict=True):
            attention.kernel = kernel


def weight_bytes(module: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in (*module.parameters(), *module.buffers()))


def describe(model: Any, graph: OnnxGraph, task: str) -> None:
    """Add a description to the file. Remove torch's metadata, which has paths of this machine."""
    description = graph.as_json()
    model.metadata_props.update(
        {
            "cutaway": __version__,
            "task": task,
            "inputs": json.dumps(description["inputs"]),
            "outputs": json.dumps(description["outputs"]),
        }
    )
    for tensor, value in zip((*graph.inputs, graph.output), (*model.graph.inputs, *model.graph.outputs), strict=True):
        value.doc_string = tensor.description
    for node in model.graph.all_nodes():
        namespace = node.metadata_props.get("namespace")  # the module
        node.metadata_props.clear()
        if namespace:
            node.metadata_props["namespace"] = namespace


def check_graph(graph: OnnxGraph, path: Path) -> float:
    """Return the largest relative difference between onnxruntime and torch. Raise if it is too large."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    largest = 0.0
    for number, sizes in enumerate(CHECK_SIZES):
        inputs = graph.examples(dict(zip(("batch", "length", "source_length"), sizes, strict=True)), seed=number + 1)
        with torch.inference_mode():
            expected = graph.module(**{name: torch.from_numpy(value) for name, value in inputs.items()}).numpy()
        found = session.run([graph.output.name], inputs)[0]
        share = relative_difference(found, expected)
        if not share <= TOLERANCE:  # also True for NaN
            shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in inputs.items())
            raise RunError(
                f"{graph.file} differs from the model: for {shapes} by {share:.1e} of the largest number; at most "
                f"{TOLERANCE:.0e} is allowed. Nothing was written. Try another version of torch or onnxruntime, or "
                "export without the check (--no-check)."
            )
        largest = max(largest, share)
    return largest


def relative_difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    if found.shape != expected.shape:
        return float("inf")
    return float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))


def write_extra_files(folder: Path, graphs: Sequence[OnnxGraph], pipeline: Pipeline) -> None:
    """Write everything else that a program needs to use the graphs."""
    config = pipeline.config
    description: dict[str, Any] = {
        "cutaway": __version__,
        "task": config.model.task,
        "opset": OPSET,
        "graphs": [graph.as_json() for graph in graphs],
    }
    if config.model.family != "vision":
        description |= describe_texts(config, pipeline.tokenizer)
        backend = pipeline.tokenizer.backend  # of the source; a separate target tokenizer is not needed
        write_text(folder / "tokenizer.json", backend.to_str(pretty=True) + "\n")
        write_json(folder / "tokenizer_config.json", pipeline.tokenizer.settings())
    if pipeline.labels:
        write_json(folder / "labels.json", list(pipeline.labels))
    write_json(folder / "cutaway.json", description)


def describe_texts(config: Config, tokenizer: Tokenizer) -> dict[str, Any]:
    """How a text becomes ids, and which ids are never generated."""
    description: dict[str, Any] = {
        "max_length": config.longest_text,
        "special_ids": {role: getattr(tokenizer, role) for role in ROLES if role in tokenizer.roles},
        "reads": INPUT_SEQUENCES[config.model.family](tokenizer),
    }
    if config.model.family in ("decoder", "encoder_decoder"):
        description["never_written"] = list(config.decode.suppress)
    if config.model.family == "encoder_decoder":
        description["writes_after"] = ["bos"]
    return description


@contextmanager
def silence_loggers() -> Iterator[None]:
    """Hide the log messages and warnings of torch's exporter."""
    loggers = [
        logging.getLogger(name) for name in ("torch.onnx", "torch.export", "torch._export", "onnxscript", "onnx_ir")
    ]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
