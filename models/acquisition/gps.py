"""GPS: intermediate difficulty plus history-anchored diversity, chosen greedily (arXiv 2602.01970).

With u_i = -(p_i - target)^2, cosine distance d, the batch before S' and B slots
to fill, the batch S maximises

    sum_i u_i  +  lam * ( 2 / (B - 1) * sum_{i<j in S} d_ij  +  sum_{i in S} mean_{j in S'} d_ij )

by adding, B times, the candidate of the largest gain (max-sum diversification).
"""

import numpy as np
from numpy.typing import NDArray

from models.acquisition.base import Candidates, closeness, smallest
from models.records import Floats, Ints, Ranking
from models.settings import AcquisitionSettings

MAX_DISTANCE = 2.0


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
    chosen, gains = _greedy(utility[kept], anchored[kept], candidates.embeddings[kept], lam, slots)
    chosen = kept[chosen]
    total = candidates.embeddings[chosen].sum(axis=0, dtype=np.float64)
    diversity = lam * (_pair_weight(slots) * (slots - candidates.embeddings @ total) + anchored)
    diversity[chosen] = gains
    return Ranking(chosen, utility, diversity)


def diversity_weight(
    utility: Floats, anchored: Floats, embeddings: NDArray[np.float32], slots: int, relative: float
) -> float:
    """The lam that makes diversity's spread `relative` times that of utility, where the batch is decided.

    Both spreads are standard deviations over the 2 B candidates of largest
    utility; diversity is the gain of adding a candidate to the B largest of
    them. Where utilities are all equal, diversity alone decides.
    """
    best = smallest(-utility, 2 * slots)
    if slots == 0 or relative == 0.0:
        return 0.0
    total = embeddings[best[:slots]].sum(axis=0, dtype=np.float64)
    gain = _pair_weight(slots) * (slots - embeddings[best] @ total) + anchored[best]
    spread_of_gain, spread_of_utility = float(gain.std()), float(utility[best].std())
    if spread_of_utility == 0.0:
        return 1.0
    return relative * spread_of_utility / spread_of_gain if spread_of_gain > 0.0 else 0.0


def reachable(utility: Floats, anchored: Floats, lam: float, slots: int) -> Ints:
    """Candidates that greedy can choose at all, in order of position.

    A candidate's gain is at least u + anchored, and at most
    `lam * 2 / (B - 1) * 2 (B - 1)` more. When even that stays below the B-th
    largest lower bound, an unchosen candidate of larger gain is always left.
    """
    lower = utility + anchored
    if slots >= len(lower):
        return np.arange(len(lower))
    bar = np.partition(lower, -slots)[-slots]
    most = lam * _pair_weight(slots) * MAX_DISTANCE * (slots - 1)
    slack = 1e-9 * (1.0 + abs(bar))  # distances of float32 vectors stray this far from [0, 2]
    return np.flatnonzero(lower + most * (1.0 + 1e-5) + slack >= bar)


def _greedy(
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
        apart += 1.0 - embeddings @ embeddings[best]
    return chosen, gains


def _distance_to_previous(embeddings: NDArray[np.float32], previous: NDArray[np.float32]) -> Floats:
    """[N] mean cosine distance to the batch before; 0 when there is none."""
    if len(previous) == 0:
        return np.zeros(len(embeddings))
    distance: Floats = 1.0 - embeddings @ previous.mean(axis=0, dtype=np.float64)
    return distance


def _pair_weight(slots: int) -> float:
    return 2.0 / (slots - 1) if slots > 1 else 0.0
