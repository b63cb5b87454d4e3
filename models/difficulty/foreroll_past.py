"""What other runs did on the prompts of a pool, as a likelihood model.

The logit of prompt i in step t of run r is

    a_rt + l_r . v_i + eps,   v_i ~ N(mu_i, I),   eps ~ N(0, tau_r^2)

with ability a, which walks at random from step to step, loadings l [d], and a
prompt effect v whose prior mean mu_i is read from the text. Fitted by
expectation maximisation, binomial outcomes entering as working responses
(z, 1/w + tau^2) at the current logits. Which
prompts a run chose depends on what it had seen, all of which is in the data:
the likelihood needs no correction for it, and a mean over runs would.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import solveh_banded
from scipy.special import expit, logit

from models.difficulty.foreroll_ridge import CrossFitted
from models.records import Floats, Ints, PastRuns

ROUNDS = 12
TEXT_FROM, TEXT_EVERY = 2, 2
"""The text forecast is refitted in every second round, once effects have settled."""
ABILITY_MOVE = 0.05
"""Standard deviation of the ability's move in one step: a batch of easy prompts must not look like an able policy."""
LOADING_PRIOR = 4.0
"""Weight of the mean loadings over runs against a run's own groups."""
LEAST_NOISE = 0.3
"""Least tau^2: no run measures another run's difficulty exactly."""
MOST_NOISE = 4.0
_FARTHEST = 4.0
"""A working response lies at most this far from the logit."""


@dataclass(frozen=True)
class Latents:
    """The fitted model; R runs, d dimensions."""

    ability: Floats
    """[R] at the first step of each run: a new run begins where these began."""
    loadings: Floats
    """[R, d]"""
    effect: Floats
    """[pool, d] posterior mean of v."""
    effect_cov: Floats
    """[pool, d, d]"""
    text: Floats
    """[pool, d] prior mean of v."""
    noise: Floats
    """[R] tau^2."""


def fit_latents(
    past: PastRuns, words: sp.csr_matrix | None, dense: NDArray[np.float32], dimensions: int, rng: np.random.Generator
) -> Latents:
    """Fit the model to all groups of past runs.

    Args:
        words: [pool, buckets] sparse features of the text, dense: [pool, D] the others.
        rng: draws the folds of the text forecast, and the loadings to begin with.
    """
    fit = _Fit(past, len(dense), dimensions, rng)
    seen = np.unique(past.row)
    text = CrossFitted(words, dense, seen, dimensions, rng)
    for turn in range(ROUNDS):
        fit.expect()
        fit.maximise()
        if turn >= TEXT_FROM and turn % TEXT_EVERY == 1:
            fit.text = text.fit(fit.effect)
        fit.rescale(seen)
    fit.expect()
    return fit.latents()


