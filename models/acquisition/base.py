"""From a rule's ranking to a batch: the exploration slice, the retention test, the propensities, the decisions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.acquisition.retention import spread, withhold
from models.records import Decision, Floats, Forecast, Ints, Ranking, Selection
from models.settings import AcquisitionSettings

_SIDES: dict[int, Decision] = {-1: "too_hard", 0: "not_chosen", 1: "too_easy"}


@dataclass(frozen=True)
class Candidates:
    """What a rule may look at: N candidates, N >= 1."""

    forecast: Forecast
    embeddings: NDArray[np.float32] | None
    """[N, dim], rows of unit length."""
    previous: NDArray[np.float32] | None
    """[batch, dim] of the batch before; empty before step 2."""
    group_size: int = 8
    """Rollouts that each prompt would get (k)."""

    def __len__(self) -> int:
        return len(self.forecast.p_success)

    def at(self, positions: Ints) -> "Candidates":
        """Some of the candidates."""
        return Candidates(
            self.forecast.at(positions),
            None if self.embeddings is None else self.embeddings[positions],
            self.previous,
            self.group_size,
        )


Rule = Callable[[Candidates, int, AcquisitionSettings, np.random.Generator], Ranking]
"""(candidates, slots, settings, rng) -> ranking that fills the slots; 0 <= slots <= N."""


def choose(
    rule: Rule, candidates: Candidates, rows: Ints, settings: AcquisitionSettings, rng: np.random.Generator
) -> Selection:
    """Let a rule fill the batch but for the exploration slice, and draw that uniformly from the rest.

    With N candidates, B slots and m of them for exploration, the propensity is

        q + (1 - q) m / (N - B + m)

    where q is 1 for the choices of a rule that ranks and 0 for its other
    candidates, or the inclusion probability of a rule that draws. With a retention
    test of r slots, E easy candidates are kept from the rule, and for them
    q = r / E. Where all N fit into the batch nothing is explored, and every
    propensity is 1.

    Args:
        rows: [N] pool rows of the candidates.
    """
    count = len(candidates)
    slots = min(settings.batch_size, count)
    explored = 0 if slots == count else _share(settings.explore, slots, slots)
    easy = _withheld(candidates, slots - explored, settings)
    tested = rng.choice(easy, _share(settings.retain, slots, min(slots - explored, len(easy))), replace=False)
    ranking = _rank(rule, candidates, easy, slots - explored - len(tested), settings, rng)
    taken = np.concatenate([ranking.chosen, tested])
    drawn = np.concatenate([tested, rng.choice(np.setdiff1d(np.arange(count), taken), explored, replace=False)])
    inclusion = _inclusion(ranking, count)
    inclusion[easy] = len(tested) / max(len(easy), 1)
    rest = explored / (count - slots + explored) if explored else 0.0
    return Selection(
        rows=rows,
        utility=ranking.utility,
        diversity=ranking.diversity,
        propensity=inclusion + (1.0 - inclusion) * rest,
        decision=_decisions(count, ranking, drawn),
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


def _share(share: float, slots: int, most: int) -> int:
    """A share of the slots, one at least, as far as there are `most`; none of a share of 0."""
    return min(most, max(1, round(share * slots))) if share else 0


def _withheld(candidates: Candidates, ranked: int, settings: AcquisitionSettings) -> Ints:
    """Positions kept from the rule for the retention test, so many at most that it can fill its slots."""
    if settings.retain == 0.0 or ranked == 0:
        return np.empty(0, np.int64)
    return withhold(candidates.forecast.p_success, settings.retain_above, len(candidates) - ranked)


def _rank(
    rule: Rule,
    candidates: Candidates,
    easy: Ints,
    slots: int,
    settings: AcquisitionSettings,
    rng: np.random.Generator,
) -> Ranking:
    """The rule's ranking of the candidates that are not kept from it, as one of all."""
    if len(easy) == 0:
        return rule(candidates, slots, settings, rng)
    others = np.setdiff1d(np.arange(len(candidates)), easy)
    return spread(rule(candidates.at(others), slots, settings, rng), others, len(candidates))


def _inclusion(ranking: Ranking, count: int) -> Floats:
    if ranking.inclusion is not None:
        return ranking.inclusion.copy()
    inclusion = np.zeros(count)
    inclusion[ranking.chosen] = 1.0
    return inclusion


def _decisions(count: int, ranking: Ranking, drawn: Ints) -> tuple[Decision, ...]:
    if ranking.side is None:
        decisions: list[Decision] = ["not_chosen"] * count
    else:
        decisions = [_SIDES[side] for side in ranking.side.tolist()]
    for position in ranking.chosen:
        decisions[position] = "acquired"
    for position in drawn:
        decisions[position] = "explored"
    return tuple(decisions)


def _ranks(count: int, chosen: Ints) -> Ints:
    ranks = np.full(count, -1, dtype=np.int64)
    ranks[chosen] = np.arange(len(chosen))
    return ranks
