"""Masks: every combination of rules against a double loop, and their shortcuts."""

import itertools
import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import ConfigError
from cutaway.nn import chunked_attention, sparse_masks
from cutaway.nn.chunked_attention import reachable_keys
from cutaway.nn.masks import Causal, Mask, Span, as_span, causal_mask, padding_mask
from cutaway.nn.sparse_masks import SlidingWindow, Strided

CPU = torch.device("cpu")

# the definitions again, for single pairs
ALLOWS = {
    Causal: lambda rule, i, j: j <= i,
    SlidingWindow: lambda rule, i, j: abs(i - j) < rule.width,
    Strided: lambda rule, i, j: abs(i - j) < rule.width or (i - j) % rule.width == 0,
}

RULES = st.one_of(
    st.just(Causal()), st.builds(SlidingWindow, st.integers(1, 12)), st.builds(Strided, st.integers(1, 12))
)  # fmt: skip


def ranges():
    return st.builds(lambda start, n: range(start, start + n), st.integers(0, 20), st.integers(1, 20))


def as_range(span: Span) -> range:
    return range(span.start, span.stop)


def by_double_loop(mask: Mask) -> list[list[bool]]:
    return [
        [all(ALLOWS[type(r)](r, i, j) for r in mask.rules) for j in as_range(mask.keys)] for i in as_range(mask.queries)
    ]


def as_matrix(mask: Mask) -> torch.Tensor:
    dense, shape = mask.dense(CPU), (mask.queries.size, mask.keys.size)
    return torch.ones(shape, dtype=torch.bool) if dense is None else dense.expand(*dense.shape[:-2], *shape)


def test_true_means_may_attend():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert padding_mask(torch.tensor([[True, False]])).tolist() == [[[[True, False]]]]


def test_a_cached_step_is_the_last_row():
    for rules in ((Causal(),), (Causal(), SlidingWindow(3)), (Causal(), Strided(2))):
        whole = as_matrix(Mask(range(6), range(6), rules))
        assert torch.equal(as_matrix(Mask(range(5, 6), range(6), rules)), whole[5:])


def test_and_combines_masks():
    joined = Mask(range(7), range(7)) & Causal() & SlidingWindow(2)
    assert joined.rules == (Causal(), SlidingWindow(2))
    assert torch.equal(as_matrix(joined), causal_mask(7) & as_matrix(Mask(range(7), range(7), (SlidingWindow(2),))))


@pytest.mark.parametrize("n_rules", [0, 1, 2, 3])
def test_dense_equals_a_double_loop(n_rules):
    every = (Causal(), SlidingWindow(1), SlidingWindow(3), Strided(2), Strided(4))
    for rules in itertools.combinations(every, n_rules):
        for queries, keys in (
            (range(9), range(9)),
            (range(5, 9), range(9)),
            (range(8, 9), range(9)),
            (range(4), range(11)),
        ):
            mask = Mask(queries, keys, rules)
            assert as_matrix(mask).tolist() == by_double_loop(mask), mask


@given(ranges(), ranges(), st.lists(RULES, max_size=3))
def test_dense_equals_a_double_loop_anywhere(queries, keys, rules):
    mask = Mask(queries, keys, tuple(rules))
    assert as_matrix(mask).tolist() == by_double_loop(mask)


def test_no_query_attends_to_padding():
    is_token = torch.tensor([[True, True, True], [True, False, False]])
    dense = Mask(range(3), range(3), (Causal(),), is_token).dense(CPU)
    for b, i, j in itertools.product(range(2), range(3), range(3)):
        assert dense[b, 0, i, j].item() == (j <= i and is_token[b, j].item())
    assert Mask(range(3), range(3), (), is_token).dense(CPU).shape == (2, 1, 1, 3)  # broadcasts over the queries
    assert Mask(range(3), range(3)).dense(CPU) is None


@given(ranges(), ranges(), st.lists(RULES, max_size=3))
def test_reaches_omits_no_allowed_key(queries, keys, rules):
    mask = Mask(queries, keys, tuple(rules))
    reached = reachable_keys(mask, CPU)
    reached = range(len(keys)) if reached is None else reached.tolist()
    seen = {j for row in by_double_loop(mask) for j, allowed in enumerate(row) if allowed}
    assert seen <= set(reached)


@given(ranges(), ranges(), RULES)
def test_a_single_rule_reaches_exactly_the_allowed_keys(queries, keys, rule):
    """Otherwise chunks would be correct, but use more keys than necessary."""
    mask = Mask(queries, keys, (rule,))
    reached = reachable_keys(mask, CPU)
    seen = {j for row in by_double_loop(mask) for j, allowed in enumerate(row) if allowed}
    assert seen == set(range(len(keys)) if reached is None else reached.tolist())


