"""Reads a committed step whole or not at all: the rule of all who learn from a history or are judged by it.

A step counts when its commit record can be read, and every file that the record
names, of the tables asked for, has the digest that was committed. Another step is
left out, and the caller says so. Queries of the views (`storage.catalog`) are
laxer: they leave out single files, and look at digests only where one cannot be
read.
"""

import pyarrow as pa

from storage.committed import named_files
from storage.errors import StoreError
from storage.layout import Layout
from storage.parquet import read_table

Tables = dict[str, pa.Table]


def read_step(layout: Layout, run: str, step: int, schemas: dict[str, pa.Schema]) -> Tables:
    """The tables of a step, rounds in order; one of which nothing was written is empty.

    Args:
        schemas: the tables, each with the columns that are read.

    Raises:
        StoreError: the commit record or a file is missing or damaged.
    """
    parts: dict[str, list[pa.Table]] = {name: [schema.empty_table()] for name, schema in schemas.items()}
    for name, file in named_files(layout, layout.commit(run, step), list(schemas)):
        if not file.is_intact():
            raise StoreError(
                f"{file.path.relative_to(layout.root)} is {'damaged' if file.path.exists() else 'missing'}"
            )
        parts[name].append(read_table(file.path, schemas[name]))
    return {name: pa.concat_tables(tables) for name, tables in parts.items()}
