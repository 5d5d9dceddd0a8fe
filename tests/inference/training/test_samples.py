"""Samples of a validation: generated with the run's strategy, reproducible, and independent of the training."""

import dataclasses

import pytest
import torch
from untrained import TEXTS, untrained_pipeline

from cutaway.data.encoded import EncodedChunk
from cutaway.inference.training.samples import MAX_NEW_TOKENS, ValidationSamples
from cutaway.train.observers import ValidationResult


@pytest.mark.parametrize(("strategy", "expected"), [("sample", "sample"), ("beam", "greedy"), ("greedy", "greedy")])
def test_samples_of_a_language_model_use_the_strategy_of_the_run(strategy, expected):
    pipeline = untrained_pipeline("decoder", seed=6)
    config = dataclasses.replace(pipeline.config, decode=dataclasses.replace(pipeline.config.decode, strategy=strategy))
    valid = [EncodedChunk([pipeline.tokenizer.bos, *pipeline.tokenizer.encode(text)]) for text in TEXTS]
    add_samples, before = ValidationSamples(config, pipeline.tokenizer, valid), torch.get_rng_state()
    found, again = (add_samples(pipeline.model, ValidationResult(1.0, 0.5)).samples for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert found == again
    decode = dataclasses.replace(
        config.decode, strategy=expected, max_length=min(MAX_NEW_TOKENS, config.longest_text - 16)
    )
    assert [sample.given + sample.written for sample in found] == pipeline.generate(TEXTS, decode)
