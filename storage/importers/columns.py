"""Which column of a file holds what: found by name, printed, and overridable.

A column is named by its path: `reward_model.ground_truth` is a field of a
nested column, also where that column is JSON in a text.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from storage.errors import StoreError
from storage.importers.faults import one_line
from storage.importers.sources import Row

Aliases = Mapping[str, Sequence[str]]
"""Columns that may hold a field, most telling first."""


class _Missing:
    """What a row without the column holds."""


MISSING = _Missing()


def lookup(values: Mapping[str, Any], column: str) -> Any:
    """The value at a column's path, `MISSING` when there is none."""
    if column in values:
        return values[column]
    head, dot, rest = column.partition(".")
    if not dot or head not in values:
        return MISSING
    inner = values[head]
    if isinstance(inner, str) and inner.lstrip().startswith("{"):
        try:
            inner = json.loads(inner)
        except (ValueError, RecursionError):
            return MISSING
    return lookup(inner, rest) if isinstance(inner, Mapping) else MISSING


def parse_pairs(option: str, words: Iterable[str]) -> dict[str, str]:
    """`left=right` words as a mapping.

    Raises:
        StoreError: a word is none.
    """
    pairs = {}
    for word in words:
        left, equals, right = word.partition("=")
        if not equals or not left.strip() or not right.strip():
            raise StoreError(f"{option} {word!r} is not NAME=VALUE, as in {option} answer=solution")
        pairs[left.strip()] = right.strip()
    return pairs


class Where:
    """Chooses rows whose columns, as text, have given values."""

    def __init__(self, wanted: Mapping[str, str]) -> None:
        self._wanted = wanted

    def __str__(self) -> str:
        return ", ".join(f"{column}={value}" for column, value in self._wanted.items())

    def __call__(self, row: Row) -> bool:
        return bool(row.fault) or all(
            _same(lookup(row.values, column), value) for column, value in self._wanted.items()
        )


def _same(found: Any, wanted: str) -> bool:
    """Numbers are compared as numbers: a file's 1.0 is the 1 of a command line, its single-precision 0.6 is 0.6."""
    if str(found) == wanted:
        return True
    try:
        number, other = float(found), float(wanted)
    except (TypeError, ValueError, OverflowError):
        return False
    return number == other or (not other.is_integer() and math.isclose(number, other, rel_tol=1e-6))


def columns_of(rows: Iterable[Row]) -> list[str]:
    """Names of the columns in the first rows, in order of appearance."""
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row.values))
    return list(names)


def find_columns(file: str, sample: Sequence[Row], aliases: Aliases, given: Mapping[str, str]) -> dict[str, str]:
    """The column of each field; fields that no column holds are left out.

    Args:
        given: columns that the user named, which win.

    Raises:
        StoreError: the user named a field or a column that is not there.
    """
    for field, column in given.items():
        if field not in aliases:
            raise StoreError(f"--map {field}={column}: no such field; there are {', '.join(aliases)}")
        check_columns(file, sample, [column], f"--map {field} to")
    found = {
        field: next((one for one in names if one not in given.values() and _is_held(sample, one)), None)
        for field, names in aliases.items()
        if field not in given
    }
    return {**{field: column for field, column in found.items() if column is not None}, **given}


def check_columns(file: str, sample: Sequence[Row], columns: Iterable[str], option: str) -> None:
    """Refuse columns that are not there.

    Raises:
        StoreError: names the first.
    """
    for column in columns:
        if not _is_held(sample, column):
            raise StoreError(f"{option} {column}: {file} has no column {column}; {_those_there(sample)}")


def missing_column(file: str, sample: Sequence[Row], field: str, names: Sequence[str]) -> StoreError:
    """The error for a file in which a field that is needed was not found."""
    return StoreError(
        f"{file}: found no column for the {field} (looked for {', '.join(names)}); {_those_there(sample)}. "
        f"Name it with --map {field}=COLUMN"
    )


def _is_held(sample: Sequence[Row], column: str) -> bool:
    return any(lookup(row.values, column) is not MISSING for row in sample)


def _those_there(sample: Sequence[Row]) -> str:
    return f"its columns: {one_line(', '.join(columns_of(sample)), 400) or 'none'}"
