"""Prompts that leave no room for a response, and responses that fill the room they have."""

import json
from pathlib import Path
from typing import Any

import pytest

from flows.config import build_config
from flows.train import train
from models.errors import ModelError
from storage.catalog import query
from storage.layout import Layout
from storage.prompts import write_dataset
from storage.store import open_store
from tests.flows.small_run import make_store, small_config

LONG = " ".join(str(number % 10) for number in range(60)) + " -> 7"


def rows(store: Path, sql: str) -> list[dict[str, Any]]:
    return query(Layout(store), sql).to_pylist()


def write_prompts(store: Path, name: str, texts: list[str]) -> None:
    constants = {"system": "", "instruction": "", "tags": "{}", "reward": "countdown"}
    answer = json.dumps({"numbers": [1, 2], "target": 3})
    write_dataset(
        open_store(store, create=True),
        name,
        [{"messages": [("user", text)], "answer": answer, **constants} for text in texts],
    )


def run_small(store: Path, **changes: Any) -> None:
    train(build_config(small_config(store, **{"evaluation": {"every": 0}, "steps": 2, **changes})))


def test_an_overlong_prompt_has_a_forecast_and_its_decision_but_no_rollout(
    tmp_path: Path, prefect_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path / "store")
    write_prompts(store, "mixed", [f"{number} {number + 1} -> {number + 4}" for number in range(1, 12)] + [LONG])
    run_small(store, prompts={"train": "mixed", "heldout": "small-heldout"}, acquisition={"batch_size": 12})
    (long,) = rows(store, f"select prompt_id from prompts where text = '{LONG}'")
    found = rows(
        store,
        "select step, prompt_id, propensity, rank, p_success from forecasts where decision = 'too_long' order by step",
    )
    assert [(row["step"], row["prompt_id"], row["propensity"], row["rank"]) for row in found] == [
        (step, long["prompt_id"], 0.0, None) for step in (1, 2)
    ]
    assert all(0 < row["p_success"] < 1 for row in found)
    assert rows(store, f"select 1 from rollouts where prompt_id = '{long['prompt_id']}'") == []
    assert "1 of 12 prompts are longer than the 112 tokens" in caplog.text


def test_a_dataset_of_nothing_but_overlong_prompts_is_one_line(tmp_path: Path, prefect_server: str) -> None:
    store = make_store(tmp_path / "store")
    write_prompts(store, "endless", [LONG])
    with pytest.raises(ModelError, match=r"endless: 1 of 1 prompts are longer.*lower sampling\.max_tokens"):
        run_small(store, prompts={"train": "endless", "heldout": "small-heldout"})


def test_penalised_responses_lose_reward_and_keep_their_success(tmp_path: Path, prefect_server: str) -> None:
    store = make_store(tmp_path / "store")
    run_small(store, overlong={"responses": "penalise", "buffer": 8}, sampling={"group_size": 4, "max_tokens": 12})
    found = rows(store, "select success, reward, response_tokens, reward_parts from rollouts")
    for row in found:
        penalty = -max(0.0, (row["response_tokens"] - 4) / 8)
        assert row["reward"] == pytest.approx(float(row["success"]) + penalty)
        assert json.loads(row["reward_parts"])["overlong"] == pytest.approx(penalty)
    assert any(row["reward"] < 0 for row in found)


def test_masked_responses_are_not_trained_on(tmp_path: Path, prefect_server: str) -> None:
    store = make_store(tmp_path / "store")
    plain: dict[str, Any] = {
        "dynamic_sampling": {"enabled": False},
        "sampling": {"group_size": 8, "max_tokens": 9},
        "acquisition": {"name": "uniform", "batch_size": 16},
        "steps": 1,
    }
    run_small(store, run="kept", **plain)
    run_small(store, run="masked", overlong={"responses": "mask"}, **plain)
    tokens = {
        run: rows(store, f"select coalesce(sum(tokens), 0)::bigint as n from updates where run_id = '{run}'")[0]["n"]
        for run in ("kept", "masked")
    }
    informative = (
        "select sum(response_tokens)::bigint as n from rollouts join groups using (run_id, step, group_id) "
        "where run_id = 'kept' and informative and finish_reason = '{}'"
    )
    whole, cut = (rows(store, informative.format(reason))[0]["n"] or 0 for reason in ("stop", "length"))
    assert cut > 0
    assert tokens == {"kept": whole + cut, "masked": whole}
