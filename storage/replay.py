"""What a replay reads: the steps that were asked for, in order, a few at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.catalog import query, query_locked
from storage.errors import StoreError
from storage.history import History
from storage.layout import Layout
from storage.runs import Run, list_runs, lost_steps, named_runs
from storage.schemas import ACQUISITIONS, FORECASTS, REWARDS, ROLLOUTS, TOKENS
from storage.steps import Tables, read_step

READ_ROWS = 50_000
"""Rows from which on the steps read so far are handed out and let go."""

_STEPS = """
select run_id, step from steps join runs using (run_id) where step > 0 order by created_at, run_id, step
"""
_WANTED = """
select run_id, step from steps join runs using (run_id) where step > 0 and (
{where}
)
"""
_KEYS = ("step", "group_id", "sample")
_READ = {
    "forecasts": pa.schema([FORECASTS.field(name) for name in ("step", "prompt_id", "predictor", "p_success")]),
    "acquisitions": pa.schema(
        [ACQUISITIONS.field(name) for name in ("step", "round", "prompt_id", "propensity", "decision")]
    ),
    "rollouts": pa.schema([ROLLOUTS.field(name) for name in (*_KEYS, "round", "prompt_id", "response_tokens")]),
    "rewards": pa.schema([REWARDS.field(name) for name in (*_KEYS, "success")]),
}
_LOGPROBS = {"tokens": pa.schema([TOKENS.field(name) for name in (*_KEYS, "logprobs")])}
_GROUPS = """
with groups as (
    select step, min(round) as round, prompt_id, min(position) as position, count(success) as valid,
           count(*) filter (success) as successes, avg(response_tokens) as mean_tokens
    from rollouts left join rewards using (step, group_id, sample) group by step, prompt_id
)
select step, round, prompt_id, successes, valid, mean_tokens, propensity, decision
from groups left join acquisitions using (step, round, prompt_id)
where valid > 0 order by step, round, position
"""


@dataclass(frozen=True)
class RunSteps:
    """The steps of one run that were asked for."""

    run: str
    steps: tuple[int, ...]
    faults: tuple[str, ...]
    """What is wrong with the run's steps, a line each."""


@dataclass(frozen=True)
class StoredStep:
    """One committed step as it is replayed."""

    step: int
    candidates: pa.Table
    """prompt_id, predictor and p_success of what was considered; empty where no forecast was stored."""
    groups: pa.Table
    """round, prompt_id, successes, valid, mean_tokens, propensity and decision, by round and place in it."""
    tokens: pa.Table | None
    """prompt_id and logprobs of each rollout, where they were asked for and are known."""


def find_steps(layout: Layout, runs: str = "*", where: str = "true") -> list[RunSteps]:
    """The committed steps of the runs that are named and for which an SQL condition holds, oldest run first.

    Args:
        runs: names or globs, with commas between them.
        where: over the columns of the views `runs` and `steps`.

    Raises:
        StoreError: the store cannot be read, the condition cannot be evaluated, or nothing matches.
    """
    records = {run.run: run for run in list_runs(layout)}
    listed = {run: History(layout, run).committed_steps() for run in records}  # before they are read
    found = query(layout, _STEPS)
    wanted = _wanted(layout, where)
    names = named_runs(dict.fromkeys(found["run_id"].to_pylist()), [one.strip() for one in runs.split(",")])
    steps_of = {run: found.filter(pc.equal(found["run_id"], run))["step"].to_pylist() for run in names}
    chosen = [
        _run_steps(run, steps, wanted, _faults(records[run], steps, listed[run]) if run in records else [])
        for run, steps in steps_of.items()
    ]
    if not any(one.steps for one in chosen):
        asked = f"--runs {runs!r}" + ("" if where == "true" else f" --where {where!r}")
        raise StoreError(f"no committed step matches {asked} in {layout.root}: see `foreroll runs`")
    return [one for one in chosen if one.steps]


