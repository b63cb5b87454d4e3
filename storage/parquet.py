"""Arrow tables to Parquet bytes and back, through a declared schema."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import StoreError


def build_table(schema: pa.Schema, columns: Mapping[str, Sequence[Any] | pa.Array], **constants: Any) -> pa.Table:
    """A table of exactly `schema`; `constants` fill whole columns.

    Raises:
        ValueError: columns are missing or not in the schema.
    """
    given = set(columns) | set(constants)
    if given != set(schema.names):
        raise ValueError(f"columns differ from the schema: {sorted(given ^ set(schema.names))}")
    rows = len(next(iter(columns.values()))) if columns else 1
    arrays = []
    for column in schema:
        if column.name in constants:
            arrays.append(pa.repeat(pa.scalar(constants[column.name], column.type), rows))
        else:
            arrays.append(pa.array(columns[column.name], column.type))
    return pa.table(arrays, schema=schema)


def table_bytes(table: pa.Table) -> bytes:
    """Parquet of a table; equal tables give equal bytes."""
    sink = io.BytesIO()
    pq.write_table(table.combine_chunks(), sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`, null where an older file lacks one.

    Raises:
        StoreError: the file is missing or cannot be read.
    """
    try:
        with pq.ParquetFile(pa.BufferReader(path.read_bytes()), page_checksum_verification=True) as file:
            table = file.read(
                columns=schema.names, use_threads=False
            )  # parts are small: threads cost more than they give
        for column in schema:
            if column.name not in table.column_names:
                table = table.append_column(column, pa.nulls(len(table), column.type))
        return table.select(schema.names).cast(schema)
    except FileNotFoundError:
        raise StoreError(f"{path} is missing") from None
    except (OSError, pa.ArrowException, UnicodeError) as error:  # damaged bytes can surface as any of these
        raise StoreError(f"{path} is not readable as Parquet: {' '.join(str(error).split())}") from error
