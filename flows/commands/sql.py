"""`foreroll sql`."""

import contextlib
import io
import shutil
from pathlib import Path

import click
import duckdb
import pyarrow as pa

from flows.config import ConfigError
from storage.catalog import query_locked
from storage.export import export_bytes
from storage.files import write_over
from storage.store import open_store

MAX_ROWS = 200
"""Rows that the table format shows; the other formats give all."""


def run_query(store: Path, query: str, format_: str, output: Path | None) -> None:
    """Run a locked-down query, and print the result or write it to a file.

    Raises:
        StoreError: the query is refused or fails.
        ConfigError: the output cannot go where it is sent.
    """
    layout = open_store(store)
    if output is not None and output.absolute().is_relative_to(layout.root):
        raise ConfigError(f"-o {output} lies inside the store: write the result somewhere else")
    if output is None and format_ == "parquet":
        raise ConfigError("--format parquet needs a file: add -o FILE")
    table = query_locked(layout, query)
    data = _box(table).encode() if format_ == "table" else export_bytes(table, format_)
    if output is None:
        click.echo(data, nl=False)
    else:
        write_over(output.absolute(), data)


def _box(table: pa.Table) -> str:
    width = shutil.get_terminal_size((160, 24)).columns
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        duckdb.from_arrow(table).show(max_rows=MAX_ROWS, max_width=width)
    return text.getvalue().rstrip() + "\n"
