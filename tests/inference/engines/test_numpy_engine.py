"""The NumPy engine generates the same texts as PyTorch from the same run folder, without torch in the process."""

import dataclasses
import signal
import subprocess
import sys
import time
from itertools import chain

import numpy as np
import pytest
import safetensors.torch
import torch
from helpers import logit_gap_at_first_difference, name_of, perturbed_model, small_recipe, tiny_of, twin_choices

from cutaway.config import Config, DataConfig, DecodeConfig
from cutaway.data.prepare import prepare
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, DataError, RunError
from cutaway.explore.trace import trace_translation
from cutaway.inference.engines.numpy_engine import load_model
from cutaway.inference.pipelines import Classifier, TextGenerator, Translator
from cutaway.inference.training import numpy_trainer
from cutaway.inference.training.setup import start_training
from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes, write_text
from cutaway.runs.weights import seal_weights
from cutaway.train.observers import ValidationResult
from cutaway.twin import modules, ops
from cutaway.twin.build import build_model
from cutaway.twin.modules import Variable

WORDS = ["a", "b", "c", "d", "e", "f", "g"]
STRATEGIES = {
    "greedy": DecodeConfig(strategy="greedy", max_length=9),
    "beam": DecodeConfig(strategy="beam", beam_size=3, max_length=9),
    "sample": DecodeConfig(strategy="sample", temperature=1.2, top_k=6, top_p=0.9, seed=5, max_length=9),
}


every_choice = pytest.mark.parametrize("choice", twin_choices(), ids=name_of)


def random_run(folder, choice, seed=0):
    """A run folder with a tokenizer of eleven words and a model of random weights."""
    run, tokenizer = RunFolder(folder), Tokenizer.train([" ".join(WORDS)], "word", 100)
    model_config = tiny_of(**choice)
    assert tokenizer.vocab_size == model_config.vocab_size
    config = Config(model=model_config, data=DataConfig(tokenizer="word", max_tokens=32))
    write_text(run.config, config.to_json())
    write_text(run.tokenizer, tokenizer.to_json())
    write_bytes(run.weights, seal_weights(weights_to_bytes(perturbed_model(model_config, seed))))
    return run.path


def sentences(n, seed=0):
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, draw.integers(1, 7))) for _ in range(n)]


def pipeline_of(path, engine, dtype="float64"):
    family = RunFolder(path).read_config().model.family
    return (Translator if family == "encoder_decoder" else TextGenerator).load(path, engine=engine, dtype=dtype)


@every_choice
def test_both_engines_generate_the_same_texts(choice, tmp_path):
    path = random_run(tmp_path, choice)
    texts = sentences(8)
    ours, theirs = pipeline_of(path, "numpy"), pipeline_of(path, "torch")
    for strategy, decode in STRATEGIES.items():
        n_best = 3 if strategy == "beam" else 1
        found, expected = (sort_ties(one.hypotheses(texts, decode, n_best)) for one in (ours, theirs))
        assert [[h.tokens for h in text] for text in found] == [[h.tokens for h in text] for text in expected]
        for one, other in zip(chain(*found), chain(*expected), strict=True):
            assert one.finished == other.finished
            assert one.score == pytest.approx(other.score, abs=1e-9)


def sort_ties(found):
    """Sort by rounded score, then tokens: with a window, some texts have equal scores up to rounding."""
    return [sorted(text, key=lambda h: (-round(h.score, 9), h.tokens)) for text in found]


@every_choice
def test_a_cached_step_equals_a_forward_without_a_cache(choice, tmp_path):
    run = RunFolder(random_run(tmp_path, choice))
    model = load_model(run, run.read_config(), run.weights, "float64")
    draw = np.random.default_rng(1)
    ids, source = draw.integers(4, 11, (2, 9)), draw.integers(4, 11, (2, 5))
    source_mask = np.arange(5) < np.array([[5], [3]])
    is_translator = choice["family"] == "encoder_decoder"
    whole = model(source, ids, source_mask)[0] if is_translator else model(ids)[0]
    memory = (Variable(model.encode(source, source_mask)[0]), source_mask) if is_translator else ()
    cache, rows, start = model.new_cache(), np.array([0, 1]), 0
    for length in (3, 1, 1, 2, 1, 1):  # a prompt, then one or two tokens at a time
        new = ids[rows, start : start + length]
        x, _ = model.decode(new, *memory, cache=cache)
        np.testing.assert_allclose(model.head(x)[0], whole[rows, start : start + length], rtol=0, atol=1e-12)
        start += length
        if start == 5:  # as in a beam search that continues only the second row, twice
            rows = np.array([1, 1])
            cache.reorder(rows)
            memory = (memory[0], source_mask[rows]) if is_translator else ()
    assert cache.length == 9


