"""A trained model as ONNX files, for programs that have neither Python nor torch.

    family             file           inputs                                                 output
    decoder            model.onnx     ids [B,T]                                              logits [B,T,V]
    encoder            model.onnx     ids, mask, segments (if it has any) [B,T]              logits, or vectors [B,D]
    encoder_decoder    encoder.onnx   source, source_mask [B,S]                              memory [B,S,D]
                       decoder.onnx   target_in [B,T], memory [B,S,D], source_mask [B,S]     logits [B,T,V]
    vision             model.onnx     images [B,C,H,W]                                       logits [B,C]

No model is written a second time for this: torch.export follows the forward of models/ and notes what it computes,
for batches and lengths of any size. A probe that nobody watches computes nothing, so it leaves nothing in the graph.

The folder is complete in itself: beside the graphs stand the tokenizer, the labels, and a cutaway.json that says what
goes in, what comes out, and which ids are special. A graph for texts that are written token by token has no cache of
keys and values: it reads all that is written so far, and the caller takes the logits of the last token.
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
from cutaway.inference.fast.prepare import as_built
from cutaway.inference.pipelines import Pipeline
from cutaway.interop.obstacles import in_onnx
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

OPSET = 18  # of 2022: what runs it need not be of this year
LARGE = 1_500_000_000  # bytes: a file of more than 2 GB is no ONNX, so then the weights get a file of their own
TOLERANCE = 1e-4  # how much onnxruntime may differ from torch, as a share of the largest number (or of 1)
EXAMPLE = {"batch": 3, "length": 5, "source_length": 7}  # none is 0 or 1, for which torch would make a graph apart
# (batch, length, source length) of the check, all of them new to the graph; lengths are cut where positions end
CHECKED = ((1, 1, 1), (4, 2, 3), (2, 19, 11), (1, 300, 200))
OUR_FILES = {"cutaway.json", "tokenizer.json", "tokenizer_config.json", "labels.json"}
OUR_FILES |= {name + data for name in ("model.onnx", "encoder.onnx", "decoder.onnx") for data in ("", ".data")}


@dataclass(frozen=True)
class GraphTensor:
    """Something that goes into a graph or comes out of it. Axes have names if they may be of any size."""

    name: str
    dtype: str
    axes: tuple[str | int, ...]
    says: str
    below: int = 0  # of ids: how many there are

    def example(self, sizes: Mapping[str, int], draw: np.random.Generator) -> NDArray[Any]:
        """Something to try: any ids, rows of different lengths, any numbers."""
        shape = [axis if isinstance(axis, int) else sizes[axis] for axis in self.axes]
        if self.dtype == "int64":
            return draw.integers(0, self.below, shape)
        if self.dtype == "bool":  # at least one token in each row; the first row is whole
            lengths = [shape[1], *draw.integers(1, shape[1] + 1, shape[0] - 1)]
            return np.arange(shape[1]) < np.array(lengths)[:, None]
        return draw.standard_normal(shape).astype(self.dtype)

    def told(self) -> dict[str, Any]:
        return {"name": self.name, "type": self.dtype, "axes": list(self.axes), "says": self.says}


@dataclass(frozen=True)
class OnnxGraph:
    """A file to be: a module whose `forward` takes the inputs by their names."""

    file: str
    module: nn.Module
    inputs: tuple[GraphTensor, ...]
    output: GraphTensor
    longest: int  # no length may be larger

    def examples(self, sizes: Mapping[str, int], seed: int = 0) -> dict[str, NDArray[Any]]:
        draw, sizes = np.random.default_rng(seed), self.fitting(sizes)
        return {port.name: port.example(sizes, draw) for port in self.inputs}

    def fitting(self, sizes: Mapping[str, int]) -> dict[str, int]:
        return {axis: size if axis == "batch" else min(size, self.longest) for axis, size in sizes.items()}

    def dynamic_axes(self) -> dict[str, dict[int, Any]]:
        """For each input, which of its axes may have any size."""
        dims = {"batch": torch.export.Dim("batch", min=1)}
        if self.longest > 1:
            lengths = {axis for port in self.inputs for axis in port.axes if isinstance(axis, str)} - {"batch"}
            dims |= {axis: torch.export.Dim(axis, min=1, max=self.longest) for axis in lengths}
        return {port.name: {i: dims[a] for i, a in enumerate(port.axes) if a in dims} for port in self.inputs}

    def told(self) -> dict[str, Any]:
        return {"file": self.file, "inputs": [port.told() for port in self.inputs], "outputs": [self.output.told()]}


class OnnxEncoder(nn.Module):
    """The first half of an encoder-decoder."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, source_mask: Tensor) -> Tensor:
        return self.model.encode(source, source_mask)


