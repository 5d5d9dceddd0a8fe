"""Trained models that run in the book's pages.

    ```{live-model} demo
    :view: attention
    :text: The small cat sleeps under the table.
    :state: kind=cross&layer=1&head=0      optional: more of the explorer's address

    Which word does each French word read?      a question to try
    ```

Each model is one page of the explorer, models/NAME.html, with engine and weights in it. A page of the book loads
it when the reader asks for it. The build trains or exports the models that its pages use, and keeps them until their
source changes.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import quote_plus

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
LOGGER = logging.getLogger(__name__)
PYTHON_STEPS = 300  # training steps of the language model


class LiveModel(NamedTuple):
    title: str
    megabytes: int  # size of its page, for the reader
    write: Callable[[Path], None]


def write_demo(page: Path, dtype: str = "float16", snapshots: bool = False) -> None:
    from cutaway.explore.explorer import Explorer
    from cutaway.explore.export import export_page

    run = ROOT / "runs" / "demo"
    if not (run / "scores.json").is_file():
        raise FileNotFoundError("A page shows the translator of the demo. runs/demo is not there. Run: make demo")
    export_page(Explorer([run], "cpu"), page, dtype=dtype, snapshots=snapshots)


def write_training(page: Path) -> None:
    write_demo(page, "int8", snapshots=True)


def write_python(page: Path) -> None:
    """A small language model of Python code, trained here."""
    from cutaway.explore.explorer import Explorer
    from cutaway.explore.export import export_page
    from cutaway.inference.training.setup import start_training
    from cutaway.runs import RunFolder
    from cutaway.runs.recipe import read_recipe

    small = ["model.d_model=64", "model.d_ff=172", "model.decoder_layers=2", "data.size=100", "data.heldout_size=5"]
    small += ["data.vocab_size=500", "data.max_tokens=64", "data.batch_tokens=512", f"train.steps={PYTHON_STEPS}"]
    small += [f"train.valid_every={PYTHON_STEPS}", f"train.save_every={PYTHON_STEPS}", "train.snapshots=0"]
    with TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "python")
        start_training(read_recipe(ROOT / "recipes/python-gpt.toml", small), run).trainer.run()
        export_page(Explorer([run.path], "cpu"), page)


MODELS = {
    "demo": LiveModel("the translator of the demo", 4, write_demo),
    "training": LiveModel("the translator of the demo, with eight steps of its training", 16, write_training),
    "python": LiveModel("a small language model of Python code", 2, write_python),
}


class LiveModelDirective(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec = {"view": directives.unchanged_required, "text": directives.unchanged, "state": directives.unchanged}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in MODELS:
            raise self.error(f"there is no live model {name!r}. Choose one of: {', '.join(MODELS)}.")
        models_of(self.env).setdefault(self.env.docname, set()).add(name)
        box = nodes.container("", classes=["live-model"])
        box += nodes.raw("", '<p class="live-model-title">A model in this page</p>', format="html")
        self.state.nested_parse(self.content, self.content_offset, box)
        box += nodes.raw("", self.start_html(name), format="html")
        return [box]

    def start_html(self, name: str) -> str:
        title, megabytes, _ = MODELS[name]
        state = [f"view={self.options['view']}"]
        if "text" in self.options:
            state.append(f"text={quote_plus(self.options['text'])}")
        state += [self.options["state"]] if "state" in self.options else []
        address = "../" * self.env.docname.count("/") + f"models/{name}.html#" + "&".join(state)
        return (
            f'<p class="live-model-start"><button type="button" data-address="{escape(address)}" data-title="'
            f'{escape(title)}">Start the model</button> {escape(title[0].upper() + title[1:])}, {megabytes} MB. '
            f'<a href="{escape(address)}">Open it in a page of its own</a></p>'
        )


def models_of(env: BuildEnvironment) -> dict[str, set[str]]:
    """Page -> the models that it uses."""
    if not hasattr(env, "live_models"):
        env.live_models = {}
    found: dict[str, set[str]] = env.live_models
    return found


def forget_page(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    models_of(env).pop(docname, None)


def merge_pages(app: Sphinx, env: BuildEnvironment, docnames: set[str], other: BuildEnvironment) -> None:
    models_of(env).update({page: names for page, names in models_of(other).items() if page in docnames})


def write_models(app: Sphinx, error: Exception | None) -> None:
    """Write the models that the pages use. Those of an earlier build stay while their source is the same."""
    if error or app.builder.format != "html" or app.config.nb_execution_mode == "off":
        return
    kept = Path(app.outdir).parent / "models" / digest_of_source(app)
    for old in kept.parent.glob("*"):
        if old != kept:
            shutil.rmtree(old, ignore_errors=True)
    kept.mkdir(parents=True, exist_ok=True)
    target = Path(app.outdir) / "models"
    target.mkdir(exist_ok=True)
    for name in sorted(set().union(*models_of(app.env).values())):
        page = kept / f"{name}.html"
        try:
            if not page.is_file():
                MODELS[name].write(page)
        except FileNotFoundError as missing:
            LOGGER.warning("%s", missing)
            continue
        megabytes = page.stat().st_size / 1e6
        if not 0.5 < megabytes / MODELS[name].megabytes < 1.5:
            LOGGER.warning(
                "models/%s.html has %.1f MB; live_models.py says %d", name, megabytes, MODELS[name].megabytes
            )
        shutil.copyfile(page, target / page.name)


def digest_of_source(app: Sphinx) -> str:
    """The state of the source, as in the cache of executed pages, and of the explorer's page."""
    digest = hashlib.sha256(Path(app.config.nb_execution_cache_path).name.encode())
    page = ROOT / "src/cutaway/explore/page"
    for file in sorted([*page.rglob("*.js"), *page.rglob("*.css"), *page.rglob("*.html")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def setup_live_models(app: Sphinx) -> None:
    app.add_directive("live-model", LiveModelDirective)
    app.add_js_file("live_models.js")
    app.connect("env-purge-doc", forget_page)
    app.connect("env-merge-info", merge_pages)
    app.connect("build-finished", write_models)
