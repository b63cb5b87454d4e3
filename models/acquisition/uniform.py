"""Draws the batch uniformly, whatever was forecast."""

import numpy as np

from models.acquisition.base import Candidates, closeness, no_diversity
from models.records import Ranking
from models.settings import AcquisitionSettings


def uniform(candidates: Candidates, slots: int, settings: AcquisitionSettings, rng: np.random.Generator) -> Ranking:
    """A uniform draw without replacement: every candidate is included with probability slots / N."""
    count = len(candidates)
    return Ranking(
        chosen=rng.choice(count, slots, replace=False),
        utility=closeness(candidates.forecast.p_success, settings),
        diversity=no_diversity(candidates),
        inclusion=np.full(count, slots / count),
    )
