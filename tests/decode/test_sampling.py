"""Searches with a fake model, against exhaustive search and exact distributions."""

import dataclasses

import pytest
import torch
from helpers import TableModel, exhaustive_search, is_close, random_ids, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from untrained import untrained_pipeline

from cutaway.config import DecodeConfig
from cutaway.decode.beam import beam_search
from cutaway.decode.filters import min_p, temperature, top_k, top_p
from cutaway.decode.sampling import greedy, sample
from cutaway.decode.stepper import TranslationStepper
from cutaway.inference.engines.numpy_engine import NumpyEngine
from cutaway.search.request import Search
from cutaway.twin.build import build_model as build_twin

BOS, EOS = 0, 1


def first_tokens(limits, token):
    return torch.full((len(limits),), token)


def generators(seed, texts):
    """A random generator for each text."""
    return Search(DecodeConfig(seed=seed), [], range(texts), BOS, EOS).generators()


alphas = st.sampled_from([0.0, 0.6, 1.0, 2.0])
seeds = st.integers(0, 10**6)


@given(seeds, alphas, st.integers(1, 5))
def test_a_beam_that_holds_all_prefixes_finds_the_best_text(seed, alpha, max_length):
    vocab = 4
    width = (vocab - 1) ** max_length  # the largest number of live prefixes
    found = beam_search(
        TableModel(vocab, seed), first_tokens([max_length], BOS), [max_length], EOS, width, alpha, n_best=3
    )[0]
    expected = exhaustive_search(TableModel(vocab, seed), 0, BOS, EOS, max_length, alpha)
    for hypothesis, (score, tokens, log_p) in zip(found, expected, strict=False):
        assert hypothesis.tokens == tokens
        assert is_close(hypothesis.score, score)
        assert is_close(hypothesis.log_probability, log_p)


@given(seeds, alphas, st.integers(1, 6), st.integers(1, 4))
def test_beam_of_one_is_greedy(seed, alpha, max_length, rows):
    limits = [max_length + i for i in range(rows)]
    beams = beam_search(TableModel(5, seed, rows), first_tokens(limits, BOS), limits, EOS, 1, alpha)
    for [beam], one in zip(
        beams, greedy(TableModel(5, seed, rows), first_tokens(limits, BOS), limits, EOS), strict=True
    ):
        assert beam.tokens == one.tokens
        assert beam.finished == one.finished
        assert is_close(beam.log_probability, one.log_probability)


@given(seeds, alphas, st.integers(1, 5), st.lists(st.integers(1, 6), min_size=2, max_size=4))
def test_batch_equals_one_by_one(seed, alpha, width, limits):
    class Alone(TableModel):
        def __init__(self, sentence):
            super().__init__(5, seed)
            self.sentence = [sentence]

    together = beam_search(
        TableModel(5, seed, len(limits)), first_tokens(limits, BOS), limits, EOS, width, alpha, n_best=2
    )
    greedily = greedy(TableModel(5, seed, len(limits)), first_tokens(limits, BOS), limits, EOS)
    for i, limit in enumerate(limits):
        assert beam_search(Alone(i), first_tokens([limit], BOS), [limit], EOS, width, alpha, n_best=2)[0] == together[i]
        assert greedy(Alone(i), first_tokens([limit], BOS), [limit], EOS)[0] == greedily[i]


@given(seeds, alphas)
def test_the_score_follows_the_definition(seed, alpha):
    for hypothesis in beam_search(TableModel(5, seed), first_tokens([6], BOS), [6], EOS, 3, alpha, n_best=3)[0]:
        length = len(hypothesis.tokens) + hypothesis.finished
        assert is_close(hypothesis.score, hypothesis.log_probability / ((5 + length) / 6) ** alpha)
        assert hypothesis.finished or length == 6
        model, total = TableModel(5, seed), 0.0
        for t, token in enumerate([*hypothesis.tokens, EOS][:length]):
            total += model.logits(0, (BOS, *hypothesis.tokens[:t])).log_softmax(-1)[token].item()
        assert is_close(total, hypothesis.log_probability)


def test_stopping_early_loses_nothing_and_a_wider_beam_is_rarely_worse():
    """Continuing to the length limit must never find a better text."""
    for seed in range(60):
        stopped = beam_search(TableModel(5, seed), first_tokens([8], BOS), [8], EOS, 4, 0.6)[0][0]
        patient = beam_search(TableModel(5, seed), first_tokens([8], BOS), [8], EOS, 4, 0.6, n_best=10**6)[0]
        assert stopped.score >= patient[0].score - 1e-12


