"""Creating, continuing and forking a run: what is checked before anything is changed, and what its file then says."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from models.policy.loading import model_digest, resolve_source
from models.problems import BUILTIN
from models.settings import TrainSettings
from storage.checkpoints import checkpoint_steps
from storage.errors import StoreError
from storage.files import check_writable
from storage.layout import Layout
from storage.prompts import dataset_digest, dataset_names, holds_dataset, read_dataset
from storage.runs import Run, check_trained_here, read_run
from storage.store import open_store
from tasks.past import check_past, pin_past
from tasks.plan import RunPlan, flatten
from tasks.start import pin_start
from tasks.versions import library_versions

FORECASTS_FROM = ("predictor", "past", "past_digest")
"""Pins on which a predictor's features depend: where they differ, what a parent learned goes with other features."""


def check_plan(plan: RunPlan) -> None:
    """Find what is wrong with a plan before anything is changed or loaded.

    Raises:
        StoreError: the store, the run or a dataset stands against it.
        ModelError: the model cannot be found.
    """
    layout = Layout(plan.store.absolute())
    if layout.store_file().exists():
        open_store(plan.store)
    check_writable(layout.root)
    known = read_run(layout, plan.run)
    if known is not None:
        _check_continuable(layout, plan, known)
        return
    for dataset in (plan.settings.prompts.train, plan.settings.prompts.heldout):
        _check_dataset(layout, dataset)
    check_past(layout, plan.settings.predictor)
    parent = None
    if plan.fork_from:
        parent = _check_fork(layout, plan)
    else:
        resolve_source(plan.settings.policy.model)
    pin_start(layout, plan, parent)


def create_run(layout: Layout, plan: RunPlan, epoch: int) -> Run:
    """The file of a new run, with all that it pins."""
    datasets = {plan.settings.prompts.train, plan.settings.prompts.heldout}
    forked_from, parent = {}, None
    if plan.fork_from:
        source, step = fork_checkpoint(layout, plan.fork_from)
        forked_from = {"run": source, "step": step}
        parent = read_run(layout, source)
        model = layout.checkpoint(source, step) / "policy"
    else:
        model = resolve_source(plan.settings.policy.model)
    pins = {
        "datasets": {dataset: dataset_digest(layout, dataset) for dataset in sorted(datasets)},
        "model": model_digest(model),
        "libraries": library_versions(),
        "threads": plan.settings.threads or os.cpu_count() or 1,
        **pin_start(layout, plan, parent),
        **pin_past(layout, plan.run, plan.settings.predictor, _pool_ids(layout, plan), forked_from),
    }
    if parent is not None:
        pins["keeps_predictor"] = all(
            (parent.pins.get(name) or None) == (pins.get(name) or None) for name in FORECASTS_FROM
        )
    return Run(
        run=plan.run,
        config=plan.config,
        pins=pins,
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        target=plan.steps,
        epoch=epoch,
        forked_from=forked_from,
    )


def continue_run(layout: Layout, plan: RunPlan, known: Run, epoch: int) -> Run:
    """The file of a run that goes on: a target that was not finished stays, a finished one moves by `plan.steps`."""
    target = known.target + plan.steps if known.state == "finished" else known.target
    return replace(known, config=plan.config, target=target, epoch=epoch, state="running", message="")


def fork_checkpoint(layout: Layout, source: str) -> tuple[str, int]:
    """Run and step that `RUN` or `RUN@STEP` means.

    Raises:
        StoreError: there is no such checkpoint; names those there are.
    """
    run, _, wanted = source.partition("@")
    steps = checkpoint_steps(layout, run)
    if not steps:
        raise StoreError(f"cannot fork {source}: run {run} has no checkpoint in {layout.root}")
    if wanted and wanted not in map(str, steps):
        raise StoreError(f"cannot fork {source}: run {run} has checkpoints at steps {', '.join(map(str, steps))}")
    return run, int(wanted) if wanted else steps[-1]


def _check_fork(layout: Layout, plan: RunPlan) -> Run:
    """The run that is forked."""
    source, _ = fork_checkpoint(layout, plan.fork_from)
    parent = read_run(layout, source)
    if parent is None:
        raise StoreError(f"cannot fork {plan.fork_from}: {layout.run_file(source)} is missing: restore it")
    theirs, wanted = parent.config["policy"]["model"], plan.settings.policy.model
    if wanted != theirs:
        raise StoreError(
            f"cannot fork {plan.fork_from} with policy.model = {wanted}: a fork begins with its parent's weights, "
            f"which are {theirs}'s: leave policy.model as it is, or leave --from out"
        )
    return parent


def _was_forked_from(run: Run, source: str) -> bool:
    """Whether `RUN` or `RUN@STEP` is where a run came from; without a step any of that run's will do."""
    parent, _, step = source.partition("@")
    return run.forked_from.get("run") == parent and step in ("", str(run.forked_from["step"]))


def _check_continuable(layout: Layout, plan: RunPlan, known: Run) -> None:
    check_trained_here(known)
    if known.state == "stopped":
        raise StoreError(f"run {plan.run} was stopped: {known.message}")
    if plan.fork_from and not _was_forked_from(known, plan.fork_from):
        raise StoreError(f"run {plan.run} exists and was not forked from {plan.fork_from}: choose another --run")
    if plan.settings.threads not in (0, known.pins["threads"]):
        raise StoreError(
            f"run {plan.run} began with {known.pins['threads']} threads, on which its sums depend: "
            "leave threads out, or fork the run"
        )
    before = _defaults(plan) | flatten(known.config)
    changed = [
        f"{key} was {before.get(key)!r}, now {value!r}"
        for key, value in plan.identity.items()
        if before.get(key) != value
    ]
    if changed:
        raise StoreError(
            f"run {plan.run} has another config: {'; '.join(changed)}. Continue it unchanged, or fork it: "
            f"foreroll train --run NEW --from {plan.run} --set key=value"
        )
    for dataset, digest in known.pins["datasets"].items():
        if not holds_dataset(layout, dataset) or dataset_digest(layout, dataset) != digest:
            raise StoreError(f"dataset {dataset} is not what run {plan.run} was created with: restore it")


def _defaults(plan: RunPlan) -> dict[str, Any]:
    """What a run made before a setting existed counts as having set, under dotted keys."""
    defaults = TrainSettings(predictor=type(plan.settings.predictor)())
    return flatten(TypeAdapter(TrainSettings).dump_python(defaults, mode="json", by_alias=True))


def _pool_ids(layout: Layout, plan: RunPlan) -> list[str]:
    ids: list[str] = read_dataset(layout, plan.settings.prompts.train)["prompt_id"].to_pylist()
    return ids


def _check_dataset(layout: Layout, name: str) -> None:
    if name not in BUILTIN and not holds_dataset(layout, name):
        stored = ", ".join(dataset_names(layout)) or "none"
        raise StoreError(f"no dataset {name!r}: the store {layout.root} has {stored}; built in: {', '.join(BUILTIN)}")