def test_float32_outputs_differ_only_at_ties(tmp_path):
    """Random weights, so that the two most probable tokens are often close to each other."""
    path, decode, texts = random_run(tmp_path, {}), STRATEGIES["greedy"], sentences(300)
    ours, theirs = pipeline_of(path, "numpy", "float32"), pipeline_of(path, "torch", "float32")
    reference = pipeline_of(path, "torch")
    for text, [one], [other] in zip(
        texts, ours.hypotheses(texts, decode), theirs.hypotheses(texts, decode), strict=True
    ):
        if one.tokens != other.tokens:
            assert logit_gap_at_first_difference(reference, text, one.tokens, other.tokens) < 1e-4


def test_outputs_do_not_depend_on_the_batch(tmp_path):
    translator = pipeline_of(random_run(tmp_path, {}), "numpy")
    texts = [*sentences(7), ""]
    for decode in STRATEGIES.values():
        alone = [translator.translate([text], decode, first=number)[0] for number, text in enumerate(texts)]
        assert translator.translate(texts, decode) == alone
        assert translator.translate(texts, dataclasses.replace(decode, batch_size=2)) == alone
    assert translator.translate([*texts, "  "])[-2:] == ["", ""]
    three = translator.translate(["a b c"] * 3, STRATEGIES["sample"])
    assert len(set(three)) > 1  # a repeated text is sampled differently


def test_a_trained_run_translates_the_same_on_both_engines(tmp_path):
    training = start_training(small_recipe(), RunFolder(tmp_path / "run"))
    training.trainer.run()
    texts = ["a b c", "d e f g h", "b"]
    for strategy in STRATEGIES.values():
        both = [
            Translator.load(tmp_path / "run", engine=engine).translate(texts, strategy) for engine in ("torch", "numpy")
        ]
        assert both[0] == both[1]


def test_unsupported_requests_are_errors(tmp_path):
    path = random_run(tmp_path / "run", {})
    with pytest.raises(ConfigError, match=r"there is no engine 'nunpy'. Did you mean 'numpy'\?"):
        Translator.load(path, engine="nunpy")
    with pytest.raises(ConfigError, match="engine 'numpy' runs on the CPU, not on device 'cuda'"):
        Translator.load(path, device="cuda", engine="numpy")
    with pytest.raises(ConfigError, match="there is no dtype 'float16'"):
        Translator.load(path, engine="numpy", dtype="float16")
    with pytest.raises(ConfigError, match="engine 'numpy' does not support model.attention = 'linear'"):
        Translator.load(random_run(tmp_path / "linear", {"attention": "linear"}), engine="numpy")
    with pytest.raises(RunError, match='this needs the PyTorch model. Load the run with engine="torch"'):
        trace_translation(Translator.load(path, engine="numpy"), "a b")
    translator = Translator.load(path, engine="numpy")
    with pytest.raises(DataError, match="the text has 41 tokens; this model has positions for 32"):
        translator.translate(["a " * 40])
    classifier = RunFolder(path)
    write_text(classifier.config, Config(tiny_of("encoder", head="classes"), DataConfig(max_tokens=32)).to_json())
    with pytest.raises(ConfigError, match="engine 'numpy' cannot do this. Use engine 'torch'"):
        Classifier.load(path, engine="numpy")


def test_weights_that_do_not_fit_are_errors(tmp_path):
    run = RunFolder(random_run(tmp_path, {}))
    write_text(run.config, Config(model=tiny_of(d_ff=24), data=DataConfig(max_tokens=32)).to_json())
    with pytest.raises(
        RunError, match=r"expand.weight has the shape \(16, 8\) instead of \(24, 8\). Check that config.json"
    ):
        Translator.load(tmp_path, engine="numpy")
    write_text(run.config, Config(model=tiny_of(bias=False), data=DataConfig(max_tokens=32)).to_json())
    with pytest.raises(RunError, match="does not fit the model: missing nothing, unknown decoder"):
        Translator.load(tmp_path, engine="numpy")
    run.weights.write_bytes(run.weights.read_bytes()[:-8])
    with pytest.raises(RunError, match="is damaged"):
        Translator.load(tmp_path, engine="numpy")


