"""DPS: a hidden Markov model of each prompt with the states all-wrong, mixed and all-right (arXiv 2603.10887).

The belief b over states goes forward with every step, for visited prompts and
others alike, by the mean F of a Dirichlet posterior over transitions. A visit
shows the state j, and its transition counts follow, with decay lambda:

    b' = b F        xi_i = b_i F_ij / b'_j
    counts <- lambda counts + (1 - lambda) prior + xi e_j^T        b <- e_j

The forecast is a mixture over states: Beta(1, 1 + n) and Beta(1 + n, 1) where
all n rollouts of a group agree, and where they are mixed the Beta posterior of
the prompt's own mixed visits, so that how near to even odds they were is kept.

DPS itself takes the prompts of largest P(mixed). Forecasts map to it by
E[p (1 - p)] = p_success (1 - p_success) - p_sd^2, which is the mixture of the
states' own; while mixed visits differ only in their number, it rises with
P(mixed) and nothing else. The acquisition rule `informative` ranks by it at k = 2,
and nearly so at larger k.
"""

import numpy as np
from numpy.typing import NDArray

from models.difficulty.base import State, encode_ids, match_ids, take_over
from models.difficulty.beta import beta_moments
from models.difficulty.tokens import TokenForecaster
from models.records import Floats, Forecast, Ints, Observation, Pool
from models.settings import DpsSettings

ALL_WRONG, MIXED, ALL_RIGHT = range(3)


class Dps:
    """Independent three-state models over the prompts of a pool."""

    def __init__(self, settings: DpsSettings, pool: Pool) -> None:
        self._settings = settings
        self._pool = pool
        self._belief = np.full((len(pool), 3), 1.0 / 3.0)
        self._counts = np.full((len(pool), 3, 3), settings.prior, np.float64)
        self._mixed = np.zeros((len(pool), 2))  # successes and failures of mixed visits, decayed
        self._observed = np.zeros(2)  # groups and rollouts of all prompts
        self._tokens = TokenForecaster(pool)

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """Moments of the mixture over the states of the next step; draws nothing."""
        belief_N3 = self._predicted(rows)
        mean_N3, sd_N3 = beta_moments(*self._rates(rows))
        mean = (belief_N3 * mean_N3).sum(axis=1)
        variance = (belief_N3 * (sd_N3**2 + (mean_N3 - mean[:, None]) ** 2)).sum(axis=1)
        return Forecast(mean, np.sqrt(variance), self._tokens.forecast(rows))

    def p_mixed(self, rows: Ints) -> Floats:
        """[N] chance that the next group of each prompt is mixed: what DPS ranks by."""
        mixed: Floats = self._predicted(rows)[:, MIXED]
        return mixed

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """One step: the beliefs go forward, and those on visited prompts are settled. The loss part is the NLL.

        A visit with one valid rollout shows no state, since one rollout cannot disagree.
        """
        comparable = observation.valid > 1
        rows, successes = observation.rows[comparable], observation.successes[comparable]
        valid = observation.valid[comparable]
        states = np.where(successes == 0, ALL_WRONG, np.where(successes == valid, ALL_RIGHT, MIXED))
        arrivals = self._belief[rows] * self._transitions(rows)[np.arange(len(rows)), :, states]
        likelihood = arrivals.sum(axis=1)
        keep, prior = self._settings.decay, self._settings.prior
        counts = keep * self._counts[rows] + (1.0 - keep) * prior
        counts[np.arange(len(rows)), :, states] += arrivals / likelihood[:, None]
        self._belief = self._predicted(np.arange(len(self._pool)))
        self._belief[rows] = np.eye(3)[states]
        self._counts[rows] = counts
        mixed, lost = states == MIXED, valid - successes
        self._mixed[rows[mixed]] *= keep
        self._mixed[rows[mixed]] += np.stack([successes[mixed], lost[mixed]], axis=1)
        self._observed += (len(rows), valid.sum())
        self._tokens.observe(observation.rows, observation.mean_tokens)
        return {"nll": float(-np.log(likelihood).mean())} if len(rows) else {}

    def state_dict(self) -> State:
        """Belief, transition counts and mixed visits of every prompt."""
        own = {"belief": self._belief.copy(), "counts": self._counts.copy(), "mixed": self._mixed.copy()}
        return {"prompt_ids": encode_ids(self._pool), **own, "observed": self._observed.copy(), **self._tokens.state()}

    def load_state_dict(self, state: State) -> None:
        """Take over the prompts that are in this pool; its other prompts have the prior's belief."""
        theirs, ours = match_ids(self._pool, state["prompt_ids"])
        take_over(self._belief, 1.0 / 3.0, state["belief"], theirs, ours)
        take_over(self._counts, self._settings.prior, state["counts"], theirs, ours)
        take_over(self._mixed, 0.0, state["mixed"], theirs, ours)
        self._observed = state["observed"].copy()
        self._tokens.load(state, theirs, ours)

    def _transitions(self, rows: Ints) -> NDArray[np.float64]:
        counts_N33 = self._counts[rows]
        mean_N33: NDArray[np.float64] = counts_N33 / counts_N33.sum(axis=2, keepdims=True)
        return mean_N33

    def _predicted(self, rows: Ints) -> NDArray[np.float64]:
        belief_N3: NDArray[np.float64] = np.einsum("ni,nij->nj", self._belief[rows], self._transitions(rows))
        return belief_N3

    def _rates(self, rows: Ints) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Alpha and beta of each state's success rate, [N, 3] each; n is the mean size of the groups so far, or 1."""
        groups, rollouts = self._observed
        size = rollouts / groups if groups else 1.0
        alpha_N3, beta_N3 = np.ones((len(rows), 3)), np.ones((len(rows), 3))
        beta_N3[:, ALL_WRONG] += size
        alpha_N3[:, ALL_RIGHT] += size
        alpha_N3[:, MIXED] += self._mixed[rows, 0]
        beta_N3[:, MIXED] += self._mixed[rows, 1]
        return alpha_N3, beta_N3
