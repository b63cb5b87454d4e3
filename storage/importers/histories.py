"""Imports histories that were not made here: each becomes a finished run that names its source."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.errors import StoreError
from storage.files import file_digest
from storage.history import History
from storage.importers.columns import Where, check_columns, columns_of, find_columns, missing_column
from storage.importers.faults import one_line, summary
from storage.importers.formats import FORMATS, check_format, detect_format, find_score, reward_columns
from storage.importers.matching import Matcher
from storage.importers.outcomes import HistoryColumns, Reading, read_outcomes
from storage.importers.sources import Row, expand, sample_of
from storage.importers.writing import write_steps
from storage.layout import Layout, check_name
from storage.locks import RunLock, hold_run
from storage.prompts import dataset_digest, read_dataset
from storage.runs import Run, list_runs, read_run, write_run


@dataclass(frozen=True)
class ImportRequest:
    """What a user asks for."""

    files: Sequence[Path]
    dataset: str
    run: str
    format: str = "auto"
    columns: Mapping[str, str] = field(default_factory=dict)
    """Field to column, as the user named them."""
    where: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    """Tag of a prompt to the column that has it."""
    threshold: float | None = None
    """The least score that is a success; None where scores are 0 or 1."""
    model: str | None = None
    temperature: float | None = None
    skip_bad: bool = False


@dataclass(frozen=True)
class ImportPlan:
    """How a request will be read."""

    request: ImportRequest
    files: Sequence[Path]
    digests: Sequence[str]
    """SHA-256 of each file."""
    format: str
    columns: HistoryColumns
    matcher: Matcher

    @property
    def identity(self) -> str:
        """Digest of all that decides which outcomes are read: of equal ones, one is enough."""
        facts = {
            "files": list(self.digests),
            "dataset": self.request.dataset,
            "where": dict(self.request.where),
            "keys": self.matcher.keys,
            "fields": dict(self.columns.fields),
            "threshold": self.columns.threshold,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class ImportReport:
    """What an import did."""

    reading: Reading
    totals: Mapping[str, int]
    """Counts of steps, groups, informative groups, rollouts and successes; empty where they were written before."""
    known_as: str = ""
    """The run that holds these outcomes already; then nothing was added."""


def plan_import(layout: Layout, request: ImportRequest) -> ImportPlan:
    """Find out how files are to be read.

    Raises:
        StoreError: the dataset, a file or a column is not there.
    """
    check_name("run", request.run)
    _check_numbers(request)
    files = expand(request.files)
    sample = sample_of(files[0], Where(request.where))
    name = detect_format(sample) if request.format == "auto" else request.format
    check_format(files[0].name, name, sample)
    check_columns(files[0].name, sample, request.keys.values(), "--match")
    matcher = Matcher(request.dataset, read_dataset(layout, request.dataset), request.keys)
    fields = _fields(files[0].name, name, sample, request)
    if not request.keys and not {"prompt_id", "position"} & set(fields):
        matcher.use_tags_of(columns_of(sample))
    if not {"prompt", "prompt_id", "position"} & set(fields) and not matcher.keys:
        raise missing_column(files[0].name, sample, "prompt", FORMATS[name].aliases["prompt"])
    taken = [*fields.values(), *matcher.keys.values(), *request.where]
    parts = reward_columns(name, sample, taken) if FORMATS[name].keeps_parts else []
    columns = HistoryColumns(fields, parts, request.threshold)
    return ImportPlan(request, files, _digests(files), name, columns, matcher)


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


def _check_numbers(request: ImportRequest) -> None:
    if request.threshold is not None and not math.isfinite(request.threshold):
        raise StoreError(f"--success-threshold {request.threshold} is no number")
    if request.temperature is not None and not 0 <= request.temperature < math.inf:
        raise StoreError(f"--temperature {request.temperature} is no number from 0 on")


def _digests(files: Sequence[Path]) -> list[str]:
    """SHA-256 of each file.

    Raises:
        StoreError: two have the same content, which would count twice.
    """
    first: dict[str, Path] = {}
    for path in files:
        other = first.setdefault(file_digest(path), path)
        if other is not path:
            raise StoreError(f"{path} has the content of {other}: name one of them")
    return list(first)


def _fields(file: str, name: str, sample: Sequence[Row], request: ImportRequest) -> dict[str, str]:
    """The column of each field that is read.

    Raises:
        StoreError: there is no telling what a success is.
    """
    aliases = FORMATS[name].aliases
    fields = find_columns(file, sample, aliases, request.columns)
    if name == "table":
        return _table_fields(file, sample, fields)
    if "score" not in fields:
        fields["score"] = find_score(file, name, sample, list(fields.values()))
    return fields


def _table_fields(file: str, sample: Sequence[Row], fields: dict[str, str]) -> dict[str, str]:
    """A table has counts, or a score for each rollout; of what both could be, counts win."""
    counted = "successes" in fields or "rate" in fields
    if counted and "attempts" in fields:
        dropped = ["score", "reward", "response", *(["rate"] if "successes" in fields else [])]
    elif "score" in fields:
        dropped = ["successes", "rate", "attempts"]
    else:
        needed = "attempts" if counted else "successes"
        raise missing_column(file, sample, needed, FORMATS["table"].aliases[needed])
    return {field: column for field, column in fields.items() if field not in dropped}


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
