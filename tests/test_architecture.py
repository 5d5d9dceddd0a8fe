"""Who may import whom: the table of docs/design.md, held against the import statements themselves."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "cutaway"

LIBRARY = {"models", "data", "decode", "evaluate", "train", "pipeline", "measure", "show", "runs", "twin", "shipped"}
LIBRARY |= {"summary", "finetune"}
# room -> what it may import of Cutaway, beside `config`, `errors` and itself
ROOMS = {
    "config": set(),
    "errors": set(),
    "runs": set(),
    "data": set(),
    "nn": set(),
    "evaluate": set(),
    "twin": {"runs", "data.order", "decode.request", "finetune.base", "finetune.merge"},
    "models": {"nn", "runs"},
    "decode": {"nn", "models"},
    "finetune": {"nn", "models", "runs"},
    "train": {
        "models",
        "data",
        "decode",
        "evaluate",
        "pipeline",
        "torch_engine",
        "runs",
        "summary",
        "twin",
        "finetune",
    },
    "engines": {"decode.request", "runs"},  # the engines themselves are imported when they are asked for
    "torch_engine": {"nn", "models", "data", "decode", "runs", "finetune"},
    "pipeline": {"data", "decode.request", "decode.constraints", "decode.streaming", "engines", "runs"},
    "bulk": {"data", "decode.request", "decode.streaming", "pipeline", "runs"},
    "shipped": set(),
    "summary": {"runs"},
    "ct2_engine": {"decode.request", "interop.ct2", "interop.ct2_model", "runs", "twin"},
    "interop": {"data", "runs", "pipeline", "models", "nn", "twin", "finetune.merge"},
    "learn": LIBRARY | {"nn", "torch_engine"},
    "measure": {"data", "evaluate", "train", "pipeline"},
    "show": {"nn", "data", "decode", "evaluate", "pipeline", "measure", "runs", "summary"},
    "serve": LIBRARY | {"engines"},
    "cli": LIBRARY | {"bulk", "interop", "learn", "serve", "__init__"},
    "__main__": {"cli"},
    "__init__": set(),  # resolves names when they are used; imports nothing before
}
FOR_EVERYONE = {"config", "errors"}

# heavy or optional package -> the rooms that may import it
PACKAGES = {
    "torch": {
        "nn",
        "models",
        "decode",
        "train",
        "torch_engine",
        "show",
        "cli",
        *(f"finetune.{name}" for name in ("adapt", "lora", "patterns", "prefix", "prompt", "samples")),
        "data.batching",
        "learn.surgery",
        "learn.arm",
        "learn.values",
        "interop.onnx",
    },
    "matplotlib": {"show"},
    "fastapi": {"serve"},
    "starlette": {"serve"},
    "pydantic": {"serve"},
    "uvicorn": {"serve", "cli"},
    "sacrebleu": {"evaluate"},
    "sacremoses": {"evaluate"},
    "rich": {"cli"},
    "typer": {"cli"},
    "tokenizers": {"data.tokenizer", "interop.tokenizer_files"},
    "huggingface_hub": {"interop.hub"},
    "ctranslate2": {"ct2_engine", "interop.ct2"},
    "onnx": {"interop.onnx"},
    "onnxruntime": {"interop.onnx"},
    "onnxscript": {"interop.onnx"},
    "tensorboard": {"cli"},
    "sklearn": {"data.builtin.digits", "evaluate.baselines"},
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


def is_module(inner):
    """Whether a dotted path names a file or folder of ours, rather than something inside a file."""
    path = SOURCE / inner.replace(".", "/")
    return bool(inner) and (path.is_dir() or path.with_suffix(".py").exists())


def is_allowed(name, allowed):
    """A room allows what is in it; a folder on the way to an allowed module is allowed too."""
    return any(name == room or name.startswith(room + ".") or room.startswith(name + ".") for room in allowed)


@pytest.mark.parametrize(("name", "path"), list(modules()))
def test_a_room_imports_only_what_it_may(name, path):
    room = name.partition(".")[0]
    assert room in ROOMS, f"{name} is in no room: add it to this table and to docs/design.md"
    allowed = ROOMS[room] | FOR_EVERYONE | {room}
    for imported in imports(path):
        package, _, inner = imported.partition(".")
        if package == "cutaway" and is_module(inner):
            assert is_allowed(inner, allowed), f"{name} imports {imported}"
        elif package in PACKAGES:
            assert is_allowed(name, PACKAGES[package]), f"{name} imports {package}"


def test_nothing_is_pickled():
    for path in SOURCE.rglob("*.py"):
        assert not {"pickle", "torch.save", "torch.load", "joblib", "shelve"} & set(imports(path)), path
        text = path.read_text(encoding="utf-8")
        assert "torch.load(" not in text.replace("safetensors.torch.load(", ""), path
        assert "torch.save(" not in text.replace("safetensors.torch.save(", ""), path


@pytest.mark.parametrize(
    "room",
    [
        "twin",
        "pipeline",
        "bulk",
        "engines",
        "ct2_engine",
        "interop.ct2",
        "train.numpy_trainer",
        "train.doctor",
        "data.prepare",
        "decode.request",
    ],
)
def test_no_torch_comes_in_by_a_back_door(room):
    """Not even through a module that a module imports."""
    names = [f"cutaway.{n}" for n in MODULES if n == room or n.startswith(room + ".")]
    assert names
    code = f"import sys\nfor name in {names}: __import__(name)\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
