"""The page at /docs in a real browser: its forms get responses from the server."""

import json

import pytest
from browsing import open_browser
from serving import HOME, serve_in_thread, tiny_runs

from cutaway.serve.middleware import Access

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def browser():
    with open_browser() as started:
        yield started


def open_page(browser, port, width=1000):
    page = browser.new_page(viewport={"width": width, "height": 900})
    problems, requests = [], []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"http://127.0.0.1:{port}/docs")
    return page, problems, requests


def submit(page, path, body=None):
    form = page.locator(f'form[data-path="{path}"]')
    if body is not None:
        form.locator("textarea").fill(json.dumps(body))
    form.get_by_role("button").click()
    page.wait_for_function("form => form.querySelector('.status').textContent.length > 3", arg=form.element_handle())
    return form.locator(".status").inner_text(), form.locator(".answer").inner_text()


def test_every_example_works(browser, runs):
    with serve_in_thread(runs) as served:
        page, problems, requests = open_page(browser, served.port)
        paths = page.eval_on_selector_all("form[data-path]", "forms => forms.map(form => form.dataset.path)")
        assert {"/translate", "/generate", "/classify", "/tag", "/embed", "/trace", "/v1/completions"} < set(paths)
        for path in paths:
            status, answer = submit(page, path)
            assert status.startswith("200 OK"), (path, status, answer)
            assert answer
        status, answer = submit(page, "/translate", {"text": "a b", "stream": True, "strategy": "greedy"})
        assert status.startswith("200 OK")
        assert answer.rstrip().endswith("data: [DONE]")
        assert problems == []
        assert all(url.startswith(f"http://127.0.0.1:{served.port}/") for url in requests)
        status, answer = submit(page, "/translate", {"txt": "<img src=x onerror=alert(1)>"})
        assert status.startswith("422")
        assert page.locator(".answer img").count() == 0
        page.close()


@pytest.mark.parametrize("width", [390, 1000])
def test_the_page_fits_the_window(browser, runs, width):
    with serve_in_thread(runs[:1]) as served:
        page, *_ = open_page(browser, served.port, width)
        for summary in page.locator("summary").all():
            summary.click()
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        page.close()


def test_the_page_asks_for_a_token(browser, runs):
    with serve_in_thread(runs[:1], Access("sesame", HOME)) as served:
        page, *_ = open_page(browser, served.port)
        field = page.locator("#token")
        assert not field.is_visible()
        assert submit(page, "/translate")[0].startswith("401")
        field.fill("sesame")
        assert submit(page, "/translate")[0].startswith("200 OK")
        page.close()
