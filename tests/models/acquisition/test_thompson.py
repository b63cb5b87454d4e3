"""Thompson sampling: its Betas, and inclusion probabilities that make weighted totals unbiased."""

import numpy as np
import pytest
from scipy.stats import beta as beta_distribution

from models.acquisition.base import Candidates, choose
from models.acquisition.beta import beta_parameters
from models.acquisition.thompson import thompson
from models.records import Floats, Forecast
from models.settings import AcquisitionSettings

SEEDS = 4000


def make_candidates(p_success: list[float] | Floats, p_sd: list[float] | Floats | float) -> Candidates:
    mean = np.array(p_success, dtype=np.float64)
    return Candidates(Forecast(mean, np.broadcast_to(p_sd, mean.shape).astype(float), mean * np.nan), None, None)


def test_betas_have_the_moments_of_the_forecast() -> None:
    forecast = make_candidates([0.5, 0.2, 0.9], [0.1, 0.05, 0.2]).forecast
    posterior = beta_distribution(*beta_parameters(forecast))
    assert posterior.mean() == pytest.approx(forecast.p_success)
    assert posterior.std() == pytest.approx(forecast.p_sd)


def test_extreme_forecasts_have_betas_that_can_be_drawn_from() -> None:
    """No doubt, more doubt than a Beta can have, and certainty on either side."""
    forecast = make_candidates([0.5, 0.5, 0.0, 1.0, 0.0], [0.0, 0.9, 0.0, 0.0, 0.5]).forecast
    alpha, beta = beta_parameters(forecast)
    assert (alpha > 0).all() and (beta > 0).all()
    draws = np.random.default_rng(0).beta(alpha, beta, (1000, 5))
    assert np.isfinite(draws).all()
    assert draws[:, 0].std() < 1e-3 and np.isin(np.round(draws[:, 1], 3), (0.0, 1.0)).mean() > 0.98
    assert draws[:, 2].max() < 1e-4 and draws[:, 3].min() > 1 - 1e-4


def test_the_draws_nearest_to_the_target_are_chosen() -> None:
    candidates = make_candidates(np.linspace(0.1, 0.9, 9), 0.1)
    ranking = thompson(candidates, 4, AcquisitionSettings(target=0.6), np.random.default_rng(3))
    draws = np.random.default_rng(3).beta(*beta_parameters(candidates.forecast))
    order = sorted(range(9), key=lambda i: abs(draws[i] - 0.6))
    assert ranking.chosen.tolist() == order[:4]
    assert ranking.utility == pytest.approx(-((draws - 0.6) ** 2))


@pytest.mark.parametrize("target", [0.5, 0.04, 0.97])
def test_inclusion_is_the_chance_to_beat_the_threshold_that_the_others_set(target: float) -> None:
    """Redrawn by brute force: candidate i's draw is replaced many times, the others keep theirs.

    Near the edges target - threshold is below 0, or target + threshold above 1.
    """
    candidates = make_candidates([0.3, 0.5, 0.55, 0.8, 0.1, 0.45], [0.1, 0.2, 0.05, 0.1, 0.05, 0.3])
    ranking = thompson(candidates, 2, AcquisitionSettings(target=target), np.random.default_rng(1))
    assert ranking.inclusion is not None
    alpha, beta = beta_parameters(candidates.forecast)
    distance = np.abs(np.random.default_rng(1).beta(alpha, beta) - target)
    for i in range(6):
        second = np.sort(np.delete(distance, i))[1]
        redrawn = np.abs(np.random.default_rng(2).beta(alpha[i], beta[i], 100_000) - target)
        assert ranking.inclusion[i] == pytest.approx((redrawn < second).mean(), abs=0.007)


def simulate(candidates: Candidates, settings: AcquisitionSettings, values: Floats) -> tuple[Floats, Floats, Floats]:
    """Over many seeds: how often each was chosen, its mean propensity, and every weighted total of `values`."""
    size = len(values)
    counts, propensity, totals = np.zeros(size), np.zeros(size), np.zeros(SEEDS)
    for seed in range(SEEDS):
        selection = choose(thompson, candidates, np.arange(size), settings, np.random.default_rng(seed))
        taken = selection.rank >= 0
        counts += taken
        propensity += selection.propensity
        totals[seed] = (values[taken] / selection.propensity[taken]).sum()
    return counts / SEEDS, propensity / SEEDS, totals


CASES = {
    "doubtful": make_candidates(np.linspace(0.05, 0.95, 20), 0.15),
    "mixed doubt": make_candidates(np.linspace(0.05, 0.95, 20), np.linspace(0.01, 0.2, 20)),
    "no doubt": make_candidates(np.linspace(0.05, 0.95, 20), 0.0),
    "no doubt, all alike": make_candidates(np.full(20, 0.5), 0.0),
    "draws that tie at 0": make_candidates(np.full(20, 0.01), 0.09),
}


@pytest.mark.parametrize("candidates", CASES.values(), ids=CASES.keys())
def test_weighted_totals_are_unbiased_and_propensity_is_the_frequency_on_average(candidates: Candidates) -> None:
    values = np.random.default_rng(9).uniform(size=20) + np.arange(20)
    counts, propensity, totals = simulate(candidates, AcquisitionSettings(batch_size=6, explore=0.34), values)
    assert totals.mean() == pytest.approx(values.sum(), abs=4 * totals.std() / SEEDS**0.5)
    assert counts == pytest.approx(propensity, abs=4 * 0.5 / SEEDS**0.5)
    assert (totals.mean() - values.sum()) / values.sum() == pytest.approx(0.0, abs=0.03)


@pytest.mark.parametrize(("slots", "inclusion"), [(0, 0.0), (5, 1.0)])
def test_no_slots_include_nobody_and_as_many_as_candidates_everybody(slots: int, inclusion: float) -> None:
    ranking = thompson(
        make_candidates(np.linspace(0.1, 0.9, 5), 0.1), slots, AcquisitionSettings(), np.random.default_rng(0)
    )
    assert len(ranking.chosen) == slots
    assert ranking.inclusion is not None and ranking.inclusion.tolist() == [inclusion] * 5
