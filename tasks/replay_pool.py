"""The prompts of a replay: those of all datasets that its runs used."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.difficulty.inputs import reads_embeddings, reads_texts
from models.errors import ModelError
from models.records import Pool
from models.settings import PclSettings, PredictorSettings, SecSettings
from storage.errors import StoreError
from storage.layout import Layout
from storage.prompts import dataset_digest, dataset_names, holds_dataset, prompt_id, read_dataset
from storage.runs import Run
from tasks.datasets import dataset_categories, dataset_embeddings


@dataclass
class _Prompts:
    """Columns of the union, a dataset at a time."""

    rows: dict[str, int] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    embeddings: list[np.ndarray] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)


def replay_pool(
    layout: Layout,
    runs: Sequence[Run],
    predictors: Iterable[PredictorSettings],
    *,
    embedded: bool = False,
    besides: Sequence[str] = (),
) -> tuple[Pool, list[str]]:
    """The prompts by first appearance, with what the predictors read; and what is wrong with them, a line each.

    Args:
        embedded: whether something else reads their embeddings.
        besides: more datasets, of which those are taken that the store has.

    Raises:
        ModelError: a predictor reads what no history holds.
        StoreError: no dataset is left.
    """
    wanted = list(predictors)
    _check(wanted)
    names, faults = _datasets(layout, runs)
    pool, changed = joined_pool(layout, [*names, *besides], wanted, embedded=embedded)
    return pool, faults + changed


def joined_pool(
    layout: Layout, datasets: Iterable[str], predictors: Sequence[PredictorSettings], *, embedded: bool = False
) -> tuple[Pool, list[str]]:
    """The prompts of all datasets that the store has, by first appearance; and which are left out, a line each."""
    prompts, faults = _Prompts(), []
    for name in dict.fromkeys(datasets):
        if holds_dataset(layout, name):
            faults += _add(layout, name, predictors, prompts, embedded)
    pool = Pool(
        prompt_ids=tuple(prompts.rows),
        embeddings=np.concatenate(prompts.embeddings) if prompts.embeddings else None,
        categories=tuple(prompts.categories),
        texts=tuple(prompts.texts),
    )
    return pool, faults


def _check(predictors: Sequence[PredictorSettings]) -> None:
    if any(isinstance(settings, PclSettings) for settings in predictors):
        raise ModelError("predictor pcl reads the live policy's states, which no history holds: leave it out")
    started = [settings.start for settings in predictors if settings.start]
    if started:
        raise ModelError(f"a replay begins its predictors itself: leave from = {started[0]!r} out")
    tags = {settings.category for settings in predictors if isinstance(settings, SecSettings)}
    if len(tags) > 1:
        raise ModelError(f"predictor sec groups prompts by one tag a replay, not by {', '.join(sorted(tags))}")


def datasets_of(run: Run) -> list[str]:
    """Datasets from which a run's groups come; none where its file does not say."""
    if "prompts" in run.config:
        return [run.config["prompts"]["train"]]
    return list(run.pins.get("datasets", {}))


def stored_datasets(layout: Layout, runs: Sequence[Run]) -> list[str]:
    """Datasets of all runs that the store has."""
    return _datasets(layout, runs)[0]


def _datasets(layout: Layout, runs: Sequence[Run]) -> tuple[list[str], list[str]]:
    names: dict[str, None] = {}
    faults = []
    for run in runs:
        for name in datasets_of(run) or dataset_names(layout):
            if not holds_dataset(layout, name):
                faults.append(f"run {run.run}: its dataset {name} is gone")
                continue
            names[name] = None
            pinned = run.pins.get("datasets", {}).get(name)
            if pinned and dataset_digest(layout, name) != pinned:
                faults.append(f"run {run.run}: dataset {name} is not what the run was created with")
    if not names:
        raise StoreError(f"no dataset of runs {', '.join(run.run for run in runs)} is in {layout.root}: restore one")
    return list(names), faults


def _add(
    layout: Layout, name: str, predictors: Sequence[PredictorSettings], prompts: _Prompts, embedded: bool
) -> list[str]:
    """Add the prompts of a dataset that are new; says which are not what their ids were made of."""
    table = read_dataset(layout, name)
    ids, texts, messages = (table[column].to_pylist() for column in ("prompt_id", "text", "messages"))
    changed = {
        at for at, told in enumerate(messages) if prompt_id([(one["role"], one["content"]) for one in told]) != ids[at]
    }
    kept = [at for at, found in enumerate(ids) if found not in prompts.rows and at not in changed]
    prompts.rows.update((ids[at], len(prompts.rows)) for at in kept)
    if any(reads_texts(settings) for settings in predictors):
        prompts.texts += [texts[at] for at in kept]
    if embedded or any(reads_embeddings(settings) for settings in predictors):
        prompts.embeddings.append(dataset_embeddings(layout, name, ids, texts)[kept])
    for tag in {settings.category for settings in predictors if isinstance(settings, SecSettings)}:
        categories = dataset_categories(layout, name, tag)
        prompts.categories += [categories[at] for at in kept]
    return [f"dataset {name}: prompt {ids[at]} is left out, because its text changed" for at in sorted(changed)]
