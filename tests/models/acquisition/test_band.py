"""The band filter: what is kept, what fills up, what is said of the others, and inclusion by brute force."""

import numpy as np
import pytest

from models.acquisition.band import band
from models.acquisition.base import Candidates, choose
from models.records import Floats, Forecast, Ranking
from models.settings import AcquisitionSettings

SEEDS = 4000


def make_candidates(p_success: list[float] | Floats) -> Candidates:
    mean = np.array(p_success, dtype=np.float64)
    return Candidates(Forecast(mean, np.full(len(mean), 0.1), np.full(len(mean), 1.0)), None, None)


def run(p_success: list[float] | Floats, slots: int, seed: int = 0, **settings: float) -> Ranking:
    chosen = AcquisitionSettings(name="band", **settings)  # type: ignore[arg-type]
    return band(make_candidates(p_success), slots, chosen, np.random.default_rng(seed))


def test_candidates_inside_the_band_are_taken_in_a_random_order() -> None:
    """4000 draws of 3 of the 6 inside, edges included; 20.5 is the 0.1 % point of chi-square with 5 degrees."""
    p_success = [0.15, 0.3, 0.5, 0.6, 0.7, 0.85, 0.1499, 0.8501, 0.0, 1.0]
    counts = np.zeros(10)
    for seed in range(SEEDS):
        counts[run(p_success, 3, seed).chosen] += 1
    assert counts[6:].tolist() == [0.0] * 4
    assert ((counts[:6] - SEEDS / 2) ** 2 / (SEEDS / 2)).sum() < 20.5


def test_those_nearest_to_the_band_fill_up() -> None:
    ranking = run([0.9, 0.05, 0.5, 0.99, 0.12, 0.86], 4)
    assert ranking.chosen.tolist() == [2, 5, 4, 0]
    assert ranking.utility == pytest.approx([-0.05, -0.1, 0.0, -0.14, -0.03, -0.01])


def test_those_left_out_for_their_forecast_are_too_easy_or_too_hard() -> None:
    candidates = make_candidates([0.9, 0.05, 0.5, 0.99, 0.12, 0.6, 0.4, 0.3])
    settings = AcquisitionSettings(name="band", batch_size=3, explore=0.3)
    selection = choose(band, candidates, np.arange(8), settings, np.random.default_rng(4))
    for position, word in enumerate(selection.decision):
        if word not in ("acquired", "explored"):
            assert word == {0: "too_easy", 1: "too_hard", 3: "too_easy", 4: "too_hard"}.get(position, "not_chosen")
    assert selection.decision.count("acquired") == 2 and selection.decision.count("explored") == 1


def test_no_more_than_the_scan_is_looked_at_unless_slots_want_it() -> None:
    p_success = np.tile([0.5, 0.99], 50)
    for seed in range(20):
        ranking = run(p_success, 3, seed, scan=10)
        assert ranking.side is not None
        order = np.random.default_rng(seed).permutation(100)
        seen = order[:10]
        inside = [position for position in seen if position % 2 == 0]
        assert ranking.chosen[: len(inside)].tolist() == inside[:3]
        assert np.flatnonzero(ranking.side).tolist() == sorted(position for position in seen if position % 2)
    assert len(run(p_success, 30, scan=10).chosen) == 30


def test_inclusion_without_a_limit_is_the_share_of_those_inside() -> None:
    ranking = run([0.2, 0.4, 0.6, 0.8, 0.9, 0.05], 3)
    assert ranking.inclusion is not None and ranking.inclusion.tolist() == [0.75] * 4 + [0.0, 0.0]
    ranking = run([0.2, 0.4, 0.95, 0.9, 0.9, 0.9], 4)
    assert ranking.inclusion is not None
    assert ranking.inclusion == pytest.approx([1.0, 1.0, 0.0, 2 / 3, 2 / 3, 2 / 3])


CASES = {
    "enough inside": (np.linspace(0.0, 1.0, 24), 0),
    "too few inside": (np.linspace(0.8, 1.0, 24), 0),
    "ties outside": (np.repeat([0.5, 0.9, 0.95], 8), 0),
    "scan of 12": (np.linspace(0.0, 1.0, 24), 12),
    "scan as small as the slots": (np.linspace(0.0, 1.0, 24), 1),
    "scan of ties": (np.repeat([0.5, 0.9, 0.95], 8), 15),
}


@pytest.mark.parametrize(("p_success", "scan"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("slots", [1, 6])
def test_inclusion_is_the_frequency_and_its_inverse_an_unbiased_weight(
    p_success: Floats, scan: int, slots: int
) -> None:
    values, size = np.random.default_rng(9).uniform(size=24), 24
    counts, stated, totals = np.zeros(size), np.zeros(size), np.zeros(SEEDS)
    possible = np.zeros(size, np.bool_)
    for seed in range(SEEDS):
        ranking = run(p_success, slots, seed, scan=scan)
        assert ranking.inclusion is not None and len(set(ranking.chosen.tolist())) == slots
        counts[ranking.chosen] += 1
        stated += ranking.inclusion
        possible |= ranking.inclusion > 0.0
        totals[seed] = (values[ranking.chosen] / ranking.inclusion[ranking.chosen]).sum()
    assert counts / SEEDS == pytest.approx(stated / SEEDS, abs=4 * 0.5 / SEEDS**0.5)
    if scan == 0:
        assert totals.mean() == pytest.approx(values[possible].sum(), abs=4 * totals.std() / SEEDS**0.5 + 1e-9)
