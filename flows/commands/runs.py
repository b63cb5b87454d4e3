"""`foreroll runs`."""

import json
from pathlib import Path

from flows.commands.tables import format_table
from storage.checkpoints import checkpoint_steps
from storage.errors import StoreError
from storage.history import History
from storage.layout import Layout
from storage.locks import read_holder
from storage.runs import Run, list_runs, read_run
from storage.store import open_store


def list_table(store: Path) -> str:
    """A line for each run, oldest first."""
    layout = open_store(store)
    rows = [
        (run.run, state_of(layout, run), f"{max(History(layout, run.run).last_committed(), 0)}/{run.target}",
         *_methods(run), run.created_at)
        for run in list_runs(layout)
    ]  # fmt: skip
    return format_table(("run", "state", "step", "predictor", "acquisition", "created"), rows)


def _methods(run: Run) -> tuple[str, str]:
    """Predictor and acquisition rule; an imported run has none that are known."""
    if "imported" in run.config:
        return f"imported {run.config['imported']['format']}", "-"
    return run.config["predictor"]["name"], run.config["acquisition"]["name"]


def describe_run(store: Path, name: str) -> str:
    """One run: its report, where it stands, its checkpoints and its config.

    Raises:
        StoreError: there is no such run.
    """
    from tasks.report import build_report, report_lines

    layout = open_store(store)
    run = read_run(layout, name)
    if run is None:
        known = ", ".join(one.run for one in list_runs(layout)) or "none"
        raise StoreError(f"no run {name!r} in {layout.root}; it has: {known}")
    steps = ", ".join(map(str, checkpoint_steps(layout, name))) or "none"
    return "\n".join(
        [
            *report_lines(build_report(layout, name)),
            f"state             {state_of(layout, run)}{f' ({run.message})' if run.message else ''}",
            f"target            step {run.target}",
            f"checkpoints       {layout.checkpoints(name)}: steps {steps}",
            *([f"forked from       {run.forked_from['run']}@{run.forked_from['step']}"] if run.forked_from else []),
            f"config            {json.dumps(run.config)}",
            f"pins              {json.dumps(run.pins)}",
        ]
    )


def state_of(layout: Layout, run: Run) -> str:
    """The state in the run file, corrected where its process is dead."""
    holder = read_holder(layout, run.run)
    if run.state == "running" and (holder is None or holder.is_dead()):
        return "killed"
    return run.state
