"""The explorer's page in a real browser, with a trained run: it shows what the model computes."""

import json
import re
import threading
import time
from pathlib import Path

import pytest
import torch
import uvicorn
from browsing import open_browser

from cutaway.cli.explore import listen, load_explorer
from cutaway.cli.recipes import find_recipe
from cutaway.config import DecodeConfig
from cutaway.explore.explorer import Explorer
from cutaway.explore.export import export_page
from cutaway.explore.trace import trace
from cutaway.explore.traced_example import prepare_example
from cutaway.inference.pipelines import load_pipeline
from cutaway.inference.training.setup import start_training
from cutaway.nn.recording import edit_activations, without_head
from cutaway.runs import RunFolder
from cutaway.runs.recipe import read_recipe
from cutaway.serve.explorer_app import explorer_app

pytestmark = pytest.mark.slow
SCREENSHOTS = Path(__file__).parents[1] / "output" / "explorer"
SENTENCE = "The small cat sleeps under the table."
VIEWS = ("map", "attention", "writing", "lens", "why", "experiments", "compare", "timelapse", "heads")
TINY = [
    "model.d_model=16",
    "model.d_ff=32",
    "model.n_heads=2",
    "train.steps=6",
    "train.warmup=4",
    "train.valid_every=6",
]
TINY += ["train.save_every=6", "train.snapshots=2", "data.heldout_size=12"]
OTHERS = {
    "python-gpt": ["data.size=2", "data.heldout_size=1", "data.vocab_size=300", "data.max_tokens=64"],
    "python-bert": ["data.size=2", "data.heldout_size=1", "data.vocab_size=300", "data.max_tokens=64"],
    "python-tagger": ["data.size=60", "data.vocab_size=300"],
    "python-expressions": ["data.size=60", "data.vocab_size=300"],
    "digits-vit": ["data.size=600", "data.batch_tokens=16"],
}


@pytest.fixture(scope="module")
def run(home):
    return home / "runs/demo"


@pytest.fixture(scope="module")
def address(run):
    yield from serve_explorer([run])


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """A run of every other task, trained for a few steps only."""
    folder = tmp_path_factory.mktemp("others")
    for name, settings in OTHERS.items():
        start_training(read_recipe(find_recipe(name), [*TINY, *settings]), RunFolder(folder / name)).trainer.run()
    yield from serve_explorer([folder / name for name in OTHERS])


def serve_explorer(runs):
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(explorer_app(load_explorer(runs, "cpu")), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join(timeout=20)


@pytest.fixture(scope="module")
def browser():
    with open_browser() as started:
        yield started


class PageRecorder:
    """A page with its console messages and requests."""

    def __init__(self, browser, width=1280, scheme="light"):
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.problems, self.requests = [], []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, url):
        self.page.goto("about:blank")  # otherwise a new address would only change the hash
        self.page.goto(url)
        self.page.get_by_role("tabpanel").wait_for()
        self.settle()

    def settle(self):
        """Wait until the response has arrived and the view is drawn."""
        self.page.wait_for_load_state("networkidle")
        self.until(lambda: not self.page.locator("[aria-busy=true]").count())

    def until(self, holds, seconds=15):
        """Wait for a condition. (Playwright's wait_for_function evaluates strings, which the page's policy forbids.)"""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "the condition was not met in time"
            self.page.wait_for_timeout(30)

    def until_result(self, expected):
        self.until(lambda: result_text(self.page) == expected)

    def check(self, home):
        """There were no errors and no requests to other hosts."""
        assert self.problems == []
        outside = [url for url in self.requests if not url.startswith((home, "data:", "blob:", "about:"))]
        assert outside == []
        assert self.page.locator(".banner").count() == 0


@pytest.fixture
def recorder(browser, address):
    found = PageRecorder(browser)
    yield found
    found.check(address)
    found.page.close()


def result_text(page):
    return page.get_by_role("region", name="Result").locator(".output").inner_text()


def run_text(recorder, text):
    recorder.page.get_by_role("textbox").first.fill(text)
    recorder.page.get_by_role("button", name="Run").click()
    recorder.settle()


