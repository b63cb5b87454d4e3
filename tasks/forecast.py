"""Forecasts of a dataset by a published predictor: no run, no policy, no rollout."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.difficulty import build_predictor
from models.difficulty.base import Predictor
from models.difficulty.inputs import reads_embeddings, reads_past, reads_texts
from models.errors import ModelError
from models.records import Pool
from models.seeding import derive_seed
from models.settings import PclSettings, PredictorSettings, SecSettings
from storage.errors import StoreError
from storage.layout import Layout
from storage.prompts import holds_dataset, read_dataset
from storage.registry import Version, read_version, resolve
from tasks.datasets import dataset_categories, dataset_embeddings
from tasks.past import past_runs
from tasks.registry import usable_settings


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
    pool = _pool(layout, dataset, prompts, settings)
    if reads_past(settings):
        pool = _with_past(layout, pool, version)
    predictor = build_predictor(settings, pool, seed=derive_seed(0, "predictor"))
    if not reads_past(settings):
        _load(predictor, version, f"{name}@{number}")
    forecast = predictor.forecast(np.arange(len(prompts)), seed=derive_seed(0, "forecast"))
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


def _pool(layout: Layout, dataset: str, prompts: pa.Table, settings: PredictorSettings) -> Pool:
    if isinstance(settings, PclSettings):
        raise ModelError("predictor pcl reads the states of a run's policy: only a run can forecast with it")
    ids, texts = prompts["prompt_id"].to_pylist(), prompts["text"].to_pylist()
    return Pool(
        prompt_ids=tuple(ids),
        embeddings=dataset_embeddings(layout, dataset, ids, texts) if reads_embeddings(settings) else None,
        categories=dataset_categories(layout, dataset, settings.category) if isinstance(settings, SecSettings) else (),
        texts=tuple(texts) if reads_texts(settings) else (),
    )


def _with_past(layout: Layout, pool: Pool, version: Version) -> Pool:
    """The pool, and behind it the other prompts that the version knows: their texts tell what new ones are like."""
    ids, texts, embeddings = list(pool.prompt_ids), list(pool.texts), [pool.embeddings]
    wanted = set(pc.unique(version.past["prompt_id"]).to_pylist()) - set(ids)
    for name in version.lineage["datasets"]:
        if not wanted or not holds_dataset(layout, name):
            continue
        found, told = (read_dataset(layout, name)[column].to_pylist() for column in ("prompt_id", "text"))
        kept = [at for at, one in enumerate(found) if one in wanted]
        ids += [found[at] for at in kept]
        texts += [told[at] for at in kept] if pool.texts else []
        if pool.embeddings is not None:
            embeddings.append(dataset_embeddings(layout, name, found, told)[kept])
        wanted -= set(found)
    joined = None if pool.embeddings is None else np.concatenate([part for part in embeddings if part is not None])
    past = past_runs(version.past, ids)
    return replace(pool, prompt_ids=tuple(ids), texts=tuple(texts), embeddings=joined, past=past)
