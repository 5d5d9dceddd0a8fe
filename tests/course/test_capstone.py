"""The capstone: a Transformer of the solutions has the twin's gradients, and a mistake is traced to its exercise."""

from importlib import import_module

import numpy as np
import pytest
from typer.testing import CliRunner

from cutaway.cli import app
from cutaway.course import capstone, given
from cutaway.course.capstone import LAST_EXERCISE, examine, library_of, load_functions, prepare_training
from cutaway.course.exercises import get_exercise
from cutaway.errors import DataError
from cutaway.runs.weights import read_sealed
from cutaway.system.resources import shipped_folder
from cutaway.twin.train import forward_and_backward

SOLUTIONS = shipped_folder("exercises") / "solutions"
TINY = ["model.norm_placement=post", "model.d_model=8", "model.d_ff=16", "model.n_heads=2", "data.size=60"]
TINY += ["data.heldout_size=20", "data.batch_tokens=128", "train.steps=4", "train.valid_every=2", "train.warmup=2"]
command = import_module("cutaway.cli.assemble")


def solution_files(library):
    suffix = "_torch.py" if library == "torch" else ".py"
    names = [get_exercise(number).file.removesuffix(".py") + suffix for number in range(1, LAST_EXERCISE[library] + 1)]
    return {number: SOLUTIONS / name for number, name in enumerate(names, 1)}


@pytest.fixture(params=["numpy", "torch"])
def trainer(request, tmp_path, monkeypatch):
    monkeypatch.setitem(capstone.TASKS, "reverse", TINY)
    with load_functions(solution_files(request.param)) as functions:
        yield prepare_training("reverse", functions, request.param, tmp_path / "run")


def test_loss_and_gradients_are_those_of_the_twin(trainer):
    batch = next(trainer.batches)
    loss, gradients = trainer.learner.loss_and_gradients(trainer.weights, batch)
    trainer.copy_weights()
    right, tokens = forward_and_backward(trainer.model, batch, 0.0)
    assert loss == pytest.approx(right.plain / tokens, rel=1e-4)
    parameters = trainer.model.parameters()
    biases = {name for name in parameters if "attention." in name and name.endswith(".bias")}  # the learner has none
    assert trainer.names.keys() == parameters.keys() - biases
    for name, keys in trainer.names.items():
        expected = trainer.transpose(keys, parameters[name].gradient)
        np.testing.assert_allclose(np.asarray(gradients[keys]), expected, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_trained_model_is_a_run_that_the_library_loads(trainer, tmp_path):
    trainer.run()
    assert trainer.largest_difference() < 1e-4
    result = examine(trainer, count=5, examples=2)
    assert 0 <= result.exact_match <= 1
    assert len(result.examples) == 2
    assert len(read_sealed(tmp_path / "run/model.safetensors")) > 1000
    from cutaway.inference.pipelines import Translator

    assert isinstance(Translator.load(tmp_path / "run").translate(["a b c"])[0], str)


def test_the_cache_changes_nothing(trainer, monkeypatch):
    source, learner, seen = [5, 6, 7, 8], trainer.learner, []
    target = [trainer.tokenizer.bos, 7, 5, 9, 6]

    def write_target(next_logits, start, end, longest):
        seen.extend(next_logits(learner.ids([target[:length]])) for length in range(1, len(target) + 1))
        return target

    monkeypatch.setitem(learner.functions, "greedy", write_target)
    trainer.translate(source)
    weights = capstone.build_weights(trainer.weights)
    ids = learner.ids([[*source, trainer.tokenizer.eos]])
    uncached = learner.functions["transformer"](ids, learner.ids([target]), weights, 2, capstone.PAD)
    np.testing.assert_allclose(np.concatenate([np.asarray(each) for each in seen]), uncached[0], atol=1e-5)


def test_earlier_functions_are_the_learners_own(tmp_path):
    files = solution_files("numpy")
    own = tmp_path / files[1].name
    own.write_text(
        files[1].read_text(encoding="utf-8") + "\n\ndef softmax(x):\n    return x * 0 + 0.125\n", encoding="utf-8"
    )
    before = given.softmax
    with load_functions({1: own, 2: files[2]}) as functions:
        _, weights = functions["attention"](*(np.ones((2, 4)),) * 3)
        assert set(weights.ravel()) == {0.125}
        x = np.ones((1, 3, 4))
        matrices = {name: np.eye(4) for name in ("query", "key", "value", "output")}
        assert set(functions["multi_head_attention"](x, x, matrices, 2).ravel()) == {0.375}
    assert given.softmax is before


def test_one_library_for_all_files():
    files = solution_files("numpy")
    assert library_of(files) == "numpy"
    with pytest.raises(DataError, match=r"exercise_01_.* is written with numpy, but not exercise_03_.*_torch.py"):
        library_of({**files, 3: solution_files("torch")[3]})


def test_a_gradient_that_is_cut_off_is_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(capstone.TASKS, "reverse", TINY)
    files = solution_files("torch")
    own = tmp_path / get_exercise(4).file
    text = (
        files[4]
        .read_text(encoding="utf-8")
        .replace(
            "def feed_forward(x, weights):\n",
            "def feed_forward(x, weights):\n    weights = {k: v.detach() for k, v in weights.items()}\n",
        )
    )
    own.write_text(text, encoding="utf-8")
    with load_functions({**files, 4: own}) as functions:
        trainer = prepare_training("reverse", functions, "torch", tmp_path / "run")
        with pytest.raises(DataError, match="no gradient reaches encoder.0.feed_forward"):
            trainer.next_step()


def write_folder(folder, library="numpy", without=None):
    for number, path in solution_files(library).items():
        if number != without:
            (folder / get_exercise(number).file).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")


def test_a_missing_exercise_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path, without=7)
    with pytest.raises(DataError, match="exercise 7 is not there"):
        app(["check", "--assemble"], standalone_mode=False)


