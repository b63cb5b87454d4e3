"""The comparison on prompts held out: nothing of them is learned, and each run begins the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tasks.heldout
from models.difficulty.mean import Mean
from models.records import Floats, Forecast, Ints, Observation, Pool
from models.settings import ForerollSettings, GpSettings, MeanSettings, MoppsSettings, PredictorSettings
from storage.layout import Layout
from storage.past import read_groups
from storage.prompts import prompt_id
from storage.replay import find_steps
from storage.runs import read_run
from storage.store import open_store
from tasks.heldout import Side, forecast_heldout, held_out, judge_heldout
from tasks.promotion import History
from tasks.replay_pool import replay_pool
from tests.storage.small_history import make_prompt
from tests.tasks.past_history import Groups, random_steps, write_past, write_pool

STEPS, GROUPS = 5, 12
TEXTS = [f"what is {one} + {one}?" + " really" * one for one in range(30)]


def make_store(root: Path, runs: dict[str, dict[int, Groups]]) -> Layout:
    layout = open_store(root, create=True)
    write_pool(layout, "toy", TEXTS)
    for year, (name, steps) in enumerate(runs.items(), start=2020):
        write_past(layout, name, steps, created_at=str(year))
    return layout


def make_steps(seed: int) -> dict[int, Groups]:
    return random_steps([prompt_id(make_prompt(text)["messages"]) for text in TEXTS], STEPS, GROUPS, seed=seed)


def swapped(steps: dict[int, Groups], prompts: set[str]) -> dict[int, Groups]:
    """The same with every outcome of these prompts turned round."""
    return {
        step: [(one, [not won for won in wins] if one in prompts else wins) for one, wins in groups]
        for step, groups in steps.items()
    }


def opened(layout: Layout, settings: PredictorSettings) -> tuple[Pool, History]:
    chosen = find_steps(layout)
    records = [record for one in chosen if (record := read_run(layout, one.run))]
    return replay_pool(layout, records, [settings])[0], list(zip(records, chosen, strict=True))


def forecasts(root: Path, settings: PredictorSettings, runs: dict[str, dict[int, Groups]], **past: int) -> Floats:
    layout = make_store(root, runs)
    pool, history = opened(layout, settings)
    side = Side(settings, read_groups(layout, past))
    found: Floats = (
        forecast_heldout(layout, pool, side, history, held_out(pool, 0, 0.4)).column("p_success").astype(float)
    )
    return found


def hidden_prompts(tmp_path: Path) -> set[str]:
    layout = make_store(tmp_path / "hidden", {"a": make_steps(0)})
    pool, _ = opened(layout, MeanSettings())
    return {one for one, out in zip(pool.prompt_ids, held_out(pool, 0, 0.4), strict=True) if out}


@pytest.mark.parametrize("settings", [GpSettings(), ForerollSettings()], ids=lambda one: one.name)
def test_outcomes_of_prompts_held_out_change_no_forecast_and_those_of_others_do(
    tmp_path: Path, settings: PredictorSettings
) -> None:
    runs = {name: make_steps(seed) for seed, name in enumerate("ab")}
    hidden = hidden_prompts(tmp_path)
    others = {prompt for steps in runs.values() for groups in steps.values() for prompt, _ in groups} - hidden
    plain, leak, learned = (
        forecasts(tmp_path / name, settings, changed, a=STEPS)
        for name, changed in {
            "plain": runs,
            "leak": {name: swapped(steps, hidden) for name, steps in runs.items()},
            "learned": {name: swapped(steps, others) for name, steps in runs.items()},
        }.items()
    )
    assert len(plain) > 20
    np.testing.assert_array_equal(leak, plain)
    assert np.abs(learned - plain).max() > 0.01


@pytest.mark.parametrize("settings", [GpSettings(), ForerollSettings()], ids=lambda one: one.name)
def test_every_run_is_walked_from_the_same_beginning(tmp_path: Path, settings: PredictorSettings) -> None:
    first, second = (make_steps(seed) for seed in (0, 1))
    both = forecasts(tmp_path / "both", settings, {"a": first, "b": second}, a=0)
    alone = forecasts(tmp_path / "alone", settings, {"b": second})
    np.testing.assert_array_equal(both[-len(alone) :], alone)


class Watched(Mean):
    """Writes down what it is asked and told."""

    def __init__(self, settings: Any, pool: Pool, *, seed: int) -> None:
        super().__init__(MeanSettings(), pool)
        self.calls: list[tuple[str, list[int]]] = []

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        self.calls.append(("forecast", rows.tolist()))
        return super().forecast(rows, seed=seed)

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        self.calls.append(("observe", observation.rows.tolist()))
        return super().observe(observation, seed=seed)


def test_each_step_is_forecast_before_the_other_prompts_are_learned_and_the_score_is_that_of_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = make_steps(0)
    layout = make_store(tmp_path / "store", {"a": steps})
    pool, history = opened(layout, MeanSettings())
    hidden = held_out(pool, 0, 0.4)

    watched = Watched(None, pool, seed=0)
    monkeypatch.setattr(tasks.heldout, "build_predictor", lambda *_, **__: watched)
    score = judge_heldout(layout, pool, Side(MeanSettings(), read_groups(layout, {})), history, hidden)
    row_of = {one: row for row, one in enumerate(pool.prompt_ids)}
    expected = []
    for step in range(1, STEPS + 1):
        rows = [row_of[prompt] for prompt, _ in steps[step]]
        expected += [("forecast", sorted(row for row in rows if hidden[row]))]
        expected += [("observe", [row for row in rows if not hidden[row]])]
    assert watched.calls == expected
    judged = [wins for groups in steps.values() for prompt, wins in groups if hidden[row_of[prompt]]]
    assert score.groups == len(judged) and score.prompts == len({row for what, rows in expected[::2] for row in rows})
    assert score.nll == pytest.approx(np.log(2))  # an even chance, as of every prompt that it never saw


def test_the_same_prompts_are_held_out_whatever_else_the_pool_holds() -> None:
    names = [f"prompt-{one}" for one in range(20_000)]
    large, small = (held_out(Pool(prompt_ids=tuple(ids)), 3, 0.1) for ids in (names, names[7::5]))
    np.testing.assert_array_equal(large[7::5], small)
    assert abs(large.mean() - 0.1) < 4 * np.sqrt(0.1 * 0.9 / len(names))
    assert not np.array_equal(large, held_out(Pool(prompt_ids=tuple(names)), 4, 0.1))


def test_without_a_held_out_group_there_is_no_score(tmp_path: Path) -> None:
    layout = make_store(tmp_path / "store", {"a": make_steps(0)})
    pool, history = opened(layout, MoppsSettings())
    nobody = np.zeros(len(pool), np.bool_)
    score = judge_heldout(layout, pool, Side(MoppsSettings(), read_groups(layout, {})), history, nobody)
    assert np.isnan(score.nll) and (score.groups, score.prompts) == (0, 0)
