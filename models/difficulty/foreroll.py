"""Our own predictor: a model shared by all prompts, sharpened by each prompt's own record.

The logit of a prompt's success is a weighted sum of its features (text, and
what past runs did on it) plus an own effect; a Kalman filter learns both, and
how they move, from the groups of this run (`foreroll_filter`), beginning where
past runs say (`foreroll_prior`).

The variance of own effects, how far they drift, and how fast they fade are learned from
the groups, too (`foreroll_scales`, `foreroll_fade`), and forecasts are mended by
those that were drawn at random (`foreroll_calibration`).
"""

import numpy as np

from models.difficulty.base import State, encode_ids, match_ids, take_over
from models.difficulty.foreroll_calibration import Calibration
from models.difficulty.foreroll_fade import Fade
from models.difficulty.foreroll_filter import Belief
from models.difficulty.foreroll_own import OwnEffects
from models.difficulty.foreroll_prior import Prior, make_prior
from models.difficulty.foreroll_scales import Scale
from models.difficulty.foreroll_tokens import FeatureTokens
from models.difficulty.logit_normal import success_moments
from models.records import Floats, Forecast, Ints, Observation, Pool
from models.seeding import derive_rng
from models.settings import ForerollSettings

ABILITY_MOVE = 0.05
"""Standard deviation of the move of all logits in one step, besides their trend."""
ABILITY_SLOPE = 0.04
"""Standard deviation of the trend of all logits, in logits a step."""


class Foreroll:
    """Forecasts a pool by its texts, past runs and own record."""

    def __init__(self, settings: ForerollSettings, pool: Pool, *, seed: int) -> None:
        """Read the texts, and fit the past runs; `seed` draws the projections of both."""
        self._settings = settings
        self._pool = pool
        self._prior = make_prior(settings, pool, derive_rng(seed, "foreroll"))
        size = len(pool)
        self._belief = _begin(self._prior)
        self._own_scale, self._drift_scale = Scale(), Scale()
        self._fade = Fade()
        self._calibration = Calibration()
        self._visits = np.zeros(size)
        self._tokens = FeatureTokens(pool, self._prior.features)

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """Mean and standard deviation of the success probability; draws nothing."""
        mean, variance = self._belief.logits(self._prior.features, rows)
        mended = self._calibration.mended(mean, self._left(rows))
        return Forecast(*success_moments(mended, variance), self._tokens.forecast(rows))

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """Take in the groups of a step, and then move on to the next."""
        rows, merged = np.unique(observation.rows, return_inverse=True)
        if len(rows) == 0:
            return {}
        successes = np.bincount(merged, observation.successes).astype(np.int64)
        valid = np.bincount(merged, observation.valid).astype(np.int64)
        if observation.explored is not None:
            explored = np.bincount(merged, ~observation.explored) == 0
            self._calibrate(rows[explored], successes[explored], valid[explored])
        batch = self._prior.features[rows], rows, successes, valid
        self._learn_scales(rows, *self._belief.evidence(*batch))
        self._belief.learn(*batch)
        self._visits[rows] += 1.0
        self._tokens.observe(observation.rows, observation.mean_tokens)
        self._move()
        return {
            "own_scale": self._own_scale.value,
            "drift_scale": self._drift_scale.value,
            "fade": self._fade.value,
            **self._calibration.metrics(),
        }

    def state_dict(self) -> State:
        """All that is learned, and the logits of all prompts, which other weights can take.

        `scale` is [2, 2]: value and information of the scales of own variance and of drift.
        """
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
            "scale": np.array([(one.value, one.information) for one in (self._own_scale, self._drift_scale)]),
            **self._fade.state(),
            **self._calibration.state(),
            **self._tokens.state(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on where the state was taken.

        Weights and own effects belong to the features of one pool: for another
        pool they begin anew, with the calibration, and recall the logits of known prompts that were visited.
        """
        theirs, ours = match_ids(self._pool, state["prompt_ids"])
        self._belief = belief = _begin(self._prior)
        same = np.array_equal(state["prompt_ids"], encode_ids(self._pool)) and state["mean"].shape == belief.mean.shape
        take_over(self._visits, 0.0, state["own_visits"], theirs, ours)
        self._own_scale, self._drift_scale = (Scale(*map(float, one)) for one in state["scale"])
        self._fade.load(state)
        self._calibration = Calibration()
        if same:
            self._calibration.load(state)
            belief.mean, belief.cov = state["mean"].copy(), state["cov"].copy()
            belief.own.load(state, theirs, ours)
        else:
            belief.own.var *= self._own_scale.value
            seen = state["own_visits"][theirs] > 0
            logits = (state[name][theirs[seen]] for name in ("logit_mean", "logit_var"))
            belief.recall(self._prior.features, ours[seen], *logits)
        self._tokens.load(state, theirs, ours, same_features=same)

    @property
    def _begin_var(self) -> Floats:
        """[pool] variance with which own effects begin."""
        return self._prior.own_var * self._own_scale.value

    @property
    def _own_noise(self) -> float:
        """Variance that own effects gain in a step besides their trend."""
        return self._drift_scale.value * self._settings.drift**2

    def _left(self, rows: Ints) -> Floats:
        """[N] share that is left of the variance with which the effects of `rows` began, 1 at most."""
        left: Floats = np.minimum(self._belief.own.var[rows] / self._begin_var[rows], 1.0)
        return left

    def _calibrate(self, rows: Ints, successes: Ints, valid: Ints) -> None:
        mean, variance = self._belief.logits(self._prior.features, rows)
        self._calibration.learn(mean, variance, self._left(rows), successes, valid)

    def _learn_scales(self, rows: Ints, gradient: Floats, precision: Floats) -> None:
        """First visits tell the variance of own effects, later ones their drift and fading; nothing is taken in yet."""
        own, fresh = self._belief.own, self._visits[rows] == 0
        factor = self._own_scale.learn(own.var[rows[fresh]], gradient[fresh], precision[fresh])
        own.var[self._visits == 0] *= factor
        again = rows[~fresh]
        drifted = np.minimum(own.age[again] * self._own_noise, own.var[again])
        self._drift_scale.learn(drifted, gradient[~fresh], precision[~fresh])
        self._fade.learn(own, again, gradient[~fresh], precision[~fresh])

    def _move(self) -> None:
        """One step of the policy."""
        moving = self._prior.moving
        self._belief.move(ABILITY_MOVE**2 * moving, ABILITY_SLOPE**2 * moving)
        self._belief.own.move(self._own_noise, self._fade.value, self._begin_var)
        self._fade.move()
        self._calibration.move()


def _begin(prior: Prior) -> Belief:
    own = OwnEffects.begin(prior.own_var)
    return Belief.begin(prior.mean, prior.cov, ABILITY_SLOPE**2 * prior.moving, own)