def test_sampling_is_reproducible():
    def draw(seed):
        return sample(TableModel(9, 1, rows=5), first_tokens([6] * 5, BOS), [6] * 5, EOS, (), generators(seed, 5))

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_filters():
    logits = torch.tensor([[1.0, 3.0, 2.0, 0.0]])
    inf = float("inf")
    assert temperature(0.5)(logits).tolist() == [[2, 6, 4, 0]]
    assert top_k(2)(logits).tolist() == [[-inf, 3, 2, -inf]]
    assert top_k(99)(logits).tolist() == logits.tolist()
    p = logits.softmax(-1)[0]  # 0.087 0.644 0.237 0.032
    assert top_p(p[1].item() - 0.01)(logits).tolist() == [[-inf, 3, -inf, -inf]]
    assert top_p(p[1].item() + 0.01)(logits).tolist() == [[-inf, 3, 2, -inf]]
    assert top_p(1e-9)(logits).tolist() == [[-inf, 3, -inf, -inf]]
    assert min_p(0.2)(logits).tolist() == [[-inf, 3, 2, -inf]]  # 1 / e is 0.37, 1 / e² is 0.14
    assert min_p(0.1)(logits).tolist() == [[1, 3, 2, -inf]]
    assert min_p(1.0)(logits).tolist() == [[-inf, 3, -inf, -inf]]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_a_cached_search_equals_an_uncached_one(strategy):
    """With a real model: the stepper against reading the whole prefix at each step."""
    model = tiny_model(seed=4)
    source = random_ids(3, 6)
    mask = torch.arange(6)[None] < torch.tensor([6, 4, 2])[:, None]

    class Naive:
        def __init__(self):
            self.source, self.mask = source, mask
            self.prefix = torch.empty(3, 0, dtype=torch.long)

        def step(self, tokens):
            self.prefix = torch.cat([self.prefix, tokens[:, None]], 1)
            return model(self.source, self.prefix, self.mask)[:, -1]

        def keep(self, rows):
            self.prefix, self.source, self.mask = self.prefix[rows], self.source[rows], self.mask[rows]

    def run(stepper):
        if strategy == "greedy":
            return [[h] for h in greedy(stepper, first_tokens([9, 12, 5], 4), [9, 12, 5], 5)]
        return beam_search(stepper, first_tokens([9, 12, 5], 4), [9, 12, 5], 5, beam_size=3, n_best=2)

    with torch.inference_mode():
        for ours, naive in zip(run(TranslationStepper(model, source, mask)), run(Naive()), strict=True):
            assert [h.tokens for h in ours] == [h.tokens for h in naive]
            assert all(is_close(a.score, b.score) for a, b in zip(ours, naive, strict=True))


def test_samples_do_not_depend_on_the_batch():
    limits = [7, 3, 9, 5]
    together = sample(TableModel(9, 1, rows=4), first_tokens(limits, BOS), limits, EOS, (), generators(3, 4))
    for i, limit in enumerate(limits):
        alone = TableModel(9, 1)
        alone.sentence = [i]
        assert sample(alone, first_tokens([limit], BOS), [limit], EOS, (), [generators(3, 4)[i]]) == [together[i]]


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_suppressed_tokens_get_probability_zero(strategy):
    """On both engines: as if the model's logits for these tokens were -inf."""
    for family in ("encoder_decoder", "decoder"):
        writer = untrained_pipeline(family)
        eos, texts = writer.tokenizer.eos, ["a b c", "d e"]
        plain = DecodeConfig(strategy=strategy, beam_size=3, max_length=8, suppress=(eos,))  # so that there is a text
        usual = {token for found in writer.hypotheses(texts, plain) for token in found[0].tokens}
        never = (*list(usual)[:8], eos)
        found = writer.hypotheses(texts, dataclasses.replace(plain, suppress=never))
        written = {token for hypotheses in found for token in hypotheses[0].tokens}
        assert usual
        assert written
        assert not written & set(never)
        twin = build_twin(writer.config.model)
        twin.load({name: p.detach().numpy() for name, p in writer.model.named_parameters()}, "float32")
        other = type(writer)(NumpyEngine(twin), writer.tokenizer, writer.config)
        for ours, theirs in zip(
            found, other.hypotheses(texts, dataclasses.replace(plain, suppress=never)), strict=True
        ):
            assert ours[0].tokens == theirs[0].tokens
            assert ours[0].log_probability == pytest.approx(theirs[0].log_probability, abs=1e-4)
