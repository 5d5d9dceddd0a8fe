"""The files that a reader of the paper's model must open: those that one training forward executes."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import torch

from cutaway.config.presets import PAPER_BASE
from cutaway.models.build import build_model

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "cutaway"


def executed():
    """File -> its lines, of all code of ours that runs while the paper's model reads a batch with padding."""
    small = {"vocab_size": 40, "d_model": 16, "d_ff": 32, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    model = build_model(replace(PAPER_BASE, **small))
    ids, mask = torch.randint(4, 40, (2, 6)), torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    seen = set()
    sys.setprofile(lambda frame, event, argument: seen.add(frame.f_code.co_filename))
    try:
        model.train()(ids, ids, mask, mask)
    finally:
        sys.setprofile(None)
    files = sorted({Path(name) for name in seen if Path(name).is_relative_to(SOURCE)})
    return {str(file.relative_to(ROOT)): len(file.read_text("utf-8").splitlines()) for file in files}


def test_one_forward_is_at_most_eleven_files_and_900_lines():
    lines = executed()
    assert len(lines) <= 11, lines
    assert sum(lines.values()) <= 900, lines
    assert lines["src/cutaway/nn/attention.py"] <= 110


def test_the_reading_path_of_the_readme_and_the_design_is_that_list():
    lines = executed()
    for page, prefix in ((ROOT / "README.md", ""), (ROOT / "docs" / "design.md", "../")):
        listed = re.findall(rf"^\| \d+ \| \[[^]]+\]\({re.escape(prefix)}(src/[^)]+)\)", page.read_text("utf-8"), re.M)
        assert sorted(listed) == sorted(lines), page.name
