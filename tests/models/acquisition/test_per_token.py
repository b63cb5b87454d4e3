"""Utility for each token: hand-computed, with unknown lengths and a limit on the longest."""

import numpy as np
import pytest

from models.acquisition.base import Candidates
from models.acquisition.informative import chance_informative
from models.acquisition.per_token import known_tokens, per_token
from models.records import Forecast, Ranking
from models.settings import AcquisitionSettings

NAN = float("nan")


def run(tokens: list[float], slots: int, longest: float = 1.0, p_success: float = 0.5) -> Ranking:
    size = len(tokens)
    forecast = Forecast(np.full(size, p_success), np.full(size, 0.1), np.array(tokens))
    settings = AcquisitionSettings(name="per_token", longest=longest, lookahead=0.0)
    return per_token(Candidates(forecast, None, None, group_size=4), slots, settings, np.random.default_rng(0))


def test_utility_is_the_chance_of_an_informative_group_for_each_of_its_tokens() -> None:
    ranking = run([100.0, 50.0, 400.0, 50.0], 3)
    chance = chance_informative(Forecast(np.array([0.5]), np.array([0.1]), np.array([1.0])), 4)[0]
    assert ranking.utility == pytest.approx(chance / (4 * np.array([100.0, 50.0, 400.0, 50.0])))
    assert ranking.chosen.tolist() == [1, 3, 0]


def test_short_but_certain_prompts_do_not_win() -> None:
    forecast = Forecast(np.array([0.999, 0.5]), np.array([0.001, 0.1]), np.array([10.0, 300.0]))
    ranking = per_token(Candidates(forecast, None, None), 1, AcquisitionSettings(longest=1.0), np.random.default_rng(0))
    assert ranking.chosen.tolist() == [1]


def test_the_longest_are_chosen_only_when_the_others_are_too_few() -> None:
    tokens = [float(length) for length in range(100, 200, 10)]
    forecast = Forecast(np.linspace(0.01, 0.1, 10), np.full(10, 0.001), np.array(tokens))
    settings = AcquisitionSettings(name="per_token", longest=0.6)
    candidates, rng = Candidates(forecast, None, None), np.random.default_rng(0)
    assert per_token(candidates, 3, AcquisitionSettings(longest=1.0), rng).chosen.max() > 5
    assert sorted(per_token(candidates, 6, settings, rng).chosen) == [0, 1, 2, 3, 4, 5]
    filled = per_token(candidates, 8, settings, rng)
    assert sorted(filled.chosen[:6]) == [0, 1, 2, 3, 4, 5]
    assert filled.chosen[6:].tolist() == sorted(range(6, 10), key=lambda i: -filled.utility[i])[:2]


def test_unknown_lengths_are_those_of_the_others() -> None:
    assert known_tokens(np.array([10.0, NAN, 30.0])).tolist() == [10.0, 20.0, 30.0]
    assert known_tokens(np.array([NAN, NAN])).tolist() == [1.0, 1.0]
    assert known_tokens(np.array([0.0, 5.0])).tolist() == [1.0, 5.0]
    assert np.isfinite(run([NAN] * 4, 2).utility).all()
