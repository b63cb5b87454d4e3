"""`foreroll sql`."""

import contextlib
import io
import shutil
import tempfile
from pathlib import Path

import click
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from flows.config import ConfigError
from storage.catalog import query_locked
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
    data = _encode(query_locked(layout, query), format_)
    if output is None:
        click.echo(data, nl=False)
    else:
        write_over(output.absolute(), data)


def _encode(table: pa.Table, format_: str) -> bytes:
    match format_:
        case "parquet":
            sink = io.BytesIO()
            pq.write_table(table, sink, compression="zstd")
            return sink.getvalue()
        case "csv":
            return _with_duckdb(table, "copy result to '{file}' (format csv, header)")
        case "json":
            return _with_duckdb(table, "copy result to '{file}' (format json)")
        case _:
            return _box(table).encode()


def _with_duckdb(table: pa.Table, copy: str) -> bytes:
    """The bytes that DuckDB's own writer makes of a result; it knows nested columns too."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as con:
        file = Path(folder) / "result"
        con.register("result", table)
        con.execute(copy.format(file=file))
        return file.read_bytes()


def _box(table: pa.Table) -> str:
    width = shutil.get_terminal_size((160, 24)).columns
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        duckdb.from_arrow(table).show(max_rows=MAX_ROWS, max_width=width)
    return text.getvalue().rstrip() + "\n"
