"""Forecasts of the next visit on the outcomes of a real GRPO run: 806 prompts, 8 rollouts a visit.

The data is public and not part of the project; its folder is FOREROLL_DATA.
"""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from models.difficulty import build_predictor
from models.difficulty.metrics import forecast_quality
from models.records import Observation, Pool
from models.settings import KalmanSettings, LastSettings, MeanSettings, MoppsSettings, PredictorSettings

DATA = Path(os.environ.get("FOREROLL_DATA", Path(__file__).parents[4] / "shared" / "data"))
HISTORY = DATA / "rl_history_1p5b.parquet"
VISITS, EARLY, LATE = 44, slice(4, 14), slice(34, 44)


@pytest.fixture(scope="module")
def successes() -> np.ndarray:
    """[prompts, visits] successes of 8, of the prompts with all visits."""
    if not HISTORY.exists():
        pytest.skip(f"no {HISTORY}: set FOREROLL_DATA to the folder of the public test data")
    table = pl.read_parquet(HISTORY).filter(pl.col("visit") < VISITS).sort("index", "visit")
    whole = table.filter(pl.len().over("index") == VISITS)
    return whole["n_correct"].to_numpy().astype(np.int64).reshape(-1, VISITS)


def quality(settings: PredictorSettings, successes: np.ndarray, visits: slice) -> dict[str, float]:
    """Mean quality over some visits, each forecast before it is observed."""
    prompts = len(successes)
    predictor, rows = build_predictor(settings, Pool(tuple(map(str, range(prompts)))), seed=0), np.arange(prompts)
    eight, tokens, found = np.full(prompts, 8), np.ones(prompts), []
    for visit in range(VISITS):
        p_success = predictor.forecast(rows, seed=0).p_success
        found.append(forecast_quality(p_success, successes[:, visit], eight))
        predictor.observe(Observation(rows, successes[:, visit], eight, tokens), seed=0)
    return {name: float(np.mean([one[name] for one in found[visits]])) for name in found[0]}


@pytest.mark.parametrize(
    ("settings", "early", "late"),
    [
        (LastSettings(), 0.86, 0.90),
        (MeanSettings(window=5), 0.89, 0.93),
        (MoppsSettings(decay=0.9), 0.89, 0.93),
        (KalmanSettings(), 0.89, 0.93),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else str(value),
)
def test_rank_correlation_with_the_next_visit(
    settings: PredictorSettings, early: float, late: float, successes: np.ndarray
) -> None:
    assert quality(settings, successes, EARLY)["spearman"] > early
    assert quality(settings, successes, LATE)["spearman"] > late


def test_the_filter_has_the_best_likelihood_and_is_calibrated(successes: np.ndarray) -> None:
    late = {
        settings.name: quality(settings, successes, LATE)
        for settings in (LastSettings(), MeanSettings(window=5), MoppsSettings(decay=0.9), KalmanSettings())
    }
    assert min(late, key=lambda name: late[name]["nll"]) == "kalman"
    assert late["kalman"]["ece"] < 0.03 < late["last"]["ece"]
