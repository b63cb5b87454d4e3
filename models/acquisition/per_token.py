"""Takes the candidates that promise the most informative groups for each response token.

    utility = (u + lookahead * gain) / (k * expected tokens)

with u the chance of an informative group and its gain as in `informative`.

A step lasts as long as its longest response, so candidates expected to be
longer than a quantile of all are chosen only when the others are too few.
"""

import numpy as np

from models.acquisition.base import Candidates, no_diversity, smallest
from models.acquisition.informative import farsighted
from models.records import Floats, Ranking
from models.settings import AcquisitionSettings

FAR = 1e3
"""More than any utility."""


def per_token(candidates: Candidates, slots: int, settings: AcquisitionSettings, rng: np.random.Generator) -> Ranking:
    """The `slots` candidates of largest utility among those that are not too long; draws nothing."""
    tokens = known_tokens(candidates.forecast.expected_tokens)
    utility = farsighted(candidates, slots, settings) / (candidates.group_size * tokens)
    too_long = tokens > np.quantile(tokens, settings.longest)
    chosen = smallest(np.where(too_long, FAR - utility, -utility), slots)
    return Ranking(chosen, utility, no_diversity(candidates))


def known_tokens(expected: Floats) -> Floats:
    """[N] expected tokens, at least 1; where they are unknown the mean of the others, and 1 when all are."""
    known = ~np.isnan(expected)
    mean = float(expected[known].mean()) if known.any() else 1.0
    tokens: Floats = np.maximum(np.where(known, expected, mean), 1.0)
    return tokens
