"""The capstone: a Transformer that consists of a learner's own functions.

    functions of exercises 1 to 9 ──▶ logits, loss, gradients, Adam ──▶ training ──▶ a run folder, for the explorer

With PyTorch, exercises 1 to 8 are needed, and autograd computes the gradients. With NumPy, the learner's own
derivatives of exercise 9 do. The weights have the names of the library's model, so that every command can load them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.config import Config
from cutaway.course import given
from cutaway.course.exercises import get_exercise
from cutaway.course.sandbox_child import detect_library
from cutaway.data.prepare import PreparedData, prepare
from cutaway.errors import DataError
from cutaway.inference.training.new_run import start_folder
from cutaway.inference.training.numpy_trainer import NumpyTrainer
from cutaway.runs import RunFolder
from cutaway.runs.recipe import read_recipe
from cutaway.system.resources import find_toml
from cutaway.train.observers import Observer, StepReport
from cutaway.twin.batch import Batch

Array = NDArray[Any]
Functions = dict[str, Callable[..., Any]]
LAST_EXERCISE = {"torch": 8, "numpy": 9}
PAD, SMOOTHING, MAX_NORM = 0, 0.0, 1.0
BETAS, EPSILON = (0.9, 0.98), 1e-9  # of Adam, as in the paper
# The paper's layers, small. The steps are enough for the solutions to reach 95 % exact match, and 90 BLEU.
SMALL = ["model.norm_placement=post", "model.d_model=64", "model.d_ff=256"]
SMALL += ["train.log_every=20", "train.valid_every=450"]
TASKS = {
    "reverse": [*SMALL, "data.batch_tokens=512", "train.lr=0.003", "train.warmup=100", "train.steps=700"],
    "demo": [*SMALL, "data.batch_tokens=1024", "train.lr=0.005", "train.warmup=200", "train.steps=900"],
}
SCORED = 200  # held-out texts


def library_of(files: Mapping[int, Path]) -> str:
    """Return the library that all files use. The first exercise decides which ones are needed."""
    libraries = {number: detect_library(path) for number, path in files.items()}
    library = libraries.get(1, "numpy")
    others = [files[number].name for number, other in libraries.items() if other != library]
    others = [name for name in others if int(name[9:11]) <= LAST_EXERCISE[library]]
    if others:
        raise DataError(
            f"{files[1].name} is written with {library}, but not {', '.join(others)}. Use one library for all files."
        )
    return library


@contextlib.contextmanager
def load_functions(files: Mapping[int, Path]) -> Iterator[Functions]:
    """Import the files in order. What they import from `cutaway.course.given` are the learner's own functions."""
    functions: Functions = {}
    before, path, modules = dict(vars(given)), list(sys.path), set(sys.modules)
    try:
        for number, file in sorted(files.items()):
            module = import_file(file)
            for part in get_exercise(number).parts:
                functions[part.name] = getattr(module, part.name)
                setattr(given, part.name, functions[part.name])
        yield functions
    finally:
        vars(given).update(before)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if name.startswith("exercise_"):
                del sys.modules[name]


def import_file(file: Path) -> ModuleType:
    if str(file.parent.resolve()) not in sys.path:
        sys.path.insert(0, str(file.parent.resolve()))  # so that it can import files next to it
    if file.stem in sys.modules:  # imported by another exercise
        return sys.modules[file.stem]
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[file.stem] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- weights: the learner's nested dicts, and the library's names ---------------------------------------------------

SUB_LAYERS = {
    "encoder": ("self_attention", "feed_forward"),
    "decoder": ("self_attention", "cross_attention", "feed_forward"),
}
FEED_FORWARD = {"w1": "expand.weight", "b1": "expand.bias", "w2": "contract.weight", "b2": "contract.bias"}
PROJECTIONS = ("query", "key", "value", "output")
Keys = tuple[Any, ...]