def read_steps(layout: Layout, chosen: RunSteps, faults: list[str], *, logprobs: bool = False) -> Iterator[StoredStep]:
    """The steps of a run one after the other; a damaged step is left out, and `faults` then says so.

    Args:
        logprobs: also read the log-probabilities of all tokens.
    """
    schemas = _READ | (_LOGPROBS if logprobs else {})
    batch: dict[int, Tables] = {}
    for step in chosen.steps:
        try:
            batch[step] = read_step(layout, chosen.run, step, schemas)
        except StoreError as error:
            faults.append(f"run {chosen.run}: step {step} is left out: {error}")
        if sum(len(table) for tables in batch.values() for table in tables.values()) >= READ_ROWS:
            yield from _stored(batch)
            batch = {}
    yield from _stored(batch)


def _wanted(layout: Layout, where: str) -> set[tuple[str, int]]:
    """Run and step of all for which the condition holds."""
    try:
        duckdb.SQLExpression(where)  # one expression and nothing after it
        found = query_locked(layout, _WANTED.format(where=where))
    except (StoreError, duckdb.Error, UnicodeEncodeError) as error:
        reason = " ".join(str(error).split("\n\n", 1)[0].split())
        raise StoreError(f"--where {where!r} is no condition on runs and steps: {reason}") from None
    return set(zip(found["run_id"].to_pylist(), found["step"].to_pylist(), strict=True))


def _run_steps(run: str, readable: Sequence[int], wanted: set[tuple[str, int]], faults: Sequence[str]) -> RunSteps:
    steps = tuple(step for step in readable if (run, step) in wanted)
    return RunSteps(run, steps, tuple(faults) if steps else ())


def _faults(record: Run, readable: Sequence[int], listed: Sequence[int]) -> list[str]:
    """Steps that lost their commit record, or have one that cannot be read.

    Args:
        listed: steps that had a commit record before any was read; a run may go on meanwhile.
    """
    committed = {*listed, *readable}
    lost, unreadable = lost_steps(record, committed), sorted(committed - {0, *readable})
    return [
        *([f"run {record.run}: {_spell(lost, 'has', 'have')} no commit record: left out"] if lost else []),
        *(
            [f"run {record.run}: {_spell(unreadable, 'is', 'are')} left out: the commit record is damaged"]
            if unreadable
            else []
        ),
    ]


def _spell(steps: Sequence[int], one: str, many: str) -> str:
    if len(steps) == 1:
        return f"step {steps[0]} {one}"
    more = f" and {len(steps) - 5} more" if len(steps) > 5 else ""
    return f"steps {', '.join(map(str, steps[:5]))}{more} {many}"


def _stored(batch: dict[int, Tables]) -> Iterator[StoredStep]:
    """Steps that were read together, one by one."""
    if not batch:
        return
    together = {name: pa.concat_tables([tables[name] for tables in batch.values()]) for name in _READ}
    rollouts = together["rollouts"]
    together["rollouts"] = rollouts.append_column("position", pa.array(np.arange(len(rollouts))))
    with duckdb.connect() as con:
        for name, table in together.items():
            con.register(name, table)
        groups = con.sql(_GROUPS).to_arrow_table()
    for step, tables in batch.items():
        yield StoredStep(
            step,
            tables["forecasts"].drop_columns("step"),
            groups.filter(pc.equal(groups["step"], step)).drop_columns("step"),
            _with_prompts(tables) if len(tables.get("tokens", ())) else None,
        )


def _with_prompts(tables: Tables) -> pa.Table:
    """Log-probabilities of each rollout with its prompt; both tables hold the rollouts in the same order."""
    assert tables["tokens"]["group_id"].equals(tables["rollouts"]["group_id"])
    return pa.table({"prompt_id": tables["rollouts"]["prompt_id"], "logprobs": tables["tokens"]["logprobs"]})
