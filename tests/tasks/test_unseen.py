"""The comparison on what is unseen: no outcome of prompts held out is learned, and none of a run before its steps."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tasks.offline
import tasks.unseen
from models.difficulty.mean import Mean
from models.records import Floats, Forecast, Ints, Observation, Pool
from models.settings import ForerollSettings, GpSettings, MeanSettings, MoppsSettings, PredictorSettings
from storage.layout import Layout
from storage.past import read_groups
from storage.prompts import prompt_id
from storage.replay import find_steps
from storage.runs import read_run
from storage.store import open_store
from tasks.replay_pool import replay_pool
from tasks.unseen import JUDGED, Replayed, Side, forecast_unseen, held_out, judge_unseen
from tests.storage.small_history import make_prompt
from tests.tasks.past_history import Groups, random_steps, write_past, write_pool

STEPS, GROUPS = 5, 12
TEXTS = [f"what is {one} + {one}?" + " really" * one for one in range(30)]
IDS = [prompt_id(make_prompt(text)["messages"]) for text in TEXTS]


def make_store(root: Path, runs: dict[str, dict[int, Groups]]) -> Layout:
    layout = open_store(root, create=True)
    write_pool(layout, "toy", TEXTS)
    for year, (name, steps) in enumerate(runs.items(), start=2020):
        write_past(layout, name, steps, created_at=str(year))
    return layout


def make_steps(seed: int) -> dict[int, Groups]:
    return random_steps(IDS, STEPS, GROUPS, seed=seed)


def swapped(steps: dict[int, Groups], prompts: set[str]) -> dict[int, Groups]:
    """The same with every outcome of these prompts turned round."""
    return {
        step: [(one, [not won for won in wins] if one in prompts else wins) for one, wins in groups]
        for step, groups in steps.items()
    }


def opened(layout: Layout, settings: PredictorSettings) -> tuple[Pool, Replayed]:
    chosen = find_steps(layout)
    records = [record for one in chosen if (record := read_run(layout, one.run))]
    return replay_pool(layout, records, [settings])[0], list(zip(records, chosen, strict=True))


def forecasts(root: Path, settings: PredictorSettings, runs: dict[str, dict[int, Groups]], **past: int) -> Floats:
    """Of the groups held out in all runs, by one who begins with these steps of past runs."""
    layout = make_store(root, runs)
    pool, replayed = opened(layout, settings)
    side = Side(settings, read_groups(layout, past), ["toy"])
    judged = forecast_unseen(layout, pool, side, replayed, held_out(pool, 0, 0.4))
    return judged.column("p_success").astype(np.float64)


def hidden_prompts() -> set[str]:
    pool = Pool(prompt_ids=tuple(IDS))
    return {one for one, out in zip(IDS, held_out(pool, 0, 0.4), strict=True) if out}


READERS = pytest.mark.parametrize("settings", [GpSettings(), ForerollSettings()], ids=lambda one: one.name)
"""One that carries a state, and one that reads the past."""


@READERS
def test_outcomes_of_prompts_held_out_change_no_forecast_and_those_of_others_do(
    tmp_path: Path, settings: PredictorSettings
) -> None:
    runs = {name: make_steps(seed) for seed, name in enumerate("ab")}
    hidden = hidden_prompts()
    changes = {"plain": set(), "leak": hidden, "learned": set(IDS) - hidden}
    plain, leak, learned = (
        forecasts(tmp_path / name, settings, {run: swapped(steps, which) for run, steps in runs.items()}, a=STEPS)
        for name, which in changes.items()
    )
    assert len(plain) > 20
    np.testing.assert_array_equal(leak, plain)
    assert np.abs(learned - plain).max() > 0.01


@READERS
def test_a_run_begins_with_what_is_known_of_others_and_nothing_of_itself(
    tmp_path: Path, settings: PredictorSettings
) -> None:
    first, second = (make_steps(seed) for seed in (0, 1))
    runs = {"a": first, "b": second}
    nothing, of_a, of_both = (
        forecasts(tmp_path / name, settings, runs, **past)
        for name, past in (("nothing", {}), ("a", {"a": STEPS}), ("both", {"a": STEPS, "b": STEPS}))
    )
    of_first = sum(prompt in hidden_prompts() for groups in first.values() for prompt, _ in groups)
    np.testing.assert_array_equal(of_a[:of_first], nothing[:of_first])
    np.testing.assert_array_equal(of_both[of_first:], of_a[of_first:])
    opening = slice(of_first, of_first + sum(prompt in hidden_prompts() for prompt, _ in second[1]))
    assert np.abs(of_a[opening] - nothing[opening]).max() > 0.01


def test_the_newest_runs_are_judged(tmp_path: Path) -> None:
    runs = {f"run-{number}": make_steps(number) for number in range(JUDGED + 2)}
    all_of_them = forecasts(tmp_path / "all", MoppsSettings(), runs)
    newest = forecasts(tmp_path / "newest", MoppsSettings(), dict(list(runs.items())[2:]))
    np.testing.assert_array_equal(all_of_them, newest)


class Watched(Mean):
    """Writes down what it is asked and told."""

    def __init__(self, settings: Any, pool: Pool, *, seed: int) -> None:
        super().__init__(MeanSettings(), pool)
        self.calls: list[tuple[str, list[int], int]] = []

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        self.calls.append(("forecast", rows.tolist(), seed))
        p = 0.1 + 0.8 * rows / 30
        return Forecast(p, np.zeros(len(rows)), np.zeros(len(rows)))

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        self.calls.append(("observe", observation.rows.tolist(), seed))
        return super().observe(observation, seed=seed)


def test_each_step_is_forecast_before_it_is_learned_and_the_score_is_that_of_a_weighted_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = make_steps(0)
    layout = make_store(tmp_path / "store", {"a": steps})
    pool, replayed = opened(layout, MeanSettings())
    hidden = held_out(pool, 0, 0.4)
    row_of = {one: row for row, one in enumerate(pool.prompt_ids)}
    monkeypatch.setattr(
        tasks.unseen,
        "group_weights",
        lambda groups: np.array([row_of[one] % 3 for one in groups["prompt_id"].to_pylist()]),
    )
    watched = Watched(None, pool, seed=0)
    monkeypatch.setattr(tasks.offline, "build_predictor", lambda *_, **__: watched)
    score = judge_unseen(layout, Side(MeanSettings(), read_groups(layout, {}), []), replayed, 0, 0.4)
    expected, total, weights, judged = [], 0.0, 0.0, []
    for step in range(1, STEPS + 1):
        rows = [row_of[prompt] for prompt, _ in steps[step]]
        expected += [("forecast", sorted(row for row in rows if hidden[row] and row % 3))]
        expected += [("observe", [row for row in rows if not hidden[row]])]
        for row, (_, wins) in zip(rows, steps[step], strict=True):
            if hidden[row] and row % 3:
                judged.append(row)
                p = 0.1 + 0.8 * row / 30
                total -= row % 3 * sum(np.log(p) if won else np.log(1 - p) for won in wins)
                weights += row % 3 * len(wins)
    assert [call[:2] for call in watched.calls] == expected
    assert len({seed for _, _, seed in watched.calls}) == 2 * STEPS
    assert (score.groups, len(score.losses)) == (len(judged), len(set(judged)))
    assert score.score == pytest.approx(total / weights)


def test_a_side_keeps_what_it_learned_of_prompts_that_the_runs_do_not_have(tmp_path: Path) -> None:
    layout = make_store(tmp_path / "store", {"a": make_steps(0)})
    others = write_pool(layout, "others", [f"{text} or not?" for text in TEXTS])
    write_past(
        layout, "elsewhere", random_steps(others, STEPS, GROUPS, ability=2.0), dataset="others", created_at="2019"
    )
    groups = read_groups(layout, {"elsewhere": STEPS})
    runs = [one for one in opened(layout, GpSettings())[1] if one[0].run == "a"]
    told, untold = (
        judge_unseen(layout, Side(GpSettings(), groups, datasets), runs, 0, 0.4).score for datasets in (["others"], [])
    )
    assert abs(told - untold) > 0.001
    gone = judge_unseen(layout, Side(GpSettings(), groups, ["gone"]), runs, 0, 0.4).score
    assert gone == untold


def test_the_same_prompts_are_held_out_whatever_else_the_pool_holds() -> None:
    names = [f"prompt-{one}" for one in range(20_000)]
    large, small = (held_out(Pool(prompt_ids=tuple(ids)), 3, 0.1) for ids in (names, names[7::5]))
    np.testing.assert_array_equal(large[7::5], small)
    assert abs(large.mean() - 0.1) < 4 * np.sqrt(0.1 * 0.9 / len(names))
    assert not np.array_equal(large, held_out(Pool(prompt_ids=tuple(names)), 4, 0.1))


def test_without_a_held_out_group_there_is_no_score(tmp_path: Path) -> None:
    layout = make_store(tmp_path / "store", {"a": make_steps(0)})
    side = Side(MoppsSettings(), read_groups(layout, {}), [])
    score = judge_unseen(layout, side, opened(layout, MoppsSettings())[1], 0, 0.0)
    assert np.isnan(score.score) and score.groups == 0
