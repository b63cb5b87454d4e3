"""The result of a query as the bytes of a file."""

import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa

from storage.errors import StoreError
from storage.parquet import table_bytes

_COPY = {
    "csv": "copy result to '{file}' (format csv, header)",
    "json": "copy result to '{file}' (format json)",
}


def export_bytes(table: pa.Table, format_: str) -> bytes:
    """A result as `csv`, `json` (one object a line) or `parquet`.

    Raises:
        StoreError: the format has no type for a column.
    """
    if format_ != "parquet":
        return _with_duckdb(table, _COPY[format_])
    try:
        return table_bytes(table)
    except pa.ArrowNotImplementedError as error:
        raise StoreError(f"the result cannot be written as Parquet ({error}): cast the column to text") from error


def _with_duckdb(table: pa.Table, copy: str) -> bytes:
    """What DuckDB's own writer makes of a result; it knows nested columns too."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as con:
        file = Path(folder) / "result"
        con.register("result", table)
        con.execute(copy.format(file=file))
        return file.read_bytes()
