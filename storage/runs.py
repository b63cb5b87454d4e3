"""Run files: what a run is (config, pins) and where it stands (target, state)."""

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from storage.errors import StoreError
from storage.files import write_over
from storage.layout import Layout

logger = logging.getLogger(__name__)

RunState = Literal["running", "finished", "interrupted", "stopped", "failed"]
"""`interrupted`: asked to end early; `stopped`: gave up by its own rule; `failed`: an error ended it."""


@dataclass(frozen=True)
class Run:
    """One run file."""

    run: str
    config: Mapping[str, Any]
    """The resolved configuration."""
    pins: Mapping[str, Any]
    """What the run was created with: dataset and model digests, library versions, thread count."""
    created_at: str
    """UTC, ISO 8601."""
    target: int
    """Last step asked for."""
    epoch: int
    """How many processes have advanced the run."""
    state: RunState = "running"
    message: str = ""
    """Why a run stopped or failed."""
    forked_from: Mapping[str, Any] = field(default_factory=dict)
    """`run` and `step` of the checkpoint it began with; empty for a run of its own."""


def read_run(layout: Layout, run: str) -> Run | None:
    """The run file, None when there is no such run.

    Raises:
        StoreError: the file is damaged.
    """
    path = layout.run_file(run)
    return _read(path) if path.exists() else None


def write_run(layout: Layout, run: Run) -> None:
    """Put the run file in place of the one before."""
    text = json.dumps(asdict(run), indent=2, ensure_ascii=False)
    write_over(layout.run_file(run.run), text.encode() + b"\n")


def check_trained_here(run: Run) -> None:
    """Refuse a run that was imported: it has outcomes, and no policy.

    Raises:
        StoreError: names its source.
    """
    if "imported" in run.config:
        files = ", ".join(one["name"] for one in run.config["imported"]["files"])
        raise StoreError(f"run {run.run} was imported from {files} and cannot be trained on: choose another --run")


def list_runs(layout: Layout) -> list[Run]:
    """All runs, oldest first; damaged run files are named in a warning and left out."""
    runs = []
    for path in sorted(layout.runs().glob("*.json")):
        try:
            runs.append(_read(path))
        except StoreError as error:
            logger.warning("%s", error)
    return sorted(runs, key=lambda run: run.created_at)


def named_runs(runs: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Those of the runs that one of the names and globs means, in their order."""
    return [run for run in runs if any(fnmatchcase(run, pattern) for pattern in patterns)]


def lost_steps(run: Run, committed: Collection[int]) -> list[int]:
    """Steps before the last committed one that are not committed, which are lost: a run commits one after the other.

    An imported history has none, because it may know of every tenth step.
    """
    if "imported" in run.config:
        return []
    return sorted(set(range(1, max(committed, default=0))) - {*committed})


def _read(path: Path) -> Run:
    try:
        return Run(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"run file {path} is not readable ({error}): restore it, or set it aside") from error
