"""Write tables of logits, settings of searches, and the texts that Python's searches find.

python dump_decoding.py FOLDER

searches.json   table: random logits; cases: a table, a request, and the texts and steps of the search, or its error
trees.json      the same for trees of beam searches
random.json     random numbers of NumPy for some seeds
decode.json     the defaults of [decode]

A table is a small automaton: the logits depend on a state, and a token changes the state. In half of the cases, many
probabilities are equal. PyTorch's topk and sort take equal numbers in no fixed order; here they take the lowest index.
"""

from __future__ import annotations

import dataclasses
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from cutaway.config import DecodeConfig
from cutaway.decode.alignment import Coverage
from cutaway.errors import CutawayError
from cutaway.explore.beam_tree import BeamTree
from cutaway.inference.engines.torch_engine import run_search
from cutaway.search.choices import ChoiceTrie
from cutaway.search.request import Search, Start

BOS, EOS = 0, 1
N = 1500
N_TREES = 150


class Sorted(NamedTuple):
    values: Tensor
    indices: Tensor


SORT = torch.Tensor.sort


def stable_sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    return SORT(x, dim=dim, descending=descending, stable=True)


def stable_topk(x: Tensor, k: int) -> Sorted:
    values, indices = stable_sort(x, descending=True)
    return Sorted(values[..., :k].contiguous(), indices[..., :k].contiguous())


class TableStepper:
    """A model whose logits depend on a state. `next_state` is the same in decoding.test.mjs."""

    def __init__(self, table: dict[str, Any], start: Start):
        self.logits, self.weights = numbers_of(table)
        self.states = []
        for text, prompt in enumerate(start.prompts):
            state = text
            for token in prompt[:-1]:
                state = self.next_state(state, token)
            self.states.append(state)

    def next_state(self, state: int, token: int) -> int:
        return (7 * state + 3 * token + 1) % len(self.logits)

    def step(self, tokens: Tensor) -> Tensor:
        self.states = [self.next_state(s, t) for s, t in zip(self.states, tokens.tolist(), strict=True)]
        self.source_weights = torch.from_numpy(self.weights[self.states])
        return torch.from_numpy(self.logits[self.states])

    def keep(self, rows: Tensor) -> None:
        self.states = [self.states[i] for i in rows.tolist()]


def random_table(rng: random.Random, vocab: int, has_ties: bool) -> dict[str, Any]:
    """Settings of a table, or its numbers if many are equal."""
    if not has_ties:
        broken = [rng.randrange(100), rng.randrange(vocab), rng.choice(["nan", "inf"])] if rng.random() < 0.06 else None
        return {"vocab": vocab, "scale": rng.choice([0.3, 2, 6]), "eos": rng.choice([-2, 0, 2]), "broken": broken}
    n, numbers = rng.choice([3, 11, 41]), np.random.default_rng(rng.randrange(2**32))
    # exp is 1 or 0, so sums are exact, and equal probabilities stay equal
    values = rng.choice([[0.0], [0.0, -1000.0], [0.0, 0.0, -1000.0, -2000.0], [0.0, -np.inf]])
    logits = numbers.choice(values, (n, vocab))
    logits[:, 2] = 0  # at least one token has a probability
    if rng.random() < 0.06:
        logits[rng.randrange(n), rng.randrange(vocab)] = rng.choice([np.nan, np.inf])
    return {"logits": logits.tolist(), "weights": numbers.choice([0.0, 0.25, 0.5, 1.0], (n, 4)).tolist()}


NUMBERS = np.random.default_rng(0)  # of all other tables: so many states that hardly two paths are equally probable
TABLE = {"logits": NUMBERS.normal(size=(997, 30)), "weights": NUMBERS.dirichlet(np.ones(4), 997)}


