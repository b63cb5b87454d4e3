"""Thompson sampling: draws a success probability for each candidate, and takes those nearest to the target (MoPPS)."""

import numpy as np
from scipy.special import betainc

from models.acquisition.base import Candidates, no_diversity, smallest
from models.acquisition.beta import beta_parameters
from models.records import Floats, Ints, Ranking
from models.settings import AcquisitionSettings


def thompson(candidates: Candidates, slots: int, settings: AcquisitionSettings, rng: np.random.Generator) -> Ranking:
    """The `slots` candidates whose draw from their Beta is nearest to the target."""
    alpha, beta = beta_parameters(candidates.forecast)
    distance = np.abs(rng.beta(alpha, beta) - settings.target)
    chosen = smallest(distance, slots)
    return Ranking(
        chosen=chosen,
        utility=-(distance**2),
        diversity=no_diversity(candidates),
        inclusion=_inclusion(alpha, beta, distance, chosen, settings.target),
    )


def _inclusion(alpha: Floats, beta: Floats, distance: Floats, chosen: Ints, target: float) -> Floats:
    """Probability that each candidate is chosen, given what all the others drew.

    A candidate is chosen when its own draw comes nearer to the target than the
    last of the others that would fill the slots. Given that threshold its
    chance is a difference of two Beta distribution functions. Weighting by the
    inverse of such rank-conditioned probabilities is unbiased, as in bottom-k
    sampling (Cohen and Kaplan, 2007).
    """
    count, slots = len(distance), len(chosen)
    if slots in (0, count):
        return np.full(count, float(slots == count))
    last_in, first_out = smallest(distance, slots + 1)[slots - 1 :]
    rival = np.full(count, last_in)
    rival[chosen] = first_out
    # At equal distance the earlier position wins. Draws from a very skewed Beta do tie, rounded to 0 or to 1.
    threshold = np.where(np.arange(count) < rival, distance[rival], np.nextafter(distance[rival], 0.0))
    upper = betainc(alpha, beta, np.minimum(target + threshold, 1.0))
    lower = betainc(alpha, beta, np.maximum(target - threshold, 0.0))
    inclusion: Floats = upper - lower
    return inclusion
