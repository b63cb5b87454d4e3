"""A Kalman filter on the logit of success, with binomial observations.

The logit of prompt i is f_i = x_i . w + e_i: weights w ~ N(mean, cov) that all
prompts share, and an own effect e_i ~ N(own_i, own_var_i). Groups of a batch
give s_i ~ Binomial(n_i, sigmoid(f_i)); with K = X cov X' + diag(own_var) the
posterior of f is taken as the Gaussian at its mode (Laplace), by Newton's
method:

    gradient g = s - n p = K^-1 (f - m),   W = diag(n p (1 - p)),   C = (K + W^-1)^-1
    w <- w + cov X' g        cov     <- cov - cov X' C X cov
    e <- e + own_var g       own_var <- own_var - own_var^2 diag(C)

Between w and each e_i, and between one e_i and another, the correlation that
the batch leaves behind is dropped.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from models.records import Floats, Ints

NEWTON = 12
BATCH = 512
"""Groups learned from at once; more are taken one part after the other."""
_LEAST_WEIGHT = 1e-6


@dataclass
class Belief:
    """Shared weights [D] with their covariance, and own effects [pool] with their variance."""

    mean: Floats
    cov: Floats
    own: Floats
    own_var: Floats

    def logits(self, features: NDArray[np.float32], rows: Ints) -> tuple[Floats, Floats]:
        """Mean and variance [N] of the logits of `rows`, whose features are [N, D]."""
        root = np.linalg.cholesky(self.cov + 1e-10 * np.eye(len(self.mean))).astype(np.float32)
        spread = features @ root
        mean = features @ self.mean.astype(np.float32) + self.own[rows]
        return mean, np.vecdot(spread, spread).astype(np.float64) + self.own_var[rows]

    def learn(self, features: NDArray[np.float32], rows: Ints, successes: Ints, valid: Ints) -> None:
        """Take in one batch of groups; a row occurs once."""
        for start in range(0, len(rows), BATCH):
            part = slice(start, start + BATCH)
            self._learn(features[part].astype(np.float64), rows[part], successes[part], valid[part])

    def _learn(self, features: Floats, rows: Ints, successes: Ints, valid: Ints) -> None:
        spread = features @ self.cov
        prior = spread @ features.T + np.diag(self.own_var[rows])
        gradient, precision = laplace(features @ self.mean + self.own[rows], prior, successes, valid)
        self.mean = self.mean + spread.T @ gradient
        self.cov = self.cov - spread.T @ precision @ spread
        self.cov = (self.cov + self.cov.T) / 2
        self.own[rows] += self.own_var[rows] * gradient
        self.own_var[rows] -= self.own_var[rows] ** 2 * np.diag(precision)


def laplace(mean: Floats, prior: Floats, successes: Ints, valid: Ints) -> tuple[Floats, Floats]:
    """K^-1 (f - m) at the mode f, [G], and (K + W^-1)^-1, [G, G].

    Args:
        mean: [G] of the logits before the batch.
        prior: [G, G] their covariance K.
    """
    logits = mean
    for _ in range(NEWTON):
        p = expit(logits)
        weight = np.maximum(valid * p * (1.0 - p), _LEAST_WEIGHT)
        factor = cho_factor(prior + np.diag(1.0 / weight))
        gradient = cho_solve(factor, logits - mean + (successes - valid * p) / weight)
        step = mean + prior @ gradient - logits
        logits = logits + np.clip(step, -3.0, 3.0)
    return gradient, cho_solve(factor, np.eye(len(mean)))
