"""A run whose rollouts come from vLLM."""

from pathlib import Path

import pytest

from flows.config import build_config
from flows.train import train
from models.errors import EngineError
from storage.catalog import query
from storage.layout import Layout
from storage.runs import read_run
from tests.flows.small_run import make_store, small_config

ENGINE = {"name": "auto", "kv_cache_gib": 0.1, "batch_size": 64}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, prefect_server: str) -> Path:
    """A run of two steps, and one more by another engine of the same process."""
    pytest.importorskip("vllm", reason="vLLM is not installed: make vllm")
    store = make_store(tmp_path_factory.mktemp("vllm") / "store")
    config = small_config(store, engine=ENGINE, evaluation={"every": 1, "samples": 2, "prompts": 8})
    train(build_config({**config, "steps": 2}))
    train(build_config({**config, "steps": 1}))
    return store


def test_auto_takes_vllm_where_it_works_and_the_run_keeps_it(store: Path) -> None:
    run = read_run(Layout(store), "small")
    assert run is not None and run.pins["engine"] == "vllm"


def test_every_group_is_whole_and_every_rollout_has_its_tokens(store: Path) -> None:
    groups = query(Layout(store), "select count(*) as n, count(distinct sample) as k from rollouts group by group_id")
    assert {(row["n"], row["k"]) for row in groups.to_pylist()} == {(4, 4)}
    joined = query(
        Layout(store),
        "select r.engine, r.policy_version, r.step, r.response_tokens as n, len(t.token_ids) as ids, "
        "len(t.logprobs) as logprobs, len(t.prompt_token_ids) as prompt, r.prompt_tokens from rollouts r "
        "join tokens t using (run_id, step, group_id, sample)",
    ).to_pylist()
    assert len(joined) == query(Layout(store), "select count(*) as n from rollouts").to_pylist()[0]["n"]
    for row in joined:
        assert row["engine"] == "vllm"
        assert row["n"] == row["ids"] == row["logprobs"]
        assert row["prompt"] == row["prompt_tokens"]
    versions = {(row["step"], row["policy_version"]) for row in joined}
    updates = query(Layout(store), "select step, policy_version from updates").to_pylist()
    before = {row["step"] + 1: row["policy_version"] for row in updates}
    assert versions == {(step, before.get(step, 0)) for step, _ in versions}


def test_the_probe_after_each_sync_is_stored(store: Path) -> None:
    drifts = query(
        Layout(store), "select engine_drift, engine_drift_max, logprob_gap, skipped from updates"
    ).to_pylist()
    assert len(drifts) == 3
    for row in drifts:
        assert 0 < row["engine_drift"] <= 1e-4
        assert row["engine_drift"] <= row["engine_drift_max"]
        assert row["skipped"] or row["logprob_gap"] <= 1e-4


def test_a_drift_is_stored_and_then_stops_the_run_that_asked_for_it(
    tmp_path: Path, prefect_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: make vllm")
    from models.engines.vllm_local import VllmEngine

    def skip_weights(self: VllmEngine, policy_version: int) -> None:
        if policy_version == 0:
            sync(self, policy_version)
        self._llm.llm_engine.set_weight_version(str(policy_version))
        self.policy_version = policy_version

    sync = VllmEngine.sync
    monkeypatch.setattr(VllmEngine, "sync", skip_weights)
    store = make_store(tmp_path / "store")
    engine = {**ENGINE, "name": "vllm", "on_drift": "stop"}
    config = build_config(small_config(store, engine=engine, evaluation={"every": 0}, update={"lr": 1e-3}))
    with pytest.raises(EngineError, match=r"disagree by .* at policy version 1.*not the trainer's"):
        train(config)
    monkeypatch.setattr(VllmEngine, "sync", sync)
    train(config)
    drifts = query(Layout(store), "select engine_drift from updates order by step").to_pylist()
    assert len(drifts) == 6
    assert max(row["engine_drift"] for row in drifts) > 1e-3
