"""The demo as a newcomer runs it: its promises, its files, and its page in a real browser."""

import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from browsing import open_browser
from helpers import logit_gap_at_first_difference

pytestmark = pytest.mark.slow
SCREENSHOTS = Path(__file__).parent / "output"


def test_it_learned_to_translate(home):
    scores = json.loads((home / "runs/demo/scores.json").read_text())
    assert scores["bleu"] >= 97
    assert scores["exact_match"] >= 0.90
    assert scores["alignment_error_rate"] < 0.5
    assert {"chrf", "unseen_exact_match", "seconds"} <= scores.keys()
    assert abs(scores["seconds"] - float((home / "seconds").read_text())) < 15


def test_it_says_what_happened_and_what_to_try_next(home):
    stdout, stderr = (home / "stdout").read_text("utf-8"), (home / "stderr").read_text("utf-8")
    scores = json.loads((home / "runs/demo/scores.json").read_text())
    assert f"{scores['bleu']:.2f}" in stdout
    assert "exact match" in stdout
    assert "alignment error rate" in stdout
    assert stdout.count("✓") + stdout.count("✗") == 8
    assert len(re.findall(r"^  cutaway \w+", stderr, re.MULTILINE)) == 3
    assert "\x1b" not in stdout + stderr  # plain when piped
    assert "Traceback" not in stderr


def test_the_files_are_there_and_the_users_own_stay(home):
    run = home / "runs/demo"
    assert (run / "notes.txt").read_text() == "mine"
    for name in ("alignment", "cross", "encoder", "decoder", "loss", "schedule", "positions"):
        data = (run / "figures" / f"{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", data[16:24])
        assert width > 400
        assert height > 200
    assert len(list((run / "snapshots").iterdir())) == 8


def cutaway(*arguments, cwd):
    command = [sys.executable, "-c", "from cutaway.cli import main; main()", *arguments]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=200, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_suggested_commands_work(home):
    translated = cutaway("translate", "runs/demo", "The small cat sleeps under the table.", cwd=home)
    assert translated == "Le petit chat dort sous la table.\n"
    evaluated = json.loads(cutaway("evaluate", "runs/demo", "--split", "unseen", "--json", cwd=home))
    scores = json.loads((home / "runs/demo/scores.json").read_text())
    assert evaluated["exact_match"] == pytest.approx(scores["unseen_exact_match"], abs=1e-4)


def test_the_report_in_a_browser(home):
    SCREENSHOTS.mkdir(exist_ok=True)
    with open_browser() as browser:
        for scheme, width in (("light", 1200), ("dark", 1200), ("light", 390)):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            problems, requests = [], []
            page.on("console", lambda message, seen=problems: seen.append(message.text))
            page.on("pageerror", lambda error, seen=problems: seen.append(str(error)))
            page.on("request", lambda request, seen=requests: seen.append(request.url))
            page.goto((home / "runs/demo/report.html").as_uri())
            page.screenshot(path=SCREENSHOTS / f"report-{scheme}-{width}.png", full_page=True)
            assert problems == []
            assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
            assert page.title() == "A Transformer that learned some French"
            broken = page.eval_on_selector_all("img", "all => all.filter(i => !i.complete || !i.naturalWidth).length")
            assert broken == 0
            assert page.locator("img").count() == 7
            overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert overflow <= 0, f"the page scrolls sideways by {overflow} pixels at a width of {width}"
            page.close()


def test_the_numpy_engine_translates_as_pytorch_does(home):
    """500 sentences: in double precision the same to the token; in single precision, what differs is a tie."""
    from cutaway import DecodeConfig, Translator, load_builtin

    texts = [pair.source for pair in load_builtin("tinyworld:en-fr", "test", 500)]
    exact = {name: Translator.load(home / "runs/demo", engine=name, dtype="float64") for name in ("torch", "numpy")}
    quick = {name: Translator.load(home / "runs/demo", engine=name) for name in ("torch", "numpy")}
    for decode in (DecodeConfig(strategy="greedy"), DecodeConfig(strategy="beam"), DecodeConfig(strategy="sample")):
        found = {name: translator.hypotheses(texts, decode) for name, translator in exact.items()}
        assert [h.tokens for [h] in found["numpy"]] == [h.tokens for [h] in found["torch"]]
        for [one], [other] in zip(found["numpy"], found["torch"], strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-9)
        if decode.strategy == "sample":
            continue  # what is drawn at the edge of two tokens is a matter of rounding
        single = {name: translator.hypotheses(texts, decode) for name, translator in quick.items()}
        for text, [one], [other] in zip(texts, single["numpy"], single["torch"], strict=True):
            if one.tokens != other.tokens and decode.strategy == "greedy":
                assert logit_gap_at_first_difference(exact["torch"], text, one.tokens, other.tokens) < 1e-4
            elif one.tokens != other.tokens:
                assert abs(one.score - other.score) < 1e-4
