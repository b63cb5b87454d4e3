"""Rows of a part that were finished before the whole part was, kept in case it never is.

No query sees them; once the part itself is written they are removed.
"""

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import StoreError
from storage.files import numbers_in, set_aside, write_once
from storage.layout import SAVED_FILE, Layout
from storage.parquet import build_table, read_table, table_bytes
from storage.schemas import HISTORY

logger = logging.getLogger(__name__)


class UnfinishedPart:
    """The finished rows of one part of the history."""

    def __init__(self, layout: Layout, table: str, run: str, step: int, round_: int = 0, **constants: Any) -> None:
        """Name the part.

        Args:
            constants: columns that hold one value throughout, beside run and step.
        """
        self._folder = layout.unfinished(table, run, step, round_)
        self._schema = HISTORY[table]
        self.constants = {"run_id": run, "step": step, **constants}

    def save(self, columns: Mapping[str, Any]) -> None:
        """Add rows; they survive the process."""
        number = max(numbers_in(self._folder, SAVED_FILE), default=-1) + 1
        write_once(self._folder / f"rows-{number}.parquet", table_bytes(self.table(columns)))

    def table(self, columns: Mapping[str, Any]) -> pa.Table:
        """Rows as they are saved, for those that need no saving."""
        return build_table(self._schema, columns, **self.constants)

    def read(self) -> pa.Table:
        """All rows saved, in the order of saving; a file that is damaged, or of another part, is set aside."""
        tables = [self._schema.empty_table()]
        for number in numbers_in(self._folder, SAVED_FILE):
            path = self._folder / f"rows-{number}.parquet"
            try:
                table = read_table(path, self._schema)
                self._check_ours(path, table)
                tables.append(table)
            except StoreError as error:
                logger.warning("%s; set aside as %s and made again", error, set_aside(path).name)
        return pa.concat_tables(tables)

    def _check_ours(self, path: Path, table: pa.Table) -> None:
        for name in table.column_names:
            if table[name].null_count:
                raise StoreError(f"{path} has no whole column {name}")
            if name in self.constants and not pc.all(pc.equal(table[name], self.constants[name])).as_py():
                raise StoreError(f"{path} is of another part: {name} is not {self.constants[name]!r} throughout")

    def remove(self) -> None:
        """Forget them."""
        shutil.rmtree(self._folder, ignore_errors=True)
