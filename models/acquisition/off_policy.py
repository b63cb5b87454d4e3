"""Off-policy estimates: what a selector would have got, from the batches that another one logged.

In a step a selector would acquire candidate i with probability tau_i, of which
B = sum_i tau_i in all. The logs say with what propensity pi_i it was acquired,
whether it was (A_i), and then its outcome Y_i in [0, 1]. Given the logged state
of each step, the value sought is

    V  =  sum tau E[Y]  /  sum B                            over all candidates of all steps

With w = A tau / pi, and m an outcome expected before the step, it is estimated by

    SNIPS   sum w Y / sum w                                 (Hajek 1971; Swaminathan and Joachims 2015)
    DR      sum (tau m + w (Y - m)) / sum B                 (Dudik, Langford and Li 2011)

DR is unbiased, whatever m; SNIPS up to a ratio's bias, of the order 1 / groups.

Batches have a fixed size and are drawn without replacement, so candidates of
one step are not independent, while steps are, given the state that each began
with. Intervals are therefore made of the sums of steps. As the value sought is
that of the logged states, its own drift from step to step is no error: variances
are those of successive differences (von Neumann et al. 1941). Each is held up by
a floor, for outcomes that happen to be all alike.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from models.records import Floats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class StepSums:
    """Sums over the candidates of one step: all that the estimates need of it."""

    size: float
    """tau: prompts that the selector would acquire."""
    weight: float
    """w, of which `size` is expected."""
    gained: float
    """w Y."""
    modelled: float
    """tau m."""
    corrected: float
    """w (Y - m)."""
    spread: float
    """tau^2 / pi: the square of w that is expected."""
    noise: float
    """tau^2 / pi m (1 - m): the variance of `corrected` if m were right and candidates independent."""
    squares: float
    """tau^2."""
    unsupported: float
    """tau of candidates that could not have been acquired."""


@dataclass(frozen=True)
class Estimate:
    """A share, and its 95 % interval within [0, 1]."""

    value: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """Of the interval."""
        return self.high - self.low


def weigh_step(
    inclusion: Floats, propensity: Floats, acquired: NDArray[np.bool_], outcome: Floats, expected: Floats
) -> StepSums:
    """The sums of one step; arrays of length N.

    Candidates without a propensity, or of propensity 0, count as unsupported
    and in no other sum than `size` and `modelled`.

    Args:
        inclusion: probability that the selector would acquire the candidate (tau).
        propensity: probability that it was to be acquired (pi); NaN where none is known.
        outcome: in [0, 1]; read where acquired.
        expected: outcome expected without knowledge of the step's outcomes (m).
    """
    possible = propensity > 0.0
    ratio = np.divide(inclusion, propensity, out=np.zeros(len(inclusion)), where=possible)
    weight = np.where(acquired, ratio, 0.0)
    seen = np.where(acquired, outcome, 0.0)
    return StepSums(
        size=float(inclusion.sum()),
        weight=float(weight.sum()),
        gained=float(weight @ seen),
        modelled=float(inclusion @ expected),
        corrected=float(weight @ (seen - expected)),
        spread=float(ratio @ inclusion),
        noise=float((ratio * inclusion) @ (expected * (1.0 - expected))),
        squares=float(inclusion @ np.where(possible, inclusion, 0.0)),
        unsupported=float(inclusion[~possible].sum()),
    )


def stack(steps: Sequence[StepSums]) -> dict[str, Floats]:
    """[steps] of each sum, by name."""
    columns = np.array([astuple(step) for step in steps], np.float64).reshape(len(steps), len(fields(StepSums)))
    return {field.name: columns[:, at] for at, field in enumerate(fields(StepSums))}


def effective_groups(sums: dict[str, Floats]) -> float:
    """Groups of the selector's own that would tell as much as the logs can: (sum tau)^2 / sum tau^2 / pi.

    This is Kish's effective sample size (sum w)^2 / sum w^2 with expectations in
    place of what happened, so that rare candidates count whether or not one was
    met. Without support it is 0.
    """
    spread = float(sums["spread"].sum())
    return float(sums["size"].sum()) ** 2 / spread if spread else 0.0


def snips(sums: dict[str, Floats]) -> Estimate:
    """The self-normalised estimate; its interval reads no expected outcome.

    The linearised ratio has the residuals sum_i w (Y - V) in each step. The floor
    is the variance of a share of `effective_groups` groups, with two successes and
    two failures added (Agresti and Coull 1998).
    """
    weight = float(sums["weight"].sum())
    value = float(sums["gained"].sum()) / weight
    groups = effective_groups(sums)
    share = (value * groups + 2.0) / (groups + 4.0)
    floor = share * (1.0 - share) / (groups + 4.0)
    variance = variance_of_total(sums["gained"] - value * sums["weight"]) / weight**2
    return _interval(value, max(variance, floor), len(sums["weight"]))


def doubly_robust(sums: dict[str, Floats]) -> Estimate:
    """The doubly robust estimate.

    What the expected outcomes say is known for each logged state; the logs' chance
    is in the corrections alone. The floor is the variance that the expected outcomes
    themselves foresee (anticipated variance, Isaki and Fuller 1982).
    """
    size = float(sums["size"].sum())
    value = float(sums["modelled"].sum() + sums["corrected"].sum()) / size
    variance = max(variance_of_total(sums["corrected"]), float(sums["noise"].sum()))
    return _interval(value, variance / size**2, len(sums["size"]))


def variance_of_total(sums: Floats) -> float:
    """Variance of the total of n independent sums whose means drift slowly: n / (2 (n - 1)) sum (x_t+1 - x_t)^2."""
    steps, differences = len(sums), np.diff(sums)
    return float(differences @ differences) * steps / (2.0 * (steps - 1.0))


def _interval(value: float, variance: float, steps: int) -> Estimate:
    """With Student's t; successive differences have 2 (n - 1)^2 / (3 n - 4) degrees of freedom."""
    freedom = 2.0 * (steps - 1.0) ** 2 / (3.0 * steps - 4.0)
    half = float(stdtrit(freedom, (1.0 + CONFIDENCE) / 2.0)) * variance**0.5
    return Estimate(value, max(value - half, 0.0), min(value + half, 1.0))
