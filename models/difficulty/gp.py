"""VIP's predictor: a Gaussian process over embeddings, updated recursively (arXiv 2602.01601).

The logit of success is f(e) = bias + g(e) with an RBF kernel whose length is the
median distance of prompts. The exact process costs the cube of its data. Here it
is carried by M reference prompts, drawn once from the pool: with
phi(e) = L^-1 k(references, e) and L L^T = k(references, references),

    f(e) = b w_0 + a phi(e) . w + residual,     w ~ N(m, S)

so that memory is N M for the pool and M^2 for the belief, whatever was observed
(FITC; Snelson and Ghahramani, 2006). What references cannot explain of a prompt,
a^2 (1 - |phi|^2), is doubt in its forecast and noise in its observation. A step
lets the belief relax a little to the prior, since the policy moves, and then
conditions it on the batch, each group linearised to a logit with an error.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from models.difficulty.base import State, encode_ids, match_ids
from models.difficulty.logit_normal import linearised, success_moments
from models.difficulty.tokens import TokenForecaster
from models.records import Floats, Forecast, Ints, Observation, Pool
from models.seeding import derive_rng
from models.settings import GpSettings

CHUNK = 8192
"""Prompts at once, so that temporaries stay small beside the features."""
_JITTER = 1e-4
"""Added to the diagonal of the references' kernel matrix, where duplicates would make it singular."""


class Gp:
    """Forecasts a pool by its embeddings."""

    def __init__(self, settings: GpSettings, pool: Pool, *, seed: int) -> None:
        """Draw the references from `seed`.

        Raises:
            ValueError: the pool has no embeddings.
        """
        if pool.embeddings is None:
            raise ValueError("predictor gp needs embeddings of the pool's prompts")
        self._settings = settings
        self._pool = pool
        rows = derive_rng(seed, "references").choice(len(pool), min(settings.references, len(pool)), replace=False)
        self._refer_to(pool.embeddings[np.sort(rows)])
        self._mean = np.zeros(len(self._references) + 1)
        self._covariance = np.eye(len(self._references) + 1)
        self._tokens = TokenForecaster(pool)

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """Moments of sigmoid(f); draws nothing."""
        mean, variance = np.empty(len(rows)), np.empty(len(rows))
        weights, covariance = self._mean.astype(np.float32), self._covariance.astype(np.float32)
        for start in range(0, len(rows), CHUNK):
            chunk = slice(start, start + CHUNK)
            features = self._features[rows[chunk]]
            mean[chunk] = features @ weights
            variance[chunk] = np.vecdot(features @ covariance, features)
        variance = np.maximum(variance, 0.0) + self._residual[rows]
        return Forecast(*success_moments(mean, variance), self._tokens.forecast(rows))

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """One step: relax, then condition on the batch. The loss part is the mean squared innovation."""
        keep = self._settings.keep
        self._mean *= np.sqrt(keep)
        self._covariance = keep * self._covariance + (1.0 - keep) * np.eye(len(self._mean))
        if len(observation.rows) == 0:
            return {}
        features, residual = self._features[observation.rows].astype(np.float64), self._residual[observation.rows]
        before = features @ self._mean
        variance = np.vecdot(features @ self._covariance, features) + residual
        seen, error = linearised(before, variance, observation.successes, observation.valid)
        innovation = seen - before
        self._condition(features, innovation, error + residual)
        self._tokens.observe(observation.rows, observation.mean_tokens)
        return {"innovation": float(np.mean(innovation**2))}

    def state_dict(self) -> State:
        """References, and the belief that they carry."""
        belief: State = {"mean": self._mean.copy(), "covariance": self._covariance.copy()}
        references: State = {"references": self._references.copy()}
        return {"prompt_ids": encode_ids(self._pool), **references, **belief, **self._tokens.state()}

    def load_state_dict(self, state: State) -> None:
        """Go on where the state was taken, with its references, also on another pool."""
        self._refer_to(state["references"])
        self._mean = state["mean"].copy()
        self._covariance = state["covariance"].copy()
        self._tokens.load(state, *match_ids(self._pool, state["prompt_ids"]))

    def _refer_to(self, references: NDArray[np.float32]) -> None:
        """Features [pool, 1 + M] and residual variances [pool] by these references."""
        assert self._pool.embeddings is not None
        self._references = references.copy()
        squares = _square_distances(references, references)
        apart = squares[np.triu_indices(len(references), 1)]
        length = float(np.median(apart)) if len(apart) and np.median(apart) > 0.0 else 1.0
        root = np.linalg.cholesky(np.exp(-squares / (2.0 * length)) + _JITTER * np.eye(len(references)))
        bias, amplitude = self._settings.bias_sd, self._settings.amplitude
        self._features = np.empty((len(self._pool), len(references) + 1), np.float32)
        self._features[:, 0] = bias
        for start in range(0, len(self._pool), CHUNK):
            chunk = slice(start, start + CHUNK)
            kernel = np.exp(-_square_distances(self._pool.embeddings[chunk], references) / (2.0 * length))
            self._features[chunk, 1:] = amplitude * solve_triangular(root, kernel.T, lower=True).T
        explained = np.vecdot(self._features[:, 1:], self._features[:, 1:]).astype(np.float64)
        self._residual = np.maximum(amplitude**2 - explained, 0.0)

    def _condition(self, features: NDArray[np.float64], innovation: Floats, noise: Floats) -> None:
        """Bayes' rule for G observations at once: features [G, 1 + M]."""
        projected = self._covariance @ features.T
        factor = cho_factor(features @ projected + np.diag(noise))
        self._mean += projected @ cho_solve(factor, innovation)
        reduced = self._covariance - projected @ cho_solve(factor, projected.T)
        self._covariance = (reduced + reduced.T) / 2.0


def _square_distances(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float64]:
    """[len(left), len(right)] squared Euclidean distances."""
    squares = np.vecdot(left, left)[:, None] + np.vecdot(right, right)[None] - 2.0 * (left @ right.T)
    distances: NDArray[np.float64] = np.maximum(squares, 0.0).astype(np.float64)
    return distances