def test_dropout_is_only_active_in_training():
    model = build_model(tiny_of(dropout=0.5, attention_dropout=0.5))
    for parameter in model.parameters().values():
        parameter.value = np.random.default_rng(0).normal(size=parameter.value.shape)
    ids = np.array([[4, 5, 6]])
    without = model(ids, ids)[0]
    model.set_dropout(np.random.default_rng(1))
    dropped = model(ids, ids)[0]
    assert np.abs(dropped - without).max() > 0.1
    assert np.abs(model(ids, ids)[0] - dropped).max() > 0.1
    model.set_dropout(None)
    assert (model(ids, ids)[0] == without).all()


def numpy_training(folder, observers=(), **train):
    config = small_recipe(**train)
    return numpy_trainer.start_training(
        config, RunFolder(folder), observers, prepare(config.data, "translation")
    ).trainer


def test_training_uses_float32_and_dropout_and_saves_the_best(tmp_path, monkeypatch):
    trainer = numpy_training(tmp_path / "run", steps=3)
    assert {p.value.dtype for p in trainer.model.parameters().values()} == {np.dtype("float32")}
    assert {step.nll for step in trainer.steps} != {
        step.nll for step in numpy_training(tmp_path / "other", steps=3, seed=2).steps
    }
    rates = []
    monkeypatch.setattr(modules, "dropout", lambda x, rate, generator: rates.append(rate) or (x, ops.identity))
    next(numpy_training(tmp_path / "third").steps)
    assert set(rates) == {0.1}
    losses = iter([3.0, 2.0, 4.0])  # validation losses after 4, 8 and 12 steps; the second is the best
    trainer = numpy_training(tmp_path / "fourth")
    monkeypatch.setattr(trainer, "validate", lambda: ValidationResult(next(losses), 0.0))
    saved, save = [], trainer.save
    monkeypatch.setattr(trainer, "save", lambda: (save(), saved.append(trainer.run_folder.weights.read_bytes())))
    trainer.run()
    assert [one == saved[1] for one in saved] == [False, True, True]
    assert trainer.state.best_step == 8


def test_the_latest_weights_are_saved_before_the_first_validation(tmp_path):
    trainer = numpy_training(tmp_path / "run", valid_every=100, save_every=2, steps=7)
    for _ in range(5):
        trainer.next_step()
        trainer.validate_and_save()
    trainer.save()  # as Ctrl-C does
    saved = load_model(trainer.run_folder, trainer.full_config, trainer.run_folder.weights)
    for name, parameter in trainer.model.parameters().items():
        assert (saved.parameters()[name].value == parameter.value).all()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_run_is_usable_after_ctrl_c(tmp_path):
    code = "from cutaway.cli import main; main()"
    settings = ["--set", "data.size=300", "--set", "data.heldout_size=20", "--set", "train.save_every=5"]
    command = [sys.executable, "-c", code, "train", "reverse", "--engine", "numpy", *settings]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    run, deadline = RunFolder(tmp_path / "runs/reverse"), time.monotonic() + 60
    while not run.weights.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    step = stderr.partition("stopped at step ")[2].split()[0]
    assert f"the weights of step {step} are in runs/reverse." in stderr
    assert "--resume" not in stderr
    assert Translator.load(run.path, engine="numpy").translate(["a b c"])


def test_backward_after_a_cached_forward_is_an_error():
    model = build_model(tiny_of("decoder"))
    x, backward = model.decode(np.array([[4, 5]]), cache=model.new_cache())
    with pytest.raises(RuntimeError, match="backward after a forward pass with forward_only=True"):
        backward(x)


