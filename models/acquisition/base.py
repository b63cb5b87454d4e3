"""From a rule's ranking to a batch: the exploration slice, the propensities, the decisions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.records import Decision, Floats, Forecast, Ints, Ranking, Selection
from models.settings import AcquisitionSettings


@dataclass(frozen=True)
class Candidates:
    """What a rule may look at: N candidates, N >= 1."""

    forecast: Forecast
    embeddings: NDArray[np.float32] | None
    """[N, dim], rows of unit length."""
    previous: NDArray[np.float32] | None
    """[batch, dim] of the batch before; empty before step 2."""

    def __len__(self) -> int:
        return len(self.forecast.p_success)


Rule = Callable[[Candidates, int, AcquisitionSettings, np.random.Generator], Ranking]
"""(candidates, slots, settings, rng) -> ranking that fills the slots; 0 <= slots <= N."""


def choose(
    rule: Rule, candidates: Candidates, rows: Ints, settings: AcquisitionSettings, rng: np.random.Generator
) -> Selection:
    """Let a rule fill the batch but for the exploration slice, and draw that uniformly from the rest.

    With N candidates, B slots and m of them for exploration, the propensity is

        by rank:  1 for the rule's choices, m / (N - B + m) for each other candidate
        by draw:  q + (1 - q) m / (N - B + m), q the rule's inclusion probability

    Where all N fit into the batch nothing is explored, and every propensity is 1.

    Args:
        rows: [N] pool rows of the candidates.
    """
    count = len(candidates)
    slots = min(settings.batch_size, count)
    explored = 0 if slots == count else min(slots, max(1, round(settings.explore * slots)))
    ranking = rule(candidates, slots - explored, settings, rng)
    others = np.setdiff1d(np.arange(count), ranking.chosen)
    drawn = rng.choice(others, explored, replace=False)
    rest = explored / (count - slots + explored) if explored else 0.0
    return Selection(
        rows=rows,
        utility=ranking.utility,
        diversity=ranking.diversity,
        propensity=_propensity(ranking, count, rest),
        decision=_decisions(count, ranking.chosen, drawn),
        rank=_ranks(count, np.concatenate([ranking.chosen, drawn])),
    )


def smallest(values: Floats, size: int) -> Ints:
    """Positions of the `size` smallest values, smallest first, equal values by position."""
    return np.argsort(values, kind="stable")[:size]


def closeness(p_success: Floats, settings: AcquisitionSettings) -> Floats:
    """Utility of intermediate difficulty: -(p - target)^2."""
    utility: Floats = -((p_success - settings.target) ** 2)
    return utility


def no_diversity(candidates: Candidates) -> Floats:
    """The diversity of rules that have none."""
    return np.full(len(candidates), np.nan)


def _propensity(ranking: Ranking, count: int, rest: float) -> Floats:
    if ranking.inclusion is None:
        propensity = np.full(count, rest)
        propensity[ranking.chosen] = 1.0
        return propensity
    return ranking.inclusion + (1.0 - ranking.inclusion) * rest


def _decisions(count: int, ranked: Ints, drawn: Ints) -> tuple[Decision, ...]:
    decisions: list[Decision] = ["not_chosen"] * count
    for position in ranked:
        decisions[position] = "acquired"
    for position in drawn:
        decisions[position] = "explored"
    return tuple(decisions)


def _ranks(count: int, chosen: Ints) -> Ints:
    ranks = np.full(count, -1, dtype=np.int64)
    ranks[chosen] = np.arange(len(chosen))
    return ranks
