"""SEC: hand-computed values of categories, and names that survive being stored."""

import numpy as np
import pytest

from models.difficulty import build_predictor
from models.difficulty.sec import Sec, decode_names, encode_names
from models.records import Observation, Pool
from models.settings import SecSettings

UNSEEN = 2 * (1 / 6) ** 0.5


def make_sec(categories: tuple[str, ...] = ("algebra", "algebra", "géométrie"), rate: float = 0.5) -> Sec:
    return Sec(SecSettings(rate=rate), Pool(tuple(map(str, range(len(categories)))), categories=categories))


def observe(predictor: Sec, rows: list[int], successes: list[int], valid: list[int]) -> None:
    groups = Observation(np.array(rows), np.array(successes), np.array(valid), np.ones(len(rows)))
    predictor.observe(groups, seed=0)


def value(predictor: Sec, row: int) -> float:
    """The category's value, as the forecast holds it."""
    forecast = predictor.forecast(np.array([row]), seed=0)
    spread = forecast.p_success * (1 - forecast.p_success) - forecast.p_sd**2
    return float(2 * np.sqrt(spread[0]))


def test_value_moves_towards_the_mean_absolute_advantage_of_the_category() -> None:
    """Advantages in standard deviations of a group with rate r: r of them (1-r)/sd, the rest -r/sd."""
    predictor = make_sec()
    observe(predictor, [0, 1], [2, 8], [8, 8])
    advantages = (np.array([1.0] * 2 + [0.0] * 6) - 0.25) / np.array([1.0] * 2 + [0.0] * 6).std()
    expected = 0.5 * UNSEEN + 0.5 * (np.abs(advantages).mean() + 0.0) / 2
    assert value(predictor, 0) == pytest.approx(expected) == value(predictor, 1)
    assert value(predictor, 2) == pytest.approx(UNSEEN)


def test_the_forecast_is_the_categorys_rate() -> None:
    predictor = make_sec(rate=0.25)
    observe(predictor, [0, 1], [2, 8], [8, 8])
    observe(predictor, [2], [1], [4])
    rate = 0.75 * 0.5 + 0.25 * (0.25 + 1.0) / 2
    assert predictor.forecast(np.arange(3), seed=0).p_success == pytest.approx([rate, rate, 0.75 * 0.5 + 0.25 * 0.25])


def test_spread_is_real_whatever_was_observed() -> None:
    rng, predictor = np.random.default_rng(0), make_sec(tuple("abcd" * 10), rate=1.0)
    for _ in range(50):
        rows = rng.choice(40, 9, replace=False)
        observe(predictor, rows.tolist(), rng.integers(0, 9, 9).tolist(), [8] * 9)
        assert (predictor.forecast(np.arange(40), seed=0).p_sd >= 0).all()


def test_names_are_stored_as_bytes_and_come_back() -> None:
    names = np.array(["", "a", "Prealgebra", "géométrie", "数学"])
    assert decode_names(encode_names(names)) == names.tolist()
    assert decode_names(encode_names(np.array([""]))) == [""]


def test_state_is_matched_by_category_and_others_start_afresh() -> None:
    before, after = make_sec(), make_sec(("topology", "géométrie"))
    observe(before, [0, 2], [0, 6], [8, 8])
    after.load_state_dict(before.state_dict())
    assert value(after, 1) == pytest.approx(value(before, 2))
    assert value(after, 0) == pytest.approx(UNSEEN)


def test_pool_without_categories_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^predictor sec needs the categories of the pool's prompts$"):
        build_predictor(SecSettings(), Pool(("a", "b")), seed=0)
