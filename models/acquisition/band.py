"""DEPO's stream filter: candidates in random order, kept while p_success is in a band (arXiv 2602.06375).

The first C candidates of a uniform order are looked at, and the first of them
inside the band fill the slots. Where too few are inside, those nearest to the
band fill up, so that no step starves. What was looked at and left out for its
forecast is marked too easy or too hard.
"""

import numpy as np

from models.acquisition.base import Candidates, no_diversity
from models.records import Floats, Ints, Ranking
from models.settings import AcquisitionSettings


def band(candidates: Candidates, slots: int, settings: AcquisitionSettings, rng: np.random.Generator) -> Ranking:
    """The first `slots` candidates inside the band; utility is minus the distance to it."""
    p_success, count = candidates.forecast.p_success, len(candidates)
    distance = np.maximum(np.maximum(settings.low - p_success, p_success - settings.high), 0.0)
    scanned = min(max(settings.scan, slots), count) if settings.scan else count
    order = rng.permutation(count)
    seen = order[:scanned]
    chosen = seen[np.argsort(distance[seen], kind="stable")][:slots]
    side = np.zeros(count, np.int8)
    side[seen] = ((p_success > settings.high).astype(np.int8) - (p_success < settings.low))[seen]
    return Ranking(
        chosen=chosen,
        utility=-distance,
        diversity=no_diversity(candidates),
        inclusion=_inclusion(distance, order, scanned, slots),
        side=side,
    )


def _inclusion(distance: Floats, order: Ints, scanned: int, slots: int) -> Floats:
    """[N] probability that each candidate is chosen, given which others are looked at.

    Looked at together with C - 1 others, of which a are nearer to the band and e
    as near, a candidate is chosen if fewer than slots - a of those e come before
    it: min(1, (slots - a) / (e + 1)), and 0 below. It is looked at with
    probability C / N.
    """
    inclusion = np.zeros(len(distance))
    for positions, others, itself in (
        (order[:scanned], order[:scanned], 1),
        (order[scanned:], order[: scanned - 1], 0),
    ):
        near = np.sort(distance[others])
        nearer = np.searchsorted(near, distance[positions], side="left")
        as_near = np.searchsorted(near, distance[positions], side="right") - nearer - itself
        inclusion[positions] = np.clip((slots - nearer) / (as_near + 1), 0.0, 1.0)
    return inclusion * (scanned / len(distance))
