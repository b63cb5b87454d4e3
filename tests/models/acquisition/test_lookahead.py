"""The gain of a visit: against simulated visits, and where it must be nothing."""

import numpy as np
import pytest
from scipy.stats import betabinom

from models.acquisition.lookahead import chance, gain

ALPHA, BETA = np.array([0.6, 4.0, 0.3, 30.0]), np.array([0.9, 1.5, 3.0, 25.0])


@pytest.mark.parametrize(("group_size", "least"), [(4, 0.5), (8, 0.7)])
def test_gain_is_the_mean_over_outcomes_of_what_the_later_visit_is_worth(group_size: int, least: float) -> None:
    expected = [
        sum(
            betabinom.pmf(s, group_size, a, b)
            * max(chance(np.array([a + s]), np.array([b + group_size - s]), group_size)[0], least)
            for s in range(group_size + 1)
        )
        - max(chance(np.array([a]), np.array([b]), group_size)[0], least)
        for a, b in zip(ALPHA, BETA, strict=True)
    ]
    assert gain(ALPHA, BETA, group_size, least) == pytest.approx(np.array(expected), abs=1e-9)
    assert max(expected) > 0.05


def test_a_sure_prompt_teaches_nothing_and_neither_does_one_that_is_chosen_whatever_comes() -> None:
    assert gain(np.array([1e6]), np.array([1e6]), 8, 0.5) == pytest.approx([0.0], abs=1e-6)
    assert gain(ALPHA, BETA, 8, 0.0) == pytest.approx(np.zeros(4), abs=1e-9)


def test_chance_is_that_of_the_beta_binomial_to_be_neither_none_nor_all() -> None:
    expected = 1 - betabinom.pmf(0, 8, ALPHA, BETA) - betabinom.pmf(8, 8, ALPHA, BETA)
    assert chance(ALPHA, BETA, 8) == pytest.approx(expected)
