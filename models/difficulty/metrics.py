"""How good forecasts were, judged by groups that had not been learned from."""

import numpy as np
from scipy.stats import spearmanr

from models.records import Floats, Ints

BINS = 10
_CLIP = 1e-6


def forecast_quality(p_success: Floats, successes: Ints, valid: Ints) -> dict[str, float]:
    """Spearman, Brier, NLL and ECE of G forecasts; NaN where undefined.

    Brier and NLL are means over rollouts, each an outcome of its own, so both
    hold the outcomes' unavoidable noise.

    Args:
        p_success: [G] forecast probability that one rollout succeeds.
        successes: [G] rollouts that did, of `valid` ones.
    """
    if len(p_success) == 0:
        return dict.fromkeys(("spearman", "brier", "nll", "ece"), float("nan"))
    rates = successes / valid
    return {
        "spearman": _spearman(p_success, rates),
        "brier": _mean_over_rollouts(rates * (1 - p_success) ** 2 + (1 - rates) * p_success**2, valid),
        "nll": _mean_over_rollouts(_cross_entropy(p_success, rates), valid),
        "ece": expected_calibration_error(p_success, rates, valid),
    }


def expected_calibration_error(p_success: Floats, rates: Floats, valid: Ints) -> float:
    """Mean over rollouts of |observed - forecast| success, within ten bins of equal width."""
    bins = np.minimum((p_success * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, valid * (rates - p_success), minlength=BINS)
    return float(np.abs(gaps).sum() / valid.sum())


def _spearman(p_success: Floats, rates: Floats) -> float:
    """Rank correlation, ties by their average rank; NaN when either side is constant."""
    if np.ptp(p_success) == 0 or np.ptp(rates) == 0:
        return float("nan")
    return float(spearmanr(p_success, rates).statistic)


def _mean_over_rollouts(values: Floats, valid: Ints) -> float:
    return float((values * valid).sum() / valid.sum())


def _cross_entropy(p_success: Floats, rates: Floats) -> Floats:
    clipped = np.clip(p_success, _CLIP, 1 - _CLIP)
    entropy: Floats = -(rates * np.log(clipped) + (1 - rates) * np.log1p(-clipped))
    return entropy
