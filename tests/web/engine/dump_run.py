"""Write what a trained translator computes, in double precision, for the tests of the engine.

python dump_run.py RUN FOLDER

run.json    token ids of sentences and of their greedy translations, and the place of their logits
run.bin     the logits of each translation [T,V], as 64-bit numbers
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

from cutaway.data.tasks import load_split
from cutaway.data.tokenizer import Tokenizer
from cutaway.decode.sampling import greedy
from cutaway.decode.stepper import TranslationStepper
from cutaway.models.build import build_model
from cutaway.models.weights import load_weights
from cutaway.runs import RunFolder

SENTENCES = 40


@torch.no_grad()
def main() -> None:
    run, folder = RunFolder(Path(sys.argv[1])), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    config, tokenizer = run.read_config(), Tokenizer.open(run.tokenizer)
    torch.set_num_threads(1)  # the tensors are tiny
    torch.set_default_dtype(torch.float64)
    model = build_model(config.model).eval()
    load_weights(model, run.read_weights())
    sentences, values, start = [], [], 0
    for example in load_split(config.data, "translation", "valid")[:SENTENCES]:
        source = [*tokenizer.encode(example.source), tokenizer.eos]
        stepper = TranslationStepper(model, torch.tensor([source]))
        [hypothesis] = greedy(stepper, torch.tensor([tokenizer.bos]), [40], tokenizer.eos)
        logits = model(torch.tensor([source]), torch.tensor([[tokenizer.bos, *hypothesis.tokens]]))[0]
        sentences.append({"source": source, "target": hypothesis.tokens, "start": start})
        values.append(logits.numpy().ravel())
        start += logits.numel()
    np.concatenate(values).tofile(folder / "run.bin")
    content = {"bos": tokenizer.bos, "eos": tokenizer.eos, "vocab_size": tokenizer.vocab_size, "sentences": sentences}
    (folder / "run.json").write_text(json.dumps(content))


if __name__ == "__main__":
    main()
