"""ONNX: every family, preset and choice says in onnxruntime what it says in torch, on sizes that no export saw."""

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
from helpers import AXES, is_possible, name_of, perturbed
from looking import TEXTS, untrained

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
WANT = ["a b c d", "b , a c d e f g h .", "h", "g f e , d"]  # texts that differ in length
GREEDY = DecodeConfig(strategy="greedy")
SMALL = {"encoder_decoder": ("encoder_layers", "decoder_layers"), "decoder": ("decoder_layers",)}


def small(family, **choice):
    """A pipeline of one layer: a graph takes its time."""
    return untrained(family, **dict.fromkeys(SMALL.get(family, ("encoder_layers",)), 1), **choice)


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


def close(found, expected):
    expected = expected.detach().numpy() if isinstance(expected, torch.Tensor) else np.asarray(expected)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-4
    assert np.abs(expected).max() > 1e-3  # zeros are equal to zeros


LENGTHS = ([1], [1, 1, 1, 1], [2], [9, 4], [31, 1, 17], [32])  # of the rows of a batch; 32 positions there are


def says_the_same(pipeline, folder, batches=LENGTHS):
    """Each family by its forward in torch, row by row without padding, against whole batches in onnxruntime."""
    model, family = pipeline.model, pipeline.config.model.family
    for lengths in batches:
        if family == "vision":
            c = pipeline.config.model
            images = torch.randn(len(lengths), c.channels, c.image_size, c.image_size)
            close(run(folder, images=images.numpy()), model(images))
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
            told = [{"segments": torch.tensor([row]) % 2} if segments else {} for row in rows]
            alone = [model(torch.tensor([row]), **named)[0] for row, named in zip(rows, told, strict=True)]
        for at_once, by_itself in zip(found, alone, strict=True):
            close(at_once[: len(by_itself)] if at_once.ndim == 2 else at_once, by_itself)


# Quick: what is refused before anything is made


