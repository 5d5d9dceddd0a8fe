"""Which packages may import a heavy or optional library. (Who imports whom of ours: `make lint`, pyproject.toml.)"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "cutaway"

# heavy or optional package -> the rooms that may import it
PACKAGES = {
    "torch": {
        "nn",
        "models",
        "decode",
        "train",
        "finetune",
        "inference",
        "explore",
        "cli",
        "data.batching",
        "course",
        "interop.onnx",
    },
    "matplotlib": {"explore"},
    "fastapi": {"serve"},
    "starlette": {"serve"},
    "pydantic": {"serve"},
    "uvicorn": {"serve", "cli"},
    "sacrebleu": {"metrics"},
    "sacremoses": {"metrics"},
    "rich": {"cli"},
    "typer": {"cli"},
    "tokenizers": {"data.tokenizer", "interop.tokenizer_files"},
    "huggingface_hub": {"interop.hub"},
    "ctranslate2": {"inference.engines"},
    "onnx": {"interop.onnx"},
    "onnxruntime": {"interop.onnx"},
    "onnxscript": {"interop.onnx"},
    "tensorboard": {"cli"},
    "sklearn": {"data.builtin.digits", "metrics.baselines"},
    "transformers": set(),
    "datasets": {"data.hub"},
}


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        yield pytest.param(name.removesuffix(".__init__") or "__init__", path, id=name)


MODULES = [param.values[0] for param in modules()]


def imports(path):
    """Every module that a file imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by full name, as everywhere else"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(("name", "path"), list(modules()))
def test_a_heavy_library_is_imported_where_it_may_be(name, path):
    for imported in imports(path):
        package = imported.partition(".")[0]
        if package in PACKAGES:
            assert any(f"{name}.".startswith(f"{room}.") for room in PACKAGES[package]), f"{name} imports {package}"


def test_nothing_is_pickled():
    for path in SOURCE.rglob("*.py"):
        assert not {"pickle", "torch.save", "torch.load", "joblib", "shelve"} & set(imports(path)), path
        text = path.read_text(encoding="utf-8")
        assert "torch.load(" not in text.replace("safetensors.torch.load(", ""), path
        assert "torch.save(" not in text.replace("safetensors.torch.save(", ""), path


@pytest.mark.parametrize(
    "package",
    [
        *("errors", "system", "config", "search", "runs", "data.prepare", "twin", "bulk"),
        *("inference.pipelines", "inference.engines.numpy_engine", "inference.engines.ct2_engine"),
        *("inference.engines.ct2_converter", "inference.training.numpy_trainer", "diagnose"),
    ],
)
def test_no_torch_comes_in_by_a_back_door(package):
    """Not even through a module that a module imports."""
    names = [f"cutaway.{n}" for n in MODULES if f"{n}.".startswith(f"{package}.")]
    assert names
    code = f"import sys\nfor name in {names}: __import__(name)\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
