"""Multi-head attention: one module for self- and cross-attention, every position scheme, cached or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from cutaway.errors import ConfigError
from cutaway.nn.blocks import attend_masked
from cutaway.nn.cache import AttentionCache
from cutaway.nn.kernels import AttentionKernel, attend_exact, attend_fused
from cutaway.nn.masks import Mask, Span
from cutaway.nn.positions import Position
from cutaway.nn.probe import Probe


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_O,  head_i = Attention(Q W_Qi, K W_Ki, V W_Vi)

    The H projections of width E = D/H are kept side by side in one matrix:

        x [B,Q,D] ──query──▶ [B,Q,H·E] ──split──▶ [B,H,Q,E] ──┐
        y [B,K,D] ──key────▶ [B,K,G·E] ──split──▶ [B,G,K,E] ──┤ attend ──▶ [B,H,Q,E] ──merge──▶ output ──▶ [B,Q,D]
        y [B,K,D] ──value──▶ [B,K,G·E] ──split──▶ [B,G,K,E] ──┘

    In self-attention y is x; in cross-attention y is the memory that the encoder left, whose order says nothing
    about the order of x, so positions play no part. G is H, or fewer if heads share keys and values (grouped-query
    attention; multi-query with G = 1): the cache is smaller by as much.

    `head_norm` makes a norm of width E for queries and keys, so that no score runs away (QK-norm, Henry et al. 2020).
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        attend: AttentionKernel = attend_fused,
        dropout: float = 0.0,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        bias: bool = True,
        position: Position | None = None,
        head_norm: Callable[[], nn.Module] | None = None,
        cap: float = 0.0,
    ):
        super().__init__()
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads or n_heads
        self.d_head = d_head or d_model // n_heads
        self.attend, self.dropout, self.cap = attend, dropout, cap
        self.position = position
        self.side_by_side: Any = None  # [B,T,D] -> [B,T,(H+G+G)·E], a quicker way to the three: models/inference.py
        self.query = nn.Linear(d_model, self.n_heads * self.d_head, bias)
        self.key = nn.Linear(d_model, self.n_kv_heads * self.d_head, bias)
        self.value = nn.Linear(d_model, self.n_kv_heads * self.d_head, bias)
        self.output = nn.Linear(self.n_heads * self.d_head, d_model, bias)
        self.query_norm = head_norm() if head_norm else nn.Identity()
        self.key_norm = head_norm() if head_norm else nn.Identity()
        self.q, self.k, self.v = Probe(), Probe(), Probe()
        self.scores, self.weights, self.heads = Probe(), Probe(), Probe()
        if attend is attend_fused and (cap or (position is not None and position.has_values)):
            raise ConfigError("the fused kernel can neither cap scores nor add relative values. Give attend_exact.")

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Mask | Tensor | None = None,
        cache: AttentionCache | None = None,
    ) -> Tensor:
        """x [B,Q,D], memory [B,K,D] (None: self-attention), mask a Mask or broadcastable to [B,H,Q,K] -> [B,Q,D]."""
        heads_BHQE = self.look_at(x, memory, mask, cache) if memory is not None else self.look_around(x, mask, cache)
        return self.output(self.merge(self.heads(heads_BHQE)))

    def look_around(self, x: Tensor, mask: Mask | Tensor | None, cache: AttentionCache | None) -> Tensor:
        """Self-attention: at the new tokens themselves, and at those before them in the cache."""
        start = cache.length if cache else 0
        new, all_so_far = Span(start, start + x.size(1)), Span(0, start + x.size(1))
        q, k, v = self.project(x)
        q = self.q(self.turned(q, new))
        k, v = self.k(self.turned(k, new)), self.v(v)  # kept turned in the cache: a token's position never changes
        if cache is not None:
            k, v = cache.append(k, v)
        return self.attended(q, k, v, mask, new, all_so_far)

    def look_at(self, x: Tensor, memory: Tensor, mask: Mask | Tensor | None, cache: AttentionCache | None) -> Tensor:
        """Cross-attention: at a memory, whose keys and values need to be computed only once."""

        def of_memory() -> tuple[Tensor, Tensor]:
            k, v = self.keys_and_values(memory)
            return self.k(k), self.v(v)

        q = self.q(self.queries(x))
        k, v = cache.once(of_memory) if cache else of_memory()
        return unfolded(self.attended(folded(q, k.size(0)), k, v, mask), q.size(0))

    def attended(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | Tensor | None,
        queries: Span | None = None,
        keys: Span | None = None,
    ) -> Tensor:
        """The kernel, with all that it is to take into account. q [B,H,Q,E], k and v [B,G,K,E] -> [B,H,Q,E]"""
        options = {"dropout": self.dropout if self.training else 0.0, "cap": self.cap}
        options |= self.by_position(q, queries, keys)
        if self.is_watched:  # then there must be weights to see, of all queries and keys
            mask = mask.dense(q.device) if isinstance(mask, Mask) else mask
            return attend_exact(q, k, v, mask, see=self.see, **options)  # type: ignore[arg-type]
        if isinstance(mask, Mask):
            return attend_masked(self.attend, q, k, v, mask, **options)
        return self.attend(q, k, v, mask, **options)  # type: ignore[arg-type]

    def by_position(self, q: Tensor, queries: Span | None, keys: Span | None) -> dict[str, Any]:
        """What the positions have to say to the kernel; of a memory there are none."""
        if self.position is None or not self.position.biases or queries is None or keys is None:
            return {}
        position, query, key = self.position, queries.tensor(q.device), keys.tensor(q.device)
        told: dict[str, Any] = {"bias": position.bias(q, query, key)}
        if position.has_values:
            told["relative_values"] = lambda weights: position.values(weights, query, key)
        return told

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B,H,T,E], keys and values [B,G,T,E] of x [B,T,D], in one product if their matrices lie together."""
        if self.side_by_side is None or not self.side_by_side.fits(self):
            return self.queries(x), *self.keys_and_values(x)
        H, G = self.n_heads, self.n_kv_heads
        q, k, v = self.split(self.side_by_side(x)).split((H, G, G), dim=1)
        return normed(q, self.query_norm), normed(k, self.key_norm), v

    def queries(self, x: Tensor) -> Tensor:
        return normed(self.split(self.query(x)), self.query_norm)

    def keys_and_values(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return normed(self.split(self.key(y)), self.key_norm), self.split(self.value(y))

    def turned(self, x_BHTE: Tensor, positions: Span) -> Tensor:
        if self.position is None or not self.position.rotates:
            return x_BHTE
        return self.position.rotate(x_BHTE, positions.tensor(x_BHTE.device))

    def split(self, x_BTD: Tensor) -> Tensor:
        """[B,T,H·E] -> [B,H,T,E].

        The E numbers of a head lie side by side in D, so `view` must cut D into (H, E); only then may `transpose`
        move H forward. A `view` straight to [B,H,T,E] would cut across positions and mix words up.
        """
        B, T, _ = x_BTD.shape
        return x_BTD.view(B, T, -1, self.d_head).transpose(1, 2)

    def merge(self, x_BHTE: Tensor) -> Tensor:
        """[B,H,T,E] -> [B,T,H·E]: the way back; the transposed tensor is copied so that heads lie side by side."""
        return x_BHTE.transpose(1, 2).flatten(2)

    @property
    def is_watched(self) -> bool:
        return self.scores.is_watched or self.weights.is_watched

    def see(self, name: str, value: Tensor) -> Tensor:
        """Lead a value inside the kernel through the probe of that name."""
        return getattr(self, name)(value)


def normed(x: Tensor, norm: nn.Module) -> Tensor:
    return x if type(norm) is nn.Identity else norm(x)  # what does nothing need not be called


def folded(q_NHQE: Tensor, n_memories: int) -> Tensor:
    """The rows of a beam look at one memory: side by side they are queries of one text, and it is read once.

    [N,H,Q,E] -> [B,H,K·Q,E], where N = B·K rows share B memories; with a memory each nothing changes.
    """
    if q_NHQE.size(0) == n_memories:
        return q_NHQE
    return q_NHQE.unflatten(0, (n_memories, -1)).transpose(1, 2).flatten(2, 3)


def unfolded(heads_BHLE: Tensor, n_rows: int) -> Tensor:
    """[B,H,K·Q,E] -> [N,H,Q,E]: the way back."""
    if heads_BHLE.size(0) == n_rows:
        return heads_BHLE
    K = n_rows // heads_BHLE.size(0)
    return heads_BHLE.unflatten(2, (K, -1)).transpose(1, 2).flatten(0, 1)
