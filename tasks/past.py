"""What other runs did on a run's prompts: which of them it reads, pinned when it is created, and the reading."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.difficulty.inputs import past_wanted
from models.records import Ints, PastRuns
from models.settings import PredictorSettings
from storage.errors import StoreError
from storage.history import History
from storage.layout import Layout
from storage.past import groups_digest, read_groups, snapshot
from storage.runs import list_runs, named_runs


def past_runs(groups: pa.Table, prompt_ids: Sequence[str]) -> PastRuns:
    """The groups on the prompts of a pool; runs are numbered in the order in which they come.

    Args:
        groups: rows of `schemas.PAST`.
    """
    rows = pc.index_in(groups["prompt_id"], pa.array(prompt_ids, pa.string()))
    groups = groups.append_column("row", rows).filter(pc.is_valid(rows))
    runs = pc.unique(groups["run_id"])
    return PastRuns(
        run=_ints(pc.index_in(groups["run_id"], runs)),
        step=_ints(groups["step"]),
        row=_ints(groups["row"]),
        successes=_ints(groups["successes"]),
        valid=_ints(groups["valid"]),
        mean_tokens=groups["mean_tokens"].to_numpy().astype(np.float64),
    )


def check_past(layout: Layout, predictor: PredictorSettings) -> None:
    """Refuse a setting that names runs which the store does not have.

    Raises:
        StoreError: names those it has.
    """
    runs = [run.run for run in list_runs(layout)]
    for pattern in _patterns(predictor):
        if pattern != "*" and not named_runs(runs, [pattern]):
            known = ", ".join(runs) or "none"
            raise StoreError(f"predictor.past: no run is called {pattern!r} in {layout.root}; it has: {known}")


def pin_past(
    layout: Layout, run: str, predictor: PredictorSettings, prompt_ids: Sequence[str], forked_from: Mapping[str, Any]
) -> dict[str, Any]:
    """The history of other runs that a new run reads: its snapshot, and the digest of what it says of the pool.

    Args:
        forked_from: `run` and `step` of its parent, of which nothing later is read.
    """
    others = runs_read(predictor, [other.run for other in list_runs(layout) if other.run != run])
    steps = snapshot(layout, others)
    if forked_from.get("run") in steps:
        steps[forked_from["run"]] = min(steps[forked_from["run"]], forked_from["step"])
    groups = read_groups(layout, steps, prompt_ids)
    shared = set(pc.unique(groups["run_id"]).to_pylist())
    past = {other: step for other, step in steps.items() if other in shared}
    return {"past": past, "past_digest": groups_digest(groups)} if past else {"past": {}}


def read_past(layout: Layout, run: str, pins: Mapping[str, Any], prompt_ids: Sequence[str]) -> pa.Table:
    """The groups that a run has pinned, as they were when it was created.

    Raises:
        StoreError: the store no longer has them.
    """
    past = pins.get("past", {})
    for other, step in past.items():
        last = History(layout, other).last_committed()
        if last < step:
            raise StoreError(
                f"run {run} forecasts from steps 1 to {step} of run {other}, of which the store has "
                f"{f'only {last}' if last > 0 else 'none'} any more: restore them, or begin a new run"
            )
    groups = read_groups(layout, past, prompt_ids)
    if past and pins["past_digest"] != groups_digest(groups):
        raise StoreError(
            f"run {run} forecasts from what runs {', '.join(past)} did, and their history is not what it was when "
            "the run was created: restore it, or begin a new run"
        )
    return groups


def runs_read(predictor: PredictorSettings, runs: Sequence[str]) -> list[str]:
    """Those of the runs that a predictor reads, in their order."""
    return named_runs(runs, _patterns(predictor))


def _patterns(predictor: PredictorSettings) -> list[str]:
    """Names and globs of the runs that a predictor reads."""
    wanted = past_wanted(predictor)
    if wanted == "none":
        return []
    return ["*"] if wanted == "all" else [part.strip() for part in wanted.split(",")]


def _ints(values: pa.ChunkedArray) -> Ints:
    found: Ints = values.to_numpy().astype(np.int64)
    return found
