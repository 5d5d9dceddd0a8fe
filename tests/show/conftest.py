"""A run of each task that trains in a second: enough to look inside."""

import pytest
from helpers import small_recipe, tiny_of

from cutaway.cli.recipes import find_recipe
from cutaway.config import Config, DataConfig, TrainConfig, read_recipe
from cutaway.runs import RunFolder
from cutaway.train.begin import begin

TINY = [
    "model.d_model=16",
    "model.d_ff=32",
    "model.n_heads=2",
    "train.steps=6",
    "train.warmup=4",
    "train.valid_every=6",
]
TINY += ["train.save_every=6", "data.heldout_size=12"]
RECIPES = {
    "tinyworld": ("demo", ["data.size=300", "train.snapshots=2", "data.batch_tokens=256"]),
    "language_model": (
        "python-gpt",
        ["model.n_kv_heads=1", "data.size=2", "data.heldout_size=1", "data.vocab_size=300", "data.max_tokens=64"],
    ),
    "masked_language_model": (
        "python-bert",
        ["data.size=2", "data.heldout_size=1", "data.vocab_size=300", "data.max_tokens=64"],
    ),
    "tagging": ("python-tagger", ["data.size=60", "data.vocab_size=300"]),
    "image_classification": ("digits-vit", ["data.size=600", "data.batch_tokens=16"]),
}


def sums_or_lists(folder):
    """A classifier of texts from a file: the built-in one takes long to collect."""
    names = "abcdefghij"
    lines = [f"{a} + {b}\tsum" for a in names for b in names] + [f"[{a}, {b}]\tlist" for a in names for b in names]
    (folder / "texts.tsv").write_text("\n".join(lines[::3]), encoding="utf-8")
    files = {"train": ("texts.tsv",), "valid": ("texts.tsv",), "test": ("texts.tsv",)}
    return Config(
        model=tiny_of("encoder", head="classes", pooling="attention", vocab_size=0, n_classes=0, d_model=16),
        data=DataConfig(root=str(folder), **files, tokenizer="char", vocab_size=40, batch_tokens=256, max_tokens=32),
        train=TrainConfig(steps=6, warmup=4, valid_every=6, save_every=6),
    )


class Runs:
    """name -> a run folder, trained when it is first asked for."""

    def __init__(self, folder):
        self.folder, self.made = folder, {}

    def __getitem__(self, name):
        if name not in self.made:
            path = self.folder / name
            if name == "translation":
                config = small_recipe(snapshots=2)
            elif name == "classification":
                config = sums_or_lists(self.folder)
            else:
                recipe, settings = RECIPES[name]
                config = read_recipe(find_recipe(recipe), [*TINY, *settings])
            begin(config, RunFolder(path)).trainer.run()
            self.made[name] = path
        return self.made[name]


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))