class _Fit:
    """Parameters between two turns; arrays over groups are [M]."""

    def __init__(self, past: PastRuns, pool: int, dimensions: int, rng: np.random.Generator) -> None:
        self.past, self.pool = past, pool
        steps, self.when = np.unique(np.stack([past.run, past.step]), axis=1, return_inverse=True)
        self.run_of = steps[0]
        self.ties = np.where(np.diff(steps[0]) == 0, 1.0 / (ABILITY_MOVE**2 * np.maximum(np.diff(steps[1]), 1)), 0.0)
        self.first = np.searchsorted(self.run_of, np.arange(self.run_of[-1] + 1))
        runs = len(self.first)
        solved, tried = (_sums(past.run, values, runs) for values in (past.successes, past.valid))
        self.ability: Floats = logit((solved + 0.5) / (tried + 1.0))[self.run_of]
        self.loadings: Floats = np.concatenate(
            [np.full((runs, 1), 1.5), rng.normal(0.0, 0.5, (runs, dimensions - 1))], axis=1
        )
        self.noise: Floats = np.full(runs, 0.5)
        self.effect: Floats = np.zeros((pool, dimensions))
        self.cov: Floats = np.broadcast_to(np.eye(dimensions), (pool, dimensions, dimensions))
        self.text: Floats = np.zeros((pool, dimensions))

    def expect(self) -> None:
        """The posterior of every prompt's effect."""
        for _ in range(2):
            response, variance = self._working()
            loading = self.loadings[self.past.run]
            weight = 1.0 / (variance + self.noise[self.past.run])
            precision = self._by_prompt(weight[:, None, None] * loading[:, :, None] * loading[:, None, :])
            pull = self._by_prompt((weight * (response - self.ability[self.when]))[:, None] * loading)
            self.cov = np.linalg.inv(precision + np.eye(loading.shape[1])).astype(np.float64)
            effect: Floats = np.einsum("nij,nj->ni", self.cov, pull + self.text)
            self.effect = effect

    def maximise(self) -> None:
        """Abilities, loadings and noise given the effects."""
        run, row = self.past.run, self.past.row
        response, variance = self._working()
        weight = 1.0 / (variance + self.noise[run])
        effect = self.effect[row]
        rest = weight * (response - np.vecdot(self.loadings[run], effect))
        self.ability = walked(self._by_step(rest), self._by_step(weight), self.ties)
        above = response - self.ability[self.when]
        square = self._by_run(weight[:, None, None] * (effect[:, :, None] * effect[:, None, :] + self.cov[row]))
        prior = LOADING_PRIOR * np.eye(effect.shape[1])
        pull = self._by_run((weight * above)[:, None] * effect) + prior @ self.loadings.mean(axis=0)
        self.loadings = np.linalg.solve(square + prior, pull[:, :, None])[:, :, 0]
        loading = self.loadings[run]
        left = (above - np.vecdot(loading, effect)) ** 2 + np.einsum("mi,mij,mj->m", loading, self.cov[row], loading)
        noise = self._by_run(weight**2 * (left - variance)) / self._by_run(weight**2)
        self.noise = np.clip(noise, LEAST_NOISE, MOST_NOISE)

    def rescale(self, seen: Ints) -> None:
        """Turn effects, loadings and text so that effects around their text have unit covariance."""
        around = (self.effect - self.text)[seen]
        root = np.linalg.cholesky(around.T @ around / len(seen) + self.cov[seen].mean(axis=0))
        back = np.linalg.inv(root)
        self.effect, self.text = self.effect @ back.T, self.text @ back.T
        self.loadings, self.cov = self.loadings @ root, back @ self.cov @ back.T

    def latents(self) -> Latents:
        """The fit as it stands."""
        return Latents(self.ability[self.first], self.loadings, self.effect, self.cov, self.text, self.noise)

    def _working(self) -> tuple[Floats, Floats]:
        """Working response of each group, and its sampling variance."""
        past = self.past
        at = self.ability[self.when] + np.vecdot(self.loadings[past.run], self.effect[past.row])
        p = expit(at)
        weight = np.maximum(past.valid * p * (1.0 - p), 1e-3)
        moved = np.clip((past.successes - past.valid * p) / weight, -_FARTHEST, _FARTHEST)
        return at + moved, 1.0 / weight

    def _by_step(self, values: Floats | Ints) -> Floats:
        return _sums(self.when, values, len(self.run_of))

    def _by_run(self, values: Floats) -> Floats:
        return _sums(self.past.run, values, len(self.first))

    def _by_prompt(self, values: Floats) -> Floats:
        return _sums(self.past.row, values, self.pool)


def walked(pull: Floats, weight: Floats, ties: Floats) -> Floats:
    """[T] levels a that minimise sum_t (w_t a_t^2 / 2 - b_t a_t) + sum_t k_t (a_t+1 - a_t)^2 / 2.

    Args:
        pull: [T] b, weight: [T] w > 0.
        ties: [T - 1] k, the inverse variance of each move; 0 between two runs.
    """
    bands = np.zeros((3, len(pull)))  # scipy wants two bands beside the diagonal where there is one level only
    bands[1, 1:] = -ties
    bands[2] = weight + np.r_[ties, 0.0] + np.r_[0.0, ties]
    levels: Floats = solveh_banded(bands, pull)
    return levels


def _sums(index: Ints, values: Floats | Ints, size: int) -> Floats:
    """[size, ...] sums of the [M, ...] values of each index."""
    flat = values.astype(np.float64).reshape(len(values), -1)
    sums = np.stack([np.bincount(index, column, minlength=size) for column in flat.T], axis=1)
    total: Floats = sums.astype(np.float64).reshape(size, *values.shape[1:])
    return total
