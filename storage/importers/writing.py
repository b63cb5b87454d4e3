"""Writes the outcomes of a history as the committed steps of a run, all of which appear at once."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.files import new_folder
from storage.history import group_id
from storage.layout import Layout
from storage.parquet import build_table, table_bytes
from storage.schemas import REWARDS, ROLLOUTS, STEPS

TABLES = ("rollouts", "rewards")
ENGINE = "imported"
"""What stands in the column `engine` of imported rollouts."""


def write_steps(layout: Layout, run: str, epoch: int, outcomes: pa.Table, sampling: dict[str, Any]) -> dict[str, int]:
    """Write a run's whole history; nothing of it is visible before all of it is.

    Call while holding the run's lock, for a run without committed steps.

    Returns:
        Counts of steps, groups, informative groups, rollouts and successes.

    Raises:
        StoreError: the file system refuses a write.
    """
    remove_orphans(layout, run)
    totals = {"steps": 0, "groups": 0, "informative_groups": 0, "rollouts": 0, "successes": 0}
    with ExitStack() as stack:  # the folder of commit records gets its name last
        steps = stack.enter_context(new_folder(layout.table_of_run("steps", run)))
        folders = {table: stack.enter_context(new_folder(layout.table_of_run(table, run))) for table in TABLES}
        for step, part in _by_step(outcomes):
            counts = _write_step(layout, run, epoch, step, part, sampling, folders, steps)
            totals["steps"] += 1
            for name in ("groups", "informative_groups", "rollouts", "successes"):
                totals[name] += counts[name]
    return totals


def remove_orphans(layout: Layout, run: str) -> None:
    """Delete what a killed import of this run left; it has no commit record, so no query ever saw it."""
    for table in (*TABLES, "steps"):
        folder = layout.table_of_run(table, run)
        leftover = re.compile(rf"\.{re.escape(folder.name)}\.\d+-[0-9a-f]{{8}}\.tmp")
        for doomed in [*folder.parent.glob(f".{folder.name}.*"), folder]:
            if doomed == folder or leftover.fullmatch(doomed.name):
                shutil.rmtree(doomed, ignore_errors=True)


def _by_step(outcomes: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each step, steps ascending, groups in order of first appearance, with the column `sample`."""
    steps = outcomes["step"].to_numpy()
    codes = outcomes["prompt_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    _, first, group = np.unique(np.stack([steps, codes]), axis=1, return_index=True, return_inverse=True)
    order = np.lexsort((np.arange(len(steps)), first[group], steps))
    table = outcomes if np.all(np.diff(order) > 0) else outcomes.take(pa.array(order))
    steps, codes = steps[order], codes[order]
    fresh = np.r_[True, (steps[1:] != steps[:-1]) | (codes[1:] != codes[:-1])]
    starts = np.flatnonzero(fresh)
    sample = np.arange(len(steps)) - np.repeat(starts, np.diff(np.r_[starts, len(steps)]))
    table = table.append_column("sample", pa.array(sample, pa.int32()))
    bounds = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    for begin, end in pairwise(bounds):
        yield int(steps[begin]), table.slice(begin, end - begin)


def _write_step(
    layout: Layout,
    run: str,
    epoch: int,
    step: int,
    part: pa.Table,
    sampling: dict[str, Any],
    folders: dict[str, Path],
    steps: Path,
) -> dict[str, int]:
    prompts = part["prompt_id"].to_pylist()
    groups = pa.array([group_id(run, step, prompt) for prompt in prompts])
    files = [
        _write(layout, layout.part(name, run, step), folders[name], table)
        for name, table in (
            ("rollouts", _rollouts(run, step, part, groups, sampling)),
            ("rewards", _rewards(run, step, part, groups)),
        )
    ]
    counts = _counts(part, groups)
    record = {**_record(epoch, step, counts), "files": files}
    table = build_table(STEPS, {name: [value] for name, value in record.items()}, run_id=run, step=step)
    _write(layout, layout.commit(run, step), steps, table)
    return counts


def _write(layout: Layout, path: Path, folder: Path, table: pa.Table) -> dict[str, Any]:
    """Put a part where it will be once `folder` has its name; returns what a commit record says of it."""
    data = table_bytes(table)
    place = folder / path.parent.name / path.name
    place.parent.mkdir()
    place.write_bytes(data)
    return {
        "path": path.relative_to(layout.root).as_posix(),
        "rows": len(table),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def _rollouts(run: str, step: int, part: pa.Table, groups: pa.Array, sampling: dict[str, Any]) -> pa.Table:
    columns = {name: part[name] for name in ("prompt_id", "sample", "prompt_tokens", "response_tokens")}
    columns["response"] = part["response"].cast(pa.string())
    constants = {"run_id": run, "step": step, "round": 0, "attempt": 0, "policy_version": step - 1, "engine": ENGINE}
    return build_table(
        ROLLOUTS,
        {**_chunked(columns), "group_id": groups},
        **constants,
        finish_reason=None,
        sampling=json.dumps(sampling),
    )


def _rewards(run: str, step: int, part: pa.Table, groups: pa.Array) -> pa.Table:
    valid = part["success"].combine_chunks().is_valid()
    columns = {
        **_chunked({name: part[name] for name in ("sample", "reward", "success")}),
        "group_id": groups,
        "reward_status": pc.if_else(valid, "ok", "unparsable"),
        "reward_parts": part["parts"].combine_chunks(),
    }
    return build_table(REWARDS, columns, run_id=run, step=step, round=0, admitted=True, reject_reason=None)


def _chunked(columns: dict[str, pa.ChunkedArray]) -> dict[str, pa.Array]:
    return {name: column.combine_chunks() for name, column in columns.items()}


def _counts(part: pa.Table, groups: pa.Array) -> dict[str, int]:
    outcome = pa.table({"group": groups, "success": part["success"].cast(pa.int64())}).group_by("group")
    found = outcome.aggregate([("success", "sum"), ("success", "count")])
    successes, valid = (found[name].fill_null(0).to_numpy() for name in ("success_sum", "success_count"))
    return {
        "groups": len(found),
        "informative_groups": int(np.sum((successes > 0) & (successes < valid))),
        "rollouts": len(part),
        "successes": int(successes.sum()),
        "prompt_tokens": pc.sum(part["prompt_tokens"]).as_py() or 0,
        "response_tokens": pc.sum(part["response_tokens"]).as_py() or 0,
    }


def _record(epoch: int, step: int, counts: dict[str, int]) -> dict[str, Any]:
    """A commit record, its files left out: nothing of the pipeline ran."""
    stages = ("predict", "acquire", "generate", "score", "update_policy", "update_predictor", "evaluate")
    return {
        "epoch": epoch,
        "committed_at": datetime.now(UTC),
        "policy_version": step,
        "rounds": 1,
        "candidates": 0,
        **counts,
        **{f"{stage}_seconds": 0.0 for stage in stages},
        "versions": "{}",
    }