def weight_names(encoder_layers: int, decoder_layers: int) -> dict[str, Keys]:
    """Return library name -> keys of the learner's weights, such as ("encoder", 0, "norm_1", "gain")."""
    names: dict[str, Keys] = {"source_embedding.tokens.weight": ("embedding",)}
    for stack, count in (("encoder", encoder_layers), ("decoder", decoder_layers)):
        for i in range(count):
            for place, sub_layer in enumerate(SUB_LAYERS[stack], 1):
                layer, start = (stack, i), f"{stack}.layers.{i}.{sub_layer}"
                # an encoder block has one attention, so its weights are called just that
                own = "attention" if stack == "encoder" and sub_layer == "self_attention" else sub_layer
                if sub_layer == "feed_forward":
                    names |= {f"{start}.{name}": (*layer, own, key) for key, name in FEED_FORWARD.items()}
                else:
                    names |= {f"{start}.{key}.weight": (*layer, own, key) for key in PROJECTIONS}
                names[f"{start}_residual.norm.weight"] = (*layer, f"norm_{place}", "gain")
                names[f"{start}_residual.norm.bias"] = (*layer, f"norm_{place}", "bias")
    return names


def build_weights(flat: Mapping[Keys, Any]) -> dict[str, Any]:
    """Return nested dicts and lists, as exercise 5 describes them."""
    weights: dict[str, Any] = {"encoder": [], "decoder": []}
    for keys, value in flat.items():
        if len(keys) == 1:
            weights[keys[0]] = value
            continue
        stack, i, part, key = keys
        while len(weights[stack]) <= i:
            weights[stack].append({})
        weights[stack][i].setdefault(part, {})[key] = value
    return weights


def flatten(weights: Mapping[str, Any]) -> dict[Keys, Any]:
    """The way back."""
    flat: dict[Keys, Any] = {("embedding",): weights["embedding"]}
    for stack in ("encoder", "decoder"):
        for i, layer in enumerate(weights[stack]):
            flat |= {(stack, i, part, key): value for part, inner in layer.items() for key, value in inner.items()}
    return flat


# --- the model -------------------------------------------------------------------------------------------------------