@pytest.mark.parametrize("family", ["encoder_decoder", "encoder", "decoder", "vision"])
def test_experts_are_refused_by_name(family, tmp_path):
    with pytest.raises(ConfigError, match="model.experts = 3 cannot be exported to ONNX.*experts = 0"):
        export_onnx(untrained(family, experts=3), tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
def test_linear_attention_that_writes_is_refused_by_name(family, tmp_path):
    with pytest.raises(ConfigError, match=f"'linear' with model.family = '{family}' cannot be exported"):
        export_onnx(untrained(family, attention="linear"), tmp_path / "out")


def test_a_model_that_is_being_watched_is_refused(tmp_path):
    pipeline = untrained("decoder")
    with record_activations(pipeline.model, "*.heads"), pytest.raises(RunError, match="self_attention.heads"):
        export_onnx(pipeline, tmp_path / "out")


def test_a_folder_with_anything_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    for overwrite in (False, True):
        with pytest.raises(RunError, match="not"):
            export_onnx(untrained("decoder"), tmp_path, overwrite=overwrite)
    (tmp_path / "cutaway.json").write_text('{"graphs": []}')
    with pytest.raises(RunError, match=r"other files too \(thesis.tex\)"):
        export_onnx(untrained("decoder"), tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "years"


def test_what_is_not_installed_is_named_with_its_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(onnx, "find_spec", lambda name: None if name == "onnxscript" else object())
    with pytest.raises(MissingExtra, match=r"onnxscript.*pip install 'cutaway\[onnx\]'"):
        export_onnx(untrained("decoder"), tmp_path / "out")


@pytest.mark.parametrize("found", [[[1.0, 2.0]], [1.0, float("nan")]])
def test_another_shape_or_no_number_is_never_close_enough(found):
    assert not onnx.compared(np.array(found), np.array([1.0, 2.0])) <= onnx.TOLERANCE


def test_a_difference_is_a_share_of_the_largest_number():
    assert onnx.compared(np.array([1.0, 200.5]), np.array([1.0, 200.0])) == 0.0025
    assert onnx.compared(np.array([0.25]), np.array([0.0])) == 0.25


def test_a_tokenizer_of_two_parts_is_written_as_one_that_anybody_can_read(tmp_path):
    """Marian's cuts the target otherwise; who translates reads sources."""
    pipeline = untrained("encoder_decoder")
    source, target = (Tokenizer.train(TEXTS, scheme, 40).backend for scheme in ("word", "char"))
    pipeline._tokenizer = Tokenizer(source, target=target)
    onnx.write_beside(tmp_path, [], pipeline)
    plain = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert plain.encode("a b , c").ids == pipeline.tokenizer.encode("a b , c")
    assert set(json.loads((tmp_path / "tokenizer.json").read_text())) == set(json.loads(source.to_str()))


# Slow: what is made


def possible(choice):
    return is_possible(choice) and not (choice["attention"] == "linear" and choice["family"] in SMALL)


def few_choices(axes):
    """So few that every value of every axis is in one of them."""
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
}  # as weights
CHOICES = few_choices(BOTH)
ENDS = [
    *({"head": "classes", "pooling": pooling} for pooling in AXES["pooling"]),
    {"head": "vectors", "pooling": "mean", "attention": "linear"},
    {"head": "tags", "position": "none", "norm": "rms", "segments": 2},
    {"head": "language", "embedding_norm": True, "segments": 2, "embeddings": "separate"},
]


def test_the_choices_leave_out_nothing_that_the_tables_hold():
    tried = [{"family": "encoder_decoder"} | c for c in CHOICES] + [{"family": "encoder"} | c for c in ENDS]
    for axis, values in AXES.items():
        elsewhere = {"experts": {3}, "family": {"decoder", "vision"}}.get(axis, set())
        assert {c[axis] for c in tried if axis in c} >= set(values) - elsewhere, axis


@pytest.mark.slow
@pytest.mark.parametrize("choice", CHOICES, ids=name_of)
def test_every_choice_says_the_same_in_onnxruntime(choice, tmp_path):
    pipeline = small(**choice)
    export_onnx(pipeline, tmp_path / "out", check=False)
    says_the_same(pipeline, tmp_path / "out")
    kernels = {part.kernel for part in pipeline.model.modules() if isinstance(part, MultiHeadAttention)}
    assert kernels == {KERNELS[choice["attention_kernel"]]}  # as before


@pytest.mark.slow
@pytest.mark.parametrize("choice", ENDS, ids=name_of)
def test_every_end_of_an_encoder_says_the_same(choice, tmp_path):
    pipeline = small("encoder", **choice)
    export_onnx(pipeline, tmp_path / "out", check=False)
    says_the_same(pipeline, tmp_path / "out")


@pytest.mark.slow
def test_a_decoder_that_looks_at_a_memory_says_the_same(tmp_path):
    pipeline = small("decoder", cross_attention=True)
    export_onnx(pipeline, tmp_path / "out", check=False)
    (ids, _), memory = padded(some_rows(pipeline, 9, 4)), torch.randn(2, 6, 8)
    mask = torch.arange(6) < torch.tensor([[3], [0]])  # a memory of which nothing may be seen leaves zeros
    found = run(tmp_path / "out", ids=ids, memory=memory.numpy(), memory_mask=mask.numpy())
    close(found, pipeline.model(torch.tensor(ids), memory=memory, memory_mask=mask))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "choice"),
    [
        ("lora", {"family": "encoder", "head": "tags"}),
        ("prefix", {"family": "encoder", "head": "classes", "attention": "window", "position": "relative_bias"}),
        ("prompt", {"family": "decoder", "position": "rope"}),  # where the prompt takes positions from the text
    ],
)
def test_an_adapted_model_says_the_same(method, choice, tmp_path):
    pipeline, finetune = small(**choice), FinetuneConfig(base="base", method=method, **ADAPTED.get(method, {}))
    adapt(pipeline.model, finetune)
    with torch.no_grad():
        for weight in pipeline.model.parameters():
            weight += 0.1 * torch.randn_like(weight)  # what it learned
    pipeline.model.eval()
    data = replace(pipeline.config.data, max_tokens=20)
    pipeline.config = replace(pipeline.config, data=data, finetune=finetune)
    export_onnx(pipeline, tmp_path / "out")
    longest = json.loads((tmp_path / "out" / "cutaway.json").read_text())["max_length"]
    assert longest == (28 if method == "prompt" else 32)
    says_the_same(pipeline, tmp_path / "out", ([1], [9, 4], [longest]))


ADAPTED = {"prefix": {"prompt_length": 4}, "prompt": {"prompt_length": 4}}


def of_preset(name):
    """A pipeline around a tiny preset."""
    model = PRESETS[name]
    vision = model.family == "vision"
    tokenizer = None if vision else Tokenizer.train(TEXTS, "word", 40, model.family == "encoder")
    model = model if vision else replace(model, vocab_size=tokenizer.vocab_size)
    data = DataConfig(corpus="digits") if vision else DataConfig(corpus="reverse", tokenizer="word", max_tokens=30)
    kind = next(kind for kind in KINDS if model.task in kind.tasks)
    labels = [f"label {i}" for i in range(model.n_classes)]
    return kind(TorchEngine(perturbed(model, SEED)), tokenizer, Config(model=model, data=data), labels)