def numbers_of(table: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    if "logits" in table:
        return np.array(table["logits"]), np.array(table["weights"])
    logits = table["scale"] * TABLE["logits"][:, : table["vocab"]]
    logits[:, EOS] += table["eos"]
    if table["broken"]:
        logits[table["broken"][0], table["broken"][1]] = float(table["broken"][2])
    return logits, TABLE["weights"]


def random_case(rng: random.Random, index: int) -> dict[str, Any]:
    has_ties, vocab, n_texts = index % 2 == 1, rng.choice([3, 5, 9, 30]), rng.choice([1, 1, 2, 4])
    is_history, maybe = rng.random() < 0.4, lambda value, otherwise, p=0.25: value if rng.random() < p else otherwise
    tokens = lambda longest: [rng.randrange(vocab) for _ in range(rng.randrange(longest + 1))]  # noqa: E731
    decode = {
        "strategy": rng.choice(["greedy", "sample", "beam", "beam", "beam"]),
        "beam_size": rng.choice([1, 2, 3, 4, 5, 8, 20]),
        "length_penalty": rng.choice([0.0, 0.6, 1.0, 2.0]),
        "coverage_penalty": 0.0 if is_history else maybe(rng.choice([0.2, 1.0]), 0.0),
        "temperature": rng.choice([0.5, 0.8, 1.0, 2.0]),
        "top_k": maybe(rng.choice([1, 2, 4, 50]), 0),
        "top_p": maybe(rng.choice([0.1, 0.5, 0.9]), 1.0),
        "min_p": maybe(rng.choice([0.05, 0.5, 1.0]), 0.0),
        "seed": rng.choice([0, 1, 12345678901]),
        "repetition_penalty": maybe(rng.choice([0.7, 1.3, 3.0]), 1.0),
        "no_repeat_ngram": maybe(rng.choice([1, 2, 3]), 0),
        "suppress": maybe(rng.sample(range(vocab), rng.randrange(1, vocab)), [], 0.15),
        "min_length": maybe(rng.choice([1, 3, 6]), 0),
    }
    return {
        "table": random_table(rng, vocab, has_ties),
        "ties": has_ties,
        "decode": decode,
        "limits": [rng.choice([1, 2, 5, 9]) for _ in range(n_texts)],
        "numbers": [rng.randrange(100) for _ in range(n_texts)],
        "n_best": rng.choice([1, 1, 2, 4]),
        "prefixes": maybe([tokens(3) for _ in range(n_texts)], []),
        "seeds": maybe([rng.randrange(2**40) for _ in range(n_texts)], []),
        "prompts": [[rng.randrange(vocab), *tokens(4)] for _ in range(n_texts)] if is_history else [[BOS]] * n_texts,
        "is_history": is_history,
        "choices": maybe([tokens(4) for _ in range(rng.choice([1, 3]))], None, 0.1),
        "allowed_modulo": maybe(rng.choice([2, 3]), None, 0.1),
        "lengths": None if is_history else maybe([rng.randrange(1, 5) for _ in range(n_texts)], None, 0.6),
        "with_alignment": not is_history and rng.random() < 0.5,
        "stop_at_token": maybe(rng.randrange(vocab), None, 0.1),
        "stop_after": maybe([rng.choice([1, 3, 100]) for _ in range(n_texts)], None, 0.1),
    }  # fmt: skip


def run(case: dict[str, Any], steps: list[Any] | None = None) -> list[list[Any]]:
    calls: Counter[int] = Counter()

    def should_continue(text: int) -> bool:
        calls[text] += 1
        return calls[text] < case["stop_after"][text]

    allowed = None
    if case["choices"]:
        allowed = ChoiceTrie(case["choices"], EOS)
    elif case["allowed_modulo"]:
        modulo, vocab = case["allowed_modulo"], numbers_of(case["table"])[0].shape[1]
        allowed = lambda text, tokens: (  # noqa: E731
            None if len(tokens) == 2 else [t for t in range(vocab) if (t + text + sum(tokens)) % modulo]
        )
    decode = DecodeConfig(**{**case["decode"], "suppress": tuple(case["decode"]["suppress"])})
    coverage, stop_at = None, case["stop_at_token"]
    search = Search(
        decode, case["limits"], case["numbers"], BOS, EOS, case["n_best"], case["prefixes"], case["seeds"], allowed,
        on_token=None if stop_at is None or decode.strategy == "beam" else lambda text, token, log_p: token != stop_at,
        with_alignment=case["with_alignment"],
        on_step=None if steps is None or decode.strategy != "beam" else steps.append,
        should_continue=None if case["stop_after"] is None else should_continue,
    )  # fmt: skip
    if case["lengths"] and search.needs_source_weights:
        beta = decode.coverage_penalty if search.has_coverage else 0.0
        coverage = Coverage(case["lengths"], search.with_alignment, beta)
    start = Start.of(case["prompts"], case["prefixes"], case["is_history"])
    found = run_search(TableStepper(case["table"], start), start, search, coverage=coverage)
    return [[dataclasses.asdict(text) for text in texts] for texts in found]


def readable_step(step: Any) -> dict[str, Any]:
    return {
        "totals": step.total_BKV.tolist(), "ended": step.ended_BK.tolist(), "found": step.found_BK,
        "log_p": step.log_p_BK.tolist(), "rows": step.rows_N.tolist(), "tokens": step.tokens_N.tolist(),
    }  # fmt: skip


def expected(case: dict[str, Any]) -> dict[str, Any]:
    steps: list[Any] = []
    try:
        texts = run(case, steps)
    except CutawayError as error:
        return {"error": str(error)}
    return {"texts": texts, "steps": [readable_step(step) for step in steps]}


def tree_of(case: dict[str, Any]) -> dict[str, Any]:
    decode = {**case["decode"], "strategy": "beam", "coverage_penalty": 0.0}
    case = {**case, "decode": decode, "prefixes": [], "with_alignment": False, "lengths": None, "choices": None}
    case = {**case, "allowed_modulo": None, "stop_at_token": None, "stop_after": None, "limits": case["limits"][:1]}
    case = {**case, "numbers": [0], "seeds": [], "prompts": [[BOS]], "is_history": False}
    tree = BeamTree("root", decode["length_penalty"], case["limits"][0], lambda ids: [f"t{id}" for id in ids], EOS)

    class Steps(list):
        append = staticmethod(tree.watch)

    try:
        run(case, Steps())
    except CutawayError:
        return {}
    found = tree.found()
    return {**case, "nodes": tree.nodes, "found": found, "tokens": [tree.tokens_to(one["node"]) for one in found]}


def write(path: Path, value: object) -> None:
    """NaN and infinities become texts, because JSON has none."""

    def change(x: Any) -> Any:
        if isinstance(x, dict):
            return {key: change(value) for key, value in x.items()}
        if isinstance(x, (list, tuple)):
            return [change(value) for value in x]
        return str(x) if isinstance(x, float) and not np.isfinite(x) else x

    path.write_text(json.dumps(change(value)), encoding="utf-8")


def main(folder: Path) -> None:
    rng = random.Random(0)
    cases = [random_case(rng, index) for index in range(N)]
    with patch.object(torch.Tensor, "topk", stable_topk), patch.object(torch.Tensor, "sort", stable_sort):
        ties = [{**case, **expected(case)} if case["ties"] else None for case in cases]
        trees = [tree for case in cases[1 : 2 * N_TREES : 2] if (tree := tree_of(case))]
    found = [tied or {**case, **expected(case)} for case, tied in zip(cases, ties, strict=True)]
    write(folder / "searches.json", {"table": {name: x.tolist() for name, x in TABLE.items()}, "cases": found})
    write(folder / "trees.json", trees + [tree for case in cases[: 2 * N_TREES : 2] if (tree := tree_of(case))])
    entropies = [[0, 0], [0, 1], [7, 3], [2**32, 5], [123456789012345, 2**33, 1, 2, 3, 4]]
    numbers = [{"entropy": e, "numbers": np.random.default_rng(e).random(20).tolist()} for e in entropies]
    write(folder / "random.json", numbers)
    write(folder / "decode.json", dataclasses.asdict(DecodeConfig()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
