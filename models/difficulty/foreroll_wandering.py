"""A few parameters that wander about 0, and are learned from the evidence of the groups forecast with them."""

import numpy as np

from models.difficulty.base import State
from models.records import Floats

KEEP = 0.99
"""Share of a parameter that one step leaves."""


class Wandering:
    """Gaussian of parameters theta [P] that follow a stationary autoregression of first order:

    theta <- KEEP theta + N(0, (1 - KEEP^2) diag(sd^2)),  of stationary distribution N(0, diag(sd^2))
    """

    def __init__(self, name: str, *sd: float) -> None:
        """Of the stationary distribution; `name` is what the state calls them, `sd` [P] standard deviations."""
        self._name, self._rest = name, np.diag(np.square(sd))
        self.mean: Floats = np.zeros(len(sd))
        self.cov: Floats = self._rest.copy()

    def take_in(self, score: Floats, information: Floats) -> None:
        """Take in the gradient [P] of the log evidence at the mean, and its Fisher information [P, P]."""
        self.cov = np.linalg.inv(np.linalg.inv(self.cov) + information).astype(np.float64)
        self.mean = self.mean + self.cov @ score

    def move(self) -> None:
        """One step: E theta <- KEEP E theta, Cov theta <- KEEP^2 Cov theta + (1 - KEEP^2) diag(sd^2)."""
        self.mean = KEEP * self.mean
        self.cov = KEEP**2 * self.cov + (1.0 - KEEP**2) * self._rest

    def state(self) -> State:
        """Copies of both moments."""
        return {f"{self._name}_mean": self.mean.copy(), f"{self._name}_cov": self.cov.copy()}

    def load(self, state: State) -> None:
        """Go on where the state was taken."""
        self.mean, self.cov = state[f"{self._name}_mean"].copy(), state[f"{self._name}_cov"].copy()
