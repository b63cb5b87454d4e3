"""DuckDB views over the committed steps of all runs.

Views are built for each connection, from the files that commit records name,
and only those that the query reads: opening Parquet footers is what costs.

DuckDB itself is given no file at all. Arrow reads the files for it, each table
by its declared schema: columns are matched by name, and one that an older file
lacks is null. So a query has nothing that it could write, and sees nothing
outside the views, whatever it says.
"""

import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow import dataset
from pyarrow.fs import LocalFileSystem

from storage.errors import StoreError
from storage.files import file_digest, numbers_in
from storage.history import History
from storage.layout import STEP_FOLDER, Layout
from storage.listings import predictors_table, runs_table
from storage.parquet import read_table
from storage.prompts import dataset_names
from storage.runs import list_runs, lost_steps
from storage.schemas import HISTORY, PROMPTS, STEPS
from storage.views import JOINED, views_needed

logger = logging.getLogger(__name__)

_PARQUET_END = b"PAR1"
_PART_PATH = re.compile(r"history/([a-z_]+)/run_id=[^/]+/step=\d+/part-\d+\.parquet")

_PARQUET = dataset.ParquetFileFormat(
    default_fragment_scan_options=dataset.ParquetFragmentScanOptions(page_checksum_verification=True, pre_buffer=False)
)

_SEALED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,  # no file, no attached database, no extension
    "temp_directory": "",
    "python_enable_replacements": False,  # no variables of this process
}


@dataclass(frozen=True)
class StoredFile:
    """A Parquet file of the store, with what its commit record says of it; None where no record does."""

    path: Path
    schema: pa.Schema
    bytes: int | None = None
    sha256: str | None = None

    def looks_whole(self) -> bool:
        """Whether it ends like Parquet, at the size that was committed: what every query can afford to check."""
        try:
            with self.path.open("rb") as file:
                file.seek(-len(_PARQUET_END), os.SEEK_END)
                return file.read() == _PARQUET_END and self.bytes in (None, file.tell())
        except OSError:
            return False

    def is_intact(self) -> bool:
        """Whether its bytes are those that were committed; without a record, whether it can be read."""
        if not self.looks_whole():
            return False
        if self.sha256 is not None:
            return file_digest(self.path) == self.sha256
        try:
            read_table(self.path, self.schema)
        except StoreError:
            return False
        return True


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
    committed = _committed_files(layout, tables, run)
    for name in views:
        if name == "runs":
            con.from_arrow(runs_table(layout)).create_view(name)
        elif name == "predictors":
            con.from_arrow(predictors_table(layout)).create_view(name)
        elif name == "prompts":
            con.from_arrow(_dataset(_dataset_files(layout), PROMPTS, check)).create_view(name)
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


def damaged_files(layout: Layout) -> list[tuple[str, str]]:
    """Path below the root and fault of every file of the store that is missing or not as it was written."""
    committed = [file for files in _committed_files(layout, list(HISTORY)).values() for file in files]
    committed += [
        StoredFile(layout.commit(run.run, step), STEPS)
        for run in list_runs(layout)
        for step in lost_steps(run, History(layout, run.run).committed_steps())
    ]
    return [
        (file.path.relative_to(layout.root).as_posix(), "damaged" if file.path.exists() else "missing")
        for file in (*_dataset_files(layout), *committed)
        if not file.is_intact()
    ]


def _committed_files(layout: Layout, tables: list[str], run: str | None = None) -> dict[str, list[StoredFile]]:
    """The files of all committed steps for each of the tables, as the commit records describe them."""
    files: dict[str, list[StoredFile]] = {table: [] for table in tables}
    records = _commit_records(layout, run) if tables else []
    for path in records if set(tables) != {"steps"} else []:
        for table, file in named_files(layout, path, tables):
            files[table].append(file)
    if "steps" in files:
        files["steps"] = [StoredFile(path, STEPS) for path in records]
    return files


def _commit_records(layout: Layout, run: str | None) -> list[Path]:
    runs = [layout.table_of_run("steps", run)] if run else sorted((layout.history() / "steps").glob("run_id=*"))
    paths = [run / f"step={step:08d}" / "part-0.parquet" for run in runs for step in numbers_in(run, STEP_FOLDER)]
    return [path for path in paths if path.exists()]


def named_files(layout: Layout, record: Path, tables: list[str]) -> list[tuple[str, StoredFile]]:
    """Table and description of each file of the tables that a commit record names; none if it is damaged."""
    try:
        found = read_table(record, pa.schema([STEPS.field("files")]))["files"].to_pylist()[0]
    except StoreError as error:
        logger.warning("%s: the step is left out", error)
        return []
    matches = ((_PART_PATH.fullmatch(file["path"]), file) for file in found)
    return [
        (match[1], StoredFile(layout.root / file["path"], HISTORY[match[1]], file["bytes"], file["sha256"]))
        for match, file in matches
        if match and match[1] in tables
    ]


def _dataset_files(layout: Layout) -> list[StoredFile]:
    return [StoredFile(layout.dataset(name), PROMPTS) for name in dataset_names(layout)]


def _dataset(files: list[StoredFile], schema: pa.Schema, check: Check) -> dataset.Dataset:
    paths = [str(file.path) for file in files if _is_kept(file, check)]
    return dataset.dataset(paths, schema=schema, format=_PARQUET, filesystem=LocalFileSystem())


def _is_kept(file: StoredFile, check: Check) -> bool:
    kept = check(file)
    if not kept:
        logger.warning("%s is missing or damaged: its rows are left out", file.path)
    return kept
