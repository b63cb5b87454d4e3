"""A history in which prompts were rolled out again and again, as a simulator of selectors.

What a prompt would have answered in a step is taken from its latest group up to
that step, or from its first where it has none yet. The policy that made the
history was not trained on what a simulated selector chooses, so its progress is
the history's own.
"""

from dataclasses import dataclass

import numpy as np

from models.acquisition import select
from models.acquisition.rest import Visits, candidates_wanted, rested
from models.difficulty.base import Predictor
from models.records import Floats, Forecast, Ints, Observation, PastRuns, Pool, is_informative
from models.seeding import derive_rng, derive_seed
from models.settings import AcquisitionSettings


@dataclass(frozen=True)
class DenseResult:
    """What a selector got, over all steps."""

    groups: int
    hit_rate: float
    """Share of its groups that were informative."""
    oracle: float
    """Share of one who knows the step's outcomes and takes the best of each step; its choices rest as the selector's
    do, so one who looks ahead can be better still."""
    tokens: float
    """Response tokens; NaN where lengths are not known."""
    distinct: int
    """Prompts that it chose at least once."""

    @property
    def regret(self) -> float:
        """What the selector missed of the greedy oracle's share; negative where it was luckier."""
        return self.oracle - self.hit_rate


class DenseHistory:
    """The groups of one run, by prompt and step."""

    def __init__(self, groups: PastRuns, pool_size: int) -> None:
        """Take the groups in any order."""
        order = np.lexsort((groups.step, groups.row))
        self._step = groups.step[order]
        self.successes, self.valid = groups.successes[order], groups.valid[order]
        self.mean_tokens = groups.mean_tokens[order]
        row = groups.row[order]
        self._first = np.searchsorted(row, np.arange(pool_size))
        self._end = np.searchsorted(row, np.arange(pool_size), side="right")
        self.rows: Ints = np.unique(row)
        """Prompts that have a group, ascending."""
        self.steps: Ints = np.unique(self._step)

    def at(self, step: int, rows: Ints) -> Ints:
        """Entry of the group that stands for each prompt in a step."""
        found = [
            max(first, first + int(np.searchsorted(self._step[first:end], step, side="right")) - 1)
            for first, end in zip(self._first[rows], self._end[rows], strict=True)
        ]
        return np.array(found, np.int64)

    def informative(self, entries: Ints) -> Floats:
        """1 where a group is informative, else 0."""
        return is_informative(self.successes[entries], self.valid[entries]).astype(np.float64)


def simulate(
    history: DenseHistory, predictor: Predictor, pool: Pool, settings: AcquisitionSettings, *, seed: int
) -> DenseResult:
    """Let a predictor and a rule choose in every step of the history; they see the outcomes of their choices alone."""
    visits, oracle_visits = Visits.none(len(pool)), Visits.none(len(pool))
    previous, size = np.empty(0, np.int64), int(np.median(history.valid))
    chosen: list[Ints] = []
    oracle: list[Floats] = []
    for step in history.steps.tolist():
        rows = _candidates(history, visits, settings)
        forecast = _copied(predictor.forecast(rows, seed=derive_seed(seed, step, "forecast")))
        rng = derive_rng(seed, step, "acquire")
        selection = select(forecast, rows, pool=pool, previous=previous, settings=settings, rng=rng, group_size=size)
        previous = rows[selection.chosen]
        entries = history.at(step, previous)
        observation = Observation(
            previous,
            history.successes[entries],
            history.valid[entries],
            history.mean_tokens[entries],
            explored=selection.explored,
        )
        predictor.observe(observation, seed=derive_seed(seed, step, "observe"))
        chosen.append(entries)
        visits.add(previous)
        oracle.append(_oracle(history, step, oracle_visits, settings, len(previous)))
    entries, best = np.concatenate(chosen), np.concatenate(oracle)
    return DenseResult(
        groups=len(entries),
        hit_rate=float(history.informative(entries).mean()),
        oracle=float(best.mean()),
        tokens=float((history.mean_tokens[entries] * history.valid[entries]).sum()),
        distinct=int((visits.count > 0).sum()),
    )


def _candidates(history: DenseHistory, visits: Visits, settings: AcquisitionSettings) -> Ints:
    """Prompts that have a group and do not rest; all that have one where too few are left."""
    free = np.intersect1d(rested(visits, candidates_wanted(settings, 1), settings), history.rows)
    return free if len(free) >= settings.batch_size else history.rows


def _oracle(history: DenseHistory, step: int, visits: Visits, settings: AcquisitionSettings, size: int) -> Floats:
    """Whether each of the best choices is informative, of one who knows the outcomes of this step and of no other."""
    rows = _candidates(history, visits, settings)
    informative = history.informative(history.at(step, rows))
    best = np.argsort(-informative, kind="stable")[:size]
    visits.add(rows[best])
    return informative[best]


def _copied(forecast: Forecast) -> Forecast:
    return Forecast(forecast.p_success.copy(), forecast.p_sd.copy(), forecast.expected_tokens.copy())
