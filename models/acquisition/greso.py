"""GRESO's filter: candidates in random order, each skipped with some probability (arXiv 2506.02177).

A candidate is kept with probability w = min(1, 6 E[p (1 - p)]), at least 0.01:
for certain if as much can be expected of it as of one that nothing is known of,
uniform p, for which E[p (1 - p)] = 1/6. For forecasts of the predictor `greso`
that is the probability which GRESO itself keeps it with. The first candidates
kept fill the slots; where too few are kept, the first skipped ones fill up.
"""

import numpy as np

from models.acquisition.base import Candidates, no_diversity
from models.acquisition.beta import expected_spread
from models.acquisition.bottom_k import bottom_k
from models.records import Ranking
from models.settings import AcquisitionSettings

_LEAST_KEPT = 0.01
_UNKNOWN_SPREAD = 1.0 / 6.0


def greso(candidates: Candidates, slots: int, settings: AcquisitionSettings, rng: np.random.Generator) -> Ranking:
    """The first `slots` candidates kept; utility is the probability of being kept."""
    kept = np.clip(expected_spread(candidates.forecast) / _UNKNOWN_SPREAD, _LEAST_KEPT, 1.0)
    skipped = rng.uniform(size=len(kept)) >= kept
    chosen, threshold = bottom_k(rng.uniform(size=len(kept)) + skipped, slots)
    inclusion = kept * np.clip(threshold, 0.0, 1.0) + (1.0 - kept) * np.clip(threshold - 1.0, 0.0, 1.0)
    return Ranking(chosen, kept, no_diversity(candidates), inclusion)
