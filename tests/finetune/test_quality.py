"""How much each method improves the loss: the example of the recipes, smaller."""

import math

import pytest

from cutaway.cli.recipes import find_recipe
from cutaway.data.builtin import load_builtin
from cutaway.inference.evaluation import measure_nll
from cutaway.inference.pipelines import TextGenerator
from cutaway.inference.training.setup import start_training
from cutaway.runs import RunFolder
from cutaway.runs.recipe import read_recipe

pytestmark = pytest.mark.slow

BASE = ["model.d_model=64", "model.d_ff=192", "model.decoder_layers=2", "data.vocab_size=600", "data.size=120"]
BASE += ["train.steps=300", "train.valid_every=300", "train.samples=0", "train.device=cpu"]
TUNED = ["data.size=1500", "data.heldout_size=100", "train.steps=200", "train.valid_every=100", "train.samples=0"]
WAYS = {
    "lora": ("finetune-lora", []),
    "prefix": ("finetune-prefix", []),
    "prompt": ("finetune-prompt", []),
    "full": (
        "finetune-lora",
        ["finetune.method=full", "finetune.target_modules=[]", "finetune.also_train=[]", "train.lr=3e-3"],
    ),
}


@pytest.fixture(scope="module")
def losses(tmp_path_factory):
    """Method -> nats per token on held-out docstrings; "base": before fine-tuning."""
    folder = tmp_path_factory.mktemp("quality")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        start_training(read_recipe(find_recipe("python-gpt"), BASE), RunFolder("runs/python-gpt")).trainer.run()
        for name, (recipe, settings) in WAYS.items():
            start_training(
                read_recipe(find_recipe(recipe), [*TUNED, *settings]), RunFolder(f"runs/{name}")
            ).trainer.run()
        texts = load_builtin("python:docstrings", "test", 100)
        names = {"base": "python-gpt", **{name: name for name in WAYS}}
        return {key: measure_nll(TextGenerator.load(f"runs/{name}"), texts).nll for key, name in names.items()}


def test_lora_comes_close_to_full_fine_tuning(losses):
    """It reaches at least 60 % of the improvement of full fine-tuning, in nats per token (the recipe: 73 %)."""
    assert losses["base"] - losses["full"] > 0.3
    assert losses["base"] - losses["lora"] > 0.6 * (losses["base"] - losses["full"])


def test_every_method_learns(losses):
    """Fewer parameters improve less: a prompt is one matrix, a prefix has matrices in each layer."""
    assert losses["lora"] < losses["prefix"] < losses["base"] - 0.05
    assert losses["prompt"] < losses["base"] - 0.05
    assert all(math.isfinite(value) for value in losses.values())
