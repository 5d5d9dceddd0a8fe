"""The engines that run a trained model: rows of token ids in, hypotheses out. One flag chooses among them.

    torch   the modules of nn/ and models/: every model, on any device
    numpy   the twin: translators and text generators, where there is no torch, or no time to import it
    ct2     CTranslate2: translators and text generators that it can express, faster than any other

An engine is imported when it is asked for, so that asking for one does not take the libraries of another.
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
    """What a translator and a text generator need. (The torch engine can do more.)"""

    model: Any

    @classmethod
    def load(cls, run: RunFolder, config: Config, weights: Path, device: str, dtype: str) -> Self:
        """Build the model and read its weights; those of an adapter need those of its base, too."""
        ...

    def translate(self, sources: Rows, search: Search) -> list[list[Hypothesis]]:
        """For each source, ended by </s>, what the search found, best first."""
        ...

    def generate(self, prompts: Rows, search: Search) -> list[list[Hypothesis]]:
        """For each prompt, begun by <s>, what the search found to come after it, best first."""
        ...


def resolve_engine(name: str, allowed: Sequence[str]) -> str:
    """The engine that is meant: "auto" is the first that is allowed and installed."""
    if name != "auto":
        return name
    installed = [engine for engine in allowed if find_spec(engine)]
    return (installed or allowed)[0]  # none: whoever asks for the first is told how to install it


def load_engine(
    name: str,
    allowed: Sequence[str],
    run: RunFolder,
    config: Config,
    weights: Path,
    device: str = "auto",
    dtype: str = "float32",
) -> Engine:
    """The engine of that name."""
    name = resolve_engine(name, allowed)
    if name not in ENGINES:
        raise ConfigError(f"there is no engine {name!r}. {did_you_mean(name, (*ENGINES, 'auto'))}")
    if name not in allowed:
        raise ConfigError(f"engine {name!r} cannot do this. Use engine {' or '.join(map(repr, allowed))}.")
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is not a choice. {did_you_mean(dtype, DTYPES)}")
    module, kind = ENGINES[name]
    try:
        engine: type[Engine] = getattr(import_module(module), kind)
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    return engine.load(run, config, weights, device, dtype)
