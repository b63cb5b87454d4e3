"""What sets each prompt apart from the model that all prompts share: an own effect with a damped trend."""

from dataclasses import dataclass

import numpy as np

from models.difficulty.base import State
from models.records import Floats, Ints

KEEP = 0.95
"""Share of a slope that one step leaves."""
SLOPE_VAR = 0.03**2
"""Variance at which own slopes rest, in logits a step."""


@dataclass
class OwnEffects:
    """Gaussians of the effects [pool] and of their slopes, each prompt by itself."""

    level: Floats
    slope: Floats
    var: Floats
    cross: Floats
    """Covariance of level and slope."""
    slope_var: Floats

    @classmethod
    def begin(cls, var: Floats) -> "OwnEffects":
        """No effects yet, of variance [pool]."""
        nothing = np.zeros(len(var))
        return cls(nothing, nothing.copy(), var.copy(), nothing.copy(), np.full(len(var), SLOPE_VAR))

    def learn(self, rows: Ints, gradient: Floats, precision: Floats) -> None:
        """Posterior of `rows`: gradient g and diagonal of C, [G], as `foreroll_filter` has them."""
        var, cross = self.var[rows], self.cross[rows]
        self.level[rows] += var * gradient
        self.slope[rows] += cross * gradient
        self.var[rows] -= var**2 * precision
        self.cross[rows] -= var * cross * precision
        self.slope_var[rows] -= cross**2 * precision

    def move(self, noise: float) -> None:
        """One step: trends go on; levels gain variance `noise` besides."""
        self.level += self.slope
        self.slope *= KEEP
        self.var += 2.0 * self.cross + self.slope_var + noise
        self.cross = KEEP * (self.cross + self.slope_var)
        self.slope_var = KEEP**2 * self.slope_var + (1.0 - KEEP**2) * SLOPE_VAR

    def state(self) -> State:
        """Copies of all arrays."""
        return {f"own_{name}": array.copy() for name, array in vars(self).items()}

    def load(self, state: State, theirs: Ints, ours: Ints) -> None:
        """Take over the effects of known rows."""
        for name, array in vars(self).items():
            array[ours] = state[f"own_{name}"][theirs]
