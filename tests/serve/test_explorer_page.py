"""The explorer's page in a real browser, against a really trained run: what is drawn is what the model computes."""

import json
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
from cutaway.explore.traced_example import ask
from cutaway.inference.pipelines import load_pipeline
from cutaway.inference.training.setup import start_training
from cutaway.nn.recording import edit_activations, without_head
from cutaway.runs import RunFolder
from cutaway.runs.recipe import read_recipe
from cutaway.serve.explorer_app import explorer_app

pytestmark = pytest.mark.slow
SCREENSHOTS = Path(__file__).parents[1] / "output" / "explorer"
SENTENCE = "The small cat sleeps under the table."
VIEWS = ("map", "attention", "writing", "lens", "experiments", "compare", "timelapse", "heads")
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
    yield from serving([run])


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """A run of every other task, hardly trained: they need to be shown, not to be good."""
    folder = tmp_path_factory.mktemp("others")
    for name, settings in OTHERS.items():
        start_training(read_recipe(find_recipe(name), [*TINY, *settings]), RunFolder(folder / name)).trainer.run()
    yield from serving([folder / name for name in OTHERS])


def serving(runs):
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


class Seen:
    """A page, and all that it complained about or asked for."""

    def __init__(self, browser, width=1280, scheme="light"):
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.problems, self.requests = [], []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, url):
        self.page.goto("about:blank")  # else a new address would be a mere change of the hash
        self.page.goto(url)
        self.page.get_by_role("tabpanel").wait_for()
        self.settle()

    def settle(self):
        """Until the model has answered and the view is drawn."""
        self.page.wait_for_load_state("networkidle")
        self.until(lambda: not self.page.locator("[aria-busy=true]").count())

    def until(self, holds, seconds=15):
        """Wait for something. (Playwright's own way evaluates strings, which the page's policy forbids.)"""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "waited in vain"
            self.page.wait_for_timeout(30)

    def until_said(self, expected):
        self.until(lambda: said(self.page) == expected)

    def check(self, home):
        """Nothing went wrong, and nothing was asked for outside."""
        assert self.problems == []
        outside = [url for url in self.requests if not url.startswith((home, "data:", "blob:", "about:"))]
        assert outside == []
        assert self.page.locator(".banner").count() == 0


@pytest.fixture
def seen(browser, address):
    found = Seen(browser)
    yield found
    found.check(address)
    found.page.close()


def said(page):
    return page.get_by_role("region", name="Result").locator(".said").inner_text()


def ask_for(seen, text):
    seen.page.get_by_role("textbox").first.fill(text)
    seen.page.get_by_role("button", name="Run").click()
    seen.settle()


def test_type_a_sentence_and_read_the_translation(seen, address, run):
    translator = load_pipeline(run, "cpu")
    seen.open(address)
    for text in (SENTENCE, "The old woman does not see the big dogs."):
        ask_for(seen, text)
        seen.until_said(translator.translate([text])[0])
    seen.page.go_back()
    seen.until_said(translator.translate([SENTENCE])[0])


@pytest.mark.parametrize(
    ("kind", "label"), [("encoder", "source → source"), ("decoder", "target → target"), ("cross", "target → source")]
)
def test_the_drawn_weights_are_the_recorded_ones(seen, address, run, kind, label):
    pipeline = load_pipeline(run, "cpu")
    recorded = trace(pipeline, SENTENCE)
    seen.open(f"{address}#view=attention&text={SENTENCE}")
    page = seen.page
    page.get_by_role("radio", name=label).check(force=True)
    for layer, head in ((0, 2), (1, 1)):
        page.get_by_role("radiogroup", name="layer").get_by_role("radio", name=str(layer)).check(force=True)
        page.get_by_role("radiogroup", name="head").get_by_role("radio", name=str(head)).check(force=True)
        seen.settle()
        assert page.get_by_role("heading", name=f"Layer {layer}, head {head}").is_visible()
        weights = recorded.weights(kind, layer)[head]
        drawn = page.evaluate(
            """([rows, columns]) => {
                const found = [...document.querySelectorAll("[role=tabpanel] *")].find((e) => e.weightAt && e.offsetParent);
                return [...Array(rows).keys()].map((q) => [...Array(columns).keys()].map((k) => found.weightAt(q, k)));
            }""",
            list(weights.shape),
        )
        assert torch.tensor(drawn).numpy() == pytest.approx(weights, abs=1e-6)
    matrix = page.get_by_role("application").first
    matrix.focus()
    page.keyboard.press("ArrowDown")
    rows, columns = recorded.axes(kind)
    assert any(token in page.get_by_role("region", name="The chosen head").inner_text() for token in rows)
    assert len(columns) == weights.shape[1]


