"""The walk over a history: its order, what predictors are given of the past, and what is left out."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tasks.walk
from models.difficulty.mean import Mean
from models.errors import ModelError
from models.records import Forecast, Ints, Observation, Pool
from models.settings import (
    DepoSettings,
    ForerollSettings,
    MeanSettings,
    MoppsSettings,
    PclSettings,
    PredictorSettings,
    SecSettings,
)
from storage.catalog import query
from storage.errors import StoreError
from storage.layout import Layout
from storage.past import read_groups
from storage.prompts import read_dataset, write_dataset
from storage.runs import write_run
from storage.store import open_store
from tasks.leaderboard import ReplayReport
from tasks.past import past_runs
from tasks.replay import replay_history
from tasks.replay_plan import ReplayPlan
from tests.storage.small_history import make_history, make_prompt, make_run
from tests.tasks.logged_run import GROUP, POOL, Logger
from tests.tasks.logged_run import settings as logged_settings
from tests.tasks.past_history import random_steps, write_past, write_pool

TEXTS = [f"what is {one} + {one + 1}?" for one in range(12)]
STEPS, GROUPS = 5, 6


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Two runs on one pool of twelve prompts."""
    layout = open_store(tmp_path / "store", create=True)
    ids = write_pool(layout, "toy", TEXTS)
    for number, run in enumerate(("first", "second")):
        created = f"2025-01-0{number + 1}T00:00:00.000+00:00"
        write_past(layout, run, random_steps(ids, STEPS, GROUPS, seed=number), created_at=created)
    return layout


def replayed(layout: Layout, *predictors: PredictorSettings, **changes: Any) -> ReplayReport:
    named = {settings.name: settings for settings in predictors or (MeanSettings(),)}
    return replay_history(ReplayPlan(store=layout.root, predictors=named, **changes))


class Watched(Mean):
    """Writes down everything that it is given, and the pool it was built for."""

    def __init__(self, settings: Any, pool: Pool, *, seed: int) -> None:
        super().__init__(MeanSettings(), pool)
        self.pool, self.seed, self.calls = pool, seed, []

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        self.calls.append(("forecast", rows.tolist(), seed))
        return super().forecast(rows, seed=seed)

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        self.calls.append(("observe", sorted(observation.rows.tolist()), seed))
        return super().observe(observation, seed=seed)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Watched]:
    """Every predictor that a walk builds."""
    made: list[Watched] = []

    def build(settings: PredictorSettings, pool: Pool, *, seed: int) -> Watched:
        made.append(Watched(settings, pool, seed=seed))
        return made[-1]

    monkeypatch.setattr(tasks.walk, "build_predictor", build)
    return made


def test_each_step_is_forecast_before_it_is_observed_and_once(layout: Layout, built: list[Watched]) -> None:
    report = replayed(layout, runs="first")
    assert [kind for kind, _, _ in built[0].calls] == ["forecast", "observe"] * STEPS
    assert all(one[1] == other[1] for one, other in zip(built[0].calls[::2], built[0].calls[1::2], strict=True))
    assert len({seed for _, _, seed in built[0].calls}) == 2 * STEPS
    assert (report.groups, report.runs) == (STEPS * GROUPS, {"first": STEPS})


def test_scores_are_those_of_a_loop_over_the_history(layout: Layout) -> None:
    report = replayed(layout)
    ids = read_dataset(layout, "toy")["prompt_id"].to_pylist()
    seen: dict[str, list[tuple[int, int]]] = {one: [] for one in ids}
    errors, rollouts = 0.0, 0
    groups = read_groups(layout, {"first": STEPS, "second": STEPS}).to_pylist()
    for key in dict.fromkeys((row["run_id"], row["step"]) for row in groups):
        step = [row for row in groups if (row["run_id"], row["step"]) == key]
        for row in step:
            latest = seen[row["prompt_id"]][-5:]
            p = (1 + sum(s for s, _ in latest)) / (2 + sum(n for _, n in latest))
            errors += row["successes"] * (1 - p) ** 2 + (row["valid"] - row["successes"]) * p**2
            rollouts += row["valid"]
        for row in step:
            seen[row["prompt_id"]].append((row["successes"], row["valid"]))
    assert report.lines[0].scores["candidates"]["brier"].value == pytest.approx(errors / rollouts, rel=1e-5)


