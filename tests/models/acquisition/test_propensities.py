"""Every rule, with and without a retention test: what is stated is how often a prompt is chosen."""

from collections import Counter

import numpy as np
import pytest

from models.acquisition import RULES
from models.acquisition.base import Candidates, choose
from models.acquisition.retention import withhold
from models.records import Floats, Forecast, Selection
from models.settings import AcquisitionSettings

SEEDS, SIZE = 1500, 20
DRAWING = {"band", "boltzmann", "greso", "thompson", "uniform"}


def make_candidates(p_success: Floats | None = None) -> Candidates:
    rng = np.random.default_rng(1)
    embeddings = rng.standard_normal((SIZE, 4)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    mean = np.linspace(0.05, 0.98, SIZE) if p_success is None else p_success
    return Candidates(Forecast(mean, np.full(SIZE, 0.1), rng.uniform(10, 90, SIZE)), embeddings, embeddings[:3])


def make_settings(name: str, **changes: float) -> AcquisitionSettings:
    return AcquisitionSettings(name=name, batch_size=6, explore=0.34, **changes)  # type: ignore[arg-type]


def run(candidates: Candidates, settings: AcquisitionSettings, seed: int) -> Selection:
    return choose(RULES[settings.name], candidates, np.arange(SIZE), settings, np.random.default_rng(seed))


@pytest.mark.parametrize(("name", "scan"), [*((name, 0) for name in sorted(RULES)), ("band", 8)])
@pytest.mark.parametrize("retain", [0.0, 0.2])
def test_propensity_is_the_frequency_and_its_inverse_an_unbiased_weight(name: str, scan: int, retain: float) -> None:
    candidates, settings = make_candidates(), make_settings(name, retain=retain, retain_above=0.7, scan=scan)
    values = np.random.default_rng(9).uniform(size=SIZE) + np.arange(SIZE)
    counts, stated, totals = np.zeros(SIZE), np.zeros(SIZE), np.zeros(SEEDS)
    for seed in range(SEEDS):
        selection = run(candidates, settings, seed)
        taken = selection.rank >= 0
        assert taken.sum() == 6
        counts += taken
        stated += selection.propensity
        totals[seed] = (values[taken] / selection.propensity[taken]).sum()
    assert counts / SEEDS == pytest.approx(stated / SEEDS, abs=4 * 0.5 / SEEDS**0.5)
    assert totals.mean() == pytest.approx(values.sum(), abs=4 * totals.std() / SEEDS**0.5)
    if name not in DRAWING:
        assert selection.propensity == pytest.approx(stated / SEEDS)  # the same whatever was drawn


@pytest.mark.parametrize("name", sorted(RULES))
def test_the_retention_test_draws_easy_prompts_and_the_rule_takes_none(name: str) -> None:
    candidates, settings = make_candidates(), make_settings(name, retain=0.2, retain_above=0.7)
    easy = candidates.forecast.p_success >= 0.7
    tested = Counter[int]()
    for seed in range(300):
        selection = run(candidates, settings, seed)
        by_rank = np.argsort(selection.rank)[-6:]
        assert [selection.decision[position] for position in by_rank] == ["acquired"] * 3 + ["explored"] * 3
        assert not easy[by_rank[:3]].any()
        tested[int(by_rank[3])] += 1
        words = {selection.decision[position] for position in np.flatnonzero(easy & (selection.rank < 0))}
        assert words == {"too_easy"}
    assert set(tested) == set(np.flatnonzero(easy).tolist())


def test_propensity_of_an_easy_prompt_is_that_of_the_test_or_else_of_exploration() -> None:
    """6 easy of 20; 1 of 6 slots tests, 2 explore: 1/6 + 5/6 * 2 / (20 - 6 + 2)."""
    selection = run(make_candidates(), make_settings("nearest", retain=0.2, retain_above=0.7), seed=0)
    easy = make_candidates().forecast.p_success >= 0.7
    assert easy.sum() == 6
    assert selection.propensity[easy] == pytest.approx(np.full(6, 1 / 6 + 5 / 6 * 2 / 16))


@pytest.mark.parametrize("name", sorted(RULES))
def test_in_a_pool_of_easy_prompts_the_rule_chooses_among_the_least_easy(name: str) -> None:
    candidates = make_candidates(np.linspace(0.91, 0.99, SIZE))
    selection = run(candidates, make_settings(name, retain=0.2), seed=0)
    assert (selection.rank >= 0).sum() == 6
    acquired = [position for position, word in enumerate(selection.decision) if word == "acquired"]
    assert sorted(acquired)[-1] <= 3 and (selection.propensity > 0).all()


@pytest.mark.parametrize("name", sorted(RULES))
def test_without_easy_prompts_nothing_is_tested(name: str) -> None:
    candidates = make_candidates(np.linspace(0.1, 0.5, SIZE))
    with_test, without = (run(candidates, make_settings(name, retain=retain), seed=0) for retain in (0.2, 0.0))
    assert with_test.decision == without.decision
    assert with_test.propensity.tobytes() == without.propensity.tobytes()


def test_the_easiest_are_withheld_when_not_all_can_be() -> None:
    p_success = np.array([0.95, 0.5, 0.9, 0.99, 0.91])
    assert withhold(p_success, 0.9, 9).tolist() == [0, 2, 3, 4]
    assert withhold(p_success, 0.9, 2).tolist() == [0, 3]
    assert withhold(p_success, 0.9, 0).tolist() == []
