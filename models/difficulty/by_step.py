"""What single steps of a replay say of forecasts: its curves over steps, and the better half of each step.

All figures are of all candidates: groups count by `candidate_weights`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.difficulty.metrics import best_half, weighted_spearman
from models.difficulty.prequential import Groups
from models.records import Floats, is_informative


@dataclass(frozen=True)
class StepFigures:
    """One predictor; lists over steps, NaN where a step has no group that counts."""

    spearman: list[float]
    """Rank correlation of forecast and observed success."""
    expected: list[float]
    """Mean forecast chance that a group is informative."""
    best_half: float
    """Informative share of the better half of each step by forecast chance, over all steps together."""


def judge_steps(p_success: Floats, chance: Floats, groups: Groups, sizes: Sequence[int]) -> StepFigures:
    """What each step says of a predictor.

    Args:
        p_success: [G] forecast probability that one rollout succeeds.
        chance: [G] forecast chance that the group is informative.
        sizes: groups of each step; G in all.
    """
    informative, rates, weights = _informative(groups), groups.successes / groups.valid, _weights(groups)
    spearman, expected, halves = [], [], []
    for at in _steps(sizes):
        kept = at.start + np.flatnonzero(weights[at])
        spearman.append(weighted_spearman(p_success[kept], rates[kept], weights[kept]) if len(kept) else float("nan"))
        expected.append(_mean(chance[kept], weights[kept]))
        halves.append(best_half(chance[kept], informative[kept], weights[kept]))
    found, size = np.array(halves).reshape(-1, 2).sum(axis=0)
    return StepFigures(spearman, expected, float(found / size) if size else float("nan"))


def informative_shares(groups: Groups, sizes: Sequence[int]) -> list[float]:
    """Informative share of the candidates of each step, whoever forecast it; NaN where no group counts."""
    informative, weights = _informative(groups).astype(np.float64), _weights(groups)
    return [_mean(informative[at], weights[at]) for at in _steps(sizes)]


def _steps(sizes: Sequence[int]) -> Iterator[slice]:
    ends = np.cumsum(sizes, dtype=np.int64)
    return (slice(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True))


def _informative(groups: Groups) -> NDArray[np.bool_]:
    return is_informative(groups.successes, groups.valid)


def _weights(groups: Groups) -> Floats:
    return groups.weight.astype(np.float64)


def _mean(values: Floats, weights: Floats) -> float:
    return float(values @ weights / weights.sum()) if weights.any() else float("nan")