SEED = 23  # of a model that ends some of its translations by itself, and others not
TINY = [name for name in PRESETS if name.startswith("tiny")]


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    """Each tiny preset once: pipeline, folder, and what the export said of itself."""
    made = {}

    def make(name):
        if name not in made:
            pipeline, folder = of_preset(name), tmp_path_factory.mktemp(name) / "out"
            made[name] = pipeline, folder, export_onnx(pipeline, folder)
        return made[name]

    return make


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_every_preset_says_the_same_and_was_checked(name, presets):
    pipeline, folder, exported = presets(name)
    says_the_same(pipeline, folder)
    assert 0 <= exported.difference < 1e-4
    assert not exported.notes
    assert exported.parameters == sum(p.numel() for p in pipeline.model.parameters())


TYPES = {"tensor(int64)": "int64", "tensor(bool)": "bool", "tensor(float)": "float32"}


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_a_folder_says_what_is_in_it(name, presets):
    pipeline, folder, exported = presets(name)
    about = json.loads((folder / "cutaway.json").read_text())
    assert about["task"] == pipeline.config.model.task
    assert {graph["file"] for graph in about["graphs"]} == {p.name for p in folder.glob("*.onnx")}
    assert set(exported.files) == {p.name for p in folder.iterdir()}
    for graph, line in zip(about["graphs"], exported.told(), strict=False):
        opened = session(folder, graph["file"])
        for told, real in ((graph["inputs"], opened.get_inputs()), (graph["outputs"], opened.get_outputs())):
            assert [(port["name"], port["axes"]) for port in told] == [(port.name, port.shape) for port in real]
            assert [port["type"] for port in told] == [TYPES[port.type] for port in real]
        meta = opened.get_modelmeta().custom_metadata_map
        assert (json.loads(meta["inputs"]), json.loads(meta["outputs"])) == (graph["inputs"], graph["outputs"])
        assert meta["task"] == about["task"]
        assert meta["cutaway"] == about["cutaway"]
        assert line.startswith(graph["file"])
        assert all(port["name"] in line for port in graph["inputs"])


@pytest.mark.slow
def test_a_tokenizer_and_labels_come_along(presets):
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
def test_nothing_tells_where_it_was_made_and_every_node_tells_its_part(presets):
    import onnx as library

    for name in TINY:
        _, folder, _ = presets(name)
        for path in folder.iterdir():
            content = path.read_bytes()
            assert not any(place in content for place in (str(ROOT).encode(), b"site-packages")), path
    graph = library.load(str(presets("tiny-gpt2")[1] / "model.onnx")).graph
    places = [p.value for node in graph.node for p in node.metadata_props if p.key == "namespace"]
    assert any("decoder.layers.1.self_attention" in place for place in places)


def loop_of_the_docs(folder, never_written):
    """The page's own code, run where its folder is."""
    page = (ROOT / "docs" / "onnx.md").read_text("utf-8")
    (code,) = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names = {}
    with chdir(folder):
        exec(code.replace("exported/demo", "."), names)
    names["about"]["never_written"] = never_written
    return names["translate"]


@pytest.mark.slow
def test_the_greedy_loop_of_the_docs_translates_as_the_translator_does(presets):
    pipeline, folder, _ = presets("tiny")
    unknown, found = pipeline.tokenizer.unk, pipeline.hypotheses(WANT, GREEDY)
    common = Counter(token for best in found for token in best[0].tokens if token != unknown).most_common(1)[0][0]
    said = []
    for suppress in ((unknown,), (unknown, common)):  # an unknown word is drawn otherwise
        said.append(pipeline.translate(WANT, replace(GREEDY, suppress=suppress)))
        translate = loop_of_the_docs(folder, list(suppress))
        assert [translate(text) for text in WANT] == said[-1]
    assert said[0] != said[1]
    ends = {len(best[0].tokens) for best in found}
    assert len(ends) > 1  # some end by themselves, some where there is no more room
    assert all(said[0])


def test_what_is_never_written_is_told():
    pipeline = untrained("encoder_decoder")
    config = replace(pipeline.config, decode=DecodeConfig(suppress=(3, 5)))
    assert onnx.about_texts(config, pipeline.tokenizer)["never_written"] == [3, 5]


