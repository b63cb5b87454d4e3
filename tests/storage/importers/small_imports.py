"""Imports into dataset `toy`, as tests do them."""

from pathlib import Path
from typing import Any

import pytest

from storage.catalog import query
from storage.errors import StoreError
from storage.importers.histories import ImportReport, run_import
from storage.importers.planning import ImportRequest, plan_import
from storage.importers.sources import Row, Watch, unwatched
from storage.layout import Layout

GROUPS = "select step, prompt_id, rollouts, valid, successes, mean_tokens from groups where run_id = $run order by 1, 2"


def do_import(
    layout: Layout, *files: Path, run: str = "past", watch: Watch[Row] = unwatched, **options: Any
) -> ImportReport:
    """Import files as a run."""
    request = ImportRequest(files=files, dataset="toy", run=run, **options)
    return run_import(layout, plan_import(layout, request), watch)


def groups(layout: Layout, run: str = "past") -> list[tuple[Any, ...]]:
    """Step, prompt, rollouts, valid, successes and mean tokens of each group of a run."""
    return [tuple(row.values()) for row in query(layout, GROUPS, {"run": run}).to_pylist()]


def refusal(layout: Layout, *files: Path, **options: Any) -> str:
    """The line with which an import is refused."""
    with pytest.raises(StoreError) as refused:
        do_import(layout, *files, **options)
    return str(refused.value)
