"""Takes the candidates whose groups are most likely to be informative, doubt about the forecast included.

A group of k rollouts is informative when neither all succeed nor all fail. With
p ~ Beta(a, b) of the forecast's mean and standard deviation the chance is

    u  =  E[1 - p^k - (1 - p)^k]  =  1 - B(a + k, b) / B(a, b) - B(a, b + k) / B(a, b)

and the utility is u + lookahead * gain: what the visit teaches for later ones
(`lookahead`). A prompt must then be among the best of as many as are acquired
until it may come back, which sets u*.
"""

import numpy as np

from models.acquisition.base import Candidates, no_diversity, smallest
from models.acquisition.beta import beta_parameters
from models.acquisition.lookahead import chance, gain
from models.records import Floats, Forecast, Ranking
from models.settings import AcquisitionSettings


def informative(candidates: Candidates, slots: int, settings: AcquisitionSettings, rng: np.random.Generator) -> Ranking:
    """The `slots` candidates of largest utility; draws nothing."""
    utility = farsighted(candidates, slots, settings)
    return Ranking(smallest(-utility, slots), utility, no_diversity(candidates))


def farsighted(candidates: Candidates, slots: int, settings: AcquisitionSettings) -> Floats:
    """[N] chance of an informative group, and what the group teaches for later ones."""
    utility = chance_informative(candidates.forecast, candidates.group_size)
    if settings.lookahead == 0.0 or slots == 0:
        return utility
    rank = min(slots * (settings.cooldown + 1), len(utility))
    least = float(np.partition(utility, -rank)[-rank])
    gained = gain(*beta_parameters(candidates.forecast), candidates.group_size, least)
    return utility + settings.lookahead * gained


def chance_informative(forecast: Forecast, group_size: int) -> Floats:
    """[N] probability that some of `group_size` rollouts succeed and some fail."""
    return chance(*beta_parameters(forecast), group_size)
