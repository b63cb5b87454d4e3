"""The chance of an informative group: against integration, against simulated groups, and in closed form."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betaln
from scipy.stats import beta as beta_distribution

from models.acquisition.base import Candidates
from models.acquisition.beta import beta_parameters, expected_spread
from models.acquisition.informative import chance_informative, farsighted, informative
from models.records import Forecast
from models.settings import AcquisitionSettings


def make_forecast(p_success: list[float], p_sd: list[float] | float) -> Forecast:
    mean = np.array(p_success)
    return Forecast(mean, np.broadcast_to(p_sd, mean.shape).astype(float), np.full(len(mean), 9.0))


@pytest.mark.parametrize("group_size", [2, 4, 8, 32])
@pytest.mark.parametrize(("mean", "sd"), [(0.5, 0.28), (0.2, 0.05), (0.93, 0.1), (0.4, 0.3), (0.5, 0.01)])
def test_utility_is_the_integral_over_the_beta(group_size: int, mean: float, sd: float) -> None:
    forecast = make_forecast([mean], sd)
    posterior = beta_distribution(*(float(one[0]) for one in beta_parameters(forecast)))
    inside = (max(mean - 12 * sd, 0.0), min(mean + 12 * sd, 1.0))
    expected, _ = quad(
        lambda p: (1 - p**group_size - (1 - p) ** group_size) * posterior.pdf(p), *inside, points=[mean], limit=200
    )
    assert chance_informative(forecast, group_size) == pytest.approx([expected], rel=1e-6)


def test_utility_is_the_closed_form_by_beta_functions() -> None:
    forecast = make_forecast([0.1, 0.5, 0.7], [0.1, 0.2, 0.05])
    a, b = beta_parameters(forecast)
    expected = 1 - np.exp(betaln(a + 8, b) - betaln(a, b)) - np.exp(betaln(a, b + 8) - betaln(a, b))
    assert chance_informative(forecast, 8) == pytest.approx(expected)


def test_utility_is_how_often_simulated_groups_are_informative() -> None:
    forecast, rng = make_forecast([0.15, 0.5, 0.8], [0.12, 0.25, 0.05]), np.random.default_rng(0)
    successes = rng.binomial(8, rng.beta(*beta_parameters(forecast), (200_000, 3)))
    frequency = ((successes > 0) & (successes < 8)).mean(axis=0)
    assert chance_informative(forecast, 8) == pytest.approx(frequency, abs=4 * 0.5 / 200_000**0.5)


def test_at_two_rollouts_it_is_twice_the_expected_spread() -> None:
    forecast = make_forecast([0.1, 0.5, 0.7], [0.1, 0.2, 0.05])
    assert chance_informative(forecast, 2) == pytest.approx(2 * expected_spread(forecast))


def test_doubt_lowers_the_utility_of_even_odds_and_raises_that_of_long_odds() -> None:
    sure, unsure = (chance_informative(make_forecast([0.5, 0.002], sd), 8) for sd in (1e-3, 0.04))
    assert sure[0] > unsure[0] and sure[1] == pytest.approx(0.0159, abs=1e-4)
    assert chance_informative(make_forecast([0.5], 0.45), 8)[0] < 0.3


def test_certain_prompts_have_no_utility() -> None:
    assert chance_informative(make_forecast([0.0, 1.0], 0.0), 8) == pytest.approx([0.0, 0.0], abs=1e-4)


def test_the_largest_utilities_are_chosen_and_ties_by_position() -> None:
    candidates = Candidates(make_forecast([0.9, 0.5, 0.1, 0.5, 0.4], 0.05), None, None, group_size=8)
    ranking = informative(candidates, 3, AcquisitionSettings(lookahead=0.0), np.random.default_rng(0))
    assert ranking.chosen.tolist() == [1, 3, 4]
    assert ranking.utility == pytest.approx(chance_informative(candidates.forecast, 8))
    assert np.isnan(ranking.diversity).all() and ranking.inclusion is None


def test_larger_groups_find_harder_prompts_informative() -> None:
    forecast = make_forecast([0.03], 0.01)
    assert chance_informative(forecast, 64)[0] > 3 * chance_informative(forecast, 8)[0]


def test_the_lookahead_chooses_a_doubtful_prompt_before_one_that_is_surely_worse_than_the_rest() -> None:
    """Four good prompts leave two slots: the chance alone prefers the sure 0.14, the lookahead the doubtful one."""
    candidates = Candidates(make_forecast([0.5, 0.5, 0.5, 0.14, 0.5], [0.02, 0.02, 0.02, 0.01, 0.33]), None, None)
    chance = chance_informative(candidates.forecast, 8)
    assert chance[3] > chance[4]
    chosen = informative(candidates, 4, AcquisitionSettings(cooldown=0), np.random.default_rng(0)).chosen
    assert 4 in chosen and 3 not in chosen
    assert farsighted(candidates, 4, AcquisitionSettings(lookahead=0.0)) == pytest.approx(chance)
