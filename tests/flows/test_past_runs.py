"""A run that forecasts from what other runs did: better from the first step, and always from the same history."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.config import TrainConfig, build_config
from flows.train import train
from models.difficulty.metrics import forecast_quality
from models.records import PastRuns
from storage.catalog import query
from storage.checkpoints import checkpoint_steps
from storage.errors import StoreError
from storage.history import History
from storage.layout import Layout
from storage.prompts import read_dataset
from storage.runs import read_run
from tasks.opening import open_workbench
from tests.flows.small_run import POOL, make_store, small_config
from tests.tasks.past_history import Groups, write_outcomes, write_past

pytestmark = pytest.mark.usefixtures("prefect_server")

QUIET = {
    "evaluation": {"every": 0},
    "checkpoint": {"every": 100},
    "dynamic_sampling": {"enabled": False},
    "update": {"lr": 1e-4, "minibatches": 1, "token_budget": 4096},
}
EARLIER, LATER = 100, 40
"""Groups of a step of run `a`, and of run `b`."""
UNIFORM = {"acquisition": {"name": "uniform", "batch_size": LATER}, **QUIET}


def config(store: Path, run: str, predictor: dict[str, Any], steps: int = 1, **changes: Any) -> TrainConfig:
    return build_config(small_config(store, run, steps=steps, predictor=predictor, **{**UNIFORM, **changes}))


FOREROLL = {"name": "foreroll", "components": 16}


def outcomes(store: Path, *steps: int) -> dict[int, Groups]:
    """What a policy makes of the pool that solves games of three numbers sometimes, and those of four rarely."""
    prompts = read_dataset(Layout(store), POOL)
    ids, texts = (prompts[name].to_pylist() for name in ("prompt_id", "text"))
    chances = [0.35 if len(text.split()) == 5 else 0.1 for text in texts]
    found: dict[int, Groups] = {}
    for step in steps:
        rng, start = np.random.default_rng(step), (step - 1) % 2 * EARLIER
        found[step] = [(ids[at], (rng.uniform(size=4) < chances[at]).tolist()) for at in range(start, start + EARLIER)]
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, prefect_server: str) -> Path:
    """A store in which run `a` has rolled out the whole pool, and `b` then began."""
    store = make_store(tmp_path_factory.mktemp("past") / "store")
    write_past(Layout(store), "a", outcomes(store, 1, 2), POOL)
    train(config(store, "b", FOREROLL, steps=2, seed=1))
    return store


@pytest.fixture
def store_copy(store: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    shutil.copytree(store, tmp_path / "copy")
    return tmp_path / "copy"


def rows(store: Path, sql: str) -> list[dict[str, Any]]:
    return query(Layout(store), sql).to_pylist()


def pins(store: Path, run: str) -> Any:
    found = read_run(Layout(store), run)
    assert found is not None
    return found.pins


def past_of(config: TrainConfig) -> PastRuns:
    with open_workbench(config.plan()) as (bench, _):
        assert bench.pool.past is not None
        return bench.pool.past


def test_a_run_that_reads_the_past_forecasts_better_from_the_first_step_on(store: Path, store_copy: Path) -> None:
    first = query(
        Layout(store),
        "select prompt_id, successes, valid, if(round = 0, 1 / propensity, 0) as weight from groups "
        "where run_id = 'b' and step = 1",
    )
    with open_workbench(config(store_copy, "cold", {**FOREROLL, "past": "none"}, seed=1).plan()) as (bench, _):
        seen = np.array([bench.row_of[prompt_id] for prompt_id in first["prompt_id"].to_pylist()])
        p_success = bench.predictor.forecast(seen, seed=bench.seed(1, "forecast")).p_success
    cold = forecast_quality(p_success, *(first[name].to_numpy() for name in ("successes", "valid", "weight")))
    warm = rows(store, "select nll, brier, spearman from predictor_updates where run_id = 'b' and step = 1")[0]
    assert warm["nll"] < 0.9 * cold["nll"] and warm["brier"] < 0.9 * cold["brier"] and warm["spearman"] > 0.2
    assert not cold["spearman"] > 0.2


def test_a_run_pins_the_past_and_its_own_groups_are_never_in_it(store: Path, store_copy: Path) -> None:
    assert pins(store, "b")["past"] == {"a": 2}
    past = past_of(config(store_copy, "b", FOREROLL, seed=1))
    groups = rows(store, "select count(*) as n, sum(successes)::int as s from groups where run_id = 'a'")
    assert [{"n": len(past), "s": past.successes.sum()}] == groups
    assert past.step.max() == 2 and set(past.run) == {0}


def test_a_resumed_run_goes_on_to_the_same_bytes_whatever_other_runs_did_meanwhile(store: Path, tmp_path: Path) -> None:
    broken, layout = make_store(tmp_path / "store"), Layout(tmp_path / "store")
    for folder in ("history", "runs", "checkpoints"):
        shutil.copytree(store / folder, broken / folder, ignore=shutil.ignore_patterns("*b", "*b.json"))
    train(config(broken, "b", FOREROLL, seed=1))
    shutil.rmtree(layout.checkpoint("b", 1))
    write_outcomes(History(layout, "a"), 3, outcomes(store, 3)[3])
    train(config(broken, "b", FOREROLL, seed=1))
    assert pins(broken, "b")["past"] == {"a": 2}
    for table in ("forecasts", "rollouts", "predictor_updates"):
        for step in (1, 2):
            part = Layout(store).part(table, "b", step)
            assert layout.part(table, "b", step).read_bytes() == part.read_bytes()
    arrays = [Layout(root).checkpoint("b", 2) / "predictor" / "arrays.safetensors" for root in (store, broken)]
    assert arrays[0].read_bytes() == arrays[1].read_bytes()


def test_a_run_whose_past_is_gone_is_refused_in_one_line(store_copy: Path) -> None:
    shutil.rmtree(Layout(store_copy).table_of_run("steps", "a"))
    with pytest.raises(
        StoreError, match=r"^run b forecasts from steps 1 to 2 of run a, of which the store has none any"
    ):
        train(config(store_copy, "b", FOREROLL, seed=1))


def test_a_fork_reads_its_parent_up_to_the_fork_and_counts_no_group_twice(store_copy: Path) -> None:
    layout = Layout(store_copy)
    assert checkpoint_steps(layout, "b") == [0, 2]
    fork = config(store_copy, "fork", FOREROLL, fork_from="b@2")
    with open_workbench(fork.plan()) as (bench, _):
        state, past = bench.predictor.state_dict(), bench.pool.past
    assert pins(store_copy, "fork")["past"] == {"a": 2, "b": 2}
    assert past is not None and len(past) == 2 * EARLIER + 2 * LATER
    assert np.count_nonzero(state["own_visits"]) == 0
    same = config(store_copy, "same", {**FOREROLL, "past": "a"}, fork_from="b@2")
    with open_workbench(same.plan()) as (bench, _):
        assert bench.predictor.state_dict()["own_visits"].sum() == 2 * LATER
    assert pins(store_copy, "same")["past"] == {"a": 2}


def test_a_setting_that_names_no_run_is_refused_before_anything_is_changed(store_copy: Path) -> None:
    with pytest.raises(StoreError, match=r"predictor\.past: no run is called 'math-\*' in .*; it has: a, b"):
        train(config(store_copy, "d", {**FOREROLL, "past": "math-*"}))
    assert read_run(Layout(store_copy), "d") is None