def test_switching_a_head_off_does_what_editing_does(seen, address, run):
    pipeline = load_pipeline(run, "cpu")
    with edit_activations(pipeline.model, {"decoder.layers.1.cross_attention.heads": without_head(0, 1, 2, 3)}):
        predicted = pipeline.translate([SENTENCE])[0]
        log_p = ask(pipeline, SENTENCE, target=pipeline.translate([SENTENCE])[0])
        log_p = log_p.total_log_p(log_p.logits(pipeline.model))
    assert predicted != pipeline.translate([SENTENCE])[0]
    seen.open(f"{address}#view=experiments&text={SENTENCE}")
    for head in range(4):
        seen.page.get_by_role("button", name=f"switch off decoder layer 1, cross-attention, head {head}").click()
        seen.settle()
    seen.until_said(predicted)
    told = seen.page.get_by_role("region", name="Result").inner_text()
    assert f"log p {log_p:.3g} nats".replace("-", "−") in told
    assert "Switched off" in told
    seen.page.get_by_role("button", name="measure on test data").click()
    seen.page.get_by_text("BLEU", exact=False).first.wait_for(timeout=60_000)
    seen.settle()


def test_scrubbing_shows_what_it_wrote_then(seen, address, run):
    folder = RunFolder(run)
    kept = load_pipeline(run, "cpu")
    steps = sorted(int(file.stem.split("_")[1]) for file in folder.snapshots.iterdir())
    seen.open(f"{address}#view=timelapse&text={SENTENCE}")
    bar = seen.page.get_by_role("slider", name="Moment of the training")
    seen.until(lambda: bar.get_attribute("max") == str(len(steps)))
    for place in (0, 2, len(steps)):
        bar.fill(str(place))
        pipeline = kept if place == len(steps) else type(kept).load(run, "cpu", folder.snapshot(steps[place]))
        shown = seen.page.get_by_role("tabpanel").inner_text()
        wrote = pipeline.translate([SENTENCE])[0]
        assert all(word in shown for word in wrote.split()), (place, wrote)
        question = ask(kept, SENTENCE)
        log_p = question.total_log_p(question.logits(pipeline.model))
        assert f"{log_p:.2f}".replace("-", "−") in shown, place


def test_the_sliders_show_what_sampling_would_draw_from(seen, address, run):
    pipeline = load_pipeline(run, "cpu")
    question = ask(pipeline, SENTENCE)
    with torch.no_grad():
        logits = question.logits(pipeline.model)[0].double()
    seen.open(f"{address}#view=writing&text={SENTENCE}")
    page = seen.page
    for t in (2.0, 0.5):
        set_temperature(page, t)
        p = (logits / t).softmax(-1).max().item()
        shown = page.get_by_role("row").nth(1).get_by_role("cell").nth(2).inner_text()
        assert float(shown.replace("%", "").strip()) == pytest.approx(100 * p, abs=0.6), shown


def set_temperature(page, wanted):
    """The slider has a scale of its own: walk along it until it says the number."""
    slider = page.get_by_role("slider", name="temperature")
    for value in range(int(slider.get_attribute("min")), int(slider.get_attribute("max")) + 1):
        slider.fill(str(value))
        if slider.get_attribute("aria-valuetext") == f"{wanted:g}":
            return
    raise AssertionError(f"the slider never says {wanted}")


def test_the_tree_ends_in_what_beam_search_finds(seen, address, run):
    pipeline = load_pipeline(run, "cpu")
    decode = pipeline.config.decode
    beam = DecodeConfig(strategy="beam", beam_size=decode.beam_size, length_penalty=decode.length_penalty)
    [[best]] = pipeline.hypotheses([SENTENCE], beam)
    seen.open(f"{address}#view=writing&text={SENTENCE}")
    seen.page.get_by_text("winner", exact=True).first.wait_for()
    row = seen.page.get_by_role("row").filter(has_text="winner")
    assert pipeline.tokenizer.decode(best.tokens) in row.inner_text()
    assert f"{best.score:.2f}".replace("-", "−") in row.inner_text()


def test_a_candidate_can_be_taken_instead(seen, address, run):
    pipeline = load_pipeline(run, "cpu")
    question = ask(pipeline, SENTENCE)
    with torch.no_grad():
        second = question.logits(pipeline.model)[1].topk(2).indices[1].item()
    expected = ask(pipeline, SENTENCE, prefix=[question.answers[0], second]).output
    seen.open(f"{address}#view=writing&text={SENTENCE}")
    seen.page.get_by_role("group", name="Steps").get_by_role("button").nth(1).click()
    token = pipeline.tokenizer.tokens([second])[0]
    seen.page.get_by_role("button", name=f"Take {token} instead").click()
    seen.until_said(expected)
    seen.settle()


