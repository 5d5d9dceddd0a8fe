"""The engines that run a trained model: token ids in, hypotheses out.

    torch   the modules of nn/ and models/: every model, on any device
    numpy   the twin: translators and text generators, without torch
    ct2     CTranslate2: translators and text generators with a supported architecture; the fastest

An engine is imported only when it is used, so its libraries need not be installed for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, Self

from cutaway import missing_extra
from cutaway.config import Config
from cutaway.errors import ConfigError, did_you_mean
from cutaway.runs import RunFolder
from cutaway.search.request import Hypothesis, Rows, Search

ENGINES = {
    "torch": ("cutaway.inference.engines.torch_engine", "TorchEngine"),
    "numpy": ("cutaway.inference.engines.numpy_engine", "NumpyEngine"),
    "ct2": ("cutaway.inference.engines.ct2_engine", "Ct2Engine"),
}
DTYPES = ("float32", "float64", "int8")


class Engine(Protocol):
    """The interface that translators and text generators use. (The torch engine has more methods.)"""

    model: Any

    @classmethod
    def load(cls, run: RunFolder, config: Config, weights: Path, device: str, dtype: str) -> Self:
        """Build the model and load its weights. For an adapter, load the weights of its base too."""
        ...

    def translate(self, sources: Rows, search: Search) -> list[list[Hypothesis]]:
        """The hypotheses for each source, best first. A source ends with </s>."""
        ...

    def generate(self, prompts: Rows, search: Search) -> list[list[Hypothesis]]:
        """The continuations of each prompt, best first. A prompt starts with <s>."""
        ...


def resolve_engine(name: str, allowed: Sequence[str]) -> str:
    """Resolve "auto" to the first engine that is allowed and installed."""
    if name != "auto":
        return name
    installed = [engine for engine in allowed if find_spec(engine)]
    return (installed or allowed)[0]  # if none is installed, importing the first raises an error that names the extra


def load_engine(
    name: str,
    allowed: Sequence[str],
    run: RunFolder,
    config: Config,
    weights: Path,
    device: str = "auto",
    dtype: str = "float32",
) -> Engine:
    """Load a run with this engine, or with the first of `allowed` for "auto"."""
    name = resolve_engine(name, allowed)
    if name not in ENGINES:
        raise ConfigError(f"there is no engine {name!r}. {did_you_mean(name, (*ENGINES, 'auto'))}")
    if name not in allowed:
        raise ConfigError(f"engine {name!r} cannot do this. Use engine {' or '.join(map(repr, allowed))}.")
    if dtype not in DTYPES:
        raise ConfigError(f"there is no dtype {dtype!r}. {did_you_mean(dtype, DTYPES)}")
    module, class_name = ENGINES[name]
    try:
        engine: type[Engine] = getattr(import_module(module), class_name)
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    return engine.load(run, config, weights, device, dtype)
