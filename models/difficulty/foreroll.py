"""Our own predictor: a model shared by all prompts, sharpened by each prompt's own record.

The logit of a prompt's success is a weighted sum of its features (text, and
what past runs did on it) plus an own effect; a Kalman filter learns both, and
how they move, from the groups of this run (`foreroll_filter`), beginning where
past runs say (`foreroll_prior`).

Own variance and drift are learned: both grow when outcomes surprise more than
the forecast's doubt allows, and shrink when less. Own effects have heavier tails
than a Gaussian (some prompts can't be solved at all): at a prompt's first visit
its variance is what Student's t expects of so large a surprise, if that is more,

    own_var <- own_var (TAIL + surprise) / (TAIL + 1)
"""

import numpy as np
from numpy.typing import NDArray

from models.difficulty.base import State, encode_ids, match_ids, take_over
from models.difficulty.foreroll_filter import Belief
from models.difficulty.foreroll_own import OwnEffects
from models.difficulty.foreroll_prior import Prior, make_prior
from models.difficulty.foreroll_tokens import FeatureTokens
from models.difficulty.logit_normal import success_moments
from models.records import Floats, Forecast, Ints, Observation, Pool
from models.seeding import derive_rng
from models.settings import ForerollSettings

ABILITY_MOVE = 0.05
"""Standard deviation of the move of all logits in one step, besides their trend."""
ABILITY_SLOPE = 0.04
"""Standard deviation of the trend of all logits, in logits a step."""
TAIL = 2.0
"""Degrees of freedom of own effects; fewer are heavier tails."""
RATE = 0.015
"""A learned scale's logarithm moves by this, times the root of the number of groups, times their mean excess."""
SCALES = (0.1, 10.0)


class Foreroll:
    """Forecasts a pool by its texts, past runs and own record."""

    def __init__(self, settings: ForerollSettings, pool: Pool, *, seed: int) -> None:
        """Read the texts, and fit the past runs; `seed` draws the projections of both."""
        self._settings = settings
        self._pool = pool
        self._prior = make_prior(settings, pool, derive_rng(seed, "foreroll"))
        size = len(pool)
        self._belief = _begin(self._prior)
        self._scale = np.ones(2)  # of own variance, and of drift
        self._visits = np.zeros(size)
        self._tokens = FeatureTokens(pool, self._prior.features)

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """Mean and standard deviation of the success probability; draws nothing."""
        mean, variance = self._belief.logits(self._prior.features, rows)
        return Forecast(*success_moments(mean, variance), self._tokens.forecast(rows))

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """One step of the policy, and then its groups."""
        rows, merged = np.unique(observation.rows, return_inverse=True)
        if len(rows) == 0:
            return {}
        successes = np.bincount(merged, observation.successes).astype(np.int64)
        valid = np.bincount(merged, observation.valid).astype(np.int64)
        mean, variance = self._belief.logits(self._prior.features, rows)
        p_success, p_sd = success_moments(mean, variance)
        surprise = _surprise(p_success, p_sd, successes, valid)
        fresh = self._visits[rows] == 0
        self._learn_scales(surprise, fresh)
        self._belief.own.var[rows[fresh]] *= np.maximum((TAIL + surprise[fresh]) / (TAIL + 1.0), 1.0)
        self._belief.learn(self._prior.features[rows], rows, successes, valid)
        self._visits[rows] += 1.0
        self._tokens.observe(observation.rows, observation.mean_tokens)
        self._move()
        return {"surprise": float(surprise.mean()), "own_scale": self._scale[0], "drift_scale": self._scale[1]}

    def state_dict(self) -> State:
        """Weights, own effects, scales and lengths, and the logits of all prompts, which other weights can take."""
        belief = self._belief
        logit_mean, logit_var = belief.logits(self._prior.features, np.arange(len(self._pool)))
        return {
            "prompt_ids": encode_ids(self._pool),
            "mean": belief.mean.copy(),
            "cov": belief.cov.copy(),
            **belief.own.state(),
            "logit_mean": logit_mean,
            "logit_var": logit_var,
            "own_visits": self._visits.copy(),
            "scale": self._scale.copy(),
            **self._tokens.state(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on where the state was taken.

        Weights and own effects belong to the features of one pool: for another
        pool they begin anew, and recall the logits of known prompts that were visited.
        """
        theirs, ours = match_ids(self._pool, state["prompt_ids"])
        self._belief = belief = _begin(self._prior)
        same = np.array_equal(state["prompt_ids"], encode_ids(self._pool)) and state["mean"].shape == belief.mean.shape
        take_over(self._visits, 0.0, state["own_visits"], theirs, ours)
        self._scale[:] = state["scale"]
        if same:
            belief.mean, belief.cov = state["mean"].copy(), state["cov"].copy()
            belief.own.load(state, theirs, ours)
        else:
            belief.own.var *= self._scale[0]
            seen = state["own_visits"][theirs] > 0
            logits = (state[name][theirs[seen]] for name in ("logit_mean", "logit_var"))
            belief.recall(self._prior.features, ours[seen], *logits)
        self._tokens.load(state, theirs, ours, same_features=same)

    def _move(self) -> None:
        """Let weights and own effects drift by one step."""
        moving = self._prior.moving
        own_noise = float(self._scale[1]) * self._settings.drift**2
        self._belief.move(ABILITY_MOVE**2 * moving, ABILITY_SLOPE**2 * moving, own_noise)

    def _learn_scales(self, surprise: Floats, fresh: NDArray[np.bool_]) -> None:
        """First visits tell the own variance, later ones the drift."""
        for scale, groups in enumerate((fresh, ~fresh)):
            if groups.any():
                excess = float(np.clip(surprise[groups] - 1.0, -1.0, 3.0).mean())
                before = self._scale[scale]
                self._scale[scale] = np.clip(before * np.exp(RATE * np.sqrt(groups.sum()) * excess), *SCALES)
                if scale == 0:
                    self._belief.own.var[self._visits == 0] *= self._scale[0] / before


def _begin(prior: Prior) -> Belief:
    own = OwnEffects.begin(prior.own_var)
    return Belief.begin(prior.mean, prior.cov, ABILITY_SLOPE**2 * prior.moving, own)


def _surprise(p_success: Floats, p_sd: Floats, successes: Ints, valid: Ints) -> Floats:
    """[G] squared error of the success count over the variance that was forecast; 1 on average when calibrated.

    Of a count with random p: Var s = n p (1 - p) + n (n - 1) Var p.
    """
    variance = valid * p_success * (1.0 - p_success) + valid * (valid - 1.0) * p_sd**2
    surprise: Floats = (successes - valid * p_success) ** 2 / np.maximum(variance, 1e-9)
    return surprise
