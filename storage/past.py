"""The groups of committed steps, as forecasters learn from them.

Runs are read up to a step each, the snapshot, so that what was read once can be
read again whatever the runs did since. Only a part of the rollouts is in memory
at a time, whatever the length of the history.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence

import duckdb
import numpy as np
import pyarrow as pa

from storage.errors import StoreError
from storage.files import file_digest
from storage.history import History
from storage.layout import Layout
from storage.schemas import PAST, REWARDS, ROLLOUTS
from storage.steps import Tables, read_step

logger = logging.getLogger(__name__)

READ_ROWS = 200_000
"""Rollouts from which on those read so far are counted and let go."""

_KEYS = ["run_id", "step", "group_id", "sample"]
_READ = {
    "rollouts": pa.schema([ROLLOUTS.field(name) for name in (*_KEYS, "round", "prompt_id", "response_tokens")]),
    "rewards": pa.schema([REWARDS.field(name) for name in (*_KEYS, "success")]),
}
_COUNT = """
select run_id, step, prompt_id, count(*) filter (success) as successes, count(success) as valid,
       avg(response_tokens) as mean_tokens
from rollouts left join rewards using (run_id, step, group_id, sample)
where $every or prompt_id in (select prompt_id from wanted)
group by run_id, step, round, prompt_id, group_id having count(success) > 0
order by step, round, min(position)
"""


def snapshot(layout: Layout, runs: Sequence[str]) -> dict[str, int]:
    """Last committed step of each run, -1 where there is none."""
    return {run: History(layout, run).last_committed() for run in runs}


def read_groups(layout: Layout, snapshot: Mapping[str, int], prompts: Sequence[str] | None = None) -> pa.Table:
    """A row of `schemas.PAST` for each group with a valid rollout, by run, step, round and place in its round.

    A step that is damaged is named in a warning and left out.

    Args:
        snapshot: the runs, each with the last of its steps that is read.
        prompts: the only `prompt_id`s that are read; None reads all.
    """
    counted = [PAST.empty_table()]
    with duckdb.connect() as con:
        con.register("wanted", pa.table({"prompt_id": pa.array(prompts or [], pa.string())}))
        for run, last in snapshot.items():
            counted += [_count(con, steps, every=prompts is None) for steps in _batches(_steps(layout, run, last))]
    return pa.concat_tables(counted)


def groups_digest(groups: pa.Table) -> str:
    """SHA-256 of a table of groups, the same on every machine and for every release of Arrow."""
    digest = hashlib.sha256()
    for column in PAST:
        values = groups[column.name]
        if pa.types.is_string(column.type):
            digest.update("\n".join(values.to_pylist()).encode())
        else:
            digest.update(values.to_numpy().tobytes())
    return digest.hexdigest()


def commits_digest(layout: Layout, run: str, last: int) -> str:
    """SHA-256 over the commit records of a run up to a step, each of which holds the digests of its step's files."""
    digest = hashlib.sha256()
    for step in _committed(layout, run, last):
        digest.update(f"{step} {file_digest(layout.commit(run, step))}\n".encode())
    return digest.hexdigest()


def _committed(layout: Layout, run: str, last: int) -> list[int]:
    return [step for step in History(layout, run).committed_steps() if step <= last]


def _steps(layout: Layout, run: str, last: int) -> Iterator[Tables]:
    for step in _committed(layout, run, last):
        try:
            yield read_step(layout, run, step, _READ)
        except StoreError as error:
            logger.warning("%s: step %d of run %s is left out", error, step, run)


def _batches(steps: Iterator[Tables]) -> Iterator[list[Tables]]:
    """Whole steps, as few as make `READ_ROWS` rollouts."""
    batch: list[Tables] = []
    rows = 0
    for step in steps:
        batch.append(step)
        rows += len(step["rollouts"])
        if rows >= READ_ROWS:
            yield batch
            batch, rows = [], 0
    if batch:
        yield batch


def _count(con: duckdb.DuckDBPyConnection, steps: list[Tables], *, every: bool) -> pa.Table:
    rollouts, rewards = (pa.concat_tables([step[name] for step in steps]) for name in ("rollouts", "rewards"))
    con.register("rollouts", rollouts.append_column("position", pa.array(np.arange(len(rollouts)))))
    con.register("rewards", rewards)
    return con.sql(_COUNT, params={"every": every}).to_arrow_table().cast(PAST)
