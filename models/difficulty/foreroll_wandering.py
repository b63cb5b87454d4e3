"""A few parameters that wander about 0, and are learned from the evidence of the groups forecast with them."""

from dataclasses import dataclass

import numpy as np

from models.difficulty.base import State
from models.records import Floats

KEEP = 0.99
"""Share of a parameter that one step leaves."""


@dataclass
class Wandering:
    """Gaussian of parameters theta [P] that follow a stationary autoregression of first order:

    theta <- KEEP theta + N(0, (1 - KEEP^2) diag(sd^2)),  of stationary distribution N(0, diag(sd^2))
    """

    sd: Floats
    """[P] stationary standard deviations."""
    mean: Floats
    """[P]"""
    cov: Floats
    """[P, P]"""

    @classmethod
    def begin(cls, *sd: float) -> "Wandering":
        """Of the stationary distribution."""
        return cls(np.array(sd), np.zeros(len(sd)), np.diag(np.square(sd)))

    def learn(self, score: Floats, information: Floats) -> None:
        """Take in the gradient [P] of the log evidence at the mean, and its Fisher information [P, P]."""
        self.cov = np.linalg.inv(np.linalg.inv(self.cov) + information).astype(np.float64)
        self.mean = self.mean + self.cov @ score

    def move(self) -> None:
        """One step: E theta <- KEEP E theta, Cov theta <- KEEP^2 Cov theta + (1 - KEEP^2) diag(sd^2)."""
        self.mean = KEEP * self.mean
        self.cov = KEEP**2 * self.cov + (1.0 - KEEP**2) * np.diag(self.sd**2)

    def state(self, name: str) -> State:
        """Copies of both moments."""
        return {f"{name}_mean": self.mean.copy(), f"{name}_cov": self.cov.copy()}

    def load(self, state: State, name: str) -> None:
        """Go on where the state was taken."""
        self.mean, self.cov = state[f"{name}_mean"].copy(), state[f"{name}_cov"].copy()
