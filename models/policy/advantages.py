"""Group-relative advantages (GRPO, arXiv 2402.03300, equation in section 4.1.2)."""

import math
from collections.abc import Sequence
from typing import TypeGuard

EPSILON = 1e-6
"""Added to the standard deviation, so that almost equal rewards give no huge advantages."""


def group_advantages(rewards: Sequence[float | None], *, normalise_std: bool) -> list[float | None]:
    """Advantages of the rollouts of one group: A_i = (r_i - mean(r)) / (std(r) + eps).

    Mean and standard deviation (n - 1 below the fraction line) are taken over
    the valid rewards, the finite ones. Equal rewards are told by exact
    comparison, since the rounding of a mean would leave tiny advantages.

    Args:
        rewards: [k], None or NaN where a rollout has no verdict.
        normalise_std: divide by the standard deviation; off is Dr. GRPO (arXiv 2503.20783).

    Returns:
        [k], None where a rollout is not trained on: it has no valid reward, or
        its group has fewer than two.
    """
    valid = [reward for reward in rewards if _is_valid(reward)]
    if len(valid) < 2:
        return [None] * len(rewards)
    if min(valid) == max(valid):
        return [0.0 if _is_valid(reward) else None for reward in rewards]
    mean = math.fsum(valid) / len(valid)
    scale = 1.0
    if normalise_std:
        variance = math.fsum((reward - mean) ** 2 for reward in valid) / (len(valid) - 1)
        scale = math.sqrt(variance) + EPSILON
    return [(reward - mean) / scale if _is_valid(reward) else None for reward in rewards]


def _is_valid(reward: float | None) -> TypeGuard[float]:
    return reward is not None and math.isfinite(reward)
