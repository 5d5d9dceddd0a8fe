"""Alignment and coverage of the source, from attention weights.

a_ij is the weight of source token i when the decoder generates token j: the cross-attention of the last layer,
averaged over its heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from cutaway.decode.stepper import Stepper

MIN_COVERAGE = 1e-9  # lower sums are raised to this, so that no score is infinite


class Coverage(NamedTuple):
    """How a search uses the attention weights."""

    lengths: Sequence[int]  # of each source, </s> included
    with_alignment: bool = True  # whether hypotheses contain the weights
    beta: float = 0.0  # strength of the coverage penalty

    def alignment(self, weights: Sequence[Tensor], text: int) -> list[list[float]] | None:
        """The weights [S] of each generated token, without the padding of the source."""
        return [weights_S[: self.lengths[text]].tolist() for weights_S in weights] if self.with_alignment else None

    def penalty(self, coverage_S: Tensor, text: int) -> float:
        """cp = β Σ_i log(min(Σ_j a_ij, 1)), over all source tokens i, </s> included (Wu et al. 2016)

        coverage [S] is Σ_j a_ij over all tokens j, including prefix and </s>.
        """
        covered_S = coverage_S[: self.lengths[text]].clamp(MIN_COVERAGE, 1)
        return self.beta * float(covered_S.log().sum())


def get_source_weights(stepper: Stepper, coverage: Coverage | None) -> Tensor | None:
    """The weights of the last step [N, S]; None if the search does not use them."""
    if coverage is None:
        return None
    weights_NS: Tensor = stepper.source_weights  # type: ignore[attr-defined]
    return weights_NS