@dataclass
class LearnerModel:
    """A Transformer made of a learner's functions."""

    functions: Functions
    library: str
    n_heads: int

    def loss_and_gradients(self, weights: Mapping[Keys, Any], batch: Batch) -> tuple[float, dict[Keys, Any]]:
        source, target_in = batch.inputs[:2]
        inputs = (self.ids(source), self.ids(target_in), self.ids(batch.targets * batch.target_mask))
        return (self.by_autograd if self.library == "torch" else self.by_hand)(weights, *inputs)

    def by_autograd(
        self, weights: Mapping[Keys, Any], source: Any, target_in: Any, target: Any
    ) -> tuple[float, dict[Keys, Any]]:
        import torch

        leaves = {keys: value.detach().requires_grad_() for keys, value in weights.items()}
        logits = self.functions["transformer"](source, target_in, build_weights(leaves), self.n_heads, PAD)
        loss = self.functions["smoothed_loss"](logits, target, SMOOTHING, PAD)
        found: Sequence[Any] = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        missing = [".".join(map(str, keys)) for keys, gradient in zip(leaves, found, strict=True) if gradient is None]
        if missing:
            raise DataError(
                f"no gradient reaches {', '.join(missing[:3])}. Your functions must compute with tensors all the way: "
                "no .detach(), .item() or .numpy(), and no new tensors made from numbers."
            )
        return loss.item(), dict(zip(leaves, found, strict=True))

    def by_hand(
        self, weights: Mapping[Keys, Any], source: Array, target_in: Array, target: Array
    ) -> tuple[float, dict[Keys, Any]]:
        """Forward through the learner's blocks, then backward through the derivatives of exercise 9."""
        f, nested = self.functions, build_weights(weights)
        table, mask, memory_mask = (
            nested["embedding"],
            f["decoder_mask"](target_in, PAD),
            f["padding_mask"](source, PAD),
        )
        x, encoder_inputs = f["embed"](source, table), []
        for layer in nested["encoder"]:
            encoder_inputs.append(x)
            x = f["encoder_block"](x, layer, self.n_heads, memory_mask)
        memory, y, decoder_inputs = x, f["embed"](target_in, table), []
        for layer in nested["decoder"]:
            decoder_inputs.append(y)
            y = f["decoder_block"](y, memory, layer, self.n_heads, mask, memory_mask)
        logits = y @ table.T

        loss = f["cross_entropy"](logits, target, PAD)
        d_logits = f["cross_entropy_backward"](logits, target, PAD)
        d_y, d_table, _ = f["linear_backward"](d_logits, y, table.T)
        d_table, d_memory = d_table.T, 0.0
        gradients: dict[str, list[Any]] = {"encoder": [], "decoder": []}
        for inputs, layer in zip(reversed(decoder_inputs), reversed(nested["decoder"]), strict=True):
            d_y, d_here, d_layer = f["decoder_block_backward"](
                d_y, inputs, memory, layer, self.n_heads, mask, memory_mask
            )
            d_memory = d_memory + d_here
            gradients["decoder"].insert(0, d_layer)
        d_x = d_memory
        for inputs, layer in zip(reversed(encoder_inputs), reversed(nested["encoder"]), strict=True):
            d_x, d_layer = f["encoder_block_backward"](d_x, inputs, layer, self.n_heads, memory_mask)
            gradients["encoder"].insert(0, d_layer)
        embedded = f["embed_backward"](d_y, target_in, table) + f["embed_backward"](d_x, source, table)
        return float(loss), flatten({**gradients, "embedding": d_table + embedded})

    def translate(
        self, weights: Mapping[Keys, Any], source: Sequence[int], start: int, end: int, longest: int
    ) -> list[int]:
        """Greedy search with the learner's cache: each step computes the new token only."""
        f, nested = self.functions, build_weights(weights)
        table, ids = nested["embedding"], self.ids(np.array([source]))
        memory = f["encoder"](f["embed"](ids, table), nested["encoder"], self.n_heads)
        memories = [f["memory_cache"](memory, layer["cross_attention"], self.n_heads) for layer in nested["decoder"]]
        E = table.shape[1] // self.n_heads
        empty = self.array(np.zeros((1, self.n_heads, 0, E), np.float32))
        caches = [{"k": empty, "v": empty} for _ in nested["decoder"]]

        def next_logits(ids: Any) -> Any:
            """Logits of the next token. The cache has all tokens but the last one."""
            x = f["embed_at"](ids[:, -1:], table, ids.shape[1] - 1)
            for i, layer in enumerate(nested["decoder"]):
                x, caches[i] = f["decoder_block_step"](x, caches[i], memories[i], layer, self.n_heads)
            return (x @ table.T)[:, -1]

        with self.no_gradients():
            found = [int(token) for token in f["greedy"](next_logits, start, end, longest)]
        return found[:-1] if found and found[-1] == end else found

    def adam(self, weight: Any, gradient: Any, m: Any, v: Any, step: int, lr: float) -> tuple[Any, Any, Any]:
        with self.no_gradients():
            updated: tuple[Any, Any, Any] = self.functions["adam"](weight, gradient, m, v, step, lr, *BETAS, EPSILON)
            return updated

    def no_gradients(self) -> Any:
        return sys.modules["torch"].no_grad() if self.library == "torch" else contextlib.nullcontext()

    def array(self, value: Array) -> Any:
        """An array of the learner's library, in single precision."""
        if self.library == "torch":
            import torch

            return torch.from_numpy(np.ascontiguousarray(value))
        return value

    def ids(self, value: Any) -> Any:
        return self.array(np.asarray(value, dtype=np.int64))


# --- training --------------------------------------------------------------------------------------------------------


