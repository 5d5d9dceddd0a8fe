"""cutaway export --to web: the folder, the stored weights and their error, and the engine as one script."""

import base64
import hashlib
import json
import math
import re

import numpy as np
import pytest
import safetensors.numpy
from helpers import small_recipe
from typer.testing import CliRunner

from cutaway.cli import app
from cutaway.errors import ConfigError, RunError
from cutaway.explore import bundle as bundle_module
from cutaway.explore import web_export
from cutaway.explore.bundle import PAGE, as_function_body, bundle, in_order, resolve
from cutaway.explore.web_export import convert, export_web
from cutaway.inference.training.setup import start_training
from cutaway.runs import RunFolder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = RunFolder(tmp_path_factory.mktemp("run") / "reverse")
    start_training(small_recipe(steps=2), run).trainer.run()
    return run.path


@pytest.fixture
def weights():
    random = np.random.default_rng(0)
    return {"a.weight": random.normal(size=(8, 20)), "a.bias": random.normal(size=20), "empty": np.zeros((3, 4))}


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 0.0), ("float16", 2**-11), ("int8", 0.5 / 127)])
def test_the_stated_error_is_the_largest(weights, dtype, limit):
    stored, error = convert(weights, dtype)
    assert error <= limit * 1.001
    assert stored["a.bias"].dtype == np.float32
    restored = stored["a.weight"].astype(np.float32)
    if dtype == "int8":
        restored *= stored["a.weight.scale"][:, None]
        assert np.array_equal(stored["empty.scale"], [1, 1, 1])
    difference = np.abs(restored - weights["a.weight"].astype(np.float32)) / np.abs(weights["a.weight"]).max(1)[:, None]
    assert difference.max() == pytest.approx(error, abs=1e-6)


def test_a_page_that_is_too_large_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setattr(web_export, "MAX_WEIGHTS", 1_000)
    for dtype, remedy in {
        "float32": "--dtype float16 or int8",
        "float16": "--dtype int8",
        "int8": "a smaller model",
    }.items():
        with pytest.raises(ConfigError, match=rf"as {dtype}; a page can have 0 MB. Use {remedy}\.$"):
            export_web(run, tmp_path / "web", dtype)
    assert not (tmp_path / "web").exists()


def test_the_types_have_every_name_of_the_engine():
    index, types = (PAGE / "engine/api.js").read_text(), (web_export.TEMPLATES / "cutaway.d.ts").read_text()
    exported = {*re.findall(r"^export (?:async )?function (\w+)", index, re.M)}
    exported |= set(re.search(r"^export \{([^}]+)\};", index, re.M)[1].replace(",", " ").split())
    assert exported == set(re.findall(r"^export (?:function|class) (\w+)", types, re.M))


def test_numbers_too_large_for_float16_stay_float32():
    stored, error = convert({"w": np.array([[1e5, 1.0]])}, "float16")
    assert stored["w"].dtype == np.float32
    assert error == 0.0


def test_the_folder_has_the_model_twice(run, tmp_path, monkeypatch):
    monkeypatch.setattr(web_export, "PIECE", 9_000)
    written = export_web(run, tmp_path / "web", "float32")
    folder = tmp_path / "web"
    assert set(written.files) >= {"index.html", "cutaway.js", "cutaway.d.ts", "model.js", "engine", "config.json"}
    script = (folder / "model.js").read_text("utf-8")
    files = json.loads(re.fullmatch(r"globalThis\.CutawayModel = (.*);\n", script)[1])
    pieces = files["model.safetensors"]
    weights = b"".join(map(base64.b64decode, pieces))
    assert len(pieces) == math.ceil(len(weights) / 9_000)
    assert weights == (folder / "model.safetensors").read_bytes()
    checksums = json.loads((folder / "checksums.json").read_text())
    assert checksums["model.safetensors"] == hashlib.sha256(weights).hexdigest()
    for name, digest in checksums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    original = safetensors.numpy.load_file(run / "model.safetensors")
    for name, array in safetensors.numpy.load(weights).items():
        assert np.array_equal(array, original[name])
    assert written.parameters == sum(array.size for array in original.values())
    page = (folder / "index.html").read_text("utf-8")
    assert not re.search(r"""(src|href)=["']https?:""", page)
    assert len(page.splitlines()) <= 30
    tasks = re.search(r"^export type Task = ([^;]+);", (folder / "cutaway.d.ts").read_text("utf-8"), re.MULTILINE)[1]
    calls = re.findall(r"^    (\w+): ", page, re.MULTILINE)
    assert set(re.findall(r'"(\w+)"', tasks)) == set(calls)


def test_an_export_is_replaced_only_if_asked(run, tmp_path):
    export_web(run, tmp_path / "web")
    with pytest.raises(RunError, match="not empty"):
        export_web(run, tmp_path / "web")
    small = export_web(run, tmp_path / "web", "int8", overwrite=True)
    assert small.dtype == "int8"
    (tmp_path / "web/mine.txt").write_text("x")
    with pytest.raises(RunError, match=r"contains other files \(mine\.txt\)"):
        export_web(run, tmp_path / "web", overwrite=True)


def test_the_command(run, tmp_path):
    result = CliRunner().invoke(app, ["export", str(run), str(tmp_path / "web"), "--to", "web"])
    assert result.exit_code == 0
    assert re.search(r"as float16, with a largest error of 0\.0\d% of the row's largest weight", result.stdout)
    result = CliRunner().invoke(app, ["export", str(run), str(tmp_path / "b"), "--to", "web", "--dtype", "float8"])
    assert isinstance(result.exception, ConfigError)
    assert "float8 is unknown. Did you mean 'float32'? Allowed: float32, float16, int8." in str(result.exception)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("first", ["engine/api.js", "live/index.js"])
def test_modules_come_after_those_that_they_import(first):
    order = in_order(first)
    assert order[-1] == first
    assert set(order) <= {path.relative_to(PAGE).as_posix() for path in PAGE.rglob("*.js")}
    for number, module in enumerate(order):
        needed = re.findall(r'from "(\.\.?/[\w/-]+\.js)"', (PAGE / module).read_text("utf-8"))
        assert {resolve(path, module) for path in needed} <= set(order[:number])
    script = bundle(first)
    assert "import " not in re.sub(r"//.*|/\*.*?\*/|import\(", "", script, flags=re.DOTALL).replace('"import', "")
    assert "</script" not in script  # it stands in a page


def test_imports_and_exports_become_variables(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle_module, "PAGE", tmp_path)
    (tmp_path / "parts").mkdir()
    (tmp_path / "a.js").write_text(
        "export const one = 1;\nexport async function wait() {}\nclass Box {}\nexport {Box as Crate};\n"
    )
    (tmp_path / "parts/b.js").write_text(
        'import {one, Crate as Box} from "../a.js";\nexport class Two extends Box {}\n'
    )
    assert as_function_body("parts/b.js") == (
        'const {one, Crate: Box} = modules["a.js"];\nclass Two extends Box {}\nreturn {Two};'
    )
    assert as_function_body("a.js").endswith("return {one, wait, Crate: Box};")
    (tmp_path / "c.js").write_text('import all from "./a.js";\n')
    with pytest.raises(AssertionError, match=r"c\.js has an import or export of another form"):
        as_function_body("c.js")
    (tmp_path / "a.js").write_text('import {Two} from "./parts/b.js";\n')
    with pytest.raises(AssertionError, match=r"modules import each other: parts/b\.js -> a\.js -> parts/b\.js"):
        in_order("parts/b.js")
