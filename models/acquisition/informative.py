"""Takes the candidates whose groups are most likely to be informative, doubt about the forecast included.

A group of k rollouts is informative when neither all succeed nor all fail. With
p ~ Beta(a, b) of the forecast's mean and standard deviation the utility is

    E[1 - p^k - (1 - p)^k]  =  1 - B(a + k, b) / B(a, b) - B(a, b + k) / B(a, b)

At k = 2 it is 2 E[p (1 - p)].
"""

import numpy as np

from models.acquisition.base import Candidates, no_diversity, smallest
from models.acquisition.beta import beta_parameters
from models.records import Floats, Forecast, Ranking
from models.settings import AcquisitionSettings


def informative(candidates: Candidates, slots: int, settings: AcquisitionSettings, rng: np.random.Generator) -> Ranking:
    """The `slots` candidates of largest utility; draws nothing."""
    utility = chance_informative(candidates.forecast, candidates.group_size)
    return Ranking(smallest(-utility, slots), utility, no_diversity(candidates))


def chance_informative(forecast: Forecast, group_size: int) -> Floats:
    """[N] probability that some of `group_size` rollouts succeed and some fail."""
    alpha, beta = beta_parameters(forecast)
    all_right, all_wrong = np.ones(len(alpha)), np.ones(len(alpha))
    for drawn in range(group_size):  # B(a + k, b) / B(a, b), one rollout after the other
        all_right *= (alpha + drawn) / (alpha + beta + drawn)
        all_wrong *= (beta + drawn) / (alpha + beta + drawn)
    chance: Floats = np.maximum(1.0 - all_right - all_wrong, 0.0)
    return chance
