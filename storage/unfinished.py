"""Rows of a round that were finished before the whole round was, kept in case it never is.

No query sees them; once the round's own part is written they are removed.
"""

import logging
import shutil
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from storage.errors import StoreError
from storage.files import numbers_in, set_aside, write_once
from storage.layout import SAVED_FILE, Layout
from storage.parquet import build_table, read_table, table_bytes
from storage.schemas import HISTORY

logger = logging.getLogger(__name__)


class UnfinishedRound:
    """The finished rows of one table in one open round."""

    def __init__(self, layout: Layout, table: str, run: str, step: int, round_: int) -> None:
        self._folder = layout.unfinished(table, run, step, round_)
        self._schema = HISTORY[table]
        self._keys = {"run_id": run, "step": step, "round": round_}

    def save(self, columns: Mapping[str, Any]) -> None:
        """Add rows; they survive the process."""
        number = max(numbers_in(self._folder, SAVED_FILE), default=-1) + 1
        write_once(self._folder / f"rows-{number}.parquet", table_bytes(self.table(columns)))

    def table(self, columns: Mapping[str, Any]) -> pa.Table:
        """Rows as they are saved, for those that need no saving."""
        return build_table(self._schema, columns, **self._keys)

    def read(self) -> pa.Table:
        """All rows saved, in the order of saving; an unreadable file is set aside."""
        tables = [self._schema.empty_table()]
        for number in numbers_in(self._folder, SAVED_FILE):
            path = self._folder / f"rows-{number}.parquet"
            try:
                tables.append(read_table(path, self._schema))
            except StoreError as error:
                logger.warning("%s; set aside as %s and made again", error, set_aside(path).name)
        return pa.concat_tables(tables)

    def remove(self) -> None:
        """Forget them."""
        shutil.rmtree(self._folder, ignore_errors=True)