class OnnxDecoder(nn.Module):
    """Its second half, up to the logits. What is padded on the right needs no mask: nothing before it sees it."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.model = model

    def forward(self, target_in: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        logits: Tensor = self.model.head(self.model.decode(target_in, memory, source_mask))
        return logits


IS_TOKEN = "True at tokens, False at padding"
NEXT = "at each position, for the token that comes next: after a text, take those of its last token"
RIGHT = "pad on the right, with any id"


def of_encoder_decoder(model: EncoderDecoder, config: ModelConfig, longest: int) -> list[OnnxGraph]:
    S, T, V = ("batch", "source_length"), ("batch", "length"), config.vocab_size
    source_mask = GraphTensor("source_mask", "bool", S, IS_TOKEN)
    memory = GraphTensor("memory", "float32", (*S, config.d_model), "what the encoder has read")
    source = GraphTensor("source", "int64", S, "ids of the text to read, and the end after it", V)
    target_in = GraphTensor("target_in", "int64", T, f"ids of what is written so far, after the beginning; {RIGHT}", V)
    logits = GraphTensor("logits", "float32", (*T, V), NEXT)
    return [
        OnnxGraph("encoder.onnx", OnnxEncoder(model), (source, source_mask), memory, longest),
        OnnxGraph("decoder.onnx", OnnxDecoder(model), (target_in, memory, source_mask), logits, longest),
    ]


def of_decoder(model: DecoderOnly, config: ModelConfig, longest: int) -> list[OnnxGraph]:
    T, S, V = ("batch", "length"), ("batch", "source_length"), config.vocab_size
    inputs = [GraphTensor("ids", "int64", T, f"ids of what is written so far; {RIGHT}", V)]
    if config.cross_attention:
        inputs.append(GraphTensor("memory", "float32", (*S, config.d_model), "what to look at while writing"))
        inputs.append(GraphTensor("memory_mask", "bool", S, IS_TOKEN))
    return [OnnxGraph("model.onnx", model, tuple(inputs), GraphTensor("logits", "float32", (*T, V), NEXT), longest)]


def of_encoder(model: EncoderOnly, config: ModelConfig, longest: int) -> list[OnnxGraph]:
    T = ("batch", "length")
    inputs = [
        GraphTensor("ids", "int64", T, "ids of a text, between the beginning and the end", config.vocab_size),
        GraphTensor("mask", "bool", T, IS_TOKEN),
    ]
    if config.segments:
        inputs.append(GraphTensor("segments", "int64", T, "to which of the texts read together a token belongs; 0: the first",
                           config.segments))  # fmt: skip
    outputs = {
        "language": GraphTensor("logits", "float32", (*T, config.vocab_size), "for the token that stands here"),
        "tags": GraphTensor(
            "logits", "float32", (*T, config.n_classes), "for the tag of each token, as in labels.json"
        ),
        "classes": GraphTensor("logits", "float32", ("batch", config.n_classes), "for each class, as in labels.json"),
        "vectors": GraphTensor(
            "vectors", "float32", ("batch", config.d_model), "of a length of its own, not of length 1"
        ),
    }
    return [OnnxGraph("model.onnx", model, tuple(inputs), outputs[config.head], longest)]


def of_vision(model: VisionTransformer, config: ModelConfig, longest: int) -> list[OnnxGraph]:
    shape = ("batch", config.channels, config.image_size, config.image_size)
    images = GraphTensor("images", "float32", shape, "channels, rows and columns of pixels, from 0 to 1")
    logits = GraphTensor("logits", "float32", ("batch", config.n_classes), "for each class, as in labels.json")
    return [OnnxGraph("model.onnx", model, (images,), logits, longest)]


GRAPHS: dict[str, Callable[[Any, ModelConfig, int], list[OnnxGraph]]] = {
    "encoder_decoder": of_encoder_decoder,
    "decoder": of_decoder,
    "encoder": of_encoder,
    "vision": of_vision,
}

# what a text becomes before it goes into a graph
READS: dict[str, Callable[[Tokenizer], list[str]]] = {
    "encoder_decoder": lambda tokenizer: ["text", "eos"],
    "decoder": lambda tokenizer: ["bos", "text"] if tokenizer.adds_bos else ["text"],
    "encoder": lambda tokenizer: ["bos", "text", "eos"],
}


@dataclass(frozen=True)
class OnnxExport:
    """What came of a run."""

    folder: Path
    graphs: tuple[OnnxGraph, ...]
    files: tuple[str, ...]
    parameters: int
    difference: float | None  # the largest from torch, as a share of the largest number; None: nobody looked
    notes: tuple[str, ...]

    def told(self) -> list[str]:
        """A line for each graph, and one about the check."""
        lines = []
        for graph in self.graphs:
            ports = [f"{port.name} [{', '.join(map(str, port.axes))}]" for port in (*graph.inputs, graph.output)]
            lines.append(f"{graph.file}: {', '.join(ports[:-1])} -> {ports[-1]}")
        if self.difference is not None:
            lines.append(f"onnxruntime says the same as torch, to {self.difference:.1e}")
        return lines


def export_onnx(pipeline: Pipeline, folder: str | Path, check: bool = True, overwrite: bool = False) -> OnnxExport:
    """Write a model of any family for onnxruntime and its like. -> what was written

    `check`: run what was written on batches and lengths that torch did not see when it made the graph, and compare. A
    folder appears whole and checked, or not at all; `overwrite` replaces one that holds an earlier export alone.
    """
    require_packages()
    folder, config = Path(folder), pipeline.config.model
    refuse(config)
    check_target(folder, overwrite, is_export, OUR_FILES.__contains__)
    model = plain(pipeline)
    graphs = GRAPHS[config.family](model, config, pipeline.config.longest_text)
    notes, differences = [], []
    can_check = check and find_spec("onnxruntime") is not None
    if check and not can_check:
        notes.append("nobody has run it: onnxruntime is not installed. Install it with: pip install 'cutaway[onnx]'")
    with replacing_folder(folder) as new:
        for graph in graphs:
            write_graph(graph, new / graph.file, config.task)
            if can_check:
                differences.append(difference(graph, new / graph.file))
        write_beside(new, graphs, pipeline)
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


def refuse(config: ModelConfig) -> None:
    for obstacle in in_onnx(config):
        raise ConfigError(obstacle.why)


def is_export(folder: Path) -> bool:
    try:
        return "graphs" in json.loads((folder / "cutaway.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def plain(pipeline: Pipeline) -> Model:
    """A copy of the model as it was built, on the CPU, in single precision."""
    model = pipeline.model
    if not isinstance(model, nn.Module) or any(isinstance(part, Int8Product) for part in model.modules()):
        raise RunError('a graph is drawn of the PyTorch model. Load the run with engine="torch", dtype="float32".')
    watched = [name for name, probe in probes(model).items() if probe.is_watched]
    if watched:
        raise RunError(
            f"somebody is watching {watched[0]!r}, and what is exported would be watched for ever. Export the model "
            "outside of `record_activations` and `edit_activations`."
        )
    exported: Any = as_built(model).to("cpu", torch.float32).eval()
    return exported


def write_graph(graph: OnnxGraph, path: Path, task: str) -> None:
    examples = {name: torch.from_numpy(value) for name, value in graph.examples(EXAMPLE).items()}
    axes = graph.dynamic_axes()
    with quiet(), spelled_out(graph.module), torch.no_grad():
        try:
            traced = torch.export.export(graph.module, (), examples, dynamic_shapes=axes, strict=False)
            program = torch.onnx.export(
                traced,
                kwargs=examples,
                dynamic_shapes=axes,
                input_names=[port.name for port in graph.inputs],
                output_names=[graph.output.name],
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
        except Exception as error:  # torch has many kinds of them, and only a first line is meant for people
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise RunError(
                f"torch cannot make a graph for {graph.file} of this model: {reason} Another version of torch or "
                "onnxscript may. (A long learned prompt is known to be in the way: merge or train without one.)"
            ) from error
        assert program is not None
        describe(program.model, graph, task)
        program.save(path, external_data=size_of(graph.module) > LARGE)


@contextmanager
def spelled_out(module: nn.Module) -> Iterator[None]:
    """Attention by the readable kernel, which is made of what a graph is made of.

    torch would spell the fused one out as well, into as many operations; but there a query that may attend to nothing
    gets the mean of all values, and not zeros.
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


