"""Prompts that do not fit the context, in the training flow: forecast, recorded, and never rolled out."""

from pathlib import Path
from typing import Any

import pytest

from flows.config import build_config
from flows.train import train
from models.problems.countdown import make_problems
from storage.catalog import query
from storage.layout import Layout
from storage.prompts import write_dataset
from storage.store import open_store
from tests.flows.small_run import HELDOUT, make_store, small_config

pytestmark = pytest.mark.usefixtures("prefect_server")

FITTING = 4
LENGTHS = [115, 120, 125, 140, 160, 200, 240, 280]
"""Of texts that do not leave room for 16 tokens in a context of 128; some exceed it by themselves."""


def make_mixed_store(store: Path) -> Path:
    make_store(store)
    problems = make_problems(FITTING, split="pool", min_numbers=3, max_numbers=3, seed=3)
    texts = [problem.text for problem in problems] + ["1" * length for length in LENGTHS]
    constants = {"answer": problems[0].answer, "reward": "countdown", "system": "", "instruction": "", "tags": "{}"}
    write_dataset(open_store(store), "mixed", [{"messages": [("user", text)], **constants} for text in texts])
    return store


def rows(store: Path, sql: str) -> list[dict[str, Any]]:
    return query(Layout(store), sql).to_pylist()


@pytest.mark.parametrize("predictor", ["mopps", "pcl"])
def test_they_keep_a_forecast_and_a_propensity_of_0_and_cool_down_starves_no_step_of_the_others(
    tmp_path: Path, predictor: str
) -> None:
    store = make_mixed_store(tmp_path / "store")
    changes = {
        "steps": 3,
        "predictor": predictor,
        "prompts": {"train": "mixed", "heldout": HELDOUT},
        "acquisition": {"name": "thompson", "batch_size": 4},
        "dynamic_sampling": {"enabled": False},
        "evaluation": {"every": 0},
    }
    train(build_config(small_config(store, **changes)))
    found = rows(store, "select step, p_success, propensity, decision from forecasts")
    for step in (1, 2, 3):
        overlong = [row for row in found if row["step"] == step and row["decision"] == "too_long"]
        others = [row for row in found if row["step"] == step and row["decision"] != "too_long"]
        assert [row["propensity"] for row in overlong] == [0.0] * len(LENGTHS)
        assert all(0.0 < row["p_success"] < 1.0 for row in overlong)
        assert [row["propensity"] for row in others] == [1.0] * FITTING
    assert [row["n"] for row in rows(store, "select count(*) as n from groups group by step order by step")] == [4] * 3
