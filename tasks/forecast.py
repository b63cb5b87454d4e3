"""Forecasts of a dataset by a published predictor: no run, no policy, no rollout."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from models.difficulty import build_predictor
from models.difficulty.base import Predictor
from models.difficulty.inputs import reads_past
from models.errors import ModelError
from models.records import Pool
from models.seeding import derive_seed
from models.settings import PclSettings, PredictorSettings
from storage.errors import StoreError
from storage.layout import Layout
from storage.prompts import read_dataset
from storage.registry import Version, read_version, resolve
from tasks.past import past_runs
from tasks.registry import usable_settings
from tasks.replay_pool import joined_pool


def forecast_dataset(layout: Layout, dataset: str, reference: str) -> pa.Table:
    """Columns prompt_id, p_success, p_sd and expected_tokens (null where no length is known), in the dataset's order.

    Args:
        reference: `NAME`, `NAME@latest`, `NAME@best` or `NAME@NUMBER`.

    Raises:
        StoreError: there is no such dataset or version, or the version cannot be used here.
        ModelError: its predictor reads what only a run has.
    """
    prompts = read_dataset(layout, dataset)
    name, number = resolve(layout, reference)
    version = read_version(layout, name, number)
    settings = usable_settings(version, f"{name}@{number}")
    pool = _pool(layout, dataset, settings, version)
    predictor = build_predictor(settings, pool, seed=derive_seed(0, "predictor"))
    if not reads_past(settings):
        _load(predictor, version, f"{name}@{number}")
    row_of = {prompt_id: row for row, prompt_id in enumerate(pool.prompt_ids)}
    rows = np.array([row_of[prompt_id] for prompt_id in prompts["prompt_id"].to_pylist()], np.int64)
    forecast = predictor.forecast(rows, seed=derive_seed(0, "forecast"))
    return pa.table(
        {
            "prompt_id": prompts["prompt_id"],
            "p_success": forecast.p_success,
            "p_sd": forecast.p_sd,
            "expected_tokens": pa.array(forecast.expected_tokens, from_pandas=True),
        }
    )


def _load(predictor: Predictor, version: Version, reference: str) -> None:
    try:
        predictor.load_state_dict(version.state)
    except (KeyError, ValueError, RuntimeError) as error:  # what numpy and torch raise for arrays of other shapes
        raise StoreError(f"predictor {reference} holds a state that its own settings do not fit: {error!r}") from error


def _pool(layout: Layout, dataset: str, settings: PredictorSettings, version: Version) -> Pool:
    """The dataset's prompts; for one that reads the past also those of the version, whose texts it learns from."""
    if isinstance(settings, PclSettings):
        raise ModelError("predictor pcl reads the states of a run's policy: only a run can forecast with it")
    if not reads_past(settings):
        return _whole_pool(layout, [dataset], settings)
    pool = _whole_pool(layout, [dataset, *version.lineage["datasets"]], settings)
    return replace(pool, past=past_runs(version.past, pool.prompt_ids))


def _whole_pool(layout: Layout, datasets: list[str], settings: PredictorSettings) -> Pool:
    pool, faults = joined_pool(layout, datasets, [settings])
    if faults:
        raise StoreError(f"{faults[0]}: see `foreroll prompts check`")
    return pool
