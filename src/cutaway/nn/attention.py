"""Multi-head attention: one module for self- and cross-attention, cached or not."""

from __future__ import annotations

from torch import Tensor, nn

from cutaway.nn.cache import AttentionCache
from cutaway.nn.kernels import AttentionKernel, attend_exact, attend_fused
from cutaway.nn.probe import Probe


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_O,  head_i = Attention(Q W_Qi, K W_Ki, V W_Vi)

    The H projections of width E = D/H are kept side by side in one D×D matrix:

        x [B,Q,D] ──query──▶ [B,Q,H·E] ──split──▶ [B,H,Q,E] ──┐
        y [B,K,D] ──key────▶ [B,K,H·E] ──split──▶ [B,H,K,E] ──┤ attend ──▶ [B,H,Q,E] ──merge──▶ output ──▶ [B,Q,D]
        y [B,K,D] ──value──▶ [B,K,H·E] ──split──▶ [B,H,K,E] ──┘

    In self-attention y is x; in cross-attention y is the memory that the encoder left.
    """

    def __init__(self, d_model: int, n_heads: int, attend: AttentionKernel = attend_fused, dropout: float = 0.0):
        super().__init__()
        self.n_heads = n_heads
        self.attend = attend
        self.dropout = dropout
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)
        self.scores, self.weights, self.heads = Probe(), Probe(), Probe()

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        cache: AttentionCache | None = None,
    ) -> Tensor:
        """x [B,Q,D], memory [B,K,D] (None: self-attention), mask broadcastable to [B,H,Q,K] -> [B,Q,D]."""
        q_BHQE = self.split(self.query(x))
        if memory is None:
            k_BHKE, v_BHKE = self.keys_and_values(x)
            if cache is not None:
                k_BHKE, v_BHKE = cache.append(k_BHKE, v_BHKE)
        elif cache is None:
            k_BHKE, v_BHKE = self.keys_and_values(memory)
        else:
            k_BHKE, v_BHKE = cache.once(lambda: self.keys_and_values(memory))
        dropout = self.dropout if self.training else 0.0
        heads_BHQE = self.heads(self.kernel(q_BHQE, k_BHKE, v_BHKE, mask, dropout, self.see))
        return self.output(self.merge(heads_BHQE))

    def keys_and_values(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.split(self.key(y)), self.split(self.value(y))

    def split(self, x_BTD: Tensor) -> Tensor:
        """[B,T,H·E] -> [B,H,T,E].

        The E numbers of a head lie side by side in D, so `view` must cut D into (H, E); only then may `transpose`
        move H forward. A `view` straight to [B,H,T,E] would cut across positions and mix words up.
        """
        B, T, D = x_BTD.shape
        return x_BTD.view(B, T, self.n_heads, D // self.n_heads).transpose(1, 2)

    def merge(self, x_BHTE: Tensor) -> Tensor:
        """[B,H,T,E] -> [B,T,H·E]: the way back; the transposed tensor is copied so that heads lie side by side."""
        return x_BHTE.transpose(1, 2).flatten(2)

    @property
    def kernel(self) -> AttentionKernel:
        """The fused kernel has no weights to show, so while someone watches them the exact one runs."""
        return attend_exact if self.scores.is_watched or self.weights.is_watched else self.attend

    def see(self, name: str, value: Tensor) -> Tensor:
        """Lead a value inside the kernel through the probe of that name."""
        return getattr(self, name)(value)
