"""ONNX: every family, preset and setting gives the same outputs in onnxruntime as in torch, for any size."""

import json
import random
import re
import subprocess
import sys
from collections import Counter
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from helpers import AXES, is_possible, name_of, perturbed_model
from untrained import TEXTS, untrained_pipeline

from cutaway.config import Config, DataConfig, DecodeConfig, FinetuneConfig
from cutaway.config.presets import PRESETS
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, MissingExtra, RunError
from cutaway.finetune.adapt import adapt
from cutaway.inference.engines.torch_engine import TorchEngine
from cutaway.inference.pipelines import KINDS
from cutaway.interop import onnx
from cutaway.interop.onnx import export_onnx
from cutaway.models.build import KERNELS
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.probe import Probe
from cutaway.nn.recording import record_activations

ROOT = Path(__file__).parents[2]
INPUTS = ["a b c d", "b , a c d e f g h .", "h", "g f e , d"]  # texts that differ in length
GREEDY = DecodeConfig(strategy="greedy")
SMALL = {"encoder_decoder": ("encoder_layers", "decoder_layers"), "decoder": ("decoder_layers",)}


def small(family, **choice):
    """A pipeline of one layer, since building graphs is slow."""
    return untrained_pipeline(family, **dict.fromkeys(SMALL.get(family, ("encoder_layers",)), 1), **choice)


def session(folder, name="model.onnx"):
    import onnxruntime

    return onnxruntime.InferenceSession(str(folder / name), providers=["CPUExecutionProvider"])


def run(folder, name="model.onnx", **inputs):
    return session(folder, name).run(None, inputs)[0]


def padded(rows, length=None):
    length = length or max(map(len, rows))
    ids = np.array([[*row, *[0] * (length - len(row))] for row in rows])
    return ids, np.arange(length) < np.array([[len(row)] for row in rows])


def some_rows(pipeline, *lengths):
    draw = random.Random(sum(lengths))
    return [[draw.randrange(pipeline.config.model.vocab_size) for _ in range(n)] for n in lengths]


def assert_close(found, expected):
    expected = expected.detach().numpy() if isinstance(expected, torch.Tensor) else np.asarray(expected)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-4
    assert np.abs(expected).max() > 1e-3  # zeros are equal to zeros


LENGTHS = ([1], [1, 1, 1, 1], [2], [9, 4], [31, 1, 17], [32])  # of the rows of a batch; the model has 32 positions


def check_outputs(pipeline, folder, batches=LENGTHS):
    """Compare batches in onnxruntime with torch, where each row is computed alone, without padding."""
    model, family = pipeline.model, pipeline.config.model.family
    for lengths in batches:
        if family == "vision":
            c = pipeline.config.model
            images = torch.randn(len(lengths), c.channels, c.image_size, c.image_size)
            assert_close(run(folder, images=images.numpy()), model(images))
            continue
        rows = some_rows(pipeline, *lengths)
        ids, mask = padded(rows)
        if family == "encoder_decoder":
            targets = some_rows(pipeline, *reversed(lengths))
            memory = run(folder, "encoder.onnx", source=ids, source_mask=mask)
            found = run(folder, "decoder.onnx", target_in=padded(targets)[0], memory=memory, source_mask=mask)
            alone = [model(torch.tensor([s]), torch.tensor([t]))[0] for s, t in zip(rows, targets, strict=True)]
        elif family == "decoder":
            found, alone = run(folder, ids=ids), [model(torch.tensor([row]))[0] for row in rows]
        else:
            segments = {"segments": ids % 2} if pipeline.config.model.segments else {}
            found = run(folder, ids=ids, mask=mask, **segments)
            named_inputs = [{"segments": torch.tensor([row]) % 2} if segments else {} for row in rows]
            alone = [model(torch.tensor([row]), **named)[0] for row, named in zip(rows, named_inputs, strict=True)]
        for in_batch, single in zip(found, alone, strict=True):
            assert_close(in_batch[: len(single)] if in_batch.ndim == 2 else in_batch, single)


# Quick: errors before an export