def test_type_a_sentence_and_read_the_translation(recorder, address, run):
    translator = load_pipeline(run, "cpu")
    recorder.open(address)
    for text in (SENTENCE, "The old woman does not see the big dogs."):
        run_text(recorder, text)
        recorder.until_result(translator.translate([text])[0])
    recorder.page.go_back()
    recorder.until_result(translator.translate([SENTENCE])[0])


@pytest.mark.parametrize(
    ("kind", "label"), [("encoder", "encoder"), ("decoder", "decoder"), ("cross", "cross-attention")]
)
def test_the_page_shows_the_recorded_weights(recorder, address, run, kind, label):
    pipeline = load_pipeline(run, "cpu")
    recorded = trace(pipeline, SENTENCE)
    recorder.open(f"{address}#view=attention&text={SENTENCE}")
    page = recorder.page
    page.get_by_role("radio", name=label).check(force=True)
    for layer, head in ((0, 2), (1, 1)):
        page.get_by_role("radiogroup", name="layer").get_by_role("radio", name=str(layer)).check(force=True)
        page.get_by_role("radiogroup", name="head").get_by_role("radio", name=str(head)).check(force=True)
        recorder.settle()
        assert page.get_by_role("heading", name=f"Layer {layer}, head {head}").is_visible()
        weights = recorded.weights(kind, layer)[head]
        shown = page.evaluate(
            """([rows, columns]) => {
                const found = [...document.querySelectorAll("[role=tabpanel] *")].find((e) => e.weightAt && e.offsetParent);
                return [...Array(rows).keys()].map((q) => [...Array(columns).keys()].map((k) => found.weightAt(q, k)));
            }""",
            list(weights.shape),
        )
        assert torch.tensor(shown).numpy() == pytest.approx(weights, abs=1e-6)
    matrix = page.get_by_role("application").first
    matrix.focus()
    page.keyboard.press("ArrowDown")
    rows, columns = recorded.axes(kind)
    assert any(token in page.get_by_role("region", name="The chosen head").inner_text() for token in rows)
    assert len(columns) == weights.shape[1]


def test_switching_a_head_off_equals_editing_activations(recorder, address, run):
    pipeline = load_pipeline(run, "cpu")
    with edit_activations(pipeline.model, {"decoder.layers.1.cross_attention.heads": without_head(0, 1, 2, 3)}):
        predicted = pipeline.translate([SENTENCE])[0]
        example = prepare_example(pipeline, SENTENCE, target=pipeline.translate([SENTENCE])[0])
        log_p = example.total_log_p(example.logits(pipeline.model))
    assert predicted != pipeline.translate([SENTENCE])[0]
    recorder.open(f"{address}#view=experiments&text={SENTENCE}")
    for head in range(4):
        recorder.page.get_by_role("button", name=f"switch off decoder layer 1, cross-attention, head {head}").click()
        recorder.settle()
    recorder.until_result(predicted)
    result = recorder.page.get_by_role("region", name="Result").inner_text()
    assert f"log-probability {log_p:.3g} nats".replace(" -", " −") in result
    assert "Switched off" in result
    recorder.page.get_by_role("button", name="measure on test data").click()
    recorder.page.get_by_text("BLEU", exact=False).first.wait_for(timeout=60_000)
    recorder.settle()


def test_the_timelapse_shows_the_output_of_each_snapshot(recorder, address, run):
    folder = RunFolder(run)
    final = load_pipeline(run, "cpu")
    steps = sorted(int(file.stem.split("_")[1]) for file in folder.snapshots.iterdir())
    recorder.open(f"{address}#view=timelapse&text={SENTENCE}")
    bar = recorder.page.get_by_role("slider", name="Snapshot of the training")
    recorder.until(lambda: bar.get_attribute("max") == str(len(steps)))
    for place in (0, 2, len(steps)):
        bar.fill(str(place))
        pipeline = final if place == len(steps) else type(final).load(run, "cpu", folder.snapshot(steps[place]))
        shown = recorder.page.get_by_role("tabpanel").inner_text()
        output = pipeline.translate([SENTENCE])[0]
        assert all(word in shown for word in output.split()), (place, output)
        example = prepare_example(final, SENTENCE)
        log_p = example.total_log_p(example.logits(pipeline.model))
        assert f"{log_p:.2f}".replace("-", "−") in shown, place


