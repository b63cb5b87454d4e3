"""Generates groups for a part of the history, and keeps those that were finished when the rest never is."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from models.records import Generation, Request
from storage.unfinished import UnfinishedPart
from tasks.sync import ensure_synced
from tasks.workbench import Workbench

logger = logging.getLogger(__name__)

SAVE_SECONDS = 20.0
"""Time between savings of finished groups: so much is lost when the process dies."""

Group = tuple[str, Request, list[Generation]]
"""Name, what was asked, and its rollouts."""
Columns = Mapping[str, Any]


def generate_columns(
    bench: Workbench,
    requests: Mapping[str, Request],
    unfinished: UnfinishedPart,
    columns: Callable[[Iterable[Group]], Columns],
    keys: Sequence[str],
) -> Columns:
    """Columns of all groups, in the order of the requests; only those are generated that were not saved before.

    Engines whose batches decide the last digits do all in one piece.

    Args:
        requests: by the name of the group.
        columns: makes the columns of some groups.
        keys: the columns that name a row; first the group's, then where a group has many rows the sample's.
    """
    ensure_synced(bench)
    if bench.engine.whole_rounds:
        return columns(_generate(bench, requests))
    wanted = {name: _row_keys(name, request, keys) for name, request in requests.items()}
    saved = set(_row_of(unfinished.read(), keys))
    missing = {name: request for name, request in requests.items() if not saved.issuperset(wanted[name])}
    useless = len(saved) - sum(len(wanted[name]) for name in requests if name not in missing)
    if useless:
        logger.warning("%d saved rows of %s are of no whole group here; they are passed over", useless, bench.run)
    fresh = _generate_and_save(bench, missing, unfinished, columns)
    rows = pa.concat_tables([unfinished.read(), unfinished.table(columns(fresh))])
    row_of = _row_of(rows, keys)
    order = pa.array([row_of[key] for row_keys in wanted.values() for key in row_keys], pa.int64())
    return {name: rows[name].take(order) for name in rows.column_names if name not in unfinished.constants}


def _row_keys(name: str, request: Request, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    """What the key columns hold in the rows of one group."""
    return [(name,)] if len(keys) == 1 else [(name, sample) for sample in range(request.samples)]


def _row_of(table: pa.Table, keys: Sequence[str]) -> dict[tuple[Any, ...], int]:
    """The last row of each key: a save that was broken off may have been made twice."""
    named = zip(*(table[key].to_pylist() for key in keys), strict=True)
    return {key: row for row, key in enumerate(named)}


def _generate(bench: Workbench, requests: Mapping[str, Request]) -> Iterable[Group]:
    """Groups as they finish."""
    names = list(requests)
    for position, generations in bench.engine.generate(list(requests.values())):
        yield names[position], requests[names[position]], generations


def _generate_and_save(
    bench: Workbench,
    requests: Mapping[str, Request],
    unfinished: UnfinishedPart,
    columns: Callable[[Iterable[Group]], Columns],
) -> list[Group]:
    """Save groups now and then, and when the engine fails; returns those that came since the last saving."""
    fresh: list[Group] = []
    saved_at = time.monotonic()
    try:
        for group in _generate(bench, requests):
            fresh.append(group)
            if time.monotonic() - saved_at > SAVE_SECONDS:
                unfinished.save(columns(fresh))
                fresh, saved_at = [], time.monotonic()
    except BaseException:
        if fresh:
            unfinished.save(columns(fresh))
        raise
    return fresh