def test_weights_in_other_dtypes(tmp_path):
    run = RunFolder(random_run(tmp_path, {}))
    tensors = safetensors.torch.load(run.weights.read_bytes())
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        write_bytes(run.weights, seal_weights(safetensors.torch.save({n: t.to(dtype) for n, t in tensors.items()})))
        ours, theirs = pipeline_of(run.path, "numpy"), pipeline_of(run.path, "torch")
        for name, parameter in theirs.model.named_parameters():
            assert (ours.model.parameters()[name].value == parameter.detach().numpy()).all()
    write_bytes(run.weights, seal_weights(safetensors.torch.save({n: t.to(torch.int32) for n, t in tensors.items()})))
    with pytest.raises(
        RunError, match="has the type I32; engine 'numpy' reads F64, F32, F16, BF16. Use engine 'torch'"
    ):
        pipeline_of(run.path, "numpy")


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # importing torch fails, as if it were not installed
from cutaway.cli import main
try:
    main()
finally:
    assert sys.modules["torch"] is None
    assert not [name for name in sys.modules if name.startswith("torch.")]
"""


def cutaway_without_torch(*arguments, cwd):
    command = [sys.executable, "-c", WITHOUT_TORCH, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, encoding="utf-8")


def test_the_numpy_engine_does_not_import_torch(tmp_path):
    """Even if torch is installed."""
    path = random_run(tmp_path / "run", {})
    code = f"from cutaway import Translator; Translator.load({str(path)!r}, engine='numpy').translate(['a b'])\n"
    code += "import sys; assert 'numpy' in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_train_translate_and_generate_without_torch(tmp_path):
    """As on the base install: the engine is chosen automatically, and commands that need torch fail at once."""
    small = ["model.d_model=16", "model.d_ff=32", "data.size=300", "data.heldout_size=30", "train.snapshots=2"]
    small += ["train.warmup=10", "train.valid_every=10", "train.steps=20", "train.log_every=5"]
    settings = [word for setting in small for word in ("--set", setting)]
    result = cutaway_without_torch("train", "reverse", "--engine", "numpy", *settings, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "parameters, vocabulary 30, in NumPy" in result.stderr
    assert "step 20: validation loss" in result.stderr
    assert result.stderr.rstrip().endswith("Next:  cutaway translate runs/reverse TEXT")
    run = RunFolder(tmp_path / "runs/reverse")
    assert [row["step"] for row in run.read_metrics() if "loss" in row] == [5, 10, 15, 20]
    assert all(run.snapshot(step).is_file() for step in (1, 20))
    translated = cutaway_without_torch("translate", "runs/reverse", "a b c", "d", cwd=tmp_path)
    assert translated.returncode == 0, translated.stderr
    with_torch = Translator.load(run.path, engine="torch").translate(["a b c", "d"])
    assert translated.stdout.splitlines() == with_torch  # both engines can load a run trained with NumPy
    random_run(tmp_path / "gpt", {"family": "decoder", "position": "rope"})
    generated = cutaway_without_torch("generate", "gpt", "a b", "--max-tokens", 5, "--strategy", "greedy", cwd=tmp_path)
    assert generated.stdout.startswith("a b"), generated.stderr
    for arguments in (
        ["evaluate", "runs/reverse"],
        ["train", "copy"],
        ["train", "reverse", "--evaluate", "--run", "x"],
    ):
        refused = cutaway_without_torch(*arguments, cwd=tmp_path)
        assert refused.returncode == 1
        assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "jax"], "--engine jax cannot train. Allowed: torch, numpy."),
        (["--engine", "numpy", "--resume"], "--engine numpy saves no checkpoints to resume from."),
        (["--engine", "numpy", "--tensorboard"], "--tensorboard needs torch."),
        (
            ["--engine", "numpy", "--set", "train.optimizer=adamw"],
            "--engine numpy does not support train.optimizer = 'adamw'. Set it to 'adam'",
        ),
        (
            ["--engine", "numpy", "--set", "train.device=cuda"],
            "--engine numpy does not support train.device = 'cuda'. Set it to 'cpu'",
        ),
        (["--engine", "numpy", "--set", "model.attention=linear"], "does not support model.attention = 'linear'"),
    ],
)
def test_unsupported_training_fails_before_anything_is_written(arguments, message, tmp_path):
    result = cutaway_without_torch("train", "reverse", "--set", "data.size=200", *arguments, cwd=tmp_path)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "runs").exists()
