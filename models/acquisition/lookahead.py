"""What a prompt's group tells about its groups to come: one step of lookahead (the knowledge gradient).

Of p ~ Beta(a, b) a group of k rollouts leaves Beta(a + s, b + k - s), with the
beta-binomial probability of s. With u(a, b) the chance of an informative group
and u* the least chance that is still chosen, a later visit gains by this one

    E_s[max(u(a + s, b + k - s), u*)] - max(u(a, b), u*)  >=  0
"""

import numpy as np

from models.records import Floats


def chance(alpha: Floats, beta: Floats, group_size: int) -> Floats:
    """[N] probability that some of `group_size` rollouts succeed and some fail."""
    all_right, all_wrong = np.ones(len(alpha)), np.ones(len(alpha))
    for drawn in range(group_size):  # B(a + k, b) / B(a, b), one rollout after the other
        all_right *= (alpha + drawn) / (alpha + beta + drawn)
        all_wrong *= (beta + drawn) / (alpha + beta + drawn)
    found: Floats = np.maximum(1.0 - all_right - all_wrong, 0.0)
    return found


def gain(alpha: Floats, beta: Floats, group_size: int, least: float) -> Floats:
    """[N] what a later visit gains, `least` being u*."""
    probability = np.ones(len(alpha))  # of s successes
    for drawn in range(group_size):
        probability *= (beta + drawn) / (alpha + beta + drawn)
    later = np.zeros(len(alpha))
    for s in range(group_size + 1):
        later += probability * np.maximum(chance(alpha + s, beta + group_size - s, group_size), least)
        if s < group_size:
            probability *= (group_size - s) / (s + 1) * (alpha + s) / (beta + group_size - s - 1)
    gained: Floats = np.maximum(later - np.maximum(chance(alpha, beta, group_size), least), 0.0)
    return gained
