"""What sets each prompt apart from the model that all prompts share: an own effect with a damped trend.

Effects fade towards the shared model, where groups show that they do:

    e <- (1 - fade) e + e' + noise,  e' <- KEEP e' + noise
"""

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
    age: Floats
    """Steps since the prompt was last learned from, or since the beginning."""

    @classmethod
    def begin(cls, var: Floats) -> "OwnEffects":
        """No effects yet, of variance [pool]."""
        nothing = np.zeros(len(var))
        return cls(nothing, nothing.copy(), var.copy(), nothing.copy(), np.full(len(var), SLOPE_VAR), nothing.copy())

    def learn(self, rows: Ints, gradient: Floats, precision: Floats) -> None:
        """Posterior of `rows`: gradient g and diagonal of C, [G], as `foreroll_filter` has them."""
        var, cross = self.var[rows], self.cross[rows]
        self.level[rows] += var * gradient
        self.slope[rows] += cross * gradient
        self.var[rows] -= var**2 * precision
        self.cross[rows] -= var * cross * precision
        self.slope_var[rows] -= cross**2 * precision
        self.age[rows] = 0.0

    def move(self, noise: float, fade: float, rest: Floats) -> None:
        """One step: trends go on; levels gain variance `noise`, and what fading takes of a variance `rest` [pool]."""
        stay = 1.0 - fade
        self.level = stay * self.level + self.slope
        self.slope *= KEEP
        self.var = stay**2 * self.var + 2.0 * stay * self.cross + self.slope_var + (1.0 - stay**2) * rest + noise
        self.cross = KEEP * (stay * self.cross + self.slope_var)
        self.slope_var = KEEP**2 * self.slope_var + (1.0 - KEEP**2) * SLOPE_VAR
        self.age += 1.0

    def faded(self, rows: Ints, fade: float) -> Floats:
        """How the levels of `rows` change with `fade`, d e / d fade = -age e / (1 - fade).

        As if the fade had been the same since the last visit, and the level were without a trend since.
        """
        changed: Floats = -self.age[rows] * self.level[rows] / (1.0 - fade)
        return changed

    def state(self) -> State:
        """Copies of all arrays."""
        return {f"own_{name}": array.copy() for name, array in vars(self).items()}

    def load(self, state: State, theirs: Ints, ours: Ints) -> None:
        """Take over the effects of known rows."""
        for name, array in vars(self).items():
            array[ours] = state[f"own_{name}"][theirs]
