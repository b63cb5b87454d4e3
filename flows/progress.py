"""Shows how far a run is: a bar on a terminal, plain lines elsewhere, and a progress artifact in Prefect."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from tqdm import tqdm

LINES = 30
"""Plain lines that a whole run prints, about."""
ARTIFACT_UPDATES = 50


class Progress:
    """The progress of one invocation."""

    def __init__(self, run: str, first: int, target: int) -> None:
        self._run = run
        self._first, self._target = first, target
        self._bar = tqdm(total=target - first, desc=run, unit="step", disable=None)
        self._artifact: UUID = create_progress_artifact(  # type: ignore[assignment]
            progress=0.0, key="training-progress", description=f"Run {run}, steps {first + 1} to {target}"
        )

    def advance(self, step: int, record: dict[str, Any]) -> None:
        """Show a committed step."""
        done, total = step - self._first, self._target - self._first
        if done == 0:
            return
        self._bar.set_postfix_str(_describe(record), refresh=False)
        self._bar.update()
        if not sys.stderr.isatty() and _is_due(done, total, LINES):
            print(f"{self._run}: step {step} of {self._target}, {_describe(record)}", flush=True)
        if _is_due(done, total, ARTIFACT_UPDATES):
            update_progress_artifact(self._artifact, progress=100.0 * done / total)

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.close()


@contextmanager
def show_progress(run: str, first: int, target: int) -> Iterator[Progress]:
    """Progress from step `first` (done before) to `target`."""
    progress = Progress(run, first, target)
    try:
        yield progress
    finally:
        progress.close()


def _is_due(done: int, total: int, times: int) -> bool:
    """True for about `times` of `total` steps, the last among them."""
    return done == total or done * times // total > (done - 1) * times // total


def _describe(record: dict[str, Any]) -> str:
    share = record["informative_groups"] / max(record["groups"], 1)
    success = record["successes"] / max(record["rollouts"], 1)
    return f"informative {share:.0%}, success {success:.0%}"
