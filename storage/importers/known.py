"""Which run holds the outcomes of a source already: no two may."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from storage.errors import RunLockedError, StoreError
from storage.files import refusal
from storage.history import History
from storage.importers.faults import one_line
from storage.importers.outcomes import SINGLE
from storage.importers.writing import remove_orphans
from storage.layout import Layout
from storage.locks import hold_run
from storage.runs import Run, list_runs, read_run, write_run

_WAY = ("dataset", "where", "matched_by", "success_threshold")
"""What decides, beside the files and columns, which outcomes are read."""
_NO_OUTCOME = (*SINGLE, "response", "tokens", "prompt_tokens")
"""Fields that say more of a rollout, and not whether it succeeded: whichever columns hold them."""


def known_as(layout: Layout, run: str, source: Mapping[str, Any]) -> str:
    """The run that holds the outcomes of a source, empty when there is none.

    Call while holding the run and the guard of imports. Killed imports of these outcomes are settled first.

    Raises:
        StoreError: the run holds something else, or another run holds the outcomes of some of the files.
    """
    own = read_run(layout, run)
    if own and _is_open_import(own):
        _settle(layout, own)
    if _holds(layout, run, source):
        return run
    sharing = [other for other in list_runs(layout) if other.run != run and _shared(_source(other), source)]
    for other in filter(_is_open_import, sharing):
        with contextlib.suppress(RunLockedError), hold_run(layout, other.run):
            _settle(layout, other)
    holders = [other for other in sharing if History(layout, other.run).committed_steps()]
    same = (other.run for other in holders if _digests(_source(other)) == _digests(source))
    found = next(same, "")
    if holders and not found:
        _refuse_part(holders[0], source)
    return found


def discard(layout: Layout, run: str) -> None:
    """Forget an import of which nothing is visible; its run file goes last, since it says whose the rest is.

    Raises:
        StoreError: the file system refuses to delete the run file.
    """
    remove_orphans(layout, run)
    try:
        layout.run_file(run).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(refusal(layout.run_file(run), error)) from error


def _settle(layout: Layout, run: Run) -> None:
    """End an import that was killed: its steps appeared all at once, so it has every one of them or none."""
    if History(layout, run.run).committed_steps():
        write_run(layout, replace(run, state="finished"))
    else:
        discard(layout, run.run)


def _holds(layout: Layout, run: str, source: Mapping[str, Any]) -> bool:
    """Whether a run is an import of this source; False when there is no such run.

    Raises:
        StoreError: it is something else.
    """
    known = read_run(layout, run)
    if known is None and History(layout, run).committed_steps():
        raise StoreError(f"run {run} has a history and no {layout.run_file(run)}: restore it, or choose another --run")
    if known is None:
        return False
    if "imported" not in known.config:
        raise StoreError(f"run {run} exists, and was not imported: choose another --run")
    found = _source(known)
    if _shared(found, source) != _digests(found) | _digests(source):
        raise StoreError(
            f"run {run} exists, imported from {found['files'][0]['name']} with other content or in another way: "
            "choose another --run"
        )
    return True


def _refuse_part(holder: Run, source: Mapping[str, Any]) -> None:
    shared = _shared(_source(holder), source)
    names = [file["name"] for file in source["files"] if file["sha256"] in shared]
    raise StoreError(
        f"{len(names):,} of {len(source['files']):,} files were imported already, as run {holder.run}: leave out "
        f"{one_line(', '.join(names), 200)}"
    )


def _is_open_import(run: Run) -> bool:
    return run.state == "running" and "imported" in run.config


def _source(run: Run) -> Mapping[str, Any]:
    found: Mapping[str, Any] = run.config.get("imported", {})
    return found


def _digests(source: Mapping[str, Any]) -> set[str]:
    return {file["sha256"] for file in source.get("files", ())}


def _shared(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """Digests of the files that two sources read in the same way."""
    return _digests(one) & _digests(other) if _way(one) == _way(other) else set()


def _way(source: Mapping[str, Any]) -> dict[str, Any]:
    columns = {field: column for field, column in source.get("columns", {}).items() if field not in _NO_OUTCOME}
    return {"columns": columns, **{name: source.get(name) for name in _WAY}}
