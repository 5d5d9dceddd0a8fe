"""What a text becomes does not depend on its company: together, alone, shuffled."""

import random

import pytest
import torch
import untrained
from ties import TIE, smallest_gap

from cutaway.config import DecodeConfig
from cutaway.inference.fast.prepare import prepare_model
from cutaway.inference.pipelines.base import batch_by_length
from cutaway.models.build import POSITIONS
from cutaway.search.request import Request

LETTERS = [*"abcdefgh,."]
DECODES = {
    "greedy": DecodeConfig(strategy="greedy", max_length=12),
    "beam": DecodeConfig(strategy="beam", beam_size=3, max_length=12),
    "sample": DecodeConfig(strategy="sample", temperature=1.3, max_length=12, seed=2),
    "rules": DecodeConfig(
        strategy="beam", beam_size=3, max_length=12, repetition_penalty=1.2, no_repeat_ngram=3, min_length=4
    ),
}
every_strategy = pytest.mark.parametrize("decode", DECODES.values(), ids=DECODES)
every_family = pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])


def ready(*arguments, **changes):
    """As a run is loaded."""
    writer = untrained.untrained_pipeline(*arguments, **changes)
    prepare_model(writer.model)
    return writer


def requests(n, longest=14, seed=0):
    """Texts and prefixes of mixed lengths."""
    draw = random.Random(seed)
    some = lambda most: " ".join(draw.choices(LETTERS, k=draw.randint(0, most)))  # noqa: E731
    return [Request(some(longest) or "a", some(3) if number % 3 == 0 else "", number) for number in range(n)]


def three_ways(writer, wanted, decode):
    """Together, shuffled, and alone."""
    order = random.Random(1).sample(range(len(wanted)), len(wanted))
    shuffled = dict(zip(order, writer.search([wanted[i] for i in order], decode), strict=True))
    yield writer.search(wanted, decode)
    yield [shuffled[i] for i in range(len(wanted))]
    yield [writer.search([request], decode)[0] for request in wanted]


def the_same_three_times(writer, wanted, decode):
    together, *others = three_ways(writer, wanted, decode)
    for found in others:
        for [one], [other] in zip(together, found, strict=True):
            assert one.tokens == other.tokens
            assert one.score == pytest.approx(other.score, abs=1e-9)


@pytest.mark.usefixtures("double")
@every_family
@every_strategy
def test_in_double_precision_a_text_comes_out_alike_in_any_company(family, decode):
    the_same_three_times(ready(family, seed=3), requests(10), decode)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("position", POSITIONS)
def test_prompts_of_mixed_lengths_share_a_batch_whatever_tells_positions(position):
    """No prompt is padded: a longer one is read on while the shorter ones are written."""
    kernel = {"attention_kernel": "exact"} if position == "relative" else {}
    writer = ready("decoder", seed=5, position=position, **kernel)
    the_same_three_times(writer, requests(6), DECODES["greedy"])


@pytest.mark.slow
@pytest.mark.usefixtures("double")
@every_family
@every_strategy
def test_so_do_two_hundred(family, decode):
    the_same_three_times(ready(family, seed=4, max_length=64), requests(200, 40), decode)


@pytest.mark.slow
@every_family
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_in_single_precision_each_difference_is_a_tie(family, strategy):
    decode, wanted, writer = DECODES[strategy], requests(200, 40), ready(family, seed=4, max_length=64)
    together, *others = three_ways(writer, wanted, decode)
    different = {i for found in others for i, (a, b) in enumerate(zip(together, found, strict=True))
                 if a[0].tokens != b[0].tokens}  # fmt: skip
    writer.model.to(torch.float64)
    for i in different:
        assert smallest_gap(writer, wanted[i], decode) < TIE
    assert len(different) < 20


@pytest.mark.usefixtures("double")
def test_the_judge_sees_ties_and_no_ties():
    """On weights that are all alike, everything is a tie; on random ones, next to nothing is."""
    for strategy in ("greedy", "beam"):
        writer = ready(seed=3)
        gaps = [smallest_gap(writer, request, DECODES[strategy]) for request in requests(5)]
        assert max(gaps) > TIE
        with torch.no_grad():
            for parameter in writer.model.parameters():
                parameter.zero_()
        assert smallest_gap(writer, requests(1)[0], DECODES[strategy]) == 0


def test_rows_of_a_batch_are_of_like_length():
    lengths = [3, 40, 4, 19, 20, 0, 3, 36]
    rows = [[7] * length for length in lengths]
    batches = [[lengths[i] for i in batch] for batch in batch_by_length(rows, 3, spread=16)]
    assert batches == [[3, 3, 4], [19, 20], [36, 40]]
    assert sorted(i for batch in batch_by_length(rows, 3) for i in batch) == [0, 1, 2, 3, 4, 6, 7]
