"""DuckDB views over the committed steps of all runs.

Views are built for each connection, from the files that commit records name,
and only those that the query reads: opening Parquet footers is what costs.

DuckDB itself is given no file at all. Arrow reads the files for it, each table
by its declared schema: columns are matched by name, and one that an older file
lacks is null. So a query has nothing that it could write, and sees nothing
outside the views, whatever it says.
"""

import logging
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow import dataset
from pyarrow.fs import LocalFileSystem

from storage.committed import StoredFile, committed_files, dataset_files
from storage.errors import StoreError
from storage.layout import Layout
from storage.listings import predictors_table, runs_table
from storage.schemas import HISTORY, PROMPTS
from storage.views import JOINED, views_needed

logger = logging.getLogger(__name__)

_PARQUET = dataset.ParquetFileFormat(
    default_fragment_scan_options=dataset.ParquetFragmentScanOptions(page_checksum_verification=True, pre_buffer=False)
)

_SEALED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,  # no file, no attached database, no extension
    "temp_directory": "",
    "python_enable_replacements": False,  # no variables of this process
}

Check = Callable[[StoredFile], bool]


def connect(
    layout: Layout, sql: str, check: Check = StoredFile.looks_whole, run: str | None = None
) -> duckdb.DuckDBPyConnection:
    """An in-memory connection with every view that `sql` names; files that fail the check are left out.

    Args:
        run: the one run whose steps the views show; None shows all.
    """
    con = duckdb.connect(config=_SEALED)
    con.execute("set timezone = 'UTC'")
    con.execute("create schema raw")
    views = views_needed(sql)
    tables = [name.removeprefix("raw.") for name in views if name.startswith("raw.")]
    committed = committed_files(layout, tables, run)
    for name in views:
        if name == "runs":
            con.from_arrow(runs_table(layout)).create_view(name)
        elif name == "predictors":
            con.from_arrow(predictors_table(layout)).create_view(name)
        elif name == "prompts":
            con.from_arrow(_dataset(dataset_files(layout), PROMPTS, check)).create_view(name)
        elif name in JOINED:
            con.execute(f"create view {name} as {JOINED[name].sql}")
        else:
            table = name.removeprefix("raw.")
            con.execute("set schema = 'raw'")
            con.from_arrow(_dataset(committed[table], HISTORY[table], check)).create_view(table)
            con.execute("set schema = 'main'")
    return con


def query(layout: Layout, sql: str, parameters: dict[str, Any] | None = None, run: str | None = None) -> pa.Table:
    """Run our own query over the views, of one run where one is named."""
    try:
        return _query(layout, sql, parameters, run)
    except duckdb.InvalidInputException:  # a file that looks whole may be unreadable: look closer, and read the others
        return _query(layout, sql, parameters, run, StoredFile.is_intact)


def query_locked(layout: Layout, sql: str) -> pa.Table:
    """Run a user's query: one SELECT, which can write, attach and install nothing, and reads only the store.

    Raises:
        StoreError: the statement is refused, wrong or fails.
    """
    try:
        _check_one_select(sql)
        return query(layout, sql)
    except (duckdb.Error, pa.ArrowException) as error:
        raise StoreError(f"query failed: {_first_paragraph(error)}") from error


def _query(
    layout: Layout, sql: str, parameters: Any, run: str | None, check: Check = StoredFile.looks_whole
) -> pa.Table:
    with connect(layout, sql, check, run) as con:
        con.execute("set lock_configuration = true")
        return con.sql(sql, params=parameters or {}).to_arrow_table()


def _check_one_select(sql: str) -> None:
    try:
        sql.encode()
    except UnicodeEncodeError:
        raise StoreError("query failed: it is not valid Unicode text") from None
    statements = duckdb.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(statement.type.name for statement in statements) or "nothing"
        hint = " (a PIVOT must name its values: ON column IN (...))" if kinds == "MULTI" else ""
        raise StoreError(f"only one SELECT is allowed, not: {kinds}{hint}")


def _first_paragraph(error: Exception) -> str:
    """What is wrong, in one line: DuckDB repeats the query below it, or adds a stack trace."""
    return " ".join(str(error).split("\n\n", 1)[0].split())


def _dataset(files: list[StoredFile], schema: pa.Schema, check: Check) -> dataset.Dataset:
    paths = [str(file.path) for file in files if _is_kept(file, check)]
    return dataset.dataset(paths, schema=schema, format=_PARQUET, filesystem=LocalFileSystem())


def _is_kept(file: StoredFile, check: Check) -> bool:
    kept = check(file)
    if not kept:
        logger.warning("%s is missing or damaged: its rows are left out", file.path)
    return kept
