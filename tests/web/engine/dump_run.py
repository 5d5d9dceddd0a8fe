"""Write what a trained translator computes, for the tests of the engine.

python dump_run.py RUN FOLDER

run.json    sentences: text, token ids, the place of their logits, and the hypotheses of engine torch: greedy and beam
run.bin     the logits of each greedy translation [T,V], in double precision
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cutaway.data.tasks import load_split
from cutaway.inference.pipelines import Translator

SENTENCES = 200
BEAM_SIZE = 5


def hypotheses(translator: Translator, texts: list[str], **changes: Any) -> list[dict[str, Any]]:
    """The best hypothesis for each text, with its text."""
    found = translator.hypotheses(texts, replace(translator.config.decode, **changes))
    return [{**asdict(best), "text": translator.tokenizer.decode(best.tokens)} for [best, *_] in found]


@torch.no_grad()
def main() -> None:
    run, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the tensors are tiny
    translator = Translator.load(run, "cpu", engine="torch")
    tokenizer = translator.tokenizer
    texts = [example.source for example in load_split(translator.config.data, "translation", "valid")[:SENTENCES]]
    greedy = hypotheses(translator, texts, strategy="greedy")
    beam = hypotheses(translator, texts, strategy="beam", beam_size=BEAM_SIZE)
    model = Translator.load(run, "cpu", engine="torch", dtype="float64").model
    sentences, values, start = [], [], 0
    for text, *found in zip(texts, greedy, beam, strict=True):
        source = [*tokenizer.encode(text), tokenizer.eos]
        logits = model(torch.tensor([source]), torch.tensor([[tokenizer.bos, *found[0]["tokens"]]]))[0]
        sentences.append({"text": text, "source": source, "start": start, "greedy": found[0], "beam": found[1]})
        values.append(logits.numpy().ravel())
        start += logits.numel()
    np.concatenate(values).tofile(folder / "run.bin")
    content = {"bos": tokenizer.bos, "vocab_size": tokenizer.vocab_size, "beamSize": BEAM_SIZE, "sentences": sentences}
    (folder / "run.json").write_text(json.dumps(content))


if __name__ == "__main__":
    main()
