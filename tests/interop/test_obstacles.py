"""The note about exports before a training agrees with what the exporters do after it."""

import pytest
from helpers import AXES, V, all_pairs, name_of, perturbed_model, run_cutaway, tiny_of
from safetensors.torch import save

from cutaway.config import Config, DataConfig, FinetuneConfig
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError
from cutaway.inference.engines.ct2_converter import export_ct2
from cutaway.inference.pipelines import load_pipeline
from cutaway.interop import onnx
from cutaway.interop.huggingface import export_folder
from cutaway.interop.obstacles import export_note, export_obstacles
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes, write_json, write_text
from cutaway.runs.weights import seal_weights

CHOICES = all_pairs(AXES)[0]
LIKELY = [dict(zip(("family", "position", "feed_forward", "norm_placement"), row, strict=True)) for row in [
    ("encoder_decoder", "sinusoidal", "relu", "post"), ("encoder_decoder", "rope", "relu2", "pre"),
    ("decoder", "learned", "gelu", "pre"), ("decoder", "learned", "relu2", "pre"), ("encoder", "learned", "gelu", "post"),
]]  # fmt: skip


def write_run(choice, folder):
    """Write an untrained run."""
    model, run = tiny_of(**choice), RunFolder(folder)
    tokenizer = Tokenizer.train(["a b c d e f g h i j k l"], "word", V - (model.family == "encoder"), False)
    data = {} if model.family == "vision" else {"tokenizer": "file", "tokenizer_file": "x", "max_tokens": 16}
    config = Config(model=model, data=DataConfig(**data))
    write_text(run.config, config.to_json())
    if model.family != "vision":
        write_text(run.tokenizer, tokenizer.to_json())
    if model.n_classes:
        write_json(run.labels, [f"label {i}" for i in range(model.n_classes)])
    weights = {name: p.detach().contiguous() for name, p in perturbed_model(model).named_parameters()}
    write_bytes(run.model, seal_weights(save(weights)))
    return run, config


def export_error(export, run, folder):
    """Export. Return the error message, or an empty string."""
    try:
        export(run.path, folder)
    except ConfigError as error:
        return str(error)
    return ""


def to_onnx(run, folder):
    return onnx.export_onnx(load_pipeline(run, "cpu"), folder, check=False)


EXPORTERS = {
    "hf": export_folder,
    "onnx": to_onnx,
    "ct2": lambda run, folder: export_ct2(run, folder, check=False),
}


def compare(choice, tmp_path):
    run, config = write_run(choice, tmp_path / "run")
    found, note = export_obstacles(config), export_note(config)
    possible = note.partition(", not ")[0] if not note.startswith("Export: not") else ""
    for name, export in EXPORTERS.items():
        error = export_error(export, run, tmp_path / name)
        assert bool(found[name]) == bool(error), (name, found[name], error)
        if error:
            assert found[name][0].setting in error
        has_other_family = any(obstacle.setting == "family" for obstacle in found[name])
        if note and not has_other_family:
            assert (f"not {name} (" in note) == bool(error)
            assert (name in possible) == (not error)
        assert not has_other_family or name not in note
        assert note or not error or has_other_family


@pytest.fixture
def no_graphs(monkeypatch):
    """Skip building graphs, which takes seconds."""
    monkeypatch.setattr(onnx, "write_graph", lambda graph, path, task: path.write_bytes(b""))


@pytest.mark.usefixtures("no_graphs")
@pytest.mark.parametrize("choice", [*LIKELY, *CHOICES[::6]], ids=name_of)
def test_the_note_agrees_with_export(choice, tmp_path):
    compare(choice, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("no_graphs")
@pytest.mark.parametrize("choice", CHOICES, ids=name_of)
def test_the_note_agrees_with_export_for_every_pair_of_settings(choice, tmp_path):
    compare(choice, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("choice", CHOICES[::9], ids=name_of)
def test_the_note_agrees_with_export_with_graphs(choice, tmp_path):
    compare(choice, tmp_path)


def note_for(finetune=None, **choice):
    return export_note(
        Config(model=tiny_of(**choice), data=DataConfig(max_tokens=16), finetune=finetune or FinetuneConfig())
    )


def test_the_note_names_the_settings():
    assert note_for() == note_for(family="encoder", position="learned", feed_forward="gelu", embedding_scale="one",
                                  embedding_norm=True) == ""  # fmt: skip
    llama = {"family": "decoder", "position": "rope", "norm": "rms", "norm_placement": "pre", "bias": False}
    assert note_for(**llama, feed_forward="swiglu") == ""
    note = note_for(position="rope", feed_forward="relu2", norm_placement="pre")
    assert note == 'Export: onnx, not hf (position = "rope", feed_forward = "relu2"), not ct2 (feed_forward = "relu2")'
    both = note_for(**{**llama, "norm": "layer", "bias": True, "position": "alibi"}, feed_forward="gelu")
    assert both == 'Export: onnx and ct2, not hf (position = "alibi")'
    prefix = FinetuneConfig(base="a", method="prefix")
    assert note_for(prefix).startswith('Export: onnx, not hf (finetune.method = "prefix"), not ct2 (fine')
    assert note_for(FinetuneConfig(base="a", method="lora")) == ""
    assert note_for(experts=4) == "Export: not hf (experts = 4), not onnx (experts = 4), not ct2 (experts = 4)"


def test_training_prints_the_note(tmp_path):
    (tmp_path / "r.toml").write_text(
        "[model]\nd_model = 8\nd_ff = 8\nn_heads = 1\nencoder_layers = 1\ndecoder_layers = 1\nmax_length = 32\n"
        '[data]\ncorpus = "reverse"\nsize = 20\nheldout_size = 2\ntokenizer = "word"\nmax_tokens = 32\n'
        "[train]\nsteps = 1\nwarmup = 1\n"
    )
    result = run_cutaway("train", "r.toml", "--set", "model.feed_forward=relu2", cwd=tmp_path)
    assert result.returncode == 0
    lines = result.stderr.splitlines()
    assert lines[0] == 'Export: onnx, not hf (feed_forward = "relu2"), not ct2 (feed_forward = "relu2")'
    assert "Export:" not in result.stdout
    failed = run_cutaway("export", "runs/r", "out", "--to", "ct2", cwd=tmp_path)
    assert failed.returncode == 1
    assert "model.feed_forward = 'relu2'" in failed.stderr
