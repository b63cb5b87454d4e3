"""How good forecasts were, judged by groups that had not been learned from.

Groups were selected, so plain means speak of the selection. With weights of
1 / propensity each figure estimates the one over all candidates: their totals
without bias; the ratios and ranks made of them with one that shrinks as groups add up.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from models.records import Floats, Ints

BINS = 10
_CLIP = 1e-6


def candidate_weights(propensity: Floats, rounds: Ints) -> Floats:
    """[G] what a group counts for when all candidates are meant.

    1 / propensity in first rounds; 0 in later ones, which choose among what was left; 1 where nobody selected.

    Args:
        propensity: [G] probability with which it was chosen; NaN where nobody selected.
        rounds: [G] in which it was rolled out, from 0.
    """
    selected = ~np.isnan(propensity)
    weights = np.ones(len(propensity))
    weights[selected] = np.where(rounds[selected] > 0, 0.0, 1.0 / propensity[selected])
    return weights


def forecast_quality(
    p_success: Floats, successes: Ints, valid: Ints, weights: Floats | None = None
) -> dict[str, float]:
    """Spearman, Brier, NLL and ECE of G forecasts; NaN where undefined.

    Brier and NLL are means over rollouts, each an outcome of its own, so both
    hold the outcomes' unavoidable noise.

    Args:
        p_success: [G] forecast probability that one rollout succeeds.
        successes: [G] rollouts that did, of `valid` ones.
        weights: [G] `candidate_weights`; None weighs all alike.
    """
    if len(p_success) == 0 or (weights is not None and not weights.any()):
        return dict.fromkeys(("spearman", "brier", "nll", "ece"), float("nan"))
    rates = successes / valid
    groups = np.ones(len(rates)) if weights is None else weights
    rollouts = groups * valid
    return {
        "spearman": weighted_spearman(p_success, rates, groups),
        "brier": _mean(squared_error(p_success, rates), rollouts),
        "nll": _mean(cross_entropy(p_success, rates), rollouts),
        "ece": expected_calibration_error(p_success, rates, rollouts),
    }


def ratio_error(totals: Floats, weights: Floats) -> float:
    """Standard error of sum(totals) / sum(weights) over independent units, as a prompt with all its groups is one.

    The linearised one of a ratio estimate; infinite for fewer than two units.

    Args:
        totals: [N] weighted sum of each unit.
        weights: [N] weight of each unit.
    """
    size = len(totals)
    if size < 2:
        return float("inf")
    residuals = totals - weights * totals.sum() / weights.sum()
    return float(np.sqrt(size / (size - 1) * np.sum(residuals**2)) / weights.sum())


def expected_calibration_error(p_success: Floats, rates: Floats, rollouts: Floats) -> float:
    """Mean over rollouts of |observed - forecast| success, within ten bins of equal width."""
    bins = np.minimum((p_success * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, rollouts * (rates - p_success), minlength=BINS)
    return float(np.abs(gaps).sum() / rollouts.sum())


def weighted_spearman(x: Floats, y: Floats, weights: Floats) -> float:
    """Rank correlation, ties by their average rank; NaN when either side is constant.

    Whole weights give what repeating each pair so often would give.
    """
    return spearman_of_levels(levels(x), levels(y), weights)


def levels(values: Floats) -> Ints:
    """[G] how many distinct values are smaller: all that ranks depend on, whatever the weights."""
    dense: Ints = rankdata(values, method="dense").astype(np.int64)
    return dense - 1


def spearman_of_levels(x: Ints, y: Ints, weights: Floats) -> float:
    """`weighted_spearman` of values of which the levels are known; a weight may be 0."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    ranks = np.stack([_weighted_ranks(x, weights), _weighted_ranks(y, weights)])
    covariance = np.cov(ranks, aweights=weights, ddof=0)
    scale = float(np.sqrt(covariance[0, 0] * covariance[1, 1]))
    return float(covariance[0, 1]) / scale if scale > 0 else float("nan")


def auc_of_levels(score: Ints, positive: NDArray[np.bool_], weights: Floats) -> float:
    """Chance that a positive group has the higher score than a negative one, ties half; NaN where either is absent.

    Args:
        score: [G] levels of the scores.
        weights: [G] of the groups; a pair weighs the product of its two.
    """
    size = int(score.max()) + 1
    above, below = (np.bincount(score[kind], weights[kind], minlength=size) for kind in (positive, ~positive))
    pairs = above.sum() * below.sum()
    return float(above @ (np.cumsum(below) - below / 2) / pairs) if pairs > 0 else float("nan")


def best_half(score: Floats, positive: NDArray[np.bool_], weights: Floats) -> tuple[float, float]:
    """Weight of the positive groups in the better half by score, and the weight of that half.

    Half of the weight is taken, from the highest score down. Where it ends among
    equal scores, each of them is taken in the same proportion, which is what
    taking them in random order gives on average.
    """
    half = float(weights.sum()) / 2
    level = levels(-score)
    mass, won = np.bincount(level, weights), np.bincount(level, weights * positive)
    taken = np.clip(half - (np.cumsum(mass) - mass), 0.0, mass)
    share = np.divide(taken, mass, out=np.zeros_like(taken), where=mass > 0)
    return float(share @ won), half


def _weighted_ranks(level: Ints, weights: Floats) -> Floats:
    """[G] weight of smaller values, and half the weight of equal ones."""
    mass = np.bincount(level, weights)
    ranks: Floats = (np.cumsum(mass) - mass / 2)[level]
    return ranks


def _mean(values: Floats, weights: Floats) -> float:
    return float((values * weights).sum() / weights.sum())


def squared_error(p_success: Floats, rates: Floats) -> Floats:
    """[G] mean over a group's rollouts of (outcome - forecast)^2."""
    error: Floats = rates * (1 - p_success) ** 2 + (1 - rates) * p_success**2
    return error


def cross_entropy(p_success: Floats, rates: Floats) -> Floats:
    """[G] mean over a group's rollouts of -log forecast probability of the outcome; no forecast counts as certain."""
    clipped = np.clip(p_success, _CLIP, 1 - _CLIP)
    entropy: Floats = -(rates * np.log(clipped) + (1 - rates) * np.log1p(-clipped))
    return entropy
