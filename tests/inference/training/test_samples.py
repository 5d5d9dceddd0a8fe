"""The texts that a validation shows: written as the run writes, the same each time, and no disturbance."""

import dataclasses

import pytest
import torch
from looking import TEXTS, untrained

from cutaway.data.encoded import EncodedChunk
from cutaway.inference.training.samples import LONGEST, Look
from cutaway.train.observers import Measured


@pytest.mark.parametrize(("strategy", "shown_by"), [("sample", "sample"), ("beam", "greedy"), ("greedy", "greedy")])
def test_samples_of_a_language_model_are_drawn_as_the_run_draws(strategy, shown_by):
    writer = untrained("decoder", seed=6)
    config = dataclasses.replace(writer.config, decode=dataclasses.replace(writer.config.decode, strategy=strategy))
    valid = [EncodedChunk([writer.tokenizer.bos, *writer.tokenizer.encode(text)]) for text in TEXTS]
    look, before = Look(config, writer.tokenizer, valid), torch.get_rng_state()
    found, again = (look(writer.model, Measured(1.0, 0.5)).samples for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert found == again
    decode = dataclasses.replace(config.decode, strategy=shown_by, max_length=min(LONGEST, config.longest_text - 16))
    assert [sample.given + sample.written for sample in found] == writer.generate(TEXTS, decode)
