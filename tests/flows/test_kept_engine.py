"""A run keeps the engine that it began with."""

from pathlib import Path

import pytest

from flows.config import build_config
from flows.train import train
from models.errors import EngineError
from storage.layout import Layout
from storage.runs import read_run
from tests.flows.small_run import make_store, small_config

TOO_MUCH = 1e5
"""GiB of cache that no machine has: with it vLLM does not start, installed or not."""


def test_a_run_that_auto_gave_transformers_keeps_it_when_vllm_would_work(tmp_path: Path, prefect_server: str) -> None:
    store = make_store(tmp_path / "store")
    config = small_config(store, steps=1, engine={"name": "auto", "kv_cache_gib": TOO_MUCH}, evaluation={"every": 0})
    train(build_config(config))
    run = read_run(Layout(store), "small")
    assert run is not None and run.pins["engine"] == "transformers"
    train(build_config({**config, "engine": {"name": "auto", "kv_cache_gib": 0.1}}))
    run = read_run(Layout(store), "small")
    assert run is not None and (run.pins["engine"], run.state, run.target) == ("transformers", "finished", 2)


def test_an_engine_that_fails_to_start_again_is_told_with_the_fork_that_goes_on(
    tmp_path: Path, prefect_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "store")
    config = small_config(store, steps=1, evaluation={"every": 0})
    train(build_config(config))

    def refuse(*_: object, **__: object) -> None:
        raise EngineError("no room")

    monkeypatch.setattr("tasks.opening.build_engine", refuse)
    with pytest.raises(EngineError, match=r"no room\. Run small keeps .*--run NEW --from small --set engine=NAME"):
        train(build_config(config))
    with pytest.raises(EngineError, match=r"no room$"):
        train(build_config({**config, "run": "other"}))
