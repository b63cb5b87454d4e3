"""`foreroll history import`."""

from collections.abc import Sequence
from pathlib import Path

import click

from flows.commands.watching import show_rows
from storage.importers.columns import parse_pairs
from storage.importers.faults import one_line, summary
from storage.importers.histories import ImportReport, run_import
from storage.importers.planning import ImportPlan, ImportRequest, plan_import
from storage.store import open_store

SHOWN = 3
"""Examples of rows that were not matched."""


def import_files(
    store: Path,
    files: Sequence[Path],
    *,
    dataset: str,
    run: str,
    format_: str,
    columns: Sequence[str],
    where: Sequence[str],
    match: Sequence[str],
    threshold: float | None,
    model: str | None,
    temperature: float | None,
    skip_bad: bool,
) -> None:
    """Import a history as a run, and print how it was read and what it holds.

    Raises:
        StoreError: it cannot be read, or the run is another's.
    """
    layout = open_store(store)
    request = ImportRequest(
        files=files,
        dataset=dataset,
        run=run,
        format=format_,
        columns=parse_pairs("--map", columns),
        where=parse_pairs("--where", where),
        keys=parse_pairs("--match", [word if "=" in word else f"{word}={word}" for word in match]),
        threshold=threshold,
        model=model,
        temperature=temperature,
        skip_bad=skip_bad,
    )
    plan = plan_import(layout, request)
    _tell_plan(plan)
    _tell_result(plan, run_import(layout, plan, show_rows))


def _tell_plan(plan: ImportPlan) -> None:
    more = f" and {len(plan.files) - 1:,} more files" if len(plan.files) > 1 else ""
    click.echo(f"{one_line(plan.files[0].name)}{more}: format {plan.format}")
    for field, column in plan.columns.fields.items():
        click.echo(f"  {field} <- {one_line(column)}")
    for tag, column in plan.matcher.keys.items():
        click.echo(f"  prompt's tag {tag} <- {column}")
    if plan.columns.parts:
        click.echo(f"  parts of the reward <- {one_line(', '.join(plan.columns.parts), 200)}")


def _tell_result(plan: ImportPlan, report: ImportReport) -> None:
    if report.known_as:
        click.echo(f"imported already, as run {report.known_as}: nothing was added")
        return
    reading = report.reading
    click.echo(f"{reading.rows:,} rows, {reading.matched:,} matched to prompts of {plan.request.dataset}")
    for what, rows in (
        ("have no prompt there", reading.unmatched),
        ("are of prompts whose text is another there", reading.changed),
        ("could not be used", reading.faults),
    ):
        if rows:
            click.echo(f"{len(rows):,} rows {what}, and were left out:\n{summary(rows, shown=SHOWN)}")
    if reading.starts_at_zero():
        click.echo("steps count from 0 in the file, and from 1 here")
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in report.totals.items())
    click.echo(f"imported run {plan.request.run}: {counts}")
