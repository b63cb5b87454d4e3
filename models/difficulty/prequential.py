"""Judges forecasts that were made step by step, each before its outcome was known.

Groups that a selector acquired are a biased sample, so they are judged apart:

`candidates`
    every candidate, estimated from first rounds by weights of 1 / propensity;
    groups that nobody selected weigh 1
`explored`
    those drawn uniformly from what the selector passed over
`acquired`
    those that the selector chose

Intervals are percentiles of a bootstrap over prompts: a prompt is drawn with
all its groups, because they are alike.

A batch is chosen within a run, so ranks are compared within runs: `spearman`
and `auc` are means over runs, weighted as their groups are. Who forecasts 0.9 of all
prompts of an able model and 0.1 of those of another has told no prompts apart.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from models.acquisition.informative import chance_informative
from models.difficulty.metrics import (
    BINS,
    auc_of_levels,
    cross_entropy,
    expected_calibration_error,
    levels,
    spearman_of_levels,
    squared_error,
)
from models.records import Floats, Forecast, Ints, is_informative

METRICS = ("spearman", "auc", "brier", "nll", "ece")
SLICES = ("candidates", "explored", "acquired")
RESAMPLES = 200
_TAIL = 2.5

SELECTED = ("acquired", "explored")
"""Decisions of groups that a selector rolled out; none is given where nobody selected."""


@dataclass(frozen=True)
class Score:
    """A figure with its 95 % interval; NaN where undefined."""

    value: float
    low: float
    high: float


@dataclass
class Groups:
    """The groups that were judged, the same for every predictor; arrays of length G."""

    run: NDArray[np.int32]
    row: NDArray[np.int32]
    """Pool row: the prompt."""
    successes: NDArray[np.int32]
    valid: NDArray[np.int32]
    weight: NDArray[np.float32]
    """1 / propensity; 0 for groups of later rounds, which choose among what was left."""
    decision: NDArray[np.int8]
    """Index in `SELECTED`; -1 where nobody selected."""

    def of(self, name: str) -> Ints:
        """Positions of the groups of a slice."""
        if name == "candidates":
            return np.flatnonzero(self.weight > 0)
        return np.flatnonzero(self.decision == SELECTED.index(name))


@dataclass
class Tally:
    """Arrays that grow by one step at a time, a few bytes for each group."""

    parts: dict[str, list[NDArray[np.generic]]] = field(default_factory=dict)

    def add(self, **columns: NDArray[np.generic]) -> None:
        """Add the groups of one step."""
        for name, values in columns.items():
            self.parts.setdefault(name, []).append(values)

    def column(self, name: str) -> NDArray[np.generic]:
        """All that was added under a name; the parts are joined in place."""
        parts = self.parts.get(name, [np.empty(0)])
        self.parts[name] = [parts[0] if len(parts) == 1 else np.concatenate(parts)]
        return self.parts[name][0]


def chance_of(forecast: Forecast, valid: Ints) -> Floats:
    """[G] forecast chance that a group of so many rollouts is informative."""
    chance = np.zeros(len(valid))
    for size in np.unique(valid):
        of_size = valid == size
        chance[of_size] = chance_informative(forecast.at(of_size), int(size))
    return chance


def judge(
    p_success: Floats, chance: Floats, groups: Groups, rng: np.random.Generator, resamples: int = RESAMPLES
) -> dict[str, dict[str, Score]]:
    """Every metric on every slice that has groups.

    Args:
        p_success: [G] forecast probability that one rollout succeeds.
        chance: [G] forecast chance that the group is informative.
    """
    found = {}
    for name in SLICES:
        kept = groups.of(name)
        if len(kept):
            weights = groups.weight[kept].astype(np.float64) if name == "candidates" else np.ones(len(kept))
            found[name] = _Slice(p_success[kept], chance[kept], groups, kept).scores(weights, rng, resamples)
    return found


def calibration(p_success: Floats, groups: Groups) -> list[tuple[float, float, float]]:
    """Mean forecast, observed success and share of the weight of each of ten bins that holds candidates."""
    kept = groups.of("candidates")
    p, rates = p_success[kept], groups.successes[kept] / groups.valid[kept]
    weight = groups.weight[kept] * groups.valid[kept].astype(np.float64)
    bins = np.minimum((p * BINS).astype(np.int64), BINS - 1)
    mass, forecast, observed = (np.bincount(bins, weight * values, minlength=BINS) for values in (1.0, p, rates))
    full = mass > 0
    columns = (forecast[full] / mass[full], observed[full] / mass[full], mass[full] / mass.sum())
    return [(float(x), float(y), float(share)) for x, y, share in zip(*columns, strict=True)]


class _Slice:
    """What the metrics of one slice need, whatever the weights."""

    def __init__(self, p_success: Floats, chance: Floats, groups: Groups, kept: Ints) -> None:
        successes, self._valid = groups.successes[kept].astype(np.int64), groups.valid[kept].astype(np.float64)
        self._p, self._rates = p_success, successes / self._valid
        informative = is_informative(successes, self._valid)
        self._runs = [
            _RunRanks(at, levels(p_success[at]), levels(self._rates[at]), levels(chance[at]), informative[at])
            for at in (np.flatnonzero(groups.run[kept] == run) for run in np.unique(groups.run[kept]))
        ]
        self._brier, self._nll = squared_error(p_success, self._rates), cross_entropy(p_success, self._rates)
        self._prompts, self._prompt = np.unique(groups.row[kept], return_inverse=True)

    def scores(self, weights: Floats, rng: np.random.Generator, resamples: int) -> dict[str, Score]:
        """Figures under the weights, and their spread when prompts are drawn anew."""
        drawn = np.array([self._figures(weights * self._draw(rng)) for _ in range(resamples)])
        figures = zip(METRICS, self._figures(weights), strict=True)
        return {name: Score(value, *_ends(drawn[:, at])) for at, (name, value) in enumerate(figures)}

    def _draw(self, rng: np.random.Generator) -> Floats:
        """[G] how often each group's prompt is drawn, of as many draws as there are prompts."""
        count = len(self._prompts)
        times: Floats = np.bincount(rng.integers(0, count, count), minlength=count).astype(np.float64)
        return times[self._prompt]

    def _figures(self, weights: Floats) -> list[float]:
        rollouts = weights * self._valid
        total = rollouts.sum()
        if total == 0:
            return [float("nan")] * len(METRICS)
        return [
            *self._rank_figures(weights),
            float(self._brier @ rollouts / total),
            float(self._nll @ rollouts / total),
            expected_calibration_error(self._p, self._rates, rollouts),
        ]

    def _rank_figures(self, weights: Floats) -> Floats:
        """Spearman and AUC: means over the runs in which they are defined."""
        figures = np.array([one.figures(weights[one.at]) for one in self._runs])
        sizes = np.array([weights[one.at].sum() for one in self._runs])[:, None] * ~np.isnan(figures)
        totals = sizes.sum(axis=0)
        means: Floats = np.nansum(figures * sizes, axis=0) / np.where(totals > 0, totals, np.nan)
        return means


@dataclass(frozen=True)
class _RunRanks:
    """What rank figures need of the groups of one run."""

    at: Ints
    """Positions in the slice."""
    p_success: Ints
    """Levels."""
    rate: Ints
    """Levels."""
    chance: Ints
    """Levels."""
    informative: NDArray[np.bool_]

    def figures(self, weights: Floats) -> tuple[float, float]:
        """Spearman and AUC; NaN where undefined."""
        if not weights.any():
            return float("nan"), float("nan")
        return (
            spearman_of_levels(self.p_success, self.rate, weights),
            auc_of_levels(self.chance, self.informative, weights),
        )


def _ends(drawn: Floats) -> tuple[float, float]:
    known = drawn[~np.isnan(drawn)]
    if len(known) == 0:
        return float("nan"), float("nan")
    low, high = np.percentile(known, [_TAIL, 100.0 - _TAIL])
    return float(low), float(high)