def test_one_that_reads_the_past_begins_anew_with_each_run_and_sees_earlier_ones_alone(
    layout: Layout, built: list[Watched]
) -> None:
    replayed(layout, ForerollSettings())
    assert len(built) == 2 and built[0].pool.past is not None and len(built[0].pool.past) == 0
    expected = past_runs(read_groups(layout, {"first": STEPS}), built[1].pool.prompt_ids)
    assert built[1].pool.past is not None
    for name in ("run", "step", "row", "successes", "valid", "mean_tokens"):
        assert getattr(built[1].pool.past, name).tolist() == getattr(expected, name).tolist()
    assert built[1].pool.texts == tuple(TEXTS) and built[1].pool.embeddings is not None


@pytest.mark.parametrize(("past", "size"), [("none", 0), ("fir*, other", STEPS * GROUPS), ("second", 0)])
def test_the_setting_says_which_past_runs_are_read(layout: Layout, built: list[Watched], past: str, size: int) -> None:
    replayed(layout, ForerollSettings(past=past))
    assert built[1].pool.past is not None and len(built[1].pool.past) == size


def test_others_carry_on_from_run_to_run(layout: Layout, built: list[Watched]) -> None:
    replayed(layout, MoppsSettings())
    assert len(built) == 1 and len(built[0].calls) == 4 * STEPS


class Cheat(Mean):
    """Reads the outcomes of the coming step where they are stored."""

    layout: Layout

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        groups = past_runs(read_groups(self.layout, {"first": STEPS}), self._pool.prompt_ids)
        self._successes[groups.row, 0] = groups.successes
        return super().forecast(rows, seed=seed)


