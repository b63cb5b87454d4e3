"""Reads the rows of files as people have them: JSON lines, JSON arrays, CSV and Parquet.

What a file is, its content says, not its name. A row that cannot be read is
data too: it comes with its fault, and the rows after it follow.
"""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import StoreError

T = TypeVar("T")
Kind = Literal["JSON lines", "JSON array", "CSV", "Parquet"]
SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
"""Names that a file of rows has when a folder is given."""
SAMPLED = 200
"""Rows in which columns are looked for."""

_DELIMITERS = ",\t;|"
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
_BATCH = 4096
_HEAD = 1 << 16


@dataclass(frozen=True)
class Row:
    """One row of a file."""

    number: int
    """Line of a text file; number of the row, from 1 on, of a JSON array or Parquet file."""
    values: Mapping[str, Any] = field(default_factory=dict)
    fault: str = ""
    """Why it could not be read; then it has no values."""


def expand(paths: Sequence[Path]) -> list[Path]:
    """The files that paths mean: a folder stands for its files of rows, in order of their names, numbers as such.

    Raises:
        StoreError: a path is not there, or a folder holds no such file.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = [one for one in path.iterdir() if one.suffix in SUFFIXES and one.is_file()]
            if not found:
                raise StoreError(f"{path} holds no file that ends in {', '.join(SUFFIXES)}: name the files")
            files += sorted(found, key=natural)
        elif path.is_file():
            files.append(path)
        else:
            raise StoreError(f"{path} does not exist: mend the path")
    return files


def kind_of(path: Path) -> Kind:
    """What a file is.

    Raises:
        StoreError: it cannot be opened, or is empty.
    """
    with _opened(path) as file:
        head = file.read(_HEAD)
    if head.startswith(b"PAR1"):
        return "Parquet"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise StoreError(f"{path} is empty")
    if text.startswith(b"["):
        return "JSON array"
    return "JSON lines" if text.startswith(b"{") else "CSV"


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file, one after the other.

    Raises:
        StoreError: the file as a whole cannot be read.
    """
    readers = {"Parquet": _parquet, "JSON array": _array, "JSON lines": _lines, "CSV": _csv}
    return readers[kind_of(path)](path)


Watch = Callable[[Iterable[T]], Iterable[T]]
"""Passes rows on, and may show how many went by."""


def unwatched(rows: Iterable[T]) -> Iterable[T]:
    """Pass rows on, and show nothing."""
    return rows


class RowFilter(Protocol):
    """Chooses rows; as text it says by what, nothing when it chooses all."""

    def __call__(self, row: Row) -> bool:
        """Whether a row is chosen."""


def sample_of(path: Path, where: RowFilter) -> list[Row]:
    """The first rows of a file that can be read and are chosen.

    Raises:
        StoreError: there is none.
    """
    seen = faulty = 0
    first = ""
    sample: list[Row] = []
    for row in read_rows(path):
        seen += 1
        if row.fault:
            faulty += 1
            first = first or f"{path.name}:{row.number}: {row.fault}"
        elif where(row):
            sample.append(row)
        if len(sample) == SAMPLED:
            break
    if not sample:
        why = f"; {faulty:,} cannot be read, the first being {first}" if faulty else ""
        wanted = f" (--where {where})" if str(where) else ""
        raise StoreError(f"{path}: no row to use among {seen:,}{wanted}{why}")
    return sample


def natural(path: Path) -> tuple[Any, ...]:
    """Sorts `9.jsonl` before `10.jsonl`."""
    digits = "".join(character if character.isdecimal() else " " for character in path.name).split()
    return ([int(number) for number in digits], path.name)


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def _parquet(path: Path) -> Iterator[Row]:
    number = 0
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(_BATCH):
                for values in batch.to_pylist():
                    number += 1
                    yield Row(number, values)
    except (OSError, pa.ArrowException, UnicodeError) as error:  # damaged bytes can surface as any of these
        reason = " ".join(str(error).split())
        raise StoreError(f"{path} is not readable as Parquet after row {number}: {reason}") from error


def _array(path: Path) -> Iterator[Row]:
    try:
        with _opened(path) as file:
            values = json.loads(file.read().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} begins like a JSON array and is none: {_reason(error)}") from error
    for number, one in enumerate(values, start=1):
        yield _json_row(number, one)


def _lines(path: Path) -> Iterator[Row]:
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not text.strip():
                continue
            try:
                values = json.loads(text.decode())
            except (ValueError, RecursionError) as error:
                yield Row(number, fault=_reason(error))
            else:
                yield _json_row(number, values)


def _json_row(number: int, value: Any) -> Row:
    if not isinstance(value, dict):
        return Row(number, fault=f"no JSON object, but {type(value).__name__}")
    return Row(number, value)


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 (byte {error.object[error.start]:#04x})"
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON ({error.msg} at column {error.colno})"
    return "no JSON (nested too deeply)" if isinstance(error, RecursionError) else f"no JSON ({error})"


def _csv(path: Path) -> Iterator[Row]:
    """Every value is text; a byte that is not UTF-8 is the fault of its own row."""
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        header_line = file.readline()
        file.seek(0)
        reader = csv.reader(file, delimiter=max(_DELIMITERS, key=header_line.count), strict=True)
        header = _header(path, reader)
        while True:
            number = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield Row(number, fault=f"no CSV ({error})")
                continue
            if cells:
                yield _csv_row(number, header, cells)


def _header(path: Path, reader: Iterator[list[str]]) -> list[str]:
    try:
        names = next(reader, [])
    except csv.Error as error:
        raise StoreError(f"{path}: the first line is no CSV ({error})") from error
    if not all(name.strip() for name in names):
        raise StoreError(f"{path}: the first line names no columns, which a CSV file needs: {', '.join(names)!r}")
    if len(set(names)) != len(names):
        raise StoreError(f"{path}: two columns have the same name: {', '.join(names)}")
    return [name.strip() for name in names]


def _csv_row(number: int, header: list[str], cells: list[str]) -> Row:
    if len(cells) != len(header):
        return Row(number, fault=f"{len(cells)} cells where the header names {len(header)} columns")
    if any(_ESCAPED_BYTE.search(cell) for cell in cells):
        return Row(number, fault="not UTF-8")
    return Row(number, dict(zip(header, cells, strict=True)))
