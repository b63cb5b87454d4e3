"""DPS: the belief against the forward algorithm, and forecasts that keep what three states would lose."""

import numpy as np
import pytest
from scipy.stats import beta, spearmanr

from models.acquisition.informative import chance_informative
from models.difficulty.dps import ALL_RIGHT, ALL_WRONG, MIXED, Dps
from models.records import Observation, Pool
from models.settings import DpsSettings


def make_dps(size: int = 3, **settings: float) -> Dps:
    return Dps(DpsSettings(**settings), Pool(tuple(map(str, range(size)))))  # type: ignore[arg-type]


def observe(predictor: Dps, rows: list[int], successes: list[int], valid: int = 8) -> None:
    groups = Observation(
        np.array(rows, np.int64), np.array(successes, np.int64), np.full(len(rows), valid), np.ones(len(rows))
    )
    predictor.observe(groups, seed=0)


def follow(states: list[int | None], decay: float, prior: float) -> tuple[list[float], list[list[float]]]:
    """Belief one step after these states (None: not visited), and the transition counts, one number at a time."""
    belief = [1 / 3] * 3
    counts = [[prior] * 3 for _ in range(3)]
    for state in states:
        mean = [[count / sum(row) for count in row] for row in counts]
        predicted = [sum(belief[i] * mean[i][j] for i in range(3)) for j in range(3)]
        if state is None:
            belief = predicted
            continue
        shares = [belief[i] * mean[i][state] / predicted[state] for i in range(3)]
        counts = [[decay * count + (1 - decay) * prior for count in row] for row in counts]
        for i in range(3):
            counts[i][state] += shares[i]
        belief = [float(j == state) for j in range(3)]
    mean = [[count / sum(row) for count in row] for row in counts]
    return [sum(belief[i] * mean[i][j] for i in range(3)) for j in range(3)], counts


OUTCOME = {ALL_WRONG: 0, MIXED: 3, ALL_RIGHT: 8}


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("states", [[], [None, None], [1, 1, 1], [0, None, 1, 2, 2, None, None, 1]])
def test_belief_and_counts_are_those_of_the_forward_algorithm(states: list[int | None], decay: float) -> None:
    predictor = make_dps(decay=decay, prior=0.7)
    for state in states:
        observe(predictor, [] if state is None else [1], [] if state is None else [OUTCOME[state]])
    belief, counts = follow(states, decay, 0.7)
    assert predictor._predicted(np.array([1]))[0] == pytest.approx(belief)
    assert predictor.state_dict()["counts"][1] == pytest.approx(np.array(counts))
    assert predictor.p_mixed(np.array([1])) == pytest.approx([belief[MIXED]])


def test_without_a_visit_the_belief_goes_to_where_the_transitions_lead() -> None:
    predictor = make_dps(decay=1.0)
    for _ in range(20):
        observe(predictor, [0], [8])
    transitions = predictor.state_dict()["counts"][0] / predictor.state_dict()["counts"][0].sum(axis=1, keepdims=True)
    for _ in range(200):
        observe(predictor, [1], [4])
    stationary = np.linalg.matrix_power(transitions, 500)[0]
    assert predictor._predicted(np.array([0]))[0] == pytest.approx(stationary)


def test_nothing_known_is_the_uniform_distribution() -> None:
    forecast = make_dps().forecast(np.array([0]), seed=0)
    assert forecast.p_success == pytest.approx([0.5]) and forecast.p_sd == pytest.approx([1 / 12**0.5])


def test_moments_are_those_of_draws_from_the_mixture() -> None:
    predictor = make_dps()
    for successes in (3, 8, 2, 5):
        observe(predictor, [0], [successes])
    belief = predictor._predicted(np.array([0]))[0]
    won, lost = 5 + 0.5 * (2 + 0.5 * 3), 3 + 0.5 * (6 + 0.5 * 5)
    states = [beta(1, 9), beta(1 + won, 1 + lost), beta(9, 1)]
    rng = np.random.default_rng(0)
    sizes = rng.multinomial(400_000, belief)
    draws = np.concatenate([state.rvs(size, random_state=rng) for state, size in zip(states, sizes, strict=True)])
    forecast = predictor.forecast(np.array([0]), seed=0)
    assert forecast.p_success == pytest.approx([draws.mean()], abs=2e-3)
    assert forecast.p_sd == pytest.approx([draws.std()], abs=2e-3)


def test_mixed_prompts_are_told_apart_by_how_near_to_even_odds_they_were() -> None:
    """Three states alone would forecast one and seven successes of eight alike."""
    predictor = make_dps()
    for _ in range(5):
        observe(predictor, [0, 1, 2], [1, 4, 7])
    low, even, high = predictor.forecast(np.arange(3), seed=0).p_success
    assert low < 0.4 < even < 0.6 < high
    assert predictor.p_mixed(np.arange(3)) == pytest.approx(np.full(3, predictor.p_mixed(np.array([0]))[0]))


def test_the_order_of_p_mixed_is_in_the_forecasts() -> None:
    """200 prompts of random histories, all of whose mixed visits are at even odds."""
    rng, predictor = np.random.default_rng(0), make_dps(200)
    for _ in range(30):
        rows = np.sort(rng.choice(200, 60, replace=False))
        observe(predictor, rows.tolist(), rng.choice([0, 4, 8], 60).tolist())
    predictor._mixed[:] = 4.0  # as many mixed visits to each
    rows = np.arange(200)
    forecast, p_mixed = predictor.forecast(rows, seed=0), predictor.p_mixed(rows)
    spread = forecast.p_success * (1 - forecast.p_success) - forecast.p_sd**2
    line = np.polyfit(p_mixed, spread, 1)
    assert line[0] > 0.0 and spread == pytest.approx(np.polyval(line, p_mixed))
    assert chance_informative(forecast, 2) == pytest.approx(2 * spread)
    assert spearmanr(chance_informative(forecast, 8), p_mixed).statistic > 0.97
