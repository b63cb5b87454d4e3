"""Bottom-k sampling: rules that draw a key for each candidate, and take the candidates of the smallest keys."""

import numpy as np

from models.acquisition.base import smallest
from models.records import Floats, Ints


def bottom_k(keys: Floats, slots: int) -> tuple[Ints, Floats]:
    """Positions of the smallest keys, and [N] the key below which each candidate would have been among them.

    That is the `slots`-th smallest key of the other candidates. Given it, the
    probability of a key below is a candidate's inclusion, and weighting by its
    inverse is unbiased (Cohen and Kaplan, 2007).
    """
    if slots == 0:
        return np.empty(0, np.int64), np.full(len(keys), -np.inf)
    if slots == len(keys):
        return smallest(keys, slots), np.full(len(keys), np.inf)
    order = smallest(keys, slots + 1)
    threshold = np.full(len(keys), keys[order[slots - 1]])
    threshold[order[:slots]] = keys[order[slots]]
    return order[:slots], threshold
