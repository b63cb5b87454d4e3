"""Where a command's table goes: the terminal or a file, in the format asked for."""

import contextlib
import io
import shutil
from pathlib import Path

import click
import duckdb
import pyarrow as pa

from flows.config import ConfigError
from storage.export import export_bytes
from storage.files import write_over
from storage.layout import Layout

FORMATS = ("table", "csv", "json", "parquet")
MAX_ROWS = 200
"""Rows that the table format shows; the other formats give all."""


def check_output(layout: Layout, format_: str, output: Path | None) -> None:
    """Refuse what cannot be written, before anything is computed.

    Raises:
        ConfigError: the output cannot go where it is sent.
    """
    if output is not None and output.absolute().is_relative_to(layout.root):
        raise ConfigError(f"-o {output} lies inside the store: write the result somewhere else")
    if output is None and format_ == "parquet":
        raise ConfigError("--format parquet needs a file: add -o FILE")


def write_result(table: pa.Table, format_: str, output: Path | None) -> None:
    """Print a table, or write it to a file."""
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
