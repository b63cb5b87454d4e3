"""A run killed at any point, and resumed, ends with the bytes of one that was never killed.

One run is killed at each point in turn, each time by a real SIGKILL of the real
process, and compared once with an uninterrupted run of the same config.
"""

import multiprocessing
import signal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from storage.files import file_digest
from storage.schemas import HISTORY
from tests.flows.small_run import KillPoint, make_store, small_config, train_small, train_until_killed, with_server

FORKS = multiprocessing.get_context("forkserver")

# Two rounds take every candidate, so that the stop rule depends on which rounds it looks at.
FEW_CANDIDATES = {"name": "gps", "batch_size": 4, "candidates": 8}

KILL_POINTS = [
    KillPoint("before", "publish", "runs/small.lock"),
    KillPoint("after", "publish", "runs/small.lock"),
    KillPoint("before", "publish", "checkpoints/small/step=00000000"),
    KillPoint("after", "publish", "checkpoints/small/step=00000000"),
    KillPoint("before", "publish", "evaluations/run_id=small/step=00000000"),
    KillPoint("after", "publish", "steps/run_id=small/step=00000000"),
    KillPoint("before", "publish", "forecasts/run_id=small/step=00000001"),
    KillPoint("after", "publish", "forecasts/run_id=small/step=00000001"),
    KillPoint("before", "publish", "acquisitions/run_id=small/step=00000001/part-0"),
    KillPoint("after", "publish", "acquisitions/run_id=small/step=00000001/part-0"),
    KillPoint("before", "publish", "tokens/run_id=small/step=00000001/part-0"),
    KillPoint("after", "publish", "tokens/run_id=small/step=00000001/part-0"),
    KillPoint("after", "publish", "rollouts/run_id=small/step=00000001/part-0"),
    KillPoint("before", "publish", "rewards/run_id=small/step=00000001/part-0"),
    KillPoint("after", "publish", "rewards/run_id=small/step=00000001/part-0"),
    KillPoint("before", "step", "#1#"),
    KillPoint("after", "step", "#1#"),
    KillPoint("before", "publish", "updates/run_id=small/step=00000001"),
    KillPoint("after", "publish", "updates/run_id=small/step=00000001"),
    KillPoint("after", "publish", "predictor_updates/run_id=small/step=00000001"),
    KillPoint("before", "publish", "steps/run_id=small/step=00000001"),
    KillPoint("after", "publish", "steps/run_id=small/step=00000001"),
    KillPoint("after", "publish", "acquisitions/run_id=small/step=00000002/part-1"),
    KillPoint("after", "publish", "tokens/run_id=small/step=00000002/part-1"),
    KillPoint("after", "publish", "rollouts/run_id=small/step=00000002/part-1"),
    KillPoint("after", "publish", "rewards/run_id=small/step=00000002/part-1"),
    KillPoint("before", "save", "predictor"),
    KillPoint("after", "publish", "checkpoints/small/step=00000002"),
    KillPoint("before", "publish", "evaluations/run_id=small/step=00000003"),
    KillPoint("after", "publish", "evaluations/run_id=small/step=00000003"),
    KillPoint("before", "publish", "steps/run_id=small/step=00000006"),
    KillPoint("before", "publish", "checkpoints/small/step=00000006"),
]


@pytest.fixture(scope="module", params=["every other", pytest.param("all", marks=pytest.mark.slow)])
def points(request: pytest.FixtureRequest) -> list[KillPoint]:
    """Where the run is killed."""
    return KILL_POINTS if request.param == "all" else KILL_POINTS[1::2]


@pytest.fixture(scope="module")
def runs(points: list[KillPoint], tmp_path_factory: pytest.TempPathFactory, prefect_server: str) -> tuple[Path, Path]:
    """Stores of the uninterrupted and of the killed run."""
    FORKS.set_forkserver_preload(["flows.train", "scipy.stats", "tests.flows.small_run"])
    whole, killed = (make_store(tmp_path_factory.mktemp(name) / "store") for name in ("whole", "killed"))
    assert _run(train_small, prefect_server, _config(whole)) == 0
    for point in points:
        code = _run(train_until_killed, prefect_server, _config(killed), point)
        assert code == -signal.SIGKILL, f"never reached: {point}"
    assert _run(train_small, prefect_server, _config(killed)) == 0
    return whole, killed


def _config(store: Path) -> dict[str, Any]:
    return small_config(store, acquisition=FEW_CANDIDATES)


def _run(target: Any, api_url: str, *arguments: Any) -> int:
    process = FORKS.Process(target=with_server, args=(target, api_url, *arguments))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def test_a_killed_and_resumed_run_ends_with_the_same_policy_bytes(runs: tuple[Path, Path]) -> None:
    whole, killed = (_digests(store / "checkpoints") for store in runs)
    assert "small/step=00000006/policy/model.safetensors" in whole
    assert killed == whole


def test_a_killed_and_resumed_run_ends_with_the_same_history_bytes(runs: tuple[Path, Path]) -> None:
    whole, killed = (_digests(store / "history") for store in runs)
    assert {name.split("/")[0] for name in whole} == set(HISTORY)
    assert set(killed) == set(whole)
    differing = {name for name in whole if killed[name] != whole[name]}
    assert {name for name in differing if not name.startswith("steps/")} == set()


def test_commit_records_differ_in_nothing_but_times_and_epochs(runs: tuple[Path, Path]) -> None:
    whole, killed = (_commit_records(store) for store in runs)
    assert len(whole) == 7
    assert killed == whole


def test_no_rollout_is_stored_twice_and_none_is_lost(runs: tuple[Path, Path]) -> None:
    files = f"read_parquet('{runs[1]}/history/rollouts/*/*/*.parquet', hive_partitioning = false)"
    assert duckdb.sql(f"select count(*) from {files} group by group_id having count(*) <> 4").fetchall() == []
    assert duckdb.sql(f"select 1 from {files} group by group_id, sample having count(*) > 1").fetchall() == []


def _digests(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): file_digest(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def _commit_records(store: Path) -> list[dict[str, Any]]:
    records = [
        row
        for path in sorted((store / "history" / "steps").rglob("*.parquet"))
        for row in pq.ParquetFile(path).read().to_pylist()
    ]
    return [
        {
            key: value
            for key, value in row.items()
            if not key.endswith("_seconds") and key not in ("epoch", "committed_at")
        }
        for row in records
    ]


def test_the_server_knows_every_killed_flow_run_as_crashed(runs: tuple[Path, Path], points: list[KillPoint]) -> None:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        found = client.read_flow_runs()
    ended = [run.state_name for run in found if run.parameters.get("config", {}).get("store") == str(runs[1])]
    assert sorted(ended) == ["Completed", *["Crashed"] * len(points)]
