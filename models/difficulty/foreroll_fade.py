"""How fast own effects fade towards the shared model, learned from the groups of prompts visited before."""

import numpy as np

from models.difficulty.foreroll_own import OwnEffects
from models.difficulty.foreroll_wandering import Wandering
from models.records import Floats, Ints

FADE_SD = 0.005
"""Stationary standard deviation, before the bounds, of the share of an effect that fades in one step."""
MOST_FADE = 0.2


class Fade(Wandering):
    """The share of own effects that fades in one step, between 0 and MOST_FADE.

    The score is sum_i g_i d e_i / d fade: effects are forecast too far from the
    shared model where it is positive. Left out are what fading does to variances,
    and correlations between groups. Because it cannot be negative, it is a little
    too large on average where nothing fades.
    """

    def __init__(self) -> None:
        super().__init__("fade", FADE_SD)

    @property
    def value(self) -> float:
        """The share."""
        return float(self.mean[0])

    def learn(self, own: OwnEffects, rows: Ints, gradient: Floats, precision: Floats) -> None:
        """Take in g and the diagonal of C, [G], of groups of `rows` that the effects have not learned from."""
        faded = own.faded(rows, self.value)
        self.take_in(np.array([gradient @ faded]), np.array([[precision @ faded**2]]))
        self.mean = np.clip(self.mean, 0.0, MOST_FADE)
