"""Where the model looks in the source while it writes a translation.

a_ij is how much the decoder looked at token i of the source when it wrote token j: the weights of the last layer's
cross-attention, averaged over its heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from cutaway.decode.stepper import Stepper

LEAST = 1e-9  # a sum below counts as this much, so that no score is infinite


class Coverage(NamedTuple):
    """What a search is to make of where the model looks."""

    lengths: Sequence[int]  # of each source, </s> counted
    aligned: bool = True  # whether hypotheses tell
    beta: float = 0.0  # of the coverage penalty

    def alignment(self, looks: Sequence[Tensor], text: int) -> list[list[float]] | None:
        """Each look [S] at the tokens of the source, without what it was padded with."""
        return [look[: self.lengths[text]].tolist() for look in looks] if self.aligned else None

    def penalty(self, coverage_S: Tensor, text: int) -> float:
        """cp = β Σ_i log(min(Σ_j a_ij, 1)), over all tokens i of the source, </s> included (Wu et al. 2016)

        coverage [S] is Σ_j a_ij over all tokens j, those of a prefix and </s> included.
        """
        covered_S = coverage_S[: self.lengths[text]].clamp(LEAST, 1)
        return self.beta * float(covered_S.log().sum())


def get_source_weights(stepper: Stepper, coverage: Coverage | None) -> Tensor | None:
    """Where each row looked in the last step [N, S], if somebody wants to know."""
    if coverage is None:
        return None
    looked_NS: Tensor = stepper.source_weights  # type: ignore[attr-defined]
    return looked_NS