def size_of(module: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in (*module.parameters(), *module.buffers()))


def describe(model: Any, graph: OnnxGraph, task: str) -> None:
    """Say in the file itself what it is; leave out where on this machine the code stands that torch followed."""
    told = graph.told()
    model.metadata_props.update(
        {
            "cutaway": __version__,
            "task": task,
            "inputs": json.dumps(told["inputs"]),
            "outputs": json.dumps(told["outputs"]),
        }
    )
    for port, value in zip((*graph.inputs, graph.output), (*model.graph.inputs, *model.graph.outputs), strict=True):
        value.doc_string = port.says
    for node in model.graph.all_nodes():
        place = node.metadata_props.get("namespace")  # which part of the model it belongs to
        node.metadata_props.clear()
        if place:
            node.metadata_props["namespace"] = place


def difference(graph: OnnxGraph, path: Path) -> float:
    """The largest between onnxruntime and torch, as a share of the largest number; too large is an error."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors alone
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    largest = 0.0
    for number, sizes in enumerate(CHECKED):
        inputs = graph.examples(dict(zip(("batch", "length", "source_length"), sizes, strict=True)), seed=number + 1)
        with torch.inference_mode():
            expected = graph.module(**{name: torch.from_numpy(value) for name, value in inputs.items()}).numpy()
        found = session.run([graph.output.name], inputs)[0]
        share = compared(found, expected)
        if not share <= TOLERANCE:  # neither is what is not a number
            shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in inputs.items())
            raise RunError(
                f"{graph.file} does not say what the model says: for {shapes} they differ by {share:.1e} of the "
                f"largest number, and {TOLERANCE:.0e} is allowed. Nothing was written. Another version of torch or "
                "onnxruntime may do it right; without the check (--no-check) it is written all the same."
            )
        largest = max(largest, share)
    return largest


def compared(found: NDArray[Any], expected: NDArray[Any]) -> float:
    if found.shape != expected.shape:
        return float("inf")
    return float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))


def write_beside(folder: Path, graphs: Sequence[OnnxGraph], pipeline: Pipeline) -> None:
    """All that a program needs to use the graphs."""
    config = pipeline.config
    told: dict[str, Any] = {
        "cutaway": __version__,
        "task": config.model.task,
        "opset": OPSET,
        "graphs": [graph.told() for graph in graphs],
    }
    if config.model.family != "vision":
        told |= about_texts(config, pipeline.tokenizer)
        reading = pipeline.tokenizer.backend  # one that cuts the texts to be written otherwise has nothing to do here
        write_text(folder / "tokenizer.json", reading.to_str(pretty=True) + "\n")
        write_json(folder / "tokenizer_config.json", pipeline.tokenizer.settings())
    if pipeline.labels:
        write_json(folder / "labels.json", list(pipeline.labels))
    write_json(folder / "cutaway.json", told)


def about_texts(config: Config, tokenizer: Tokenizer) -> dict[str, Any]:
    """How a text becomes ids, and when a text that is written ends."""
    told: dict[str, Any] = {
        "max_length": config.longest_text,
        "special_ids": {role: getattr(tokenizer, role) for role in ROLES if role in tokenizer.roles},
        "reads": READS[config.model.family](tokenizer),
    }
    if config.model.family in ("decoder", "encoder_decoder"):
        told["never_written"] = list(config.decode.suppress)
    if config.model.family == "encoder_decoder":
        told["writes_after"] = ["bos"]
    return told


@contextmanager
def quiet() -> Iterator[None]:
    """Without what torch tells its own developers on the way."""
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
