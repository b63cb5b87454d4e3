"""How good forecasts were, judged by groups that had not been learned from.

Groups were selected, so plain means speak of the selection. With weights of
1 / propensity each figure estimates the one over all candidates: their totals
without bias; the ratios and ranks made of them with one that shrinks as groups add up.
"""

import numpy as np
from scipy.stats import rankdata

from models.records import Floats, Ints

BINS = 10
_CLIP = 1e-6


def forecast_quality(
    p_success: Floats, successes: Ints, valid: Ints, weights: Floats | None = None
) -> dict[str, float]:
    """Spearman, Brier, NLL and ECE of G forecasts; NaN where undefined.

    Brier and NLL are means over rollouts, each an outcome of its own, so both
    hold the outcomes' unavoidable noise.

    Args:
        p_success: [G] forecast probability that one rollout succeeds.
        successes: [G] rollouts that did, of `valid` ones.
        weights: [G] 1 / propensity of each group; None weighs all alike.
    """
    if len(p_success) == 0:
        return dict.fromkeys(("spearman", "brier", "nll", "ece"), float("nan"))
    rates = successes / valid
    groups = np.ones(len(rates)) if weights is None else weights
    rollouts = groups * valid
    return {
        "spearman": weighted_spearman(p_success, rates, groups),
        "brier": _mean(rates * (1 - p_success) ** 2 + (1 - rates) * p_success**2, rollouts),
        "nll": _mean(_cross_entropy(p_success, rates), rollouts),
        "ece": expected_calibration_error(p_success, rates, rollouts),
    }


def expected_calibration_error(p_success: Floats, rates: Floats, rollouts: Floats) -> float:
    """Mean over rollouts of |observed - forecast| success, within ten bins of equal width."""
    bins = np.minimum((p_success * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, rollouts * (rates - p_success), minlength=BINS)
    return float(np.abs(gaps).sum() / rollouts.sum())


def weighted_spearman(x: Floats, y: Floats, weights: Floats) -> float:
    """Rank correlation, ties by their average rank; NaN when either side is constant.

    Whole weights give what repeating each pair so often would give.
    """
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    ranks = np.stack([_weighted_ranks(x, weights), _weighted_ranks(y, weights)])
    covariance = np.cov(ranks, aweights=weights, ddof=0)
    return float(covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]))


def _weighted_ranks(values: Floats, weights: Floats) -> Floats:
    """[G] weight of smaller values, and half the weight of equal ones."""
    level = rankdata(values, method="dense").astype(np.int64) - 1
    mass = np.bincount(level, weights)
    ranks: Floats = (np.cumsum(mass) - mass / 2)[level]
    return ranks


def _mean(values: Floats, weights: Floats) -> float:
    return float((values * weights).sum() / weights.sum())


def _cross_entropy(p_success: Floats, rates: Floats) -> Floats:
    clipped = np.clip(p_success, _CLIP, 1 - _CLIP)
    entropy: Floats = -(rates * np.log(clipped) + (1 - rates) * np.log1p(-clipped))
    return entropy
