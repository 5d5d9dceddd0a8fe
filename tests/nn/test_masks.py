"""Masks: every combination of rules against a double loop, and what their shortcuts promise."""

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

# written once more, pair by pair
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


def places(span: Span) -> range:
    return range(span.start, span.stop)


def pair_by_pair(mask: Mask) -> list[list[bool]]:
    return [
        [all(ALLOWS[type(r)](r, i, j) for r in mask.rules) for j in places(mask.keys)] for i in places(mask.queries)
    ]


def spelled_out(mask: Mask) -> torch.Tensor:
    dense, shape = mask.dense(CPU), (mask.queries.size, mask.keys.size)
    return torch.ones(shape, dtype=torch.bool) if dense is None else dense.expand(*dense.shape[:-2], *shape)


def test_true_means_may_attend():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert padding_mask(torch.tensor([[True, False]])).tolist() == [[[[True, False]]]]


def test_a_cached_step_is_the_last_row():
    for rules in ((Causal(),), (Causal(), SlidingWindow(3)), (Causal(), Strided(2))):
        whole = spelled_out(Mask(range(6), range(6), rules))
        assert torch.equal(spelled_out(Mask(range(5, 6), range(6), rules)), whole[5:])


def test_masks_are_joined_with_and():
    joined = Mask(range(7), range(7)) & Causal() & SlidingWindow(2)
    assert joined.rules == (Causal(), SlidingWindow(2))
    assert torch.equal(spelled_out(joined), causal_mask(7) & spelled_out(Mask(range(7), range(7), (SlidingWindow(2),))))


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
            assert spelled_out(mask).tolist() == pair_by_pair(mask), mask


@given(ranges(), ranges(), st.lists(RULES, max_size=3))
def test_dense_equals_a_double_loop_anywhere(queries, keys, rules):
    mask = Mask(queries, keys, tuple(rules))
    assert spelled_out(mask).tolist() == pair_by_pair(mask)


def test_nobody_attends_to_padding():
    is_token = torch.tensor([[True, True, True], [True, False, False]])
    dense = Mask(range(3), range(3), (Causal(),), is_token).dense(CPU)
    for b, i, j in itertools.product(range(2), range(3), range(3)):
        assert dense[b, 0, i, j].item() == (j <= i and is_token[b, j].item())
    assert Mask(range(3), range(3), (), is_token).dense(CPU).shape == (2, 1, 1, 3)  # broadcasts over the queries
    assert Mask(range(3), range(3)).dense(CPU) is None


@given(ranges(), ranges(), st.lists(RULES, max_size=3))
def test_reach_omits_no_key_that_some_query_may_see(queries, keys, rules):
    mask = Mask(queries, keys, tuple(rules))
    reached = reachable_keys(mask, CPU)
    reached = range(len(keys)) if reached is None else reached.tolist()
    seen = {j for row in pair_by_pair(mask) for j, allowed in enumerate(row) if allowed}
    assert seen <= set(reached)


@given(ranges(), ranges(), RULES)
def test_one_rule_alone_reaches_exactly_what_is_seen(queries, keys, rule):
    """Else chunks would be right, but look at more than they need."""
    mask = Mask(queries, keys, (rule,))
    reached = reachable_keys(mask, CPU)
    seen = {j for row in pair_by_pair(mask) for j, allowed in enumerate(row) if allowed}
    assert seen == set(range(len(keys)) if reached is None else reached.tolist())


@given(ranges(), ranges(), st.integers(1, 8), st.integers(0, 12))
def test_a_chunk_with_chosen_keys_is_a_piece_of_the_whole(queries, keys, width, start):
    mask = Mask(queries, keys, (Causal(), Strided(width)), torch.rand(2, len(keys)) < 0.7)
    start = min(start, len(queries) - 1)
    first = queries[start]
    chunk = replace(mask, queries=Span(first, min(first + 4, mask.queries.stop)))
    chosen = reachable_keys(chunk, CPU)
    piece = chunk.dense(CPU, chosen)
    whole = spelled_out(mask)[:, :, start : start + 4]
    assert torch.equal(piece.expand(2, 1, chunk.queries.size, -1), whole if chosen is None else whole[..., chosen])


