"""A run's logged steps as they are read back, and what another selector makes of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.acquisition import select
from models.acquisition.counterfactual import counterfactual_value
from models.acquisition.rest import Visits
from models.settings import AcquisitionSettings
from storage.errors import StoreError
from storage.history import History
from storage.layout import Layout
from storage.store import open_store
from tasks import counterfactual
from tasks.counterfactual import LoggedStep, considered, judge_step, logged_steps, target_inclusion
from tests.storage.small_history import make_record
from tests.tasks.logged_run import (
    BARE,
    GROUP,
    IDS,
    OVERLONG,
    POOL,
    ROW_OF,
    STEPS,
    Logger,
    forecast_of,
    is_informative,
    settings,
    write_log,
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Layout, Logger]:
    """A run of 14 steps by a rule that ranks."""
    return write_log(tmp_path_factory.mktemp("counterfactual") / "store", settings())


def judge(layout: Layout, logging: AcquisitionSettings, target: AcquisitionSettings):  # type: ignore[no-untyped-def]
    steps = []
    for logged in logged_steps(layout, "logged", ROW_OF):
        rows = considered(logged, logging, target)
        forecast = forecast_of(rows, logged.step)
        steps.append(judge_step(logged, rows, forecast, pool=BARE, settings=target, seed=0, group_size=GROUP))
    return steps


def test_logged_steps_are_what_the_stages_decided_in_the_first_round(log: tuple[Layout, Logger]) -> None:
    layout, logger = log
    steps = list(logged_steps(layout, "logged", ROW_OF))
    assert [logged.step for logged in steps] == list(range(1, STEPS + 1))
    for logged, selection in zip(steps, logger.selections, strict=True):
        assert logged.rows.tolist() == selection.rows.tolist() and logged.rows.min() >= OVERLONG
        assert logged.propensity.tolist() == selection.propensity.tolist()
        assert logged.acquired.tolist() == (selection.rank >= 0).tolist()
        assert logged.forecast.p_success.tolist() == forecast_of(logged.rows, logged.step).p_success.tolist()
        expected = [float(is_informative(row, logged.step)) for row in logged.rows[logged.acquired]]
        assert logged.informative[logged.acquired].tolist() == expected
        assert np.isnan(logged.informative[~logged.acquired]).all()
        assert logged.previous.tolist() == logger.batches[logged.step - 1].tolist()


def test_visits_count_every_round_of_the_steps_before(log: tuple[Layout, Logger]) -> None:
    layout, logger = log
    assert len(logger.batches[5]) == 16
    for logged in logged_steps(layout, "logged", ROW_OF):
        visits = Visits.none(POOL)
        for batch in logger.batches[1 : logged.step]:
            visits.add(batch)
        assert logged.visits.through == logged.step - 1
        assert logged.visits.last.tolist() == visits.last.tolist()
        assert logged.visits.count.tolist() == visits.count.tolist()


def test_blocks_of_steps_read_as_all_at_once(log: tuple[Layout, Logger], monkeypatch: pytest.MonkeyPatch) -> None:
    layout, _ = log
    whole = list(logged_steps(layout, "logged", ROW_OF))
    monkeypatch.setattr(counterfactual, "BLOCK", 200)
    parts = list(logged_steps(layout, "logged", ROW_OF))
    assert [one.step for one in parts] == [one.step for one in whole]
    for one, other in zip(parts, whole, strict=True):
        assert np.array_equal(one.informative, other.informative, equal_nan=True)
        assert one.previous.tolist() == other.previous.tolist()
        assert one.visits.last.tolist() == other.visits.last.tolist()


def test_blocks_hold_as_many_steps_as_fit_and_one_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counterfactual, "BLOCK", 10)
    counts = [(2, 4), (3, 6), (5, 1), (6, 30), (7, 9), (8, 2)]
    assert list(counterfactual.blocks(counts)) == [(2, 3), (5, 5), (6, 6), (7, 7), (8, 8)]
    assert list(counterfactual.blocks([])) == []


def test_a_selector_judged_by_its_own_log_got_what_the_log_says(log: tuple[Layout, Logger]) -> None:
    """Every weight is 1, so that both estimates are the plain share of informative groups in first rounds."""
    layout, logger = log
    value = counterfactual_value(judge(layout, settings(), settings()))
    seen = [
        is_informative(row, step)
        for step, selection in enumerate(logger.selections, start=1)
        for row in selection.rows[selection.rank >= 0]
    ]
    assert value.groups == pytest.approx(len(seen))
    assert value.snips is not None and value.snips.value == pytest.approx(np.mean(seen))


def test_another_rule_is_weighed_by_its_chance_against_the_logged_propensity(log: tuple[Layout, Logger]) -> None:
    """The ranks of `informative` equal those of `nearest` here, so 7 of 8 are ranked, 4 of them by the log as well."""
    layout, _ = log
    target = settings("informative", explore=0.125)
    for logged, sums in zip(logged_steps(layout, "logged", ROW_OF), judge(layout, settings(), target), strict=True):
        count = len(logged.rows)
        by_rank = np.argsort(np.abs(logged.forecast.p_success - 0.5), kind="stable")
        ranked = np.isin(np.arange(count), by_rank[:7])
        chance = np.where(ranked, 1.0, 1 / (count - 7))
        weight = np.where(logged.acquired, chance / logged.propensity, 0.0)
        assert logged.propensity[by_rank[:4]].tolist() == [1.0] * 4
        assert sums.weight == pytest.approx(weight.sum())
        assert sums.gained == pytest.approx(np.nansum(weight * logged.informative))
        assert sums.size == pytest.approx(8.0)


def test_longer_rest_leaves_out_candidates_and_shorter_rest_is_refused(log: tuple[Layout, Logger]) -> None:
    layout, logger = log
    logged = list(logged_steps(layout, "logged", ROW_OF))[6]
    longer = considered(logged, settings(), settings(cooldown=3))
    assert set(logged.rows) - set(longer) == set(logger.batches[4]) and set(longer) < set(logged.rows)
    shorter = considered(logged, settings(), settings(cooldown=1))
    assert set(shorter) - set(logged.rows) == set(logger.batches[5]) - set(logger.batches[6])
    assert set(logged.rows) < set(shorter) and min(shorter) >= OVERLONG
    refusal = counterfactual_value(judge(layout, settings(), settings(cooldown=1))).refusal
    assert "could not have acquired (propensity 0)" in refusal
    assert considered(logged, settings(), settings("thompson", explore=0.1)) is logged.rows


def test_inclusion_is_how_often_a_selector_acquires() -> None:
    rows = np.arange(POOL)
    for name in ("nearest", "thompson", "greso"):
        target = settings(name, explore=0.2)
        common: dict[str, Any] = {"pool": BARE, "previous": rows[:0], "settings": target, "group_size": GROUP}
        draws = range(600)
        inclusion = np.mean(
            [target_inclusion(forecast_of(rows, 1), rows, rng=np.random.default_rng(i), **common) for i in draws[:50]],
            axis=0,
        )
        taken = [
            select(forecast_of(rows, 1), rows, rng=np.random.default_rng(1000 + i), **common).rank >= 0 for i in draws
        ]
        assert inclusion.sum() == pytest.approx(8.0, abs=0.4)
        assert np.mean(taken, axis=0) == pytest.approx(inclusion, abs=4.5 * 0.5 / 600**0.5)


def test_the_same_seed_judges_alike(log: tuple[Layout, Logger]) -> None:
    layout, _ = log
    target = settings("thompson")
    assert judge(layout, settings(), target) == judge(layout, settings(), target)


def test_a_prompt_that_is_not_in_the_pool_is_named(log: tuple[Layout, Logger]) -> None:
    layout, _ = log
    without = {prompt_id: row for prompt_id, row in ROW_OF.items() if row != 40}
    with pytest.raises(StoreError, match=f"run logged considered prompt {IDS[40]}, which is not in the pool"):
        list(logged_steps(layout, "logged", without))


def test_a_run_without_logged_selections_has_no_steps_and_no_value(tmp_path: Path) -> None:
    layout = open_store(tmp_path / "store", create=True)
    history = History(layout, "imported")
    history.write("evaluations", 1, {"prompts": [], "prompt_id": [], "samples": [], "successes": [], "tokens": []})
    history.commit(1, make_record(1))
    steps: list[LoggedStep] = list(logged_steps(layout, "imported", ROW_OF))
    assert steps == []
    assert counterfactual_value([]).refusal
