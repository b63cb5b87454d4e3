"""A run's logged steps as they are read back, and what another selector makes of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.acquisition import select
from models.acquisition.counterfactual import counterfactual_value
from models.acquisition.rest import Visits, candidates_wanted, rested
from models.records import Decision, Forecast, Ints, Pool, Selection
from models.settings import AcquisitionSettings
from storage.errors import StoreError
from storage.history import History
from storage.layout import Layout
from storage.store import open_store
from tasks import counterfactual
from tasks.counterfactual import LoggedStep, considered, judge_step, logged_steps, target_inclusion
from tests.storage.small_history import make_record, write_updates

POOL, OVERLONG, STEPS, GROUP = 60, 3, 14, 4
IDS = tuple(f"{row:032x}" for row in range(POOL))
ROW_OF = {prompt_id: row for row, prompt_id in enumerate(IDS)}
BARE = Pool(IDS)


def settings(name: str = "nearest", **changes: Any) -> AcquisitionSettings:
    return AcquisitionSettings(name=name, **{"batch_size": 8, "explore": 0.5, "cooldown": 2, **changes})  # type: ignore[arg-type]


def forecast_of(rows: Ints, step: int) -> Forecast:
    """Some forecast of each prompt in each step, as it is after being stored in single precision."""
    p = np.random.default_rng(step).uniform(0.05, 0.95, POOL)[rows].astype(np.float32).astype(np.float64)
    return Forecast(p, np.full(len(rows), 0.125), np.full(len(rows), np.nan))


def is_informative(row: int, step: int) -> bool:
    return (row * 7 + step) % 3 > 0


class Logger:
    """Writes a run as the stages do: prompts below OVERLONG do not fit; step 5 has a second round."""

    def __init__(self, layout: Layout, logging: AcquisitionSettings) -> None:
        self.history, self.settings = History(layout, "logged"), logging
        self.visits, self.batches = Visits.none(POOL), [np.empty(0, np.int64)]
        self.selections: list[Selection] = []

    def write(self) -> None:
        for step in range(1, STEPS + 1):
            wanted = candidates_wanted(self.settings, 1) + OVERLONG
            rows = rested(self.visits, wanted, self.settings)
            self._write_forecasts(step, rows)
            batch = self._write_round(step, 0, rows[rows >= OVERLONG], rows[rows < OVERLONG])
            if step == 5:
                left = np.setdiff1d(rows[rows >= OVERLONG], batch)
                batch = np.concatenate([batch, self._write_round(step, 1, left, rows[:0])])
            write_updates(self.history, step)
            self.history.commit(step, {**make_record(step), "candidates": len(rows)})
            self.batches.append(batch)
            self.visits.add(batch)

    def _write_forecasts(self, step: int, rows: Ints) -> None:
        forecast = forecast_of(rows, step)
        columns = {"prompt_id": [IDS[row] for row in rows], "p_success": forecast.p_success, "p_sd": forecast.p_sd}
        self.history.write("forecasts", step, {**columns, "expected_tokens": [None] * len(rows)}, predictor="mopps")

    def _write_round(self, step: int, round_: int, rows: Ints, overlong: Ints) -> Ints:
        selection = select(
            forecast_of(rows, step), rows, pool=BARE, previous=self.batches[-1], settings=self.settings,
            rng=np.random.default_rng(100 * step + round_), group_size=GROUP,
        )  # fmt: skip
        if round_ == 0:
            self.selections.append(selection)
        too_long: list[Decision] = ["too_long"] * len(overlong)
        count = len(rows) + len(overlong)
        columns = {
            "prompt_id": [IDS[row] for row in (*rows, *overlong)],
            "utility": [0.0] * count,
            "diversity": [None] * count,
            "propensity": [*selection.propensity, *[0.0] * len(overlong)],
            "decision": [*selection.decision, *too_long],
            "rank": [*[None if rank < 0 else rank for rank in selection.rank], *[None] * len(overlong)],
        }
        self.history.write("acquisitions", step, columns, round_, round=round_)
        batch: Ints = rows[np.argsort(selection.rank)[-int((selection.rank >= 0).sum()) :]]
        self._write_outcomes(step, round_, batch)
        return batch

    def _write_outcomes(self, step: int, round_: int, batch: Ints) -> None:
        prompts = [int(row) for row in batch for _ in range(GROUP)]
        samples = list(range(GROUP)) * len(batch)
        keys = {"group_id": [f"{step}-{row}" for row in prompts], "sample": samples}
        empty = {"response": "", "finish_reason": "stop", "sampling": "{}", "prompt_tokens": 2, "response_tokens": 3}
        constants = {"round": round_, "attempt": 0, "policy_version": 0, "engine": "toy"}
        rollouts = {name: [value] * len(prompts) for name, value in empty.items()}
        self.history.write(
            "rollouts", step, {**keys, "prompt_id": [IDS[row] for row in prompts], **rollouts}, round_, **constants
        )
        success = [sample > 0 or not is_informative(row, step) for row, sample in zip(prompts, samples, strict=True)]
        words = {"reward_status": "ok", "reward_parts": "{}", "admitted": True, "reject_reason": None}
        rewards = {name: [value] * len(prompts) for name, value in words.items()}
        self.history.write(
            "rewards",
            step,
            {**keys, "reward": [1.0] * len(prompts), "success": success, **rewards},
            round_,
            round=round_,
        )


def write_log(path: Path, logging: AcquisitionSettings) -> tuple[Layout, Logger]:
    layout = open_store(path, create=True)
    logger = Logger(layout, logging)
    logger.write()
    return layout, logger


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