@pytest.mark.parametrize("kind", [Causal, SlidingWindow, Strided])
@given(ranges(), ranges(), st.integers(1, 30))
def test_a_rule_forbids_nothing_exactly_when_all_is_allowed(kind, queries, keys, width):
    rule = kind() if kind is Causal else kind(width)
    everything = all(itertools.chain(*pair_by_pair(Mask(queries, keys, (rule,)))))
    assert rule.allows_all(as_span(queries), as_span(keys)) == everything


@given(ranges(), ranges(), st.lists(RULES, max_size=3))
def test_what_does_not_bind_makes_no_difference(queries, keys, rules):
    mask = Mask(queries, keys, tuple(rules))
    if not mask.active_rules:
        assert all(itertools.chain(*pair_by_pair(mask)))


def test_the_drawing_of_the_rules_is_right():
    header, letters, *rows = [
        line for line in sparse_masks.__doc__.splitlines() if "Causal()  " in line or re.match(r" {4,6}[a-e] ", line)
    ]
    titles = re.split(r" {2,}", header.strip())
    assert [eval(title, {"Causal": Causal, **vars(sparse_masks)}) for title in titles if "&" not in title] == [
        Causal(),
        SlidingWindow(2),
    ]
    assert titles[2:] == ["Window(2) & Causal()", "Strided(2) & Causal()"]
    assert letters.split() == list("abcde") * 4
    drawn_rules = ((Causal(),), (SlidingWindow(2),), (SlidingWindow(2), Causal()), (Strided(2), Causal()))
    for which, rules in enumerate(drawn_rules):
        drawn = [re.findall(r"[■·]", row)[5 * which : 5 * which + 5] for row in rows]
        assert [[cell == "■" for cell in row] for row in drawn] == pair_by_pair(Mask(range(5), range(5), rules))


def test_the_drawing_of_the_chunks_is_right():
    lines = [line for line in chunked_attention.__doc__.splitlines() if re.search(r"[■·]", line)]
    mask = Mask(range(8), range(8), (SlidingWindow(3), Causal()))
    assert [[c == "■" for c in re.findall(r"[■·]", line)] for line in lines] == pair_by_pair(mask)[: len(lines)]
    reached = [line.split("┘")[1].split() for line in lines if "┘" in line]
    for i, letters in enumerate(reached):
        assert letters == ["abcdefgh"[j] for j in reachable_keys(replace(mask, queries=Span(2 * i, 2 * i + 2)), CPU)]


def test_a_mask_shows_itself():
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


def test_a_mask_takes_ranges_for_spans():
    assert Mask(range(2, 5), range(5)) == Mask(Span(2, 5), Span(0, 5))
    with pytest.raises(ConfigError, match=r"range\(0, 6, 2\) has steps of 2"):
        Mask(range(0, 6, 2), range(6))


class Spelled(torch.nn.Module):
    """All rules, each alone, for a text of the length of x [T]."""

    rules = (Causal(), SlidingWindow(3), Strided(4))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        text = Span(0, x.size(0))
        spelled = [Mask(text, text, (rule,)).dense(CPU) for rule in self.rules]
        return [torch.zeros(0) if dense is None else dense for dense in spelled]


@pytest.mark.slow
def test_a_length_that_is_not_known_yet_stays_unknown():
    """What is exported for texts of 5 tokens must be right for any: there no rule may be left out, or kept, for good."""
    length = torch.export.Dim("length", min=1, max=64)
    exported = torch.export.export(Spelled(), (torch.zeros(5),), dynamic_shapes=({0: length},)).module()
    for n in (1, 2, 3, 4, 5, 12, 64):
        for rule, dense in zip(Spelled.rules, exported(torch.zeros(n)), strict=True):
            assert dense.tolist() == pair_by_pair(Mask(range(n), range(n), (rule,))), (rule, n)