@pytest.mark.parametrize("family", ["encoder_decoder", "encoder", "decoder", "vision"])
def test_experts_raise(family, tmp_path):
    with pytest.raises(ConfigError, match="model.experts = 3 cannot be exported to ONNX.*experts = 0"):
        export_onnx(untrained_pipeline(family, experts=3), tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
def test_causal_linear_attention_raises(family, tmp_path):
    with pytest.raises(ConfigError, match=f"'linear' with model.family = '{family}' cannot be exported"):
        export_onnx(untrained_pipeline(family, attention="linear"), tmp_path / "out")


def test_a_model_with_hooks_raises(tmp_path):
    pipeline = untrained_pipeline("decoder")
    with record_activations(pipeline.model, "*.heads"), pytest.raises(RunError, match="self_attention.heads"):
        export_onnx(pipeline, tmp_path / "out")


def test_a_folder_with_other_files_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    for overwrite in (False, True):
        with pytest.raises(RunError, match="not"):
            export_onnx(untrained_pipeline("decoder"), tmp_path, overwrite=overwrite)
    (tmp_path / "cutaway.json").write_text('{"graphs": []}')
    with pytest.raises(RunError, match=r"contains other files \(thesis.tex\)"):
        export_onnx(untrained_pipeline("decoder"), tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "years"


def test_a_missing_package_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(onnx, "find_spec", lambda name: None if name == "onnxscript" else object())
    with pytest.raises(MissingExtra, match=r"onnxscript.*pip install 'cutaway\[onnx\]'"):
        export_onnx(untrained_pipeline("decoder"), tmp_path / "out")


@pytest.mark.parametrize("found", [[[1.0, 2.0]], [1.0, float("nan")]])
def test_another_shape_or_nan_is_never_close_enough(found):
    assert not onnx.relative_difference(np.array(found), np.array([1.0, 2.0])) <= onnx.TOLERANCE


def test_a_difference_is_relative_to_the_largest_number():
    assert onnx.relative_difference(np.array([1.0, 200.5]), np.array([1.0, 200.0])) == 0.0025
    assert onnx.relative_difference(np.array([0.25]), np.array([0.0])) == 0.25


def test_only_the_source_tokenizer_is_written(tmp_path):
    """Marian has two tokenizers; a translator needs the one of the source."""
    pipeline = untrained_pipeline("encoder_decoder")
    source, target = (Tokenizer.train(TEXTS, scheme, 40).backend for scheme in ("word", "char"))
    pipeline._tokenizer = Tokenizer(source, target=target)
    onnx.write_extra_files(tmp_path, [], pipeline)
    plain = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert plain.encode("a b , c").ids == pipeline.tokenizer.encode("a b , c")
    assert set(json.loads((tmp_path / "tokenizer.json").read_text())) == set(json.loads(source.to_str()))


# Slow: exports


def possible(choice):
    return is_possible(choice) and not (choice["attention"] == "linear" and choice["family"] in SMALL)


def few_choices(axes):
    """A small set of choices that contains every value of every axis."""
    draw, rows = random.Random(0), []
    missing = {(name, value) for name, values in axes.items() for value in values}
    while missing:
        forced = min(missing, key=str)
        drawn = (
            {name: draw.choice(list(values)) for name, values in axes.items()} | dict([forced]) for _ in range(600)
        )
        best = max((c for c in drawn if possible(c)), key=lambda c: len(missing & set(c.items())))
        rows.append(best)
        missing -= set(best.items())
    return rows


OF_ENCODERS = {"head", "pooling"}
BOTH = {k: v for k, v in AXES.items() if k not in OF_ENCODERS} | {"family": ["encoder_decoder"], "experts": [0]}
BOTH["attention"] = [name for name in AXES["attention"] if name != "linear"]
BOTH |= {
    "attention_kernel": ["fused", "fused", "fused", "exact"],
    "attention_softcap": [0.0, 0.0, 0.0, 5.0],
}  # repeated values are chosen more often
CHOICES = few_choices(BOTH)
HEADS = [
    *({"head": "classes", "pooling": pooling} for pooling in AXES["pooling"]),
    {"head": "vectors", "pooling": "mean", "attention": "linear"},
    {"head": "tags", "position": "none", "norm": "rms", "segments": 2},
    {"head": "language", "embedding_norm": True, "segments": 2, "embeddings": "separate"},
]


def test_the_choices_cover_every_value():
    tried = [{"family": "encoder_decoder"} | c for c in CHOICES] + [{"family": "encoder"} | c for c in HEADS]
    for axis, values in AXES.items():
        elsewhere = {"experts": {3}, "family": {"decoder", "vision"}}.get(axis, set())
        assert {c[axis] for c in tried if axis in c} >= set(values) - elsewhere, axis


@pytest.mark.slow
@pytest.mark.parametrize("choice", CHOICES, ids=name_of)
def test_every_choice_has_the_same_outputs(choice, tmp_path):
    pipeline = small(**choice)
    export_onnx(pipeline, tmp_path / "out", check=False)
    check_outputs(pipeline, tmp_path / "out")
    kernels = {part.kernel for part in pipeline.model.modules() if isinstance(part, MultiHeadAttention)}
    assert kernels == {KERNELS[choice["attention_kernel"]]}  # as before


@pytest.mark.slow
@pytest.mark.parametrize("choice", HEADS, ids=name_of)
def test_every_head_of_an_encoder_has_the_same_outputs(choice, tmp_path):
    pipeline = small("encoder", **choice)
    export_onnx(pipeline, tmp_path / "out", check=False)
    check_outputs(pipeline, tmp_path / "out")


@pytest.mark.slow
def test_a_decoder_with_cross_attention_has_the_same_outputs(tmp_path):
    pipeline = small("decoder", cross_attention=True)
    export_onnx(pipeline, tmp_path / "out", check=False)
    (ids, _), memory = padded(some_rows(pipeline, 9, 4)), torch.randn(2, 6, 8)
    mask = torch.arange(6) < torch.tensor([[3], [0]])  # a fully masked memory gives zeros
    found = run(tmp_path / "out", ids=ids, memory=memory.numpy(), memory_mask=mask.numpy())
    assert_close(found, pipeline.model(torch.tensor(ids), memory=memory, memory_mask=mask))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "choice"),
    [
        ("lora", {"family": "encoder", "head": "tags"}),
        ("prefix", {"family": "encoder", "head": "classes", "attention": "window", "position": "relative_bias"}),
        ("prompt", {"family": "decoder", "position": "rope"}),  # here the prompt uses positions of the text
    ],
)
def test_an_adapted_model_has_the_same_outputs(method, choice, tmp_path):
    pipeline, finetune = small(**choice), FinetuneConfig(base="base", method=method, **ADAPTED.get(method, {}))
    adapt(pipeline.model, finetune)
    with torch.no_grad():
        for weight in pipeline.model.parameters():
            weight += 0.1 * torch.randn_like(weight)  # as if trained
    pipeline.model.eval()
    data = replace(pipeline.config.data, max_tokens=20)
    pipeline.config = replace(pipeline.config, data=data, finetune=finetune)
    export_onnx(pipeline, tmp_path / "out")
    longest = json.loads((tmp_path / "out" / "cutaway.json").read_text())["max_length"]
    assert longest == (28 if method == "prompt" else 32)
    check_outputs(pipeline, tmp_path / "out", ([1], [9, 4], [longest]))


