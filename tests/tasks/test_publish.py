"""Publishing: once for each history, promoted for a reason, whatever dies, is damaged or runs at the same time."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import tasks.promotion
import tasks.publish
import tasks.replay
from models.settings import ForerollSettings, GpSettings, LastSettings, MeanSettings, MoppsSettings, PredictorSettings
from storage.errors import StoreError
from storage.layout import Layout
from storage.past import commits_digest, read_groups
from storage.promotions import promotions
from storage.prompts import dataset_digest, read_dataset
from storage.registry import read_version, resolve, versions
from storage.store import open_store
from tasks.leaderboard import ReplayReport
from tasks.leaderboard_text import report_lines
from tasks.replay import replay_history
from tasks.replay_plan import ReplayPlan
from tasks.unseen import UnseenScore
from tasks.walk import walk_run
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
    return replay_history(
        ReplayPlan(store=layout.root, predictors=named, publish="ours", **{"heldout": 0.3, **changes})
    )


def test_a_history_is_published_once(layout: Layout) -> None:
    first, second = replayed(layout), replayed(layout)
    assert first.published.endswith("is version 1 of ours, promoted to @best: it is the first")
    assert report_lines(second) == ["nothing new since version 1 of ours: nothing done"]
    assert versions(layout, "ours") == [1] and second.lines == ()


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """NLL that each judging finds, ours before theirs, in place of it; grows in the test."""
    left: list[float] = []
    monkeypatch.setattr(
        tasks.promotion, "judge_unseen", lambda *_: UnseenScore(np.full(5, left.pop(0)), np.ones(5), 10)
    )
    return left


def best_of(layout: Layout) -> int:
    return resolve(layout, "ours@best")[1]


def test_what_is_new_is_published_and_promoted_only_when_better_by_the_margin(
    layout: Layout, scores: list[float]
) -> None:
    scores += [0.6]
    replayed(layout, MeanSettings())
    for number, (ours, theirs) in enumerate([(0.496, 0.5), (0.494, 0.5), (0.5, 0.4)], start=2):
        scores += [ours, theirs]
        add_run(layout, f"run-{number}", f"202{number}")
        report = replayed(layout, LastSettings(), MeanSettings(), margin=0.005)
        assert f"held-out nll {ours:.4f} against {theirs:.4f} of version" in report.published
        assert (", promoted to @best: " in report.published) == (number == 3)
        assert best_of(layout) == (1 if number == 2 else 3)
    assert versions(layout, "ours") == [1, 2, 3, 4]
    assert [line.version for line in promotions(layout, "ours")] == [1, 3]
    assert (
        "better by more than the margin 0.005 (10 groups of 5 prompts held out)" in promotions(layout, "ours")[1].reason
    )
    mine, theirs = {"score": 0.5, "learned": 240}, {"best": 3, "best_score": 0.4, "best_learned": 180, "error": 0.0}
    found = read_version(layout, "ours", 4).scores["heldout"]
    assert found == {"groups": 10, "prompts": 5, **mine, **theirs}


@pytest.mark.parametrize("prompts", [1, 4])
def test_a_difference_that_may_be_chance_promotes_nobody(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, prompts: int
) -> None:
    """Of four prompts one makes all of the difference."""
    losses = [np.eye(1, prompts)[0], np.zeros(prompts), np.eye(1, prompts)[0]]
    monkeypatch.setattr(
        tasks.promotion, "judge_unseen", lambda *_: UnseenScore(losses.pop(0), np.ones(prompts), prompts)
    )
    replayed(layout, MeanSettings())
    add_run(layout, "second", "2026")
    said = replayed(layout, MeanSettings(), margin=0.005).published
    error = {1: "inf", 4: "0.2500"}[prompts]
    assert (
        f", not promoted: held-out nll 0.0000 against {1 / prompts:.4f} of version 1, which may be chance: the" in said
    )
    assert f"the standard error is {error} (" in said and best_of(layout) == 1
    assert replayed(layout, MeanSettings(), margin=0.005).published.startswith("nothing new since version 2")


def test_what_was_not_promoted_is_considered_again_and_not_published_again(layout: Layout, scores: list[float]) -> None:
    scores += [0.5, 0.498, 0.5]
    replayed(layout, MeanSettings())
    add_run(layout, "second", "2026")
    assert ", not promoted: " in replayed(layout, MeanSettings(), margin=0.005).published
    again = replayed(layout, MeanSettings(), margin=0.005).published
    assert again.startswith("nothing new since version 2 of ours, which is not promoted: held-out nll 0.4980")
    assert best_of(layout) == 1
    now = replayed(layout, MeanSettings(), margin=0.001).published
    assert now.startswith("nothing new since version 2 of ours, which is promoted to @best now: ")
    assert best_of(layout) == 2 and versions(layout, "ours") == [1, 2] and scores == []


def test_a_publisher_that_dies_before_it_promotes_leaves_that_to_the_next(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(tasks.publish, "promote", Mock(side_effect=SystemExit))
        with pytest.raises(SystemExit):
            replayed(layout)
    assert versions(layout, "ours") == [1] and promotions(layout, "ours") == []
    assert replayed(layout).published.endswith("version 1 of ours, which is promoted to @best now: it is the first")
    assert best_of(layout) == 1


def test_two_at_once_publish_once(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    def walk_together(*arguments: Any) -> None:
        both.wait(timeout=60)  # both have seen that nothing is published
        walk_run(*arguments)

    monkeypatch.setattr(tasks.replay, "walk_run", walk_together)
    with ThreadPoolExecutor() as pool:
        said = [one.published for one in pool.map(lambda _: replayed(layout, MeanSettings()), range(2))]
    assert sorted(said) == [
        "mean is version 1 of ours, promoted to @best: it is the first",
        "nothing new since version 1 of ours: nothing done",
    ]
    assert versions(layout, "ours") == [1] == [line.version for line in promotions(layout, "ours")]


@pytest.mark.parametrize("key", ["encoder", "schema_version"])
def test_a_version_that_cannot_be_used_here_is_trained_anew_from_the_same_history(layout: Layout, key: str) -> None:
    replayed(layout, MeanSettings())
    path = layout.predictor_version("ours", 1) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: "another"}))
    said = replayed(layout, MeanSettings()).published
    assert said.startswith("mean is version 2 of ours, promoted to @best: no version that was promoted can be used; ")
    assert best_of(layout) == 2


@pytest.mark.parametrize("deleted", [False, True])
def test_a_best_version_that_cannot_be_used_gives_way_to_the_one_before(
    layout: Layout, scores: list[float], deleted: bool
) -> None:
    scores += [0.5, 0.4, 0.5, 0.45, 0.5]
    replayed(layout, MeanSettings())
    add_run(layout, "second", "2026")
    replayed(layout, MeanSettings())
    assert best_of(layout) == 2
    folder = layout.predictor_version("ours", 2)
    if deleted:
        shutil.rmtree(folder)
        assert best_of(layout) == 1
    else:
        (folder / "past.parquet").write_bytes(b"")
        assert best_of(layout) == 2  # whoever asks for it by name is told what is wrong
    said = replayed(layout, MeanSettings()).published
    assert said.startswith(
        "mean is version 3 of ours, promoted to @best: held-out nll 0.4500 against 0.5000 of version 1,"
    )
    assert ("version 2 of predictor ours is damaged" in said) != deleted
    assert best_of(layout) == 3


def test_where_no_promoted_version_can_be_used_the_new_one_is_promoted_and_says_so(layout: Layout) -> None:
    replayed(layout, MeanSettings())
    (layout.predictor_version("ours", 1) / "past.parquet").write_bytes(b"")
    said = replayed(layout, MeanSettings()).published
    assert "promoted to @best: no version that was promoted can be used; version 1 of predictor ours is dam" in said


def test_of_equals_the_one_that_has_learned_from_more_is_promoted(layout: Layout) -> None:
    replayed(layout, MoppsSettings(), where="step <= 3")
    said = replayed(layout, MoppsSettings()).published
    assert "promoted to @best: held-out nll 0.6931 against 0.6931 of version 1, the same" in said
    assert said.endswith("and it has learned from 60 groups, and the other from 30")
    less = replayed(layout, MoppsSettings(), where="step <= 2").published
    assert (
        ", not promoted: held-out nll 0.6931 against 0.6931 of version 2, not better by more than the margin 0" in less
    )
    assert best_of(layout) == 2


def test_the_better_of_two_real_predictors_is_promoted_and_the_worse_is_not(layout: Layout) -> None:
    """What `gp` knows of prompts it never saw is worth more than the even chance of `mopps`."""
    for year in (2026, 2027):
        add_run(layout, f"run-{year}", str(year))
    replayed(layout, MoppsSettings(), heldout=0.6)
    said = replayed(layout, GpSettings(), heldout=0.6).published
    assert "gp is version 2 of ours, promoted to @best: held-out nll 0." in said and "against 0.6931 of" in said
    said = replayed(layout, MoppsSettings(decay=0.9), heldout=0.6).published
    assert "mopps is version 3 of ours, not promoted: held-out nll 0.6931 against 0." in said
    found = read_version(layout, "ours", 3).scores["heldout"]
    assert found["best"] == 2 and found["best_score"] < found["score"] - 0.005


def test_plans_that_publish_in_turn_under_one_name_do_not_publish_again(layout: Layout) -> None:
    plans = (MeanSettings(), LastSettings())
    for settings in plans:
        replayed(layout, settings)
    for settings in plans:
        assert replayed(layout, settings).published.startswith("nothing new since version ")
    assert versions(layout, "ours") == [1, 2]


def test_a_damaged_log_of_promotions_is_refused_before_anything_is_walked(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed(layout, MeanSettings())
    path = layout.promotions("ours")
    path.write_bytes(path.read_bytes() + b'{"version": 2, "rea')
    monkeypatch.setattr(tasks.replay, "walk_run", Mock(side_effect=AssertionError))
    with pytest.raises(StoreError, match=r"promotions\.jsonl: line 2 is damaged .*: mend or delete the line"):
        replayed(layout, MeanSettings())


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


def test_a_history_without_a_group_is_not_published(layout: Layout) -> None:
    write_past(layout, "empty", {1: []}, created_at="2026")
    with pytest.raises(StoreError, match="nothing is published: the history has no group"):
        replayed(layout, runs="empty")
    assert versions(layout, "ours") == []