@given(ranges(), ranges(), st.integers(1, 8), st.integers(0, 12))
def test_a_chunk_with_chosen_keys_is_a_part_of_the_whole_matrix(queries, keys, width, start):
    mask = Mask(queries, keys, (Causal(), Strided(width)), torch.rand(2, len(keys)) < 0.7)
    start = min(start, len(queries) - 1)
    first = queries[start]
    chunk = replace(mask, queries=Span(first, min(first + 4, mask.queries.stop)))
    chosen = reachable_keys(chunk, CPU)
    piece = chunk.dense(CPU, chosen)
    whole = as_matrix(mask)[:, :, start : start + 4]
    assert torch.equal(piece.expand(2, 1, chunk.queries.size, -1), whole if chosen is None else whole[..., chosen])


@pytest.mark.parametrize("kind", [Causal, SlidingWindow, Strided])
@given(ranges(), ranges(), st.integers(1, 30))
def test_allows_all_is_exact(kind, queries, keys, width):
    rule = kind() if kind is Causal else kind(width)
    everything = all(itertools.chain(*by_double_loop(Mask(queries, keys, (rule,)))))
    assert rule.allows_all(as_span(queries), as_span(keys)) == everything


@given(ranges(), ranges(), st.lists(RULES, max_size=3))
def test_inactive_rules_make_no_difference(queries, keys, rules):
    mask = Mask(queries, keys, tuple(rules))
    if not mask.active_rules:
        assert all(itertools.chain(*by_double_loop(mask)))


def test_the_drawing_in_the_docstring_of_sparse_masks_is_right():
    header, letters, *rows = [
        line for line in sparse_masks.__doc__.splitlines() if "Causal()  " in line or re.match(r" {4,6}[a-e] ", line)
    ]
    titles = re.split(r" {2,}", header.strip())
    assert [eval(title, {"Causal": Causal, **vars(sparse_masks)}) for title in titles if "&" not in title] == [
        Causal(),
        SlidingWindow(2),
    ]
    assert titles[2:] == ["SlidingWindow(2) & Causal()", "Strided(2) & Causal()"]
    assert letters.split() == list("abcde") * 4
    drawn_rules = ((Causal(),), (SlidingWindow(2),), (SlidingWindow(2), Causal()), (Strided(2), Causal()))
    for which, rules in enumerate(drawn_rules):
        drawn = [re.findall(r"[■·]", row)[5 * which : 5 * which + 5] for row in rows]
        assert [[cell == "■" for cell in row] for row in drawn] == by_double_loop(Mask(range(5), range(5), rules))


def test_the_drawing_in_the_docstring_of_chunked_attention_is_right():
    lines = [line for line in chunked_attention.__doc__.splitlines() if re.search(r"[■·]", line)]
    mask = Mask(range(8), range(8), (SlidingWindow(3), Causal()))
    assert [[c == "■" for c in re.findall(r"[■·]", line)] for line in lines] == by_double_loop(mask)[: len(lines)]
    reached = [line.split("┘")[1].split() for line in lines if "┘" in line]
    for i, letters in enumerate(reached):
        assert letters == ["abcdefgh"[j] for j in reachable_keys(replace(mask, queries=Span(2 * i, 2 * i + 2)), CPU)]


def test_a_mask_as_text():
    mask = Mask(range(3), range(3), (Causal(),), torch.tensor([[True, True, False]]))
    assert str(mask) == "■ · ·\n■ ■ ·\n■ ■ ·"
    assert mask._repr_html_() == f"<pre>{mask}</pre>"
    assert str(Mask(range(2), range(3))) == "■ ■ ■\n■ ■ ■"


# spans


@given(ranges())
def test_a_span_is_a_range(positions):
    span = as_span(positions)
    assert (span.start, span.stop, span.size) == (positions.start, positions.stop, len(positions))
    assert span.tensor(CPU).tolist() == list(positions)


def test_a_mask_accepts_ranges():
    assert Mask(range(2, 5), range(5)) == Mask(Span(2, 5), Span(0, 5))
    with pytest.raises(ConfigError, match=r"range\(0, 6, 2\) has a step of 2"):
        Mask(range(0, 6, 2), range(6))


class Matrices(torch.nn.Module):
    """The matrix of each rule, for a text with the length of x [T]."""

    rules = (Causal(), SlidingWindow(3), Strided(4))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        text = Span(0, x.size(0))
        spelled = [Mask(text, text, (rule,)).dense(CPU) for rule in self.rules]
        return [torch.zeros(0) if dense is None else dense for dense in spelled]


@pytest.mark.slow
def test_a_symbolic_length_stays_symbolic():
    """A model exported with 5 tokens must be correct for any length, so no rule may be decided at export time."""
    length = torch.export.Dim("length", min=1, max=64)
    exported = torch.export.export(Matrices(), (torch.zeros(5),), dynamic_shapes=({0: length},)).module()
    for n in (1, 2, 3, 4, 5, 12, 64):
        for rule, dense in zip(Matrices.rules, exported(torch.zeros(n)), strict=True):
            assert dense.tolist() == by_double_loop(Mask(range(n), range(n), (rule,))), (rule, n)
