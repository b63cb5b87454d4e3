"""Imports histories that were not made here: each becomes a finished run that names its source."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from storage.errors import StoreError
from storage.history import History
from storage.importers.columns import Where
from storage.importers.faults import one_line, summary
from storage.importers.outcomes import Reading, read_outcomes
from storage.importers.planning import ImportPlan
from storage.importers.writing import write_steps
from storage.layout import Layout
from storage.locks import RunLock, hold_run
from storage.prompts import dataset_digest
from storage.runs import Run, list_runs, read_run, write_run


@dataclass(frozen=True)
class ImportReport:
    """What an import did."""

    reading: Reading
    totals: Mapping[str, int]
    """Counts of steps, groups, informative groups, rollouts and successes; empty where they were written before."""
    known_as: str = ""
    """The run that holds these outcomes already; then nothing was added."""


def run_import(layout: Layout, plan: ImportPlan) -> ImportReport:
    """Read and write; a run is complete or, to every query, not there.

    Raises:
        StoreError: rows cannot be used, nothing matches, or the run is another's.
    """
    identity = plan.identity
    with hold_run(layout, plan.request.run) as lock:
        known_as = _already(layout, plan.request.run, identity)
        if known_as:
            return ImportReport(Reading(), {}, known_as)
        reading = _read(plan)
        outcomes = reading.table()
        run = _run_of(layout, plan, reading, identity, lock.epoch)
        totals: Mapping[str, int] = {}
        if not History(layout, run.run).committed_steps():  # else it was killed just when it had them
            totals = _write(layout, run, lock, outcomes)
        write_run(layout, run)
    return ImportReport(reading, totals)


def _write(layout: Layout, run: Run, lock: RunLock, outcomes: pa.Table) -> Mapping[str, int]:
    """Write the steps. The run file comes first: it says whose they are if the process dies just after."""
    write_run(layout, replace(run, state="running"))
    try:
        lock.check()
        return write_steps(layout, run.run, lock.epoch, outcomes, _sampling(run))
    except BaseException:
        if not History(layout, run.run).committed_steps():
            layout.run_file(run.run).unlink(missing_ok=True)
        raise


def _already(layout: Layout, run: str, identity: str) -> str:
    """The run that holds these outcomes already, if any.

    Raises:
        StoreError: the run holds something else.
    """
    known = read_run(layout, run)
    if known is None and History(layout, run).committed_steps():
        raise StoreError(f"run {run} has a history and no {layout.run_file(run)}: restore it, or choose another --run")
    if known is not None:
        source = known.config.get("imported")
        if source is None:
            raise StoreError(f"run {run} exists, and was not imported: choose another --run")
        if source["identity"] != identity:
            raise StoreError(
                f"run {run} exists, imported from {source['files'][0]['name']} with other content or in another way: "
                "choose another --run"
            )
        return run if known.state == "finished" else ""
    same = (one for one in list_runs(layout) if one.config.get("imported", {}).get("identity") == identity)
    return next((one.run for one in same if one.state == "finished"), "")


def _read(plan: ImportPlan) -> Reading:
    """All outcomes.

    Raises:
        StoreError: rows cannot be used, or none has a prompt of the dataset.
    """
    reading = Reading()
    where = Where(plan.request.where)
    for path in plan.files:
        read_outcomes(path, plan.columns, where, plan.matcher, reading)
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


def _run_of(layout: Layout, plan: ImportPlan, reading: Reading, identity: str, epoch: int) -> Run:
    """The run file of an import."""
    request = plan.request
    imported: dict[str, Any] = {
        "files": [{"name": path.name, "sha256": digest} for path, digest in zip(plan.files, plan.digests, strict=True)],
        "identity": identity,
        "format": plan.format,
        "dataset": request.dataset,
        "model": request.model or _only(reading, "model"),
        "temperature": request.temperature if request.temperature is not None else _temperature(reading),
        "columns": dict(plan.columns.fields),
        "where": dict(request.where),
        "matched_by": plan.matcher.keys,
        "success_threshold": request.threshold,
        "rows": reading.rows,
        "matched": reading.matched,
        "unmatched": len(reading.unmatched),
        "changed": len(reading.changed),
        "faulty": len(reading.faults),
    }
    return Run(
        run=request.run,
        config={"imported": _storable(imported)},
        pins={"datasets": {request.dataset: dataset_digest(layout, request.dataset)}},
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        target=reading.last_step(),
        epoch=epoch,
        state="finished",
    )


def _storable(facts: dict[str, Any]) -> Any:
    """The facts, with what is no Unicode text replaced: names of files and models may hold anything."""
    return json.loads(json.dumps(facts, ensure_ascii=False).encode("utf-8", "replace"))


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
