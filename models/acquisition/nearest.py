"""Takes the candidates whose mean forecast is nearest to the target."""

import numpy as np

from models.acquisition.base import Candidates, closeness, no_diversity, smallest
from models.records import Ranking
from models.settings import AcquisitionSettings


def nearest(candidates: Candidates, slots: int, settings: AcquisitionSettings, rng: np.random.Generator) -> Ranking:
    """The `slots` candidates of largest -(p - target)^2; draws nothing."""
    utility = closeness(candidates.forecast.p_success, settings)
    return Ranking(chosen=smallest(-utility, slots), utility=utility, diversity=no_diversity(candidates))