ADAPTED = {"prefix": {"prompt_length": 4}, "prompt": {"prompt_length": 4}}


def preset_pipeline(name):
    """A pipeline with a tiny preset."""
    model = PRESETS[name]
    vision = model.family == "vision"
    tokenizer = None if vision else Tokenizer.train(TEXTS, "word", 40, model.family == "encoder")
    model = model if vision else replace(model, vocab_size=tokenizer.vocab_size)
    data = DataConfig(corpus="digits") if vision else DataConfig(corpus="reverse", tokenizer="word", max_tokens=30)
    kind = next(kind for kind in KINDS if model.task in kind.tasks)
    labels = [f"label {i}" for i in range(model.n_classes)]
    return kind(TorchEngine(perturbed_model(model, SEED)), tokenizer, Config(model=model, data=data), labels)


SEED = 23  # with this seed, some translations end early and others do not
TINY = [name for name in PRESETS if name.startswith("tiny")]


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    """Export each tiny preset once. Return pipeline, folder and result."""
    made = {}

    def make(name):
        if name not in made:
            pipeline, folder = preset_pipeline(name), tmp_path_factory.mktemp(name) / "out"
            made[name] = pipeline, folder, export_onnx(pipeline, folder)
        return made[name]

    return make


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_every_preset_has_the_same_outputs(name, presets):
    pipeline, folder, exported = presets(name)
    check_outputs(pipeline, folder)
    assert 0 <= exported.difference < 1e-4
    assert not exported.notes
    assert exported.parameters == sum(p.numel() for p in pipeline.model.parameters())


