"""Record docs/images/explorer.gif from the real explorer: type a sentence, look at attention, switch a head off.

Also takes the screenshots of docs/looking-inside.md.

    python docs/images/record_explorer.py runs/demo

Needs `make demo` first, the extras `torch` and `serve`, playwright, pillow, and Chromium on the system.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from cutaway import Translator, edit_activations, load_builtin
from cutaway.nn.recording import without_head

SIZE = {"width": 940, "height": 880}
SCALE = 0.8
OUT = Path(__file__).with_name("explorer.gif")


class Film:
    """Screenshots with a duration each."""

    def __init__(self, page: Page):
        self.page = page
        self.frames: list[Image.Image] = []
        self.milliseconds: list[int] = []

    def shoot(self, milliseconds: int) -> None:
        picture = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        small = picture.resize((int(picture.width * SCALE), int(picture.height * SCALE)), Image.Resampling.LANCZOS)
        self.frames.append(small)
        self.milliseconds.append(milliseconds)

    def save(self, path: Path) -> None:
        # One palette for all frames: the colours do not flicker, and unchanged regions compress to nothing.
        width, height = self.frames[0].size
        chosen = self.frames[:: max(1, len(self.frames) // 6)] + self.frames[-1:]
        all_colours = Image.new("RGB", (width, height * len(chosen)))
        for number, frame in enumerate(chosen):
            all_colours.paste(frame, (0, number * height))
        palette = all_colours.quantize(256, dither=Image.Dither.NONE)
        frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames]
        frames[0].save(path, save_all=True, append_images=frames[1:], duration=self.milliseconds, loop=0, optimize=True)


@contextmanager
def explorer(run: str) -> Iterator[str]:
    """The address of `cutaway explore`, while it runs."""
    command = [sys.executable, "-u", "-m", "cutaway", "explore", run, "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout
        for line in process.stdout:
            if "http://" in line:
                yield line[line.index("http://") :].split()[0]
                break
    finally:
        process.terminate()
        process.wait(timeout=20)


class Scene(NamedTuple):
    """A sentence, and a cross-attention head without which its translation is another."""

    sentence: str
    layer: int
    head: int


def find_scene(translator: Translator) -> Scene:
    """The first short test sentence that is translated correctly, but gets one or two wrong words with one head off."""
    pairs = [pair for pair in load_builtin("tinyworld:en-fr", "test", 400) if len(pair.source) < 45]
    sentences = [pair.source for pair in pairs]
    pairs = [pair for pair, text in zip(pairs, translator.translate(sentences), strict=True) if text == pair.target]
    for layer, head in product(range(translator.config.model.decoder_layers), range(translator.config.model.n_heads)):
        edits = {f"decoder.layers.{layer}.cross_attention.heads": without_head(head)}
        with edit_activations(translator.model, edits):
            changed = translator.translate([pair.source for pair in pairs])
        for pair, text in zip(pairs, changed, strict=True):
            words, others = pair.target.split(), text.split()
            wrong = [word for word, other in zip(words, others, strict=False) if word != other]
            if len(words) == len(others) and 1 <= len(wrong) <= 2 and max(map(len, wrong)) > 4:
                return Scene(pair.source, layer, head)
    sys.exit("no single cross-attention head changes a translation of this run")


def settle(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(600)


def record(run: str) -> None:
    translator = Translator.load(run)
    scene = find_scene(translator)
    print(scene)
    chromium = next(path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name)))
    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]  # fmt: skip
    with explorer(run) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]
        page.goto(address)
        settle(page)
        page.screenshot(path=OUT.with_name("explorer-attention.png"))
        page.get_by_role("tab", name="Experiments").click()
        page.get_by_role("button", name="Measure each part").click()
        settle(page)
        page.screenshot(path=OUT.with_name("explorer-experiments.png"))
        page.get_by_role("tab", name="Attention").click()
        settle(page)
        film = Film(page)
        box = page.get_by_role("textbox").first
        for end in range(0, len(scene.sentence) + 1, 4):
            box.fill(scene.sentence[:end])
            film.shoot(110)
        box.fill(scene.sentence)
        film.shoot(500)
        page.get_by_role("button", name="Run").click()
        settle(page)
        film.shoot(1600)
        for number in range(translator.config.model.n_heads):
            page.get_by_role("radiogroup", name="head").get_by_role("radio", name=str(number)).check(force=True)
            page.wait_for_timeout(300)
            film.shoot(900)
        page.get_by_role("tab", name="Experiments").click()
        settle(page)
        film.shoot(1200)
        switch = page.get_by_role(
            "button", name=f"switch off decoder layer {scene.layer}, cross-attention, head {scene.head}"
        )
        switch.scroll_into_view_if_needed()
        switch.hover()
        film.shoot(900)
        switch.click()
        settle(page)
        page.evaluate("window.scrollTo(0, 0)")
        film.shoot(3000)
        film.save(OUT)
        browser.close()
    print(f"{OUT}: {len(film.frames)} frames, {OUT.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    record(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
