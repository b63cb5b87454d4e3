"""A filter that is told what no method can know: how both ends of the drift relate to the features.

Its prior of a prompt's two logits is the regression of the true ones on
`foreroll`'s features, with residual pairs of prompts that regress alike; each
group reweighs them by its likelihood. What it does not reach, those features
and outcomes do not tell a rule that looks one visit ahead.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from models.difficulty.base import State
from models.records import Forecast, Ints, Observation

PARTICLES, ALIKE = 300, 600
EDGE = 4.7


class Told:
    """Particles of the logits at both ends, [pool, PARTICLES] each."""

    def __init__(self, features: NDArray[np.float32], first: np.ndarray, last: np.ndarray, steps: int) -> None:
        x = features.astype(np.float64)
        ends = np.stack([first, last], axis=1)
        regressed = x @ np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ ends)
        order = np.argsort(regressed[:, 1])
        near = np.argsort(order)[:, None] + np.random.default_rng(0).integers(-ALIKE, ALIKE + 1, (len(x), PARTICLES))
        donors = order[np.clip(near, 0, len(x) - 1)]
        drawn = regressed[:, None] + (ends - regressed)[donors]
        self._ends = np.clip(drawn, -EDGE, EDGE).astype(np.float32)
        self._weights = np.zeros((len(x), PARTICLES), np.float32)  # logarithms
        self._step, self._steps = 0, steps

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """Moments over the particles."""
        p, weights = self._p(rows), np.exp(self._weights[rows] - self._weights[rows].max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        mean = np.vecdot(weights, p).astype(np.float64)
        square = np.vecdot(weights, (p - mean[:, None]) ** 2).astype(np.float64)
        return Forecast(mean, np.sqrt(np.maximum(square, 1e-6)), np.full(len(rows), np.nan))

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """Weigh the particles of the groups' prompts."""
        p = np.clip(self._p(observation.rows), 1e-5, 1 - 1e-5)
        failures = observation.valid - observation.successes
        self._weights[observation.rows] += observation.successes[:, None] * np.log(p) + failures[:, None] * np.log1p(-p)
        self._step += 1
        return {}

    def state_dict(self) -> State:
        """Nothing goes on from it."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Nothing goes on from it."""

    def _p(self, rows: Ints) -> NDArray[np.float32]:
        done = np.float32(self._step / max(self._steps - 1, 1))
        found: NDArray[np.float32] = expit(self._ends[rows, :, 0] * (1 - done) + self._ends[rows, :, 1] * done)
        return found