TYPES = {"tensor(int64)": "int64", "tensor(bool)": "bool", "tensor(float)": "float32"}


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_cutaway_json_describes_the_graphs(name, presets):
    pipeline, folder, exported = presets(name)
    about = json.loads((folder / "cutaway.json").read_text())
    assert about["task"] == pipeline.config.model.task
    assert {graph["file"] for graph in about["graphs"]} == {p.name for p in folder.glob("*.onnx")}
    assert set(exported.files) == {p.name for p in folder.iterdir()}
    for graph, line in zip(about["graphs"], exported.summary_lines(), strict=False):
        opened = session(folder, graph["file"])
        for described, real in ((graph["inputs"], opened.get_inputs()), (graph["outputs"], opened.get_outputs())):
            assert [(port["name"], port["axes"]) for port in described] == [(port.name, port.shape) for port in real]
            assert [port["type"] for port in described] == [TYPES[port.type] for port in real]
        meta = opened.get_modelmeta().custom_metadata_map
        assert (json.loads(meta["inputs"]), json.loads(meta["outputs"])) == (graph["inputs"], graph["outputs"])
        assert meta["task"] == about["task"]
        assert meta["cutaway"] == about["cutaway"]
        assert line.startswith(graph["file"])
        assert all(port["name"] in line for port in graph["inputs"])


@pytest.mark.slow
def test_tokenizer_and_labels_are_written(presets):
    pipeline, folder, _ = presets("tiny")
    opened, own = Tokenizer.open(folder / "tokenizer.json"), pipeline.tokenizer
    assert opened.encode("a b , c .") == own.encode("a b , c .")
    about = json.loads((folder / "cutaway.json").read_text())
    assert about["special_ids"] == {role: getattr(own, role) for role in ("pad", "bos", "eos", "unk")}
    assert about["reads"] == ["text", "eos"]
    assert about["max_length"] == 32
    _, pictures, _ = presets("tiny-vit")
    assert json.loads((pictures / "labels.json").read_text()) == ["label 0", "label 1", "label 2"]
    assert not (pictures / "tokenizer.json").exists()


@pytest.mark.slow
def test_no_file_has_local_paths_and_nodes_name_their_module(presets):
    import onnx as library

    for name in TINY:
        _, folder, _ = presets(name)
        for path in folder.iterdir():
            content = path.read_bytes()
            assert not any(path_part in content for path_part in (str(ROOT).encode(), b"site-packages")), path
    graph = library.load(str(presets("tiny-gpt2")[1] / "model.onnx")).graph
    namespaces = [p.value for node in graph.node for p in node.metadata_props if p.key == "namespace"]
    assert any("decoder.layers.1.self_attention" in namespace for namespace in namespaces)


def translate_of_the_docs(folder, never_written):
    """Run the code of docs/onnx.md in this folder. Return its `translate`."""
    page = (ROOT / "docs" / "onnx.md").read_text("utf-8")
    (code,) = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names = {}
    with chdir(folder):
        exec(code.replace("exported/demo", "."), names)
    names["about"]["never_written"] = never_written
    return names["translate"]


@pytest.mark.slow
def test_the_code_of_the_docs_translates_like_the_translator(presets):
    pipeline, folder, _ = presets("tiny")
    unknown, found = pipeline.tokenizer.unk, pipeline.hypotheses(INPUTS, GREEDY)
    common = Counter(token for best in found for token in best[0].tokens if token != unknown).most_common(1)[0][0]
    expected = []
    for suppress in ((unknown,), (unknown, common)):  # pipelines never generate the unknown token
        expected.append(pipeline.translate(INPUTS, replace(GREEDY, suppress=suppress)))
        translate = translate_of_the_docs(folder, list(suppress))
        assert [translate(text) for text in INPUTS] == expected[-1]
    assert expected[0] != expected[1]
    ends = {len(best[0].tokens) for best in found}
    assert len(ends) > 1  # some texts end early, others at the limit
    assert all(expected[0])


def test_suppressed_tokens_are_in_cutaway_json():
    pipeline = untrained_pipeline("encoder_decoder")
    config = replace(pipeline.config, decode=DecodeConfig(suppress=(3, 5)))
    assert onnx.describe_texts(config, pipeline.tokenizer)["never_written"] == [3, 5]


@pytest.mark.slow
def test_greedy_generation_is_equal_to_the_pipelines(presets):
    pipeline, folder, _ = presets("tiny-gpt2")
    about, opened = json.loads((folder / "cutaway.json").read_text()), session(folder)
    for prompt in ("", "a b", "c , d e f"):
        (best,) = pipeline.hypotheses([prompt], replace(GREEDY, max_length=12))[0]
        ids = [about["special_ids"]["bos"]] if "bos" in about["reads"] else []
        ids += pipeline.tokenizer.encode(prompt)
        written = []
        for _ in range(12):
            written.append(int(opened.run(None, {"ids": np.array([ids + written])})[0][0, -1].argmax()))
            if written[-1] == about["special_ids"]["eos"]:
                break
        assert [token for token in written if token != about["special_ids"]["eos"]] == [
            token for token in best.tokens if token != about["special_ids"]["eos"]
        ]


