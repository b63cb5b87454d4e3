"""What every rule has in common: the exploration slice, the propensities, ties, and what is refused."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from models.acquisition import RULES, select
from models.acquisition.base import smallest
from models.records import Decision, Forecast, Pool, Selection
from models.settings import AcquisitionSettings

NAMES = sorted(RULES)


def make_settings(name: str = "nearest", batch_size: int = 4, explore: float = 0.5) -> AcquisitionSettings:
    return AcquisitionSettings(name=name, batch_size=batch_size, explore=explore)  # type: ignore[arg-type]


def make_forecast(size: int, seed: int = 0, sd: float = 0.1) -> Forecast:
    p_success = np.random.default_rng(seed).uniform(0.05, 0.95, size)
    return Forecast(p_success, np.full(size, sd), np.full(size, np.nan))


def make_pool(size: int) -> Pool:
    embeddings = np.random.default_rng(1).standard_normal((size, 8)).astype(np.float32)
    return Pool(tuple(map(str, range(size))), embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True))


def run(forecast: Forecast, settings: AcquisitionSettings, seed: int = 0) -> Selection:
    size = len(forecast.p_success)
    rng = np.random.default_rng(seed)
    rows = np.arange(size)
    return select(forecast, rows, pool=make_pool(size), previous=rows[:3], settings=settings, rng=rng)


def chosen(selection: Selection) -> list[int]:
    """Positions chosen, by rank."""
    order = np.argsort(selection.rank, kind="stable")
    return [int(position) for position in order if selection.rank[position] >= 0]


def decided(selection: Selection) -> Counter[str]:
    """Decisions, whatever the reason why a candidate was not chosen."""
    return Counter(word if word in ("acquired", "explored") else "not_chosen" for word in selection.decision)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("explore", "explored"), [(0.05, 1), (0.5, 3), (1.0, 6)])
def test_batch_is_full_and_explored_prompts_come_last(name: str, explore: float, explored: int) -> None:
    selection = run(make_forecast(30), make_settings(name, batch_size=6, explore=explore))
    assert decided(selection) == Counter(acquired=6 - explored, explored=explored, not_chosen=24)
    assert sorted(rank for rank in selection.rank if rank >= 0) == list(range(6))
    by_rank = [selection.decision[position] for position in chosen(selection)]
    assert by_rank == ["acquired"] * (6 - explored) + ["explored"] * explored
    assert all(np.isfinite(selection.utility)) and ((selection.propensity > 0) & (selection.propensity <= 1)).all()


def test_propensity_of_a_ranking_rule_is_one_or_the_chance_of_being_explored() -> None:
    selection = run(make_forecast(30), make_settings("nearest", batch_size=6, explore=0.34))
    share = float(Fraction(2, 30 - 6 + 2))
    expected = [1.0 if decision == "acquired" else share for decision in selection.decision]
    assert selection.propensity == pytest.approx(expected)


def test_propensity_of_uniform_is_the_share_of_the_pool() -> None:
    """(B - m) / N by the draw and m / (N - B + m) of the rest make B / N together."""
    selection = run(make_forecast(30), make_settings("uniform", batch_size=6, explore=0.34))
    assert selection.propensity == pytest.approx(np.full(30, 6 / 30))


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_selection(name: str) -> None:
    first, second = (run(make_forecast(30), make_settings(name), seed=5) for _ in range(2))
    assert first.decision == second.decision and first.propensity.tobytes() == second.propensity.tobytes()
    assert chosen(first) == chosen(second)


def test_exploration_is_uniform_over_what_was_not_ranked() -> None:
    """Chi-square over 14 candidates: 4000 draws of 2, expected 4000 * 2 / 14 each; 34.5 is the 0.1 % point."""
    forecast, counts = make_forecast(16), np.zeros(16)
    for seed in range(4000):
        counts[
            [i for i, decision in enumerate(run(forecast, make_settings(), seed).decision) if decision == "explored"]
        ] += 1
    ranked = counts == 0
    assert ranked.sum() == 2
    expected = 4000 * 2 / 14
    assert ((counts[~ranked] - expected) ** 2 / expected).sum() < 34.5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 3, 4])
def test_where_all_fit_all_are_chosen_for_certain(name: str, size: int) -> None:
    selection = run(make_forecast(size), make_settings(name, batch_size=4))
    assert selection.decision == ("acquired",) * size
    assert selection.propensity.tolist() == [1.0] * size
    assert sorted(selection.rank) == list(range(size))


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_one_is_all_exploration(name: str) -> None:
    selection = run(make_forecast(10), make_settings(name, batch_size=1, explore=0.05))
    assert decided(selection) == Counter(explored=1, not_chosen=9)
    assert selection.propensity == pytest.approx(np.full(10, 0.1))


@pytest.mark.parametrize("name", NAMES)
def test_no_candidates_make_an_empty_selection(name: str) -> None:
    selection = run(make_forecast(0), make_settings(name))
    assert selection.decision == () and len(selection.rank) == len(selection.propensity) == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_forecast_that_is_not_finite_is_refused_in_one_line(name: str, wrong: float) -> None:
    for field in ("p_success", "p_sd"):
        forecast = make_forecast(6)
        getattr(forecast, field)[2] = wrong
        with pytest.raises(ValueError, match=r"^the forecast of prompt 2 is not finite$"):
            run(forecast, make_settings(name))


def test_rows_are_the_pools_and_positions_the_candidates() -> None:
    pool, rows = make_pool(50), np.arange(10, 40)
    rng = np.random.default_rng(0)
    selection = select(make_forecast(30), rows, pool=pool, previous=rows[:2], settings=make_settings("gps"), rng=rng)
    assert selection.rows is rows and len(selection.decision) == 30


def test_embeddings_are_those_of_the_rows() -> None:
    """A choice among some rows of a pool is the choice among all rows of the pool of those."""
    whole, rows = make_pool(50), np.random.default_rng(2).permutation(50)[:30]
    assert whole.embeddings is not None
    part = Pool(tuple(map(str, rows)), whole.embeddings[rows])
    selections = [
        select(
            make_forecast(30),
            places,
            pool=pool,
            previous=places[:2],
            settings=AcquisitionSettings(batch_size=12, diversity=3.0),
            rng=np.random.default_rng(0),
        )
        for pool, places in ((whole, rows), (part, np.arange(30)))
    ]
    assert selections[0].decision == selections[1].decision
    assert selections[0].diversity.tobytes() == selections[1].diversity.tobytes()


@pytest.mark.parametrize("name", ["gps", "nearest"])
def test_equal_candidates_are_taken_in_order_of_position(name: str) -> None:
    """Thirty duplicates of the best candidate, scattered among 103; a sort or matrix product could shuffle them."""
    p_success = np.full(103, 0.9)
    alike = np.sort(np.random.default_rng(0).choice(103, 30, replace=False))
    p_success[alike] = 0.5
    embeddings = make_pool(103).embeddings
    assert embeddings is not None
    embeddings[alike] = embeddings[alike[0]]
    selection = select(
        Forecast(p_success, np.full(103, 0.1), np.full(103, 1.0)),
        np.arange(103),
        pool=Pool(tuple(map(str, range(103))), embeddings),
        previous=np.arange(3),
        settings=make_settings(name, batch_size=12, explore=0.1),
        rng=np.random.default_rng(0),
    )
    assert chosen(selection)[:11] == alike[:11].tolist()


def test_smallest_keeps_the_order_of_equal_values() -> None:
    values = np.tile([1.0, 0.0], 500)
    assert smallest(values, 600).tolist() == [*range(1, 1000, 2), *range(0, 200, 2)]


def test_what_was_chosen_comes_in_order_of_rank_with_what_was_explored() -> None:
    decisions: tuple[Decision, ...] = ("acquired", "not_chosen", "explored", "acquired")
    nothing = np.zeros(4)
    selection = Selection(np.arange(4), nothing, nothing, nothing, decisions, np.array([1, -1, 2, 0]))
    assert selection.chosen.tolist() == [3, 0, 2]
    assert selection.explored.tolist() == [False, False, True]