def test_the_sliders_show_the_sampling_distribution(recorder, address, run):
    pipeline = load_pipeline(run, "cpu")
    example = prepare_example(pipeline, SENTENCE)
    with torch.no_grad():
        logits = example.logits(pipeline.model)[0].double()
    recorder.open(f"{address}#view=writing&text={SENTENCE}")
    page = recorder.page
    for t in (2.0, 0.5):
        set_temperature(page, t)
        p = (logits / t).softmax(-1).max().item()
        shown = page.get_by_role("row").nth(1).get_by_role("cell").nth(2).inner_text()
        assert float(shown.replace("%", "").strip()) == pytest.approx(100 * p, abs=0.6), shown


def set_temperature(page, wanted):
    """Move the slider, which has its own scale, until it shows the number."""
    slider = page.get_by_role("slider", name="temperature")
    for value in range(int(slider.get_attribute("min")), int(slider.get_attribute("max")) + 1):
        slider.fill(str(value))
        if slider.get_attribute("aria-valuetext") == f"{wanted:g}":
            return
    raise AssertionError(f"the slider has no position {wanted}")


def test_the_beam_tree_ends_in_the_result_of_beam_search(recorder, address, run):
    pipeline = load_pipeline(run, "cpu")
    decode = pipeline.config.decode
    beam = DecodeConfig(strategy="beam", beam_size=decode.beam_size, length_penalty=decode.length_penalty)
    [[best]] = pipeline.hypotheses([SENTENCE], beam)
    recorder.open(f"{address}#view=writing&text={SENTENCE}")
    recorder.page.get_by_text("winner", exact=True).first.wait_for()
    row = recorder.page.get_by_role("row").filter(has_text="winner")
    assert pipeline.tokenizer.decode(best.tokens) in row.inner_text()
    assert f"{best.score:.2f}".replace("-", "−") in row.inner_text()


def test_another_candidate_can_be_chosen(recorder, address, run):
    pipeline = load_pipeline(run, "cpu")
    example = prepare_example(pipeline, SENTENCE)
    with torch.no_grad():
        second = example.logits(pipeline.model)[1].topk(2).indices[1].item()
    expected = prepare_example(pipeline, SENTENCE, prefix=[example.answers[0], second]).output
    recorder.open(f"{address}#view=writing&text={SENTENCE}")
    recorder.page.get_by_role("group", name="Steps").get_by_role("button").nth(1).click()
    token = pipeline.tokenizer.tokens([second])[0]
    recorder.page.get_by_role("button", name=f"Use {token} instead").click()
    recorder.until_result(expected)
    recorder.settle()


def test_the_map_shows_the_real_source_and_values(recorder, address, run):
    import inspect

    from cutaway.nn.attention import MultiHeadAttention

    recorder.open(f"{address}#view=map&text={SENTENCE}&part=decoder.layers.0.cross_attention")
    page = recorder.page
    page.get_by_text("src/cutaway/nn/attention.py").first.wait_for()
    shown = page.get_by_role("tabpanel").inner_text()
    lines = [line.strip() for line in inspect.getsource(MultiHeadAttention).splitlines() if line.strip()]
    assert all(line in shown for line in lines[::9])
    assert "MultiHead(Q, K, V)" in shown


def test_an_address_restores_the_view(recorder, address):
    recorder.open(f"{address}#view=attention&text={SENTENCE}")
    page = recorder.page
    page.get_by_role("radio", name="encoder").check(force=True)
    page.get_by_role("radiogroup", name="head").get_by_role("radio", name="3").check(force=True)
    page.get_by_role("radio", name="lines").check(force=True)
    recorder.settle()
    url, before = page.url, page.get_by_role("tabpanel").aria_snapshot()
    recorder.open(url)
    assert page.get_by_role("tabpanel").aria_snapshot() == before
    assert page.get_by_role("radio", name="lines").is_checked()


def test_keyboard_use(recorder, address, run):
    recorder.open(f"{address}#text={SENTENCE}")
    page = recorder.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the view"
    page.get_by_role("textbox").first.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("The dog eats.")
    page.keyboard.press("Enter")
    expected = load_pipeline(run, "cpu").translate(["The dog eats."])[0]
    recorder.until_result(expected)
    page.get_by_role("tab", name="Attention").focus()
    page.keyboard.press("ArrowRight")
    recorder.until(lambda: "view=writing" in page.url)
    recorder.settle()