@pytest.mark.slow
def test_a_text_goes_on_as_the_generator_goes_on(presets):
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
def test_a_classifier_of_texts_gives_the_same_probabilities(tmp_path):
    pipeline = small("encoder", head="classes", pooling="max")
    export_onnx(pipeline, tmp_path / "out")
    about = json.loads((tmp_path / "out" / "cutaway.json").read_text())
    around = {"bos": [about["special_ids"]["bos"]], "eos": [about["special_ids"]["eos"]]}
    rows = []
    for text in WANT:
        parts = around | {"text": pipeline.tokenizer.encode(text)}
        rows.append([id for part in about["reads"] for id in parts[part]])
    ids, mask = padded(rows)
    logits = run(tmp_path / "out", ids=ids, mask=mask)
    found = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    close(found, pipeline.probabilities(WANT))


@pytest.mark.slow
def test_a_probe_leaves_nothing_in_the_graph(presets, tmp_path):
    import onnx as library

    def operators(folder):
        return Counter(node.op_type for node in library.load(str(folder / "model.onnx")).graph.node)

    _, folder, _ = presets("tiny-llama")
    bare = of_preset("tiny-llama")
    for part in list(bare.model.modules()):
        for name, child in part.named_children():
            if isinstance(child, Probe):
                stand_in = torch.nn.Identity()
                stand_in.is_watched = False
                setattr(part, name, stand_in)
    assert not [part for part in bare.model.modules() if isinstance(part, Probe)]
    export_onnx(bare, tmp_path / "out", check=False)
    assert operators(folder) == operators(tmp_path / "out")
    assert "Identity" not in operators(folder)


@pytest.mark.slow
def test_double_precision_and_large_weights(tmp_path, monkeypatch):
    """The graph is in single precision and the model stays as it was; weights stand beside, wherever the folder goes."""
    monkeypatch.setattr(onnx, "LARGE", 0)
    pipeline = small("decoder", position="rope")
    ids = np.array([[1, 4, 5, 6]])
    expected = pipeline.model(torch.tensor(ids))
    pipeline.model.double()
    exported = export_onnx(pipeline, tmp_path / "out")
    assert "model.onnx.data" in exported.files
    assert {p.dtype for p in pipeline.model.parameters()} == {torch.float64}
    moved = (tmp_path / "out").rename(tmp_path / "elsewhere")
    close(run(moved, ids=ids), expected)
    export_onnx(pipeline, moved, check=False, overwrite=True)  # it holds nothing but what an export writes
    close(run(moved, ids=ids), expected)


@pytest.mark.slow
def test_a_graph_that_differs_is_not_written_and_the_old_one_stays(tmp_path, monkeypatch):
    pipeline = small("decoder")
    first = export_onnx(pipeline, tmp_path / "out", check=False)
    assert first.difference is None
    assert not first.notes
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    genuine = onnx.write_graph

    def slightly_wrong(graph, path, task):
        genuine(graph, path, task)
        with torch.no_grad():
            graph.module.head.weight[3] += 0.01  # after the graph was drawn

    monkeypatch.setattr(onnx, "write_graph", slightly_wrong)
    with pytest.raises(
        RunError, match=r"model.onnx does not say what the model says: for ids \[1, 1\].*by \d\.\de-0\d"
    ):
        export_onnx(pipeline, tmp_path / "out", overwrite=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    monkeypatch.setattr(onnx, "find_spec", lambda name: None if name == "onnxruntime" else object())
    unchecked = export_onnx(pipeline, tmp_path / "out", overwrite=True)
    assert unchecked.difference is None
    assert "onnxruntime is not installed" in unchecked.notes[0]


@pytest.mark.slow
def test_what_torch_cannot_follow_is_an_error_of_one_line(tmp_path, monkeypatch):
    pipeline = small("decoder")

    class Choosy(torch.nn.Module):
        def forward(self, x, is_token=None):
            return x if x.sum() > 0 else -x

    pipeline.model.decoder.layers[0].feed_forward = Choosy()
    with pytest.raises(RunError, match="torch cannot make a graph for model.onnx of this model: .") as caught:
        export_onnx(pipeline, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_it_is_quiet(tmp_path):
    """In a process of its own: some of torch's chatter comes once."""
    code = "from test_onnx import small, export_onnx; export_onnx(small('encoder', head='tags'), 'out')"
    paths = [str(ROOT / "tests"), str(ROOT / "tests" / "interop")]
    started = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths}; {code}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (started.returncode, started.stdout, started.stderr) == (0, "", "")
    assert (tmp_path / "out" / "model.onnx").is_file()