class LearnerTrainer(NumpyTrainer):
    """The twin's trainer, with the learner's gradients and the learner's Adam. The twin only validates and saves."""

    def __init__(
        self,
        functions: Functions,
        library: str,
        config: Config,
        run: RunFolder,
        prepared: PreparedData,
        observers: Sequence[Observer] = (),
    ):
        super().__init__(config, run, prepared, observers)
        sizes = self.full_config.model
        self.learner = LearnerModel(functions, library, sizes.n_heads)
        self.names = weight_names(sizes.encoder_layers, sizes.decoder_layers)
        parameters = self.model.parameters()
        self.weights = {  # the library's matrices are transposed
            keys: self.learner.array(self.transpose(keys, parameters[name].value)) for name, keys in self.names.items()
        }
        self.batches = self.make_batches(prepared.train, config.train.seed)
        self.moments = {keys: (0 * weight, 0 * weight) for keys, weight in self.weights.items()}

    @staticmethod
    def transpose(keys: Keys, weight: Any) -> Any:
        return weight.T if weight.ndim == 2 and keys != ("embedding",) else weight

    def next_step(self) -> StepReport:
        batch, self.state.step = next(self.batches), self.state.step + 1
        tokens = int(batch.target_mask.sum())
        self.state.tokens += tokens
        loss, gradients = self.learner.loss_and_gradients(self.weights, batch)
        f, step = self.learner.functions, self.state.step
        clipped, norm = f["clip"]([gradients[keys] for keys in self.weights], MAX_NORM)
        lr = float(f["warmup_cosine"](step, self.config.lr, self.config.warmup, self.config.steps, 0.0))
        for keys, gradient in zip(self.weights, clipped, strict=True):
            weight, m, v = self.learner.adam(self.weights[keys], gradient, *self.moments[keys], step, lr)
            self.weights[keys], self.moments[keys] = weight, (m, v)
        return StepReport(step, loss, loss, lr, float(norm), tokens)

    def copy_weights(self) -> None:
        """Give the learner's weights to the twin, which has the library's names."""
        parameters = self.model.parameters()
        for name, keys in self.names.items():
            weight = self.weights[keys]
            weight = weight.detach().numpy() if self.learner.library == "torch" else weight
            parameters[name].value = np.ascontiguousarray(self.transpose(keys, weight), dtype=np.float32)

    def validate_and_save(self) -> None:
        self.copy_weights()
        super().validate_and_save()

    def translate(self, source: Sequence[int]) -> list[int]:
        eos = self.tokenizer.eos
        return self.learner.translate(self.weights, [*source, eos], self.tokenizer.bos, eos, 2 * len(source) + 10)

    def translate_with_beam(self, source: Sequence[int], beam_size: int = 4) -> list[int]:
        """Beam search, without the cache."""
        f, ids = self.learner.functions, self.learner.ids([[*source, self.tokenizer.eos]])
        nested, n_heads = build_weights(self.weights), self.learner.n_heads

        def next_logits(hypotheses: Any) -> Any:
            hypotheses = self.learner.ids(hypotheses)
            repeated = ids[[0] * len(hypotheses)]
            return f["transformer"](repeated, hypotheses, nested, n_heads, PAD)[:, -1]

        with self.learner.no_gradients():
            best, _ = f["beam_search"](
                next_logits, self.tokenizer.bos, self.tokenizer.eos, beam_size, 0.6, 2 * len(source) + 10
            )
        found = [int(token) for token in best]
        return found[:-1] if found and found[-1] == self.tokenizer.eos else found

    def largest_difference(self) -> float:
        """Compare the learner's logits with the library's for the same weights. Relative to the largest."""
        batch = next(self.make_batches(self.prepared.valid, seed=0, epochs=1))
        self.copy_weights()
        right = self.model(*batch.inputs)[0][batch.target_mask]  # type: ignore[arg-type]
        ids = (self.learner.ids(each) for each in batch.inputs[:2])
        with self.learner.no_gradients():
            nested = build_weights(self.weights)
            logits = np.asarray(self.learner.functions["transformer"](*ids, nested, self.learner.n_heads, PAD))
        return float(np.abs(logits[batch.target_mask] - right).max() / np.abs(right).max())


@dataclass(frozen=True)
class Examination:
    """What a trained model does with held-out texts."""

    exact_match: float
    bleu: float
    examples: list[tuple[str, str, str]]  # source, greedy, beam


def examine(trainer: LearnerTrainer, count: int = SCORED, examples: int = 4) -> Examination:
    """Translate held-out texts with the learner's greedy search, and a few with the learner's beam search."""
    from cutaway.metrics.scores import bleu

    pairs: list[Any] = list(trainer.prepared.valid)[:count]
    decode = trainer.tokenizer.decode
    found = [trainer.translate(list(pair.source)) for pair in pairs]
    right = sum(ids == list(pair.target) for ids, pair in zip(found, pairs, strict=True))
    texts = [decode(ids) for ids in found]
    return Examination(
        exact_match=right / len(pairs),
        bleu=bleu(texts, [decode(list(pair.target)) for pair in pairs]).value,
        examples=[
            (decode(list(pair.source)), text, decode(trainer.translate_with_beam(list(pair.source))))
            for pair, text in list(zip(pairs, texts, strict=True))[:examples]
        ],
    )


def prepare_training(
    task: str, functions: Functions, library: str, folder: Path, observers: Sequence[Observer] = ()
) -> LearnerTrainer:
    """Write a new run folder and return its trainer."""
    config = read_recipe(find_toml("recipes", "recipe", task), TASKS[task])
    prepared = prepare(config.data, config.model.task)
    run = RunFolder(folder)
    trainer = LearnerTrainer(functions, library, config, run, prepared, observers)
    start_folder(run, trainer.full_config, prepared)
    return trainer
