"""GPS: intermediate difficulty plus history-anchored diversity, chosen greedily (arXiv 2602.01970).

With u_i = -(p_i - target)^2, cosine distance d, the batch before S' and B slots
to fill, the batch S maximises

    sum_i u_i  +  lam * ( 2 / (B - 1) * sum_{i<j in S} d_ij  +  sum_{i in S} mean_{j in S'} d_ij )

by adding, B times, the candidate of the largest gain (max-sum diversification).
The bracket is B times (mean distance within S + mean distance to S').
"""

import numpy as np
from numpy.typing import NDArray

from models.acquisition.base import Candidates, closeness, smallest
from models.records import Floats, Ints, Ranking
from models.settings import AcquisitionSettings

MAX_DISTANCE = 2.0
_LEAST_UTILITY_SPREAD = 1e-12
"""Forecasts 1e-6 apart. Below it utility is a tie, which diversity breaks and does not overrule."""
_LEAST_GAIN_SPREAD = 1e-7
"""Rounding of float32 distances. Below it diversity tells no candidates apart."""


def gps(candidates: Candidates, slots: int, settings: AcquisitionSettings, rng: np.random.Generator) -> Ranking:
    """The greedy batch; draws nothing.

    Raises:
        ValueError: the candidates have no embeddings.
    """
    if candidates.embeddings is None or candidates.previous is None:
        raise ValueError("acquisition gps needs embeddings of the pool's prompts")
    utility = closeness(candidates.forecast.p_success, settings)
    anchored = _distance_to_previous(candidates.embeddings, candidates.previous)
    lam = diversity_weight(utility, anchored, candidates.embeddings, slots, settings.diversity)
    if slots == 0:
        return Ranking(np.empty(0, np.int64), utility, lam * anchored)
    kept = reachable(utility, lam * anchored, lam, slots)
    chosen, gains = greedy(utility[kept], anchored[kept], candidates.embeddings[kept], lam, slots)
    chosen = kept[chosen]
    diversity = lam * _gain_beside(candidates.embeddings, chosen, anchored)
    diversity[chosen] = gains
    return Ranking(chosen, utility, diversity)


def diversity_weight(
    utility: Floats, anchored: Floats, embeddings: NDArray[np.float32], slots: int, relative: float
) -> float:
    """The lam that makes diversity's spread `relative` times that of utility, where the batch is decided.

    Both spreads are standard deviations over the 2 B candidates of largest
    utility; diversity is the gain of adding a candidate to the B largest of
    them.
    """
    if slots == 0 or relative == 0.0:
        return 0.0
    best = smallest(-utility, 2 * slots)
    spread_of_gain = float(_gain_beside(embeddings[best], np.arange(min(slots, len(best))), anchored[best]).std())
    if spread_of_gain < _LEAST_GAIN_SPREAD:
        return 0.0
    return relative * max(float(utility[best].std()), _LEAST_UTILITY_SPREAD) / spread_of_gain


def reachable(utility: Floats, anchored: Floats, lam: float, slots: int) -> Ints:
    """Candidates that greedy can choose at all, in order of position.

    A candidate's gain is at least u + anchored, and at most
    `lam * 2 / (B - 1) * 2 (B - 1)` more. When even that stays below the B-th
    largest lower bound, an unchosen candidate of larger gain is always left.

    Args:
        anchored: [N] distances to the batch before, times lam.
    """
    lower = utility + anchored
    if slots >= len(lower):
        return np.arange(len(lower))
    bar = np.partition(lower, -slots)[-slots]
    most = lam * _pair_weight(slots) * MAX_DISTANCE * (slots - 1)
    slack = most * 1e-5  # distances of float32 vectors stray this far from [0, 2]
    return np.flatnonzero(lower + most + slack >= bar - slack)


def greedy(
    utility: Floats, anchored: Floats, embeddings: NDArray[np.float32], lam: float, slots: int
) -> tuple[Ints, Floats]:
    """Positions chosen, and what diversity added to each at its turn. A turn costs O(N dim)."""
    chosen = np.empty(slots, np.int64)
    gains = np.empty(slots)
    apart = np.zeros(len(utility))
    free = np.zeros(len(utility))
    for turn in range(slots):
        diversity = lam * (_pair_weight(slots) * apart + anchored)
        best = int(np.argmax(utility + diversity + free))
        chosen[turn], gains[turn] = best, diversity[best]
        free[best] = -np.inf
        apart += 1.0 - _dots(embeddings, embeddings[best])
    return chosen, gains


def _gain_beside(embeddings: NDArray[np.float32], batch: Ints, anchored: Floats) -> Floats:
    """[N] what each candidate would add to diversity beside a whole batch, before lam."""
    apart = len(batch) - _dots(embeddings, embeddings[batch].sum(axis=0, dtype=np.float64))
    gain: Floats = _pair_weight(len(batch)) * apart + anchored
    return gain


def _distance_to_previous(embeddings: NDArray[np.float32], previous: NDArray[np.float32]) -> Floats:
    """[N] mean cosine distance to the batch before; 0 when there is none."""
    if len(previous) == 0:
        return np.zeros(len(embeddings))
    distance: Floats = 1.0 - _dots(embeddings, previous.mean(axis=0, dtype=np.float64))
    return distance


def _dots(embeddings: NDArray[np.float32], vector: NDArray[np.floating]) -> Floats:
    """[N] dot products with one vector.

    A matrix product rounds the same row differently at another position; this
    does not, so that equal candidates tie, and pruning changes no bit.
    """
    return np.vecdot(embeddings, vector.astype(np.float32)).astype(np.float64)


def _pair_weight(slots: int) -> float:
    return 2.0 / (slots - 1) if slots > 1 else 0.0
