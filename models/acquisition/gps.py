"""GPS: intermediate difficulty plus history-anchored diversity, chosen greedily (arXiv 2602.01970).

With u_i = -(p_i - target)^2, cosine distance d, the batch before S' and B slots
to fill, the batch S maximises

    sum_i u_i  +  lam * ( 2 / (B - 1) * sum_{i<j in S} d_ij  +  sum_{i in S} mean_{j in S'} d_ij )

by adding, B times, the candidate of the largest gain (max-sum diversification).
The bracket is B times (mean distance within S + mean distance to S').
"""

import math

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
_STRAY = 1e-5
"""More than distances of float32 vectors stray from [0, MAX_DISTANCE], relative to it."""
_ROUNDING = 1e-14
"""More than gains, which are of order 1 at most, are off by rounding."""


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
    chosen, gains = greedy(utility, anchored, candidates.embeddings, lam, slots)
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


def greedy(
    utility: Floats, anchored: Floats, embeddings: NDArray[np.float32], lam: float, slots: int
) -> tuple[Ints, Floats]:
    """Positions chosen, and what diversity added to each at its turn.

    Turns come in blocks of about sqrt(B). Within one only the candidates that
    it can reach are looked at, so that all N are read once a block, and not
    once a turn: O(N dim sqrt(B)).

    Args:
        anchored: [N] mean distances to the batch before.
    """
    chosen, gains = np.empty(slots, np.int64), np.empty(slots)
    apart = np.zeros(len(utility))
    alone = utility + lam * anchored
    weight = lam * _pair_weight(slots)
    block = math.isqrt(max(slots - 1, 0)) + 1
    for start in range(0, slots, block):
        turns = slice(start, min(start + block, slots))
        length = turns.stop - start
        gain = alone + weight * apart
        near = reachable(gain, weight * MAX_DISTANCE * (length - 1), length)
        picks, gains[turns] = _take_turns(gain[near], embeddings[near], weight, length)
        chosen[turns] = near[picks]
        alone[chosen[turns]] = -np.inf
        apart += length - _dots(embeddings, embeddings[chosen[turns]].sum(axis=0, dtype=np.float64))
    return chosen, gains - utility[chosen]


def reachable(gain: Floats, most: float, turns: int) -> Ints:
    """Candidates that can be chosen in the next `turns` turns at all, in order of position.

    Gains never fall, and rise by no more than `most` before the last of these
    turns. A candidate that even so stays below the `turns`-th largest gain of
    now always finds an unchosen one ahead of it.

    Args:
        gain: [N] of now; minus infinity where a candidate is chosen already.
    """
    bar = np.partition(gain, -turns)[-turns]
    slack = 2.0 * (_STRAY * most + _ROUNDING)
    return np.flatnonzero(gain >= bar - most - slack)


def _take_turns(gain: Floats, embeddings: NDArray[np.float32], weight: float, turns: int) -> tuple[Ints, Floats]:
    """Positions of the largest gain, one after the other, and the gain of each at its turn."""
    picks, gains = np.empty(turns, np.int64), np.empty(turns)
    for turn in range(turns):
        best = int(np.argmax(gain))
        picks[turn], gains[turn] = best, gain[best]
        gain[best] = -np.inf
        gain += weight * (1.0 - _dots(embeddings, embeddings[best]))
    return picks, gains


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
    products: Floats = np.vecdot(embeddings, vector.astype(np.float32)).astype(np.float64)
    return products


def _pair_weight(slots: int) -> float:
    return 2.0 / (slots - 1) if slots > 1 else 0.0
