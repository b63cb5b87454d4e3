"""Counterfactual values in a replay: those of the functions they are made of, and refusals in words."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from models.acquisition.counterfactual import Counterfactual, counterfactual_value
from models.difficulty import build_predictor
from models.records import Observation, Pool
from models.settings import AcquisitionSettings, LastSettings, MeanSettings
from storage.layout import Layout
from storage.past import read_groups
from storage.prompts import read_dataset, write_dataset
from storage.runs import write_run
from storage.store import open_store
from tasks.counterfactual import judge_step, logged_steps
from tasks.leaderboard import ReplayReport, report_json
from tasks.leaderboard_text import report_lines, report_markdown
from tasks.past import past_runs
from tasks.replay import replay_history
from tasks.replay_plan import ReplayPlan
from tasks.selectors import SelectorValue, value_rows
from tests.storage.small_history import make_prompt, make_run
from tests.tasks.logged_run import GROUP, POOL, STEPS, Logger, settings
from tests.tasks.past_history import random_steps, write_past, write_pool

TEXTS = [f"what is {one} + {one}?" for one in range(POOL)]
HALF = settings(batch_size=24, cooldown=0)


def write_logged(path: Path, logging: AcquisitionSettings) -> Layout:
    """A store with the run `logged`, whose prompts are those of the dataset `toy`."""
    layout = open_store(path, create=True)
    Logger(layout, logging, write_pool(layout, "toy", TEXTS)).write()
    about = {"seed": 7, "prompts": {"train": "toy"}, "sampling": {"group_size": GROUP}}
    write_run(layout, make_run("logged", config={**about, "acquisition": asdict(logging)}, created_at="2025"))
    return layout


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """A run that explored half of its batches, and one whose outcomes alone are known."""
    layout = write_logged(tmp_path_factory.mktemp("selectors") / "store", HALF)
    ids = read_dataset(layout, "toy")["prompt_id"].to_pylist()
    write_past(layout, "outcomes", random_steps(ids, 2, 8), created_at="2026")
    return layout


def replayed(layout: Layout, runs: str = "logged", rules: tuple[str, ...] = (), where: str = "true") -> ReplayReport:
    named = {"mean": MeanSettings(), "last": LastSettings()}
    return replay_history(ReplayPlan(store=layout.root, predictors=named, runs=runs, rules=rules, where=where))


def judged(layout: Layout, target: AcquisitionSettings) -> Counterfactual:
    """A mean with a rule, by the functions of `tasks.counterfactual` and the groups of each step."""
    pool = Pool(tuple(read_dataset(layout, "toy")["prompt_id"].to_pylist()))
    predictor = build_predictor(MeanSettings(), pool, seed=0)
    groups = read_groups(layout, {"logged": STEPS})
    steps = []
    for logged in logged_steps(layout, "logged", {one: row for row, one in enumerate(pool.prompt_ids)}):
        forecast = predictor.forecast(logged.rows, seed=0).as_stored()
        steps.append(judge_step(logged, forecast, pool=pool, settings=target, seed=7, group_size=GROUP))
        seen = past_runs(groups.filter(pc.equal(groups["step"], logged.step)), pool.prompt_ids)
        predictor.observe(Observation(seen.row, seen.successes, seen.valid, seen.mean_tokens), seed=0)
    return counterfactual_value(steps)


def test_values_are_those_of_each_predictor_with_the_runs_own_rule_and_others(layout: Layout) -> None:
    found = replayed(layout, rules=("uniform", "nearest", "thompson")).values
    assert [(one.run, one.rule) for one in found] == [
        ("logged", rule) for rule in ("nearest", "uniform", "thompson") for _ in range(2)
    ]
    for rule in ("nearest", "uniform", "thompson"):
        value = next(one.value for one in found if (one.predictor, one.rule) == ("mean", rule))
        expected = judged(layout, replace(HALF, name=rule))  # type: ignore[arg-type]
        assert value == expected and value.steps == STEPS
        assert expected.doubly_robust is not None and 0.3 < expected.doubly_robust.value < 0.9
    shares = [one.value.doubly_robust.value for one in found[:2] if one.value.doubly_robust]
    assert shares == sorted(shares, reverse=True)


def test_steps_that_were_not_asked_for_weigh_nothing(layout: Layout) -> None:
    found = replayed(layout, where="step <= 9").values
    assert all(one.value.steps == 9 and one.value.refusal.startswith("9 logged steps are too few") for one in found)


def test_a_log_that_explored_little_and_a_history_without_one_are_refused_in_words(
    layout: Layout, tmp_path: Path
) -> None:
    little = replayed(write_logged(tmp_path / "store", replace(HALF, explore=0.05))).values
    assert len(little) == 2
    assert all(one.value.refusal.startswith("too little was explored: the logs are worth ") for one in little)
    (bare,) = replayed(layout, runs="outcomes").values
    assert (bare.run, bare.predictor) == ("outcomes", "")
    assert bare.value.refusal == "the history holds no candidates with a logged propensity"


def test_a_candidate_that_no_dataset_has_any_more_is_a_refusal_and_no_error(tmp_path: Path) -> None:
    layout = write_logged(tmp_path / "store", HALF)
    gone = read_dataset(layout, "toy")["prompt_id"][40].as_py()
    for file in layout.dataset("toy").parent.iterdir():
        file.unlink()
    write_dataset(layout, "toy", [make_prompt(text) for row, text in enumerate(TEXTS) if row != 40])
    (only,) = replayed(layout).values
    assert only.value.refusal.startswith(f"run logged considered prompt {gone}, which is not in the pool")


def test_values_are_shown_in_every_form(layout: Layout) -> None:
    report = replayed(layout, runs="*")
    lines = report_lines(report)
    start = next(at for at, line in enumerate(lines) if line.startswith("counterfactual: "))
    assert lines[start + 1].split("  ")[0] == "run" and lines[start + 1].endswith("refused")
    best = report.values[0]
    estimate = best.value.doubly_robust
    assert estimate is not None
    shown = f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"
    assert lines[start + 2].split()[:3] == ["logged", best.predictor, "nearest"] and shown in lines[start + 2]
    assert f"| logged | {best.predictor} | nearest | {shown} |" in report_markdown(report)
    told = report_json(report)["values"][0]["value"]
    assert told["doubly_robust"]["value"] == estimate.value and told["refusal"] == ""
    assert lines[start + 4].split()[0] == "outcomes" and "no candidates with a logged propensity" in lines[start + 4]


def test_a_rule_that_wants_embeddings_gets_them(layout: Layout) -> None:
    named = {"mean": MeanSettings()}
    values = replay_history(ReplayPlan(store=layout.root, predictors=named, runs="logged", rules=("gps",))).values
    assert [one.rule for one in values] == ["nearest", "gps"]
    assert np.isfinite(values[1].value.groups)


def test_runs_that_support_no_selector_for_one_reason_share_a_row() -> None:
    none = Counterfactual(0, 0.0, None, None, "no log")
    other = Counterfactual(0, 0.0, None, None, "torn")
    runs = {"a": none, "b": other, "c": none}
    rows = value_rows([SelectorValue(run, "", "", value) for run, value in runs.items()])
    assert [(row[0], row[-1]) for row in rows[1:]] == [("2 runs", "no log"), ("b", "torn")]
