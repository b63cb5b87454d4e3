"""Predictors that read more than embeddings, in the training flow: what they get, and that resuming is exact."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from flows.config import build_config
from flows.train import train
from models.difficulty.depo import Depo
from models.records import Observation
from storage.catalog import query
from storage.layout import Layout
from tests.flows.small_run import make_store, small_config

pytestmark = pytest.mark.usefixtures("prefect_server")


def rows(store: Path, sql: str) -> list[dict[str, Any]]:
    return query(Layout(store), sql).to_pylist()


@pytest.mark.parametrize(
    "predictor",
    [{"name": "pcl", "width": 16}, pytest.param({"name": "foreroll", "past": "none"}, marks=pytest.mark.slow)],
    ids=lambda one: one["name"],
)
def test_a_replay_from_an_older_checkpoint_ends_with_the_same_bytes(predictor: dict[str, Any], tmp_path: Path) -> None:
    """`pcl` reads the live policy, which the replay brings to where it was; rows are compared, then a step added."""
    store = make_store(tmp_path / "store")
    quiet = {"evaluation": {"every": 0}, "checkpoint": {"every": 100}}
    changes = {"predictor": predictor, "acquisition": {"name": "thompson", "batch_size": 4}, **quiet}
    whole, broken = (small_config(store, run, steps=1, **changes) for run in ("whole", "broken"))
    train(build_config({**whole, "steps": 2}))
    train(build_config(broken))
    layout = Layout(store)
    shutil.rmtree(layout.checkpoint("broken", 1))
    train(build_config(broken))
    for table in ("forecasts", "predictor_updates"):
        columns = f"select * exclude (run_id) from {table} where run_id = '{{}}' order by all"
        assert rows(store, columns.format("broken")) == rows(store, columns.format("whole"))
    arrays = [layout.checkpoint(run, 2) / "predictor" / "arrays.safetensors" for run in ("whole", "broken")]
    assert arrays[0].read_bytes() == arrays[1].read_bytes()


def test_observations_carry_the_mean_log_probability_of_each_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    observe = Depo.observe

    def watched(predictor: Depo, observation: Observation, *, seed: int) -> dict[str, float]:
        seen.append(observation)
        return observe(predictor, observation, seed=seed)

    monkeypatch.setattr(Depo, "observe", watched)
    store = make_store(tmp_path / "store")
    predictor = {"name": "depo", "width": 16}
    train(build_config(small_config(store, steps=1, predictor=predictor, evaluation={"every": 0})))
    expected: dict[str, list[float]] = {}
    for row in rows(store, "select prompt_id, logprobs from tokens join rollouts using (run_id, group_id, sample)"):
        expected.setdefault(row["prompt_id"], []).append(sum(row["logprobs"]) / len(row["logprobs"]))
    assert seen[0].mean_logprobs is not None
    found = sorted(seen[0].mean_logprobs.tolist())
    assert found == pytest.approx(sorted(sum(group) / len(group) for group in expected.values()), rel=1e-5)
    parts = json.loads(rows(store, "select loss_parts from predictor_updates")[0]["loss_parts"])
    assert set(parts) == {"success", "ranking", "distill"}
