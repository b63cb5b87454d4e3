"""Boltzmann sampling: draws without replacement, in proportion to exp(Q / T) (SEC, arXiv 2505.14970).

Q = 2 sqrt(E[p (1 - p)]) is the mean absolute advantage, in standard deviations,
that a group of success probability p has. For forecasts of the predictor `sec` it
is the value of a prompt's category; all its prompts weigh alike, so a category
is drawn in proportion to its size, too.
"""

import numpy as np

from models.acquisition.base import Candidates, no_diversity
from models.acquisition.beta import expected_spread
from models.acquisition.bottom_k import bottom_k
from models.records import Ranking
from models.settings import AcquisitionSettings


def boltzmann(candidates: Candidates, slots: int, settings: AcquisitionSettings, rng: np.random.Generator) -> Ranking:
    """The first `slots` arrivals of an exponential race with rates exp(Q / T); utility is Q."""
    value = 2.0 * np.sqrt(expected_spread(candidates.forecast))
    log_rate = value / settings.temperature
    chosen, threshold = bottom_k(np.log(rng.exponential(size=len(value))) - log_rate, slots)
    with np.errstate(over="ignore"):
        inclusion = -np.expm1(-np.exp(threshold + log_rate))
    return Ranking(chosen, value, no_diversity(candidates), inclusion)
