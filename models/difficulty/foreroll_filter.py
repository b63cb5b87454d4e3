"""A Kalman filter on the logit of success, with trends and binomial observations.

The logit of prompt i is f_i = x_i . w + e_i: weights w that all prompts share,
and an own effect e_i. Both have slopes, by which they move each step, and which
fade (a damped linear trend):

    w <- w + w',  w' <- KEEP w' + noise        e_i <- (1 - fade) e_i + e_i' + noise,  e_i' <- KEEP e_i' + noise

Groups of a batch give s_i ~ Binomial(n_i, sigmoid(f_i)); with
K = X cov(w) X' + diag(var e) the posterior of f is taken as the Gaussian of its
moments (`foreroll_ep`), in which group i tells as much as a measurement of f_i
of variance 1 / tau_i:

    g = K^-1 (E f - m),   C = (K + diag(1 / tau))^-1

and any Gaussian z that covaries with f by A has then mean z + A g and
covariance cov(z) - A C A'. Between w and each e_i, and between one e_i and
another, the correlation that the batch leaves behind is dropped.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from models.difficulty.foreroll_ep import match_moments
from models.difficulty.foreroll_own import KEEP, OwnEffects
from models.records import Floats, Ints

BATCH = 512
"""Groups learned from at once; more are taken one part after the other."""
CHUNK = 16_384
"""Prompts forecast at once; bounds memory."""


@dataclass
class Belief:
    """Weights and their slopes [2 D], one after the other, with their covariance, and own effects."""

    mean: Floats
    cov: Floats
    own: OwnEffects

    @classmethod
    def begin(cls, mean: Floats, cov: Floats, slope_var: Floats, own: OwnEffects) -> "Belief":
        """Weights [D] as given; slopes are 0 but for their variance [D]."""
        nothing = np.zeros_like(cov)
        return cls(np.r_[mean, 0.0 * mean], np.block([[cov, nothing], [nothing, np.diag(slope_var)]]), own)

    def logits(self, features: NDArray[np.float32], rows: Ints) -> tuple[Floats, Floats]:
        """Mean and variance [N] of the logits of `rows`; features are [pool, D]."""
        size = features.shape[1]
        root = np.linalg.cholesky(self.cov[:size, :size] + 1e-10 * np.eye(size)).astype(np.float32)
        weights = self.mean[:size].astype(np.float32)
        mean, variance = self.own.level[rows], self.own.var[rows]
        for start in range(0, len(rows), CHUNK):
            part = slice(start, start + CHUNK)
            shown = features[rows[part]]
            spread = shown @ root
            mean[part] += shown @ weights
            variance[part] += np.vecdot(spread, spread)
        return mean, variance

    def evidence(
        self, features: NDArray[np.float32], rows: Ints, successes: Ints, valid: Ints
    ) -> tuple[Floats, Floats]:
        """g and the diagonal of C, [G], of a batch that is not taken in, each part of it by itself."""
        gradient, precision = np.empty(len(rows)), np.empty(len(rows))
        for start in range(0, len(rows), BATCH):
            part = slice(start, start + BATCH)
            mean, prior, _ = self._joint(features[part].astype(np.float64), rows[part])
            gradient[part], joint = match_moments(mean, prior, successes[part], valid[part])
            precision[part] = np.diag(joint)
        return gradient, precision

    def learn(self, features: NDArray[np.float32], rows: Ints, successes: Ints, valid: Ints) -> None:
        """Take in one batch of groups; a row occurs once, features are [G, D]."""
        for start in range(0, len(rows), BATCH):
            part = slice(start, start + BATCH)
            mean, prior, covary = self._joint(features[part].astype(np.float64), rows[part])
            self._update(rows[part], covary, *match_moments(mean, prior, successes[part], valid[part]))

    def move(self, weight_noise: Floats, slope_var: Floats) -> None:
        """One step of the policy: trends of weights go on, and they are doubted more.

        Args:
            weight_noise: [D] variance that weights gain besides their trend.
            slope_var: [D] variance at which slopes rest.
        """
        size = len(self.mean) // 2
        onward = np.block([[np.eye(size), np.eye(size)], [np.zeros((size, size)), KEEP * np.eye(size)]])
        self.mean = onward @ self.mean
        noise = np.r_[weight_noise, (1.0 - KEEP**2) * slope_var]
        self.cov = onward @ self.cov @ onward.T + np.diag(noise)

    def recall(self, features: NDArray[np.float32], rows: Ints, mean: Floats, variance: Floats) -> None:
        """Take in what was believed of the logits of `rows` under other weights; features are [pool, D].

        Each belief N(m, v) counts as an observation y = f + N(0, r) that would, alone, turn the prior N(m0, v0) of
        its logit into that belief; one that is no surer than the prior is passed over:

            1 / r = 1 / v - 1 / v0,  y = r (m / v - m0 / v0)
        """
        before, doubt = self.logits(features, rows)
        surer = np.flatnonzero(variance < doubt)
        rows, noise = rows[surer], 1.0 / (1.0 / variance[surer] - 1.0 / doubt[surer])
        observed = noise * (mean[surer] / variance[surer] - before[surer] / doubt[surer])
        for start in range(0, len(rows), BATCH):
            part = slice(start, start + BATCH)
            shown = features[rows[part]].astype(np.float64)
            expected, prior, covary = self._joint(shown, rows[part])
            precision = cho_solve(cho_factor(prior + np.diag(noise[part])), np.eye(len(prior)))
            self._update(rows[part], covary, precision @ (observed[part] - expected), precision)

    def _joint(self, features: Floats, rows: Ints) -> tuple[Floats, Floats, Floats]:
        """Mean [G] and covariance [G, G] of a batch's logits, and their covariance [G, 2 D] with weights and slopes."""
        size = features.shape[1]
        covary = features @ self.cov[:size]
        prior = covary[:, :size] @ features.T + np.diag(self.own.var[rows])
        return features @ self.mean[:size] + self.own.level[rows], prior, covary

    def _update(self, rows: Ints, covary: Floats, gradient: Floats, precision: Floats) -> None:
        """Posterior, of g [G] and C [G, G] as above."""
        self.mean = self.mean + covary.T @ gradient
        self.cov = self.cov - covary.T @ precision @ covary
        self.cov = (self.cov + self.cov.T) / 2
        self.own.learn(rows, gradient, np.diag(precision))
