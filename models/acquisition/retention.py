"""The retention test: easy prompts, which rules skip, are tested again now and then, so that forgetting is noticed.

Prompts that are forecast easy are kept from the rule, and some of them are drawn
uniformly. As the rule cannot choose them, their propensity is plain.
"""

import numpy as np

from models.records import Floats, Ints, Ranking


def withhold(p_success: Floats, above: float, most: int) -> Ints:
    """Positions of the easiest candidates with a p_success of at least `above`, `most` of them at most; ascending."""
    easy = np.flatnonzero(p_success >= above)
    if len(easy) > most:
        easy = np.sort(easy[np.argsort(-p_success[easy], kind="stable")[:most]])
    return easy


def spread(ranking: Ranking, positions: Ints, count: int) -> Ranking:
    """A ranking of the candidates at `positions` as one of all `count`; the others are too easy, and have no scores."""

    def among_all(values: Floats, others: float = np.nan) -> Floats:
        wide = np.full(count, others)
        wide[positions] = values
        return wide

    side = np.ones(count, np.int8)
    side[positions] = 0 if ranking.side is None else ranking.side
    return Ranking(
        chosen=positions[ranking.chosen],
        utility=among_all(ranking.utility),
        diversity=among_all(ranking.diversity),
        inclusion=None if ranking.inclusion is None else among_all(ranking.inclusion, 0.0),
        side=side,
    )