def test_the_map_shows_the_real_source_and_values(seen, address, run):
    import inspect

    from cutaway.nn.attention import MultiHeadAttention

    seen.open(f"{address}#view=map&text={SENTENCE}&part=decoder.layers.0.cross_attention")
    page = seen.page
    page.get_by_text("src/cutaway/nn/attention.py").first.wait_for()
    shown = page.get_by_role("tabpanel").inner_text()
    lines = [line.strip() for line in inspect.getsource(MultiHeadAttention).splitlines() if line.strip()]
    assert all(line in shown for line in lines[::9])
    assert "MultiHead(Q, K, V)" in shown


def test_an_address_restores_the_view(seen, address):
    seen.open(f"{address}#view=attention&text={SENTENCE}")
    page = seen.page
    page.get_by_role("radio", name="source → source").check(force=True)
    page.get_by_role("radiogroup", name="head").get_by_role("radio", name="3").check(force=True)
    page.get_by_role("radio", name="lines").check(force=True)
    seen.settle()
    url, before = page.url, page.get_by_role("tabpanel").aria_snapshot()
    seen.open(url)
    assert page.get_by_role("tabpanel").aria_snapshot() == before
    assert page.get_by_role("radio", name="lines").is_checked()


def test_it_can_be_used_without_a_mouse(seen, address, run):
    seen.open(f"{address}#text={SENTENCE}")
    page = seen.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the view"
    page.get_by_role("textbox").first.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("The dog eats.")
    page.keyboard.press("Enter")
    expected = load_pipeline(run, "cpu").translate(["The dog eats."])[0]
    seen.until_said(expected)
    page.get_by_role("tab", name="Attention").focus()
    page.keyboard.press("ArrowRight")
    seen.until(lambda: "view=writing" in page.url)
    seen.settle()


@pytest.mark.parametrize(
    "text",
    [
        "<script>window.hacked = 1</script> cat",
        "<img src=x onerror='window.hacked = 1'>",
        "\u202eThe cat\u202c \u200b\u200d sleeps 👩‍👩‍👧‍👦.",
        "</textarea><svg onload=alert(1)>",
    ],
)
def test_hostile_text_is_shown_as_text(seen, address, text):
    seen.open(address)
    ask_for(seen, text)
    for view in VIEWS[:4]:
        seen.page.get_by_role("tab").nth(VIEWS.index(view)).click()
        seen.settle()
    assert seen.page.evaluate("window.hacked") is None
    assert seen.page.locator("#page script, #page img[src=x], #page [onload]").count() == 0


