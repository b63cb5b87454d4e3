"""Counterfactual value: off-policy estimates, or the reason why the logs cannot support any.

The claim is one-step: each step begins in the state that the run was in. What
the policy and later batches would have become is not in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.acquisition.off_policy import Estimate, StepSums, doubly_robust, effective_groups, snips, stack
from models.records import Floats

LEAST_STEPS = 10
"""With fewer, the variance between steps is a guess."""
WIDEST = 0.2
"""An interval wider than this says nothing: selectors seldom differ by as much."""
LEAST_GROUPS = 100.0
"""Effective groups below which no estimate is given: with them the interval of an even share is as wide as that.

To refuse by the width alone would favour estimates near 1, which have narrow intervals, whether or not they are right.
"""
_MISFIT = (4.0, 0.02)
"""Standard deviations, and share of it, that the sum of weights may be away from its expectation."""


@dataclass(frozen=True)
class Counterfactual:
    """What a selector would have got from the logged steps."""

    steps: int
    groups: float
    """Effective groups of the selector that the logs are worth."""
    snips: Estimate | None
    """None when refused."""
    doubly_robust: Estimate | None
    """None when refused; the estimate to go by."""
    refusal: str
    """Why there is no estimate, in words; empty when there is one."""


def counterfactual_value(steps: Sequence[StepSums]) -> Counterfactual:
    """Estimates over the steps of a run, or a refusal.

    Whether the logs could support an estimate is judged first, from inclusion and
    propensities alone, so that no outcome decides it; then whether what was
    acquired agrees with the propensities; then whether the interval is narrow
    enough to say anything.
    """
    sums = stack(steps)
    groups = effective_groups(sums)
    refusal = _unsupported(sums, groups) or _misfit(sums)
    if refusal:
        return Counterfactual(len(steps), groups, None, None, refusal)
    ratio, robust = snips(sums), doubly_robust(sums)
    if robust.width > WIDEST:
        refusal = (
            f"the 95 % interval would span {robust.width:.2f}, and one wider than {WIDEST:g} says nothing: "
            "log more steps, or explore more"
        )
        return Counterfactual(len(steps), groups, None, None, refusal)
    return Counterfactual(len(steps), groups, ratio, robust, "")


def _unsupported(sums: dict[str, Floats], groups: float) -> str:
    """Why the logs cannot tell, whatever came out of them; empty when they can."""
    steps = len(sums["size"])
    if not sums["size"].any():
        return "the history holds no candidates with a logged propensity"
    missed = float(sums["unsupported"].sum() / sums["size"].sum())
    if missed > 0.0:
        return f"{missed:.1%} of its batches would be prompts that the run could not have acquired (propensity 0)"
    if steps < LEAST_STEPS:
        return f"{steps} logged steps are too few for an interval: it wants {LEAST_STEPS}"
    if groups < LEAST_GROUPS:
        return (
            f"too little was explored: the logs are worth {groups:.1f} groups of this selector, and an estimate wants "
            f"{LEAST_GROUPS:.0f}: log more steps, or explore more"
        )
    return ""


def _misfit(sums: dict[str, Floats]) -> str:
    """Whether the weights sum to what they should, as far as chance allows; independent draws would vary most."""
    size, weight = float(sums["size"].sum()), float(sums["weight"].sum())
    deviation = np.sqrt(max(float(sums["spread"].sum() - sums["squares"].sum()), 0.0))
    if abs(weight - size) <= max(_MISFIT[0] * deviation, _MISFIT[1] * size):
        return ""
    return (
        f"the logged propensities do not fit what was acquired: its inverse weights sum to {weight / size:.2f} "
        "of what they should"
    )