MISTAKES = {  # exercise -> (function, old, new): one mistake in each
    1: ("attention", " / np.sqrt(d_k)", ""),
    2: ("merge_heads", "swapaxes(1, 2)", "swapaxes(1, 1)"),
    3: ("embed", "np.sqrt", "np.square"),
    4: ("layer_norm", "+ eps", "+ 1"),
    5: ("shift_right", "1), start)", "1), 0 * start)"),
    6: ("length_penalty", "6", "7"),
    7: ("append", "axis=2", "axis=1"),
    8: ("clip", "max_norm", "2 * max_norm"),
    9: ("relu_backward", "x > 0", "x < 0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("number", MISTAKES)
def test_a_planted_mistake_is_traced_without_training(number, tmp_path, monkeypatch):
    function, old, new = MISTAKES[number]
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path)
    path = tmp_path / get_exercise(number).file
    before, definition, after = path.read_text(encoding="utf-8").partition(f"def {function}(")
    assert old in after
    head, colon, body = after.partition(":\n")
    path.write_text(before + definition + head + colon + body.replace(old, new, 1), encoding="utf-8")
    result = CliRunner().invoke(app, ["check", "--assemble"])
    assert result.exit_code == 1
    assert "Not assembled" in result.stdout
    assert f"exercise {number}, {function}: " in result.stdout
    named = {
        line.split(",")[0].split()[-1] for line in result.stdout.splitlines() if line.strip().startswith("exercise ")
    }
    assert named == {str(number)}
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_the_solutions_learn_to_translate(tmp_path):
    """Also the numbers that docs/course.md promises."""
    with load_functions(solution_files("torch")) as functions:
        for task, enough in (("reverse", {"exact_match": 0.9}), ("demo", {"bleu": 88})):
            trainer = prepare_training(task, functions, "torch", tmp_path / task)
            trainer.run()
            result = examine(trainer)
            assert all(getattr(result, name) >= least for name, least in enough.items()), result