@pytest.mark.parametrize(
    "text",
    [
        "<script>window.hacked = 1</script> cat",
        "<img src=x onerror='window.hacked = 1'>",
        "\u202eThe cat\u202c \u200b\u200d sleeps 👩‍👩‍👧‍👦.",
        "</textarea><svg onload=alert(1)>",
    ],
)
def test_hostile_text_is_shown_as_text(recorder, address, text):
    recorder.open(address)
    run_text(recorder, text)
    for view in VIEWS[:4]:
        recorder.page.get_by_role("tab").nth(VIEWS.index(view)).click()
        recorder.settle()
    assert recorder.page.evaluate("window.hacked") is None
    assert recorder.page.locator("#page script, #page img[src=x], #page [onload]").count() == 0


def test_a_text_that_is_too_long_shows_an_error(browser, address):
    recorder = PageRecorder(browser)
    recorder.open(address)
    before = result_text(recorder.page)
    recorder.page.get_by_role("textbox").first.fill("cat " * 25_000)
    recorder.page.get_by_role("button", name="Run").click()
    assert "20,000" in recorder.page.locator(".banner").inner_text()
    assert not [url for url in recorder.requests if url.endswith("/api/trace")][1:]  # without a request to the server
    recorder.page.get_by_role("textbox").first.fill("cat " * 300)
    recorder.page.get_by_role("button", name="Run").click()
    recorder.page.get_by_text("this model has positions for 128").first.wait_for()
    assert result_text(recorder.page) == before  # the last result stays
    assert recorder.page.get_by_role("tabpanel").is_visible()
    run_text(recorder, SENTENCE)
    recorder.until(lambda: result_text(recorder.page) != before)
    assert recorder.page.locator(".banner").count() == 0
    recorder.page.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_screenshots_of_every_view(browser, address, scheme, width):
    """Screenshots into tests/output/explorer. No view may be wider than the screen."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    recorder = PageRecorder(browser, width, scheme)
    for view in VIEWS:
        recorder.open(f"{address}#view={view}&text={SENTENCE}&part=decoder.layers.1.cross_attention")
        recorder.page.wait_for_timeout(300)
        recorder.page.screenshot(path=SCREENSHOTS / f"{view}-{scheme}-{width}.png", full_page=True)
        overflow = recorder.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, f"{view} is {overflow} pixels too wide at a width of {width}"
    recorder.check(address)
    recorder.page.close()


def test_an_address_names_the_run(browser, others):
    recorder = PageRecorder(browser)
    recorder.open(f"{others}#view=map&run=digits-vit")
    recorder.page.get_by_role("tabpanel").get_by_role("heading", name="digits-vit").wait_for()
    recorder.page.get_by_role("combobox", name="run").select_option(label="python-gpt")
    recorder.until(lambda: "run=python-gpt" in recorder.page.url)
    recorder.page.get_by_text("sampled", exact=False).first.wait_for()
    recorder.check(others)
    recorder.open(f"{others}#run=gone")
    recorder.page.get_by_text("There is no run gone here. Choose one of: python-gpt", exact=False).wait_for()
    recorder.page.close()


def test_another_run_changes_the_whole_map(browser, others):
    recorder = PageRecorder(browser)
    recorder.open(f"{others}#view=map")
    for name in ("python-bert", "digits-vit", "python-gpt"):
        recorder.page.get_by_role("combobox", name="run").select_option(label=name)
        recorder.settle()
        recorder.page.get_by_role("tabpanel").get_by_role("heading", name=name).wait_for()
    recorder.check(others)
    recorder.page.close()


@pytest.mark.parametrize("number", range(len(OTHERS)), ids=list(OTHERS))
def test_views_of_other_tasks(browser, others, number):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    recorder = PageRecorder(browser)
    recorder.open(f"{others}#run={number}")
    tabs = recorder.page.get_by_role("tab")
    names = tabs.all_inner_texts()
    assert {"Architecture", "Attention", "Experiments", "Compare", "Heads"} <= set(names)
    assert ("Decoding" in names) == (list(OTHERS)[number] == "python-gpt")
    for place, name in enumerate(names):
        tabs.nth(place).click()
        recorder.settle()
        recorder.page.wait_for_timeout(300)
        if list(OTHERS)[number] == "digits-vit" and name in ("Attention", "Logit lens", "Compare", "Heads"):
            shown = recorder.page.get_by_role("tabpanel").inner_text()
            assert not re.search(r"\b(sentence|(?<!class )token|word)s?\b", shown), name
        file = f"{list(OTHERS)[number]}-{name.lower().replace(' ', '-').replace('?', '')}.png"
        recorder.page.screenshot(path=SCREENSHOTS / file, full_page=True)
    assert recorder.page.get_by_role("region", name="Result").inner_text().strip()
    recorder.check(others)
    recorder.page.close()


def test_the_exported_page_works_as_a_file(browser, run, tmp_path):
    texts = [SENTENCE, 'The <b>dog</b> "eats" </script>.']
    file = export_page(Explorer([run], "cpu"), tmp_path / "page.html", texts)
    pipeline = load_pipeline(run, "cpu")
    recorder = PageRecorder(browser)
    for text in texts:
        recorder.open(file.as_uri())
        recorder.page.get_by_role("group", name="Examples").get_by_role("button", name=text, exact=True).click()
        recorder.settle()
        recorder.until_result(pipeline.translate([text])[0])
        for place in range(len(VIEWS)):
            recorder.page.get_by_role("tab").nth(place).click()
            recorder.settle()
            assert recorder.page.locator(".banner").count() == 0, VIEWS[place]
    recorder.open(f"{file.as_uri()}#view=experiments")
    id, head = "decoder.layers.1.cross_attention.heads", 2
    recorder.page.get_by_role("button", name=f"switch off decoder layer 1, cross-attention, head {head}").click()
    with edit_activations(pipeline.model, {id: without_head(head)}):
        expected = pipeline.translate([SENTENCE])[0]
    recorder.until_result(expected)
    assert [url for url in recorder.requests if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
    assert recorder.problems == []
    recorder.page.close()


def test_python_and_javascript_make_the_same_key(browser, address):
    """The key under which the exported page finds a recorded answer."""
    from cutaway.explore.recording import answer_key

    recorder = PageRecorder(browser)
    recorder.open(address)
    for request in (
        {"text": 'é “x” \u2028 👩 \\ " \n \x7f', "run": 0, "off": [], "snapshot": None},
        {"text": "a", "run": 2, "off": ["b", "a"], "snapshot": 175, "length_penalty": 1.0, "beam_size": 4},
        {"text": "", "length_penalty": 0.6, "target": None, "prefix": [1, 2]},
    ):
        made = recorder.page.evaluate(
            "async (request) => (await import('./source.js')).answerKey('trace', request)",
            json.loads(json.dumps(request)),
        )
        assert made == answer_key("trace", request)
    recorder.page.close()


def test_the_sampling_arithmetic_against_the_filters(browser, address):
    """Compare the page's top-k and top-p with decode/filters.py, on random logits."""
    from cutaway.decode.filters import temperature, top_k, top_p

    recorder = PageRecorder(browser)
    recorder.open(address)
    generator = torch.Generator().manual_seed(0)
    for t, k, p in ((1.0, 0, 1.0), (0.7, 5, 1.0), (1.3, 0, 0.8), (0.9, 20, 0.5)):
        logits, order = (3 * torch.randn(1, 60, generator=generator, dtype=torch.float64)).sort(descending=True)
        found = temperature(t)(logits)
        found = top_k(k)(found) if k else found
        found = top_p(p)(found) if p < 1 else found
        expected = found.softmax(-1)[0].tolist()
        step = {
            "ids": order[0].tolist(),
            "tokens": [str(i) for i in order[0].tolist()],
            "logits": logits[0].tolist(),
            "tail": [],
        }
        shown = recorder.page.evaluate(
            "async ([step, options]) => { const m = await import('./views/sampling.js'); return m.filterStep(step, options); }",
            [step, {"temperature": t, "topK": k, "topP": p}],
        )
        assert [candidate["q"] for candidate in shown["candidates"]] == pytest.approx(expected, abs=1e-9)
        assert [candidate["kept"] for candidate in shown["candidates"]] == [p > 0 for p in expected]
    recorder.page.close()