@pytest.mark.slow
def test_a_text_classifier_gives_the_same_probabilities(tmp_path):
    pipeline = small("encoder", head="classes", pooling="max")
    export_onnx(pipeline, tmp_path / "out")
    about = json.loads((tmp_path / "out" / "cutaway.json").read_text())
    around = {"bos": [about["special_ids"]["bos"]], "eos": [about["special_ids"]["eos"]]}
    rows = []
    for text in INPUTS:
        parts = around | {"text": pipeline.tokenizer.encode(text)}
        rows.append([id for part in about["reads"] for id in parts[part]])
    ids, mask = padded(rows)
    logits = run(tmp_path / "out", ids=ids, mask=mask)
    found = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    assert_close(found, pipeline.probabilities(INPUTS))


@pytest.mark.slow
def test_a_probe_adds_nothing_to_the_graph(presets, tmp_path):
    import onnx as library

    def operators(folder):
        return Counter(node.op_type for node in library.load(str(folder / "model.onnx")).graph.node)

    _, folder, _ = presets("tiny-llama")
    bare = preset_pipeline("tiny-llama")
    for part in list(bare.model.modules()):
        for name, child in part.named_children():
            if isinstance(child, Probe):
                replacement = torch.nn.Identity()
                replacement.is_watched = False
                setattr(part, name, replacement)
    assert not [part for part in bare.model.modules() if isinstance(part, Probe)]
    export_onnx(bare, tmp_path / "out", check=False)
    assert operators(folder) == operators(tmp_path / "out")
    assert "Identity" not in operators(folder)


@pytest.mark.slow
def test_double_precision_and_large_weights(tmp_path, monkeypatch):
    """The graph is in single precision, and the model is unchanged. Large weights are in a separate file."""
    monkeypatch.setattr(onnx, "MAX_INLINE_BYTES", 0)
    pipeline = small("decoder", position="rope")
    ids = np.array([[1, 4, 5, 6]])
    expected = pipeline.model(torch.tensor(ids))
    pipeline.model.double()
    exported = export_onnx(pipeline, tmp_path / "out")
    assert "model.onnx.data" in exported.files
    assert {p.dtype for p in pipeline.model.parameters()} == {torch.float64}
    moved = (tmp_path / "out").rename(tmp_path / "elsewhere")
    assert_close(run(moved, ids=ids), expected)
    export_onnx(pipeline, moved, check=False, overwrite=True)  # the folder has only files of an export
    assert_close(run(moved, ids=ids), expected)


@pytest.mark.slow
def test_a_graph_that_differs_is_not_written(tmp_path, monkeypatch):
    pipeline = small("decoder")
    first = export_onnx(pipeline, tmp_path / "out", check=False)
    assert first.difference is None
    assert not first.notes
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    genuine = onnx.write_graph

    def slightly_wrong(graph, path, task):
        genuine(graph, path, task)
        with torch.no_grad():
            graph.module.head.weight[3] += 0.01  # after the export

    monkeypatch.setattr(onnx, "write_graph", slightly_wrong)
    with pytest.raises(RunError, match=r"model.onnx differs from the model: for ids \[1, 1\].*by \d\.\de-0\d"):
        export_onnx(pipeline, tmp_path / "out", overwrite=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    monkeypatch.setattr(onnx, "find_spec", lambda name: None if name == "onnxruntime" else object())
    unchecked = export_onnx(pipeline, tmp_path / "out", overwrite=True)
    assert unchecked.difference is None
    assert "onnxruntime is not installed" in unchecked.notes[0]


@pytest.mark.slow
def test_an_error_of_torch_export_has_one_line(tmp_path, monkeypatch):
    pipeline = small("decoder")

    class DataDependent(torch.nn.Module):
        def forward(self, x, is_token=None):
            return x if x.sum() > 0 else -x

    pipeline.model.decoder.layers[0].feed_forward = DataDependent()
    with pytest.raises(RunError, match="torch cannot export model.onnx of this model: .") as caught:
        export_onnx(pipeline, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_export_prints_nothing(tmp_path):
    """In a separate process, since torch prints some messages only once."""
    code = "from test_onnx import small, export_onnx; export_onnx(small('encoder', head='tags'), 'out')"
    paths = [str(ROOT / "tests"), str(ROOT / "tests" / "interop")]
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths}; {code}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert (tmp_path / "out" / "model.onnx").is_file()
