"""Publishing: once for each history, promoted for a reason, judged on prompts that nobody learned from."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tasks.publish
from models.records import Pool
from models.settings import ForerollSettings, LastSettings, MeanSettings, MoppsSettings, PredictorSettings
from storage.errors import StoreError
from storage.layout import Layout
from storage.past import commits_digest, read_groups
from storage.prompts import dataset_digest, read_dataset
from storage.registry import promotions, read_version, resolve, versions
from storage.store import open_store
from tasks.leaderboard import ReplayReport, report_lines
from tasks.publish import train_on
from tasks.replay import replay_history
from tasks.replay_plan import ReplayPlan
from tests.tasks.past_history import random_steps, write_past, write_pool

STEPS, GROUPS = 6, 10


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """One run on a pool of 30 prompts, easy ones first."""
    layout = open_store(tmp_path / "store", create=True)
    ids = write_pool(layout, "toy", [f"what is {one} + {one}?" + " really" * one for one in range(30)])
    write_past(layout, "first", random_steps(ids, STEPS, GROUPS))
    return layout


def add_run(layout: Layout, name: str, created: str, ability: float = 0.0) -> None:
    ids = read_dataset(layout, "toy")["prompt_id"].to_pylist()
    write_past(layout, name, random_steps(ids, STEPS, GROUPS, seed=1, ability=ability), created_at=created)


def replayed(layout: Layout, *predictors: PredictorSettings, **changes: Any) -> ReplayReport:
    named = {settings.name: settings for settings in predictors or (MeanSettings(), ForerollSettings())}
    return replay_history(ReplayPlan(store=layout.root, predictors=named, publish="ours", heldout=0.3, **changes))


def test_a_history_is_published_once(layout: Layout) -> None:
    first, second = replayed(layout), replayed(layout)
    assert first.published.endswith("is version 1 of ours, promoted to @best: it is the first")
    assert report_lines(second) == ["nothing new since version 1 of ours: nothing done"]
    assert versions(layout, "ours") == [1] and second.lines == ()


def test_what_is_new_is_published_and_promoted_only_when_better_by_the_margin(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed(layout, MeanSettings())
    for number, (theirs, ours) in enumerate([(0.5, 0.496), (0.5, 0.494), (0.4, 0.5)], start=2):
        scores = iter([ours, theirs])
        monkeypatch.setattr(tasks.publish, "heldout_nll", lambda *_, scores=scores: next(scores))
        add_run(layout, f"run-{number}", f"202{number}")
        report = replayed(layout, LastSettings(), MeanSettings(), margin=0.005)
        best = resolve(layout, "ours@best")[1]
        assert f"held-out nll {ours:.4f} against {theirs:.4f} of version" in report.published
        assert (", promoted to @best: " in report.published) == (number == 3)
        assert best == (1 if number == 2 else 3)
    assert versions(layout, "ours") == [1, 2, 3, 4]
    assert [line.version for line in promotions(layout, "ours")] == [1, 3]
    assert "better by more than the margin 0.005" in promotions(layout, "ours")[1].reason


def test_a_version_holds_what_it_was_trained_on_and_how_it_forecast(layout: Layout) -> None:
    report = replayed(layout, LastSettings(), MeanSettings())
    version = read_version(layout, "ours", 1)
    assert version.config["predictor"]["name"] == report.lines[0].label
    assert version.lineage["runs"] == {"first": {"step": STEPS, "sha256": commits_digest(layout, "first", STEPS)}}
    assert version.lineage["datasets"] == {"toy": dataset_digest(layout, "toy")}
    assert version.past.equals(read_groups(layout, {"first": STEPS}))
    nll = report.lines[0].scores["candidates"]["nll"]
    assert version.scores["replay"]["candidates"]["nll"] == [nll.value, nll.low, nll.high]
    assert json.dumps(version.scores)
    successes = version.past["successes"].to_numpy().sum()
    assert version.state["valid"].sum() > 0 and version.state["successes"].sum() <= successes


def test_one_that_reads_the_past_is_published_without_a_state(layout: Layout) -> None:
    replayed(layout, ForerollSettings())
    version = read_version(layout, "ours", 1)
    assert version.state == {} and len(version.past) == STEPS * GROUPS


@pytest.mark.parametrize("settings", [MoppsSettings(), ForerollSettings()], ids=lambda one: one.name)
def test_prompts_that_are_held_out_are_not_learned_from(
    layout: Layout, settings: PredictorSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, ...]] = []

    def watched(settings: PredictorSettings, pool: Pool, groups: Any) -> Any:
        seen.append(tuple(groups["prompt_id"].to_pylist()))
        return train_on(settings, pool, groups)

    monkeypatch.setattr(tasks.publish, "train_on", watched)
    replayed(layout, settings)
    add_run(layout, "second", "2026")
    replayed(layout, settings)
    scores = read_version(layout, "ours", 2).scores["heldout"]
    everything = set(read_groups(layout, {"first": STEPS, "second": STEPS})["prompt_id"].to_pylist())
    assert len(seen) == 3 and 0 < scores["prompts"] < 30
    learned = set().union(*seen)
    assert len(everything - learned) > 0 and all(set(one) <= learned for one in seen)
    assert len(set(read_groups(layout, {"first": STEPS})["prompt_id"].to_pylist()) - set(seen[2])) > 0
    if settings.name == "mopps":
        assert scores["nll"] == pytest.approx(np.log(2)) == scores["published"]


def test_a_history_without_a_group_is_not_published(layout: Layout) -> None:
    write_past(layout, "empty", {1: []}, created_at="2026")
    with pytest.raises(StoreError, match="nothing is published: the history has no group"):
        replayed(layout, runs="empty")
    assert versions(layout, "ours") == []