def test_what_is_too_long_is_refused_in_words(browser, address):
    seen = Seen(browser)
    seen.open(address)
    before = said(seen.page)
    seen.page.get_by_role("textbox").first.fill("cat " * 25_000)
    seen.page.get_by_role("button", name="Run").click()
    assert "20,000" in seen.page.locator(".banner").inner_text()
    assert not [url for url in seen.requests if url.endswith("/api/trace")][1:]  # the server was not even asked
    seen.page.get_by_role("textbox").first.fill("cat " * 300)
    seen.page.get_by_role("button", name="Run").click()
    seen.page.get_by_text("this model has positions for 128").first.wait_for()
    ask_for(seen, SENTENCE)
    assert said(seen.page) != before
    assert seen.page.locator(".banner").count() == 0
    seen.page.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_every_view_to_be_looked_at(browser, address, scheme, width):
    """Screenshots into tests/output/explorer; nothing may stick out of a narrow screen."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    seen = Seen(browser, width, scheme)
    for view in VIEWS:
        seen.open(f"{address}#view={view}&text={SENTENCE}&part=decoder.layers.1.cross_attention")
        seen.page.wait_for_timeout(300)
        seen.page.screenshot(path=SCREENSHOTS / f"{view}-{scheme}-{width}.png", full_page=True)
        overflow = seen.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, f"{view} sticks out by {overflow} pixels at a width of {width}"
    seen.check(address)
    seen.page.close()


def test_an_address_names_the_run(browser, others):
    seen = Seen(browser)
    seen.open(f"{others}#view=map&run=digits-vit")
    seen.page.get_by_role("tabpanel").get_by_role("heading", name="digits-vit").wait_for()
    seen.page.get_by_role("combobox", name="run").select_option(label="python-gpt")
    seen.until(lambda: "run=python-gpt" in seen.page.url)
    seen.page.get_by_text("drawn by chance", exact=False).first.wait_for()
    seen.check(others)
    seen.open(f"{others}#run=gone")
    seen.page.get_by_text("There is no run gone here. There are: python-gpt", exact=False).wait_for()
    seen.page.close()


def test_another_run_changes_the_whole_map(browser, others):
    seen = Seen(browser)
    seen.open(f"{others}#view=map")
    for name in ("python-bert", "digits-vit", "python-gpt"):
        seen.page.get_by_role("combobox", name="run").select_option(label=name)
        seen.settle()
        seen.page.get_by_role("tabpanel").get_by_role("heading", name=name).wait_for()
    seen.check(others)
    seen.page.close()


@pytest.mark.parametrize("number", range(len(OTHERS)), ids=list(OTHERS))
def test_other_tasks_have_the_views_that_make_sense(browser, others, number):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    seen = Seen(browser)
    seen.open(f"{others}#run={number}")
    tabs = seen.page.get_by_role("tab")
    names = tabs.all_inner_texts()
    assert {"Map", "Attention", "What if?", "Compare", "Heads"} <= set(names)
    assert ("Writing" in names) == (list(OTHERS)[number] == "python-gpt")
    for place, name in enumerate(names):
        tabs.nth(place).click()
        seen.settle()
        seen.page.wait_for_timeout(300)
        file = f"{list(OTHERS)[number]}-{name.lower().replace(' ', '-').replace('?', '')}.png"
        seen.page.screenshot(path=SCREENSHOTS / file, full_page=True)
    assert seen.page.get_by_role("region", name="Result").inner_text().strip()
    seen.check(others)
    seen.page.close()


def test_the_exported_page_works_from_the_disk(browser, run, tmp_path):
    texts = [SENTENCE, 'The <b>dog</b> "eats" </script>.']
    file = export_page(Explorer([run], "cpu"), tmp_path / "page.html", texts)
    pipeline = load_pipeline(run, "cpu")
    seen = Seen(browser)
    for text in texts:
        seen.open(file.as_uri())
        seen.page.get_by_role("group", name="Examples").get_by_role("button", name=text, exact=True).click()
        seen.settle()
        seen.until_said(pipeline.translate([text])[0])
        for place in range(len(VIEWS)):
            seen.page.get_by_role("tab").nth(place).click()
            seen.settle()
            assert seen.page.locator(".banner").count() == 0, VIEWS[place]
    seen.open(f"{file.as_uri()}#view=experiments")
    id, head = "decoder.layers.1.cross_attention.heads", 2
    seen.page.get_by_role("button", name=f"switch off decoder layer 1, cross-attention, head {head}").click()
    with edit_activations(pipeline.model, {id: without_head(head)}):
        expected = pipeline.translate([SENTENCE])[0]
    seen.until_said(expected)
    assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
    assert seen.problems == []
    seen.page.close()


def test_recorded_answers_are_found_under_the_key_that_the_page_makes(browser, address):
    """Python and JavaScript must spell a request in the same way."""
    from cutaway.explore.export import key

    seen = Seen(browser)
    seen.open(address)
    for request in (
        {"text": 'é “x” \u2028 👩 \\ " \n \x7f', "run": 0, "off": [], "snapshot": None},
        {"text": "a", "run": 2, "off": ["b", "a"], "snapshot": 175, "length_penalty": 1.0, "beam_size": 4},
        {"text": "", "length_penalty": 0.6, "target": None, "prefix": [1, 2]},
    ):
        made = seen.page.evaluate(
            "async (request) => (await import('./source.js')).key('trace', request)", json.loads(json.dumps(request))
        )
        assert made == key("trace", request)
    seen.page.close()


def test_the_sampling_arithmetic_against_the_filters(browser, address):
    """The page's own top-k and top-p, on random logits, against decode/filters.py."""
    from cutaway.decode.filters import temperature, top_k, top_p

    seen = Seen(browser)
    seen.open(address)
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
        shown = seen.page.evaluate(
            "async ([step, options]) => { const m = await import('./views/sampling.js'); return m.filtered(step, options); }",
            [step, {"temperature": t, "topK": k, "topP": p}],
        )
        assert [candidate["q"] for candidate in shown["candidates"]] == pytest.approx(expected, abs=1e-9)
        assert [candidate["kept"] for candidate in shown["candidates"]] == [p > 0 for p in expected]
    seen.page.close()
