"""Beam search as a tree: the prefixes in the beam, the finished hypotheses, and the best pruned branches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from cutaway.decode.beam import BeamStep, length_penalty
from cutaway.explore.traced_example import MAX_NEW_TOKENS, check_tokens, length_limit, run_search
from cutaway.inference.pipelines import GenerationPipeline, TextGenerator

TOP_EXTENSIONS = 2  # of each prefix, the most probable extensions are shown even if they were pruned
Node = dict[str, Any]


class BeamTree:
    """The tree of one search, built step by step in `watch`.

    A node is a prefix: its last token, the probability of that token (p), the log-probability of the prefix (log_p),
    its score (log_p divided by the length penalty), and its state: alive, pruned, found (ended by </s>) or cut (at the
    maximum length).
    """

    def __init__(self, root: str, alpha: float, limit: int, names: Callable[[Sequence[int]], list[str]], eos: int):
        self.nodes: list[Node] = [
            {"id": 0, "parent": None, "depth": 0, "token": root, "p": 1.0, "log_p": 0.0, "score": 0.0, "state": "root"}
        ]
        self.live, self.depth = [0], 0
        self.alpha, self.limit, self.names, self.eos = alpha, limit, names, eos

    def watch(self, step: BeamStep) -> None:
        """Add the nodes of one search step."""
        self.depth += 1
        alive = list(zip(step.rows_N.tolist(), step.tokens_N.tolist(), step.log_p_BK[0].tolist(), strict=True))
        parents, self.live = self.live, []
        for row, token, log_p in alive:
            self.live.append(self.add(parents[row], token, log_p, "cut" if self.depth == self.limit else "alive"))
        for row, is_found in enumerate(step.found_BK[0]):
            if is_found:
                self.add(parents[row], self.eos, float(step.ended_BK[0, row]), "found")
        taken = {(row, token) for row, token, _ in alive}
        best = step.total_BKV[0].topk(min(TOP_EXTENSIONS, step.total_BKV.size(-1)))
        for row, (tokens, totals) in enumerate(zip(best.indices.tolist(), best.values.tolist(), strict=True)):
            for token, log_p in zip(tokens, totals, strict=True):
                if (row, token) not in taken and log_p > -math.inf:
                    self.add(parents[row], token, log_p, "pruned")

    def add(self, parent: int, token: int, log_p: float, state: str) -> int:
        """Add a node. -> its id"""
        node = {
            "id": len(self.nodes),
            "parent": parent,
            "depth": self.depth,
            "token": self.names([token])[0],
            "token_id": token,
            "p": round(math.exp(log_p - self.nodes[parent]["log_p"]), 6),
            "log_p": log_p,
            "score": log_p / length_penalty(self.depth, self.alpha),
            "state": state,
        }
        self.nodes.append(node)
        return len(self.nodes) - 1

    def found(self) -> list[dict[str, Any]]:
        """The finished hypotheses, best first."""
        texts = [node for node in self.nodes if node["state"] in ("found", "cut") and node["log_p"] > -math.inf]
        return [
            {
                "node": node["id"],
                "length": node["depth"],
                "penalty": length_penalty(node["depth"], self.alpha),
                "log_p": node["log_p"],
                "score": node["score"],
            }
            for node in sorted(texts, key=lambda node: -node["score"])
        ]

    def tokens_to(self, node: int) -> list[int]:
        """The token ids from the root to this node, without </s>."""
        path: list[int] = []
        while (parent := self.nodes[node]["parent"]) is not None:
            path.append(self.nodes[node]["token_id"])
            node = parent
        return [id for id in reversed(path) if id != self.eos]


@torch.no_grad()
def beam_tree(
    writer: GenerationPipeline, text: str, beam_size: int, length_penalty: float, prefix: Sequence[int] = ()
) -> dict[str, Any]:
    """Run beam search on one text. -> `nodes` of the tree, and the hypotheses `found`, best first.

    The coverage penalty is off, because it would change the ranking by something that the nodes do not show.
    """
    check_tokens(writer, prefix)
    tokenizer, continues_text = writer.tokenizer, isinstance(writer, TextGenerator)
    decode = replace(writer.config.decode, strategy="beam", beam_size=beam_size, length_penalty=length_penalty)
    decode = replace(decode, coverage_penalty=0.0)
    if continues_text:
        decode = replace(decode, max_length=decode.max_length or MAX_NEW_TOKENS)
    row = tokenizer.add_bos(tokenizer.encode(text)) if continues_text else [*tokenizer.encode(text), tokenizer.eos]
    before = [*(row if continues_text else [tokenizer.bos]), *prefix]
    limit = length_limit(writer, row, decode) - len(prefix)
    tree = BeamTree(tokenizer.tokens(before[-1:])[0], length_penalty, limit, tokenizer.tokens, tokenizer.eos)
    run_search(writer, row, prefix, decode, tree.watch)
    text_of = partial(writer.continuation, text) if isinstance(writer, TextGenerator) else tokenizer.decode
    found = [{**one, "text": text_of([*prefix, *tree.tokens_to(one["node"])])} for one in tree.found()]
    settings = {"beam_size": beam_size, "length_penalty": length_penalty, "steps": tree.depth}
    return {**settings, "nodes": tree.nodes, "found": found}
