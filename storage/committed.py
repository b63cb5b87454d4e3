"""The Parquet files of the store: which of them commit records name, and whether they are as they were written."""

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from storage.errors import StoreError
from storage.files import file_digest, numbers_in
from storage.history import History
from storage.layout import STEP_FOLDER, Layout
from storage.parquet import read_table
from storage.prompts import dataset_names
from storage.runs import list_runs, lost_steps
from storage.schemas import HISTORY, PROMPTS, STEPS

logger = logging.getLogger(__name__)

_PARQUET_END = b"PAR1"
_PART_PATH = re.compile(r"history/([a-z_]+)/run_id=[^/]+/step=\d+/part-\d+\.parquet")


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


def commit_records(layout: Layout, run: str | None = None) -> list[Path]:
    """The commit records of a run, or of all runs, by run and step."""
    runs = [layout.table_of_run("steps", run)] if run else sorted((layout.history() / "steps").glob("run_id=*"))
    paths = [run / f"step={step:08d}" / "part-0.parquet" for run in runs for step in numbers_in(run, STEP_FOLDER)]
    return [path for path in paths if path.exists()]


def named_files(layout: Layout, record: Path, tables: list[str]) -> list[tuple[str, StoredFile]]:
    """Table and description of each file of the tables that a commit record names.

    Raises:
        StoreError: the record is missing or damaged.
    """
    found = read_table(record, pa.schema([STEPS.field("files")]))["files"].to_pylist()[0]
    matches = ((_PART_PATH.fullmatch(file["path"]), file) for file in found)
    return [
        (match[1], StoredFile(layout.root / file["path"], HISTORY[match[1]], file["bytes"], file["sha256"]))
        for match, file in matches
        if match and match[1] in tables
    ]


def committed_files(layout: Layout, tables: list[str], run: str | None = None) -> dict[str, list[StoredFile]]:
    """The files of all committed steps for each of the tables; a damaged record is named in a warning and left out."""
    files: dict[str, list[StoredFile]] = {table: [] for table in tables}
    records = commit_records(layout, run) if tables else []
    for record in records if set(tables) != {"steps"} else []:
        try:
            for table, file in named_files(layout, record, tables):
                files[table].append(file)
        except StoreError as error:
            logger.warning("%s: the step is left out", error)
    if "steps" in files:
        files["steps"] = [StoredFile(record, STEPS) for record in records]
    return files


def dataset_files(layout: Layout) -> list[StoredFile]:
    """The files of all datasets."""
    return [StoredFile(layout.dataset(name), PROMPTS) for name in dataset_names(layout)]


def damaged_files(layout: Layout) -> list[tuple[str, str]]:
    """Path below the root and fault of every file of the store that is missing or not as it was written."""
    committed = [file for files in committed_files(layout, list(HISTORY)).values() for file in files]
    committed += [
        StoredFile(layout.commit(run.run, step), STEPS)
        for run in list_runs(layout)
        for step in lost_steps(run, History(layout, run.run).committed_steps())
    ]
    return [
        (file.path.relative_to(layout.root).as_posix(), "damaged" if file.path.exists() else "missing")
        for file in (*dataset_files(layout), *committed)
        if not file.is_intact()
    ]