def test_a_predictor_that_takes_outcomes_from_the_store_is_caught(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cheat.layout = layout
    monkeypatch.setattr(tasks.walk, "build_predictor", lambda settings, pool, seed: Cheat(settings, pool))
    with pytest.raises(ModelError, match="predictor mean changed while it forecast"):
        replayed(layout)


def test_pools_are_the_union_of_the_runs_datasets(layout: Layout, built: list[Watched]) -> None:
    more = write_pool(layout, "more", [TEXTS[3], "something else"])
    write_past(layout, "third", {1: [(more[1], [True, False])]}, "more", created_at="2026")
    report = replayed(layout, SecSettings(category="topic"))
    ids = read_dataset(layout, "toy")["prompt_id"].to_pylist()
    assert built[0].pool.prompt_ids == (*ids, more[1])
    assert built[0].pool.categories == ("sums",) * 13
    assert report.groups == 2 * STEPS * GROUPS + 1


def test_groups_of_prompts_that_no_dataset_has_are_left_out_and_counted(layout: Layout) -> None:
    ids = read_dataset(layout, "toy")["prompt_id"].to_pylist()
    write_past(layout, "third", {1: [("f" * 32, [True]), (ids[0], [True])], 2: [("f" * 32, [True])]}, created_at="2026")
    report = replayed(layout, runs="third")
    assert report.groups == 1
    assert report.faults == [
        "run third: 2 groups of 1 prompts are left out, because no dataset of the run has them (the first is "
        f"{'f' * 32}): their text changed, or it is gone"
    ]


def test_a_prompt_whose_text_changed_is_named_and_left_out(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    table = read_dataset(layout, "toy").to_pylist()
    rows = [make_prompt(row["text"]) for row in table]
    rows[0]["messages"] = [("user", "quite another problem")]
    shutil.rmtree(layout.dataset("toy").parent)
    with monkeypatch.context() as patch:
        ids = iter([row["prompt_id"] for row in table])
        patch.setattr("storage.prompts.prompt_id", lambda messages: next(ids))
        write_dataset(layout, "toy", rows)
    report = replayed(layout)
    visits = read_groups(layout, {"first": STEPS, "second": STEPS}, [table[0]["prompt_id"]])
    assert report.groups == 2 * STEPS * GROUPS - len(visits) < 2 * STEPS * GROUPS
    assert report.faults[0] == f"dataset toy: prompt {table[0]['prompt_id']} is left out, because its text changed"


def test_a_dataset_that_is_gone_or_another_is_named(layout: Layout) -> None:
    ids = read_dataset(layout, "toy")["prompt_id"].to_pylist()
    write_past(layout, "third", {1: [(ids[0], [True])]}, pins={"datasets": {"toy": "0"}}, created_at="2026")
    write_past(layout, "fourth", {1: [(ids[0], [True])]}, "gone", created_at="2027")
    report = replayed(layout)
    assert report.faults == [
        "run third: dataset toy is not what the run was created with",
        "run fourth: its dataset gone is gone",
    ]
    with pytest.raises(StoreError, match="no dataset of runs fourth is in"):
        replayed(layout, runs="fourth")


def test_steps_are_judged_over_all_candidates_of_a_selection(tmp_path: Path) -> None:
    """First rounds by 1 / propensity, against SQL; step 5 has a second round."""
    layout = open_store(tmp_path / "logged", create=True)
    logging = logged_settings(explore=0.25)
    Logger(layout, logging, write_pool(layout, "toy", [f"{row} + {row}" for row in range(POOL)])).write()
    about = {"seed": 7, "prompts": {"train": "toy"}, "sampling": {"group_size": GROUP}}
    write_run(layout, make_run("logged", config={**about, "acquisition": asdict(logging)}))
    report = replayed(layout, MoppsSettings())
    steps = query(
        layout,
        "select sum(informative::int / propensity) / sum(1 / propensity) as share, avg(informative::int) as plain "
        "from groups where round = 0 group by step order by step",
    )
    assert report.informative == pytest.approx(steps["share"].to_pylist())
    assert report.informative != pytest.approx(steps["plain"].to_pylist())
    assert report.informative_share == pytest.approx(
        query(layout, "select avg(informative::int) as share from groups")["share"][0].as_py()
    )


def test_a_step_without_groups_and_a_history_of_one_group(layout: Layout) -> None:
    ids = read_dataset(layout, "toy")["prompt_id"].to_pylist()
    write_past(layout, "empty", {1: [], 2: []}, created_at="2026")
    write_past(layout, "single", {1: [(ids[0], [True, False])], 2: []}, created_at="2027")
    empty = replayed(layout, MeanSettings(), MoppsSettings(), runs="empty")
    assert empty.groups == 0 and [line.scores for line in empty.lines] == [{}, {}]
    single = replayed(layout, MeanSettings(), ForerollSettings(), runs="single")
    assert single.groups == 1
    assert single.lines[0].scores["candidates"]["brier"].value == pytest.approx(0.25, abs=1e-6)
    assert np.isnan(single.lines[0].scores["candidates"]["spearman"].value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([PclSettings()], "predictor pcl reads the live policy's states"),
        ([MoppsSettings(start="other@1")], "a replay begins its predictors itself: leave from = 'other@1' out"),
        ([SecSettings()], "has no tag 'category'"),
    ],
)
def test_what_no_history_holds_is_refused(layout: Layout, settings: list[PredictorSettings], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        replayed(layout, *settings)


def test_log_probabilities_are_given_to_those_that_learn_from_them(
    tmp_path: Path, built: list[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Observation] = []
    monkeypatch.setattr(Watched, "observe", lambda self, observation, seed: seen.append(observation) or {})
    ids = {"a": "p0", "b": "p1"}
    for place in ("storage.prompts", "tasks.replay_pool"):
        monkeypatch.setattr(f"{place}.prompt_id", lambda messages: ids[messages[0][1]])
    layout = open_store(tmp_path / "small", create=True)
    write_dataset(layout, "small", [make_prompt("a"), make_prompt("b")])
    make_history(layout, "first", 1)
    write_run(layout, make_run("first", config={"prompts": {"train": "small"}}))
    replayed(layout, DepoSettings())
    assert seen[0].mean_logprobs is not None
    assert seen[0].mean_logprobs == pytest.approx([-0.875 / 3] * 2)


def test_groups_of_any_size_count_whole(tmp_path: Path) -> None:
    layout = open_store(tmp_path / "large", create=True)
    ids = write_pool(layout, "toy", TEXTS)
    write_past(layout, "large", {1: [(ids[0], [True] * 40_000), (ids[1], [True] * 30_000 + [False] * 40_000)]})
    report = replayed(layout, MeanSettings())
    score = report.lines[0].scores["candidates"]["brier"]
    assert report.informative_share == 0.5 and score.value == pytest.approx(0.25)


def test_depo_replays_a_history_without_log_probabilities(layout: Layout) -> None:
    report = replayed(layout, DepoSettings())
    assert 0.0 < report.lines[0].scores["candidates"]["nll"].value < 2.0
