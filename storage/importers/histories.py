"""Imports histories that were not made here: each becomes a finished run that names its source."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from storage.errors import StoreError
from storage.history import History
from storage.importers.columns import Where
from storage.importers.faults import one_line, summary
from storage.importers.known import discard, known_as
from storage.importers.outcomes import Reading, read_outcomes
from storage.importers.planning import ImportPlan, storable
from storage.importers.sources import Row, Watch, unwatched
from storage.importers.writing import write_steps
from storage.layout import Layout
from storage.locks import RunLock, hold_run, one_at_a_time
from storage.prompts import dataset_digest
from storage.runs import Run, write_run


@dataclass(frozen=True)
class ImportReport:
    """What an import did."""

    reading: Reading = field(default_factory=Reading)
    totals: Mapping[str, int] = field(default_factory=dict)
    """Counts of steps, groups, informative groups, rollouts and successes."""
    known_as: str = ""
    """The run that holds these outcomes already; then nothing was added."""


def run_import(layout: Layout, plan: ImportPlan, watch: Watch[Row] = unwatched) -> ImportReport:
    """Read and write; a run is complete or, to every query, not there.

    Files are read before the guard of imports is taken, so whether a run has the outcomes is looked at twice.

    Raises:
        StoreError: rows cannot be used, nothing matches, or the run is another's.
    """
    with hold_run(layout, plan.request.run) as lock:
        with one_at_a_time(layout.import_guard()):
            found = known_as(layout, plan.request.run, plan.source)
        if found:
            return ImportReport(known_as=found)
        reading = _read(plan, watch)
        outcomes = reading.table()
        with one_at_a_time(layout.import_guard()):
            found = known_as(layout, plan.request.run, plan.source)
            if found:
                return ImportReport(known_as=found)
            return ImportReport(reading, _write(layout, _run_of(layout, plan, reading, lock.epoch), lock, outcomes))


def _write(layout: Layout, run: Run, lock: RunLock, outcomes: pa.Table) -> Mapping[str, int]:
    """Write a run. Its file comes first: it says whose the steps are if the process dies just after them."""
    lock.check()
    try:
        write_run(layout, replace(run, state="running"))
        totals = write_steps(layout, run.run, lock.epoch, outcomes, _sampling(run))
    except BaseException:
        if not History(layout, run.run).committed_steps():
            discard(layout, run.run)
        raise
    write_run(layout, run)
    return totals


def _read(plan: ImportPlan, watch: Watch[Row]) -> Reading:
    """All outcomes.

    Raises:
        StoreError: rows cannot be used, or none has a prompt of the dataset.
    """
    reading = Reading()
    where = Where(plan.request.where)
    for path in plan.files:
        read_outcomes(path, plan.columns, where, plan.matcher, reading, watch)
    plan.check_unchanged()
    for name, found in reading.single.items():
        if len(found) > 1:
            column = plan.columns.fields[name]
            raise StoreError(
                f"the rows have {len(found)} values of {column} ({one_line(', '.join(sorted(found)), 200)}): a run has "
                f"one; choose it with --where {column}=VALUE"
            )
    if reading.faults and not plan.request.skip_bad:
        raise StoreError(
            f"{len(reading.faults):,} of {reading.rows:,} rows cannot be used; mend them, or leave them out with "
            f"--skip-bad:\n{summary(reading.faults)}"
        )
    if not reading.tables:
        others = summary([*reading.unmatched, *reading.changed, *reading.faults])
        raise StoreError(
            f"none of {reading.rows:,} rows has a prompt of dataset {plan.request.dataset}: nothing was imported"
            f"{':' if others else ''}\n{others}".rstrip()
        )
    return reading


def _run_of(layout: Layout, plan: ImportPlan, reading: Reading, epoch: int) -> Run:
    """The run file of an import."""
    request = plan.request
    imported: dict[str, Any] = {
        **plan.source,
        "model": request.model or _only(reading, "model"),
        "temperature": request.temperature if request.temperature is not None else _temperature(reading),
        "rows": reading.rows,
        "matched": reading.matched,
        "unmatched": len(reading.unmatched),
        "changed": len(reading.changed),
        "faulty": len(reading.faults),
    }
    return Run(
        run=request.run,
        config={"imported": storable(imported)},
        pins={"datasets": {request.dataset: dataset_digest(layout, request.dataset)}},
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        target=reading.last_step(),
        epoch=epoch,
        state="finished",
    )


def _sampling(run: Run) -> dict[str, Any]:
    """What is known of how the rollouts were drawn."""
    source = run.config["imported"]
    return {name: source[name] for name in ("model", "temperature") if source[name] is not None}


def _only(reading: Reading, name: str) -> str | None:
    return next(iter(reading.single.get(name, ())), None)


def _temperature(reading: Reading) -> float | None:
    try:
        return float(_only(reading, "temperature") or "")
    except ValueError:
        return None
