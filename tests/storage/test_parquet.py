"""Tables to bytes and back."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import StoreError
from storage.parquet import build_table, read_table, table_bytes

SCHEMA = pa.schema([("run_id", pa.string()), ("number", pa.int32()), ("ids", pa.list_(pa.int32()))])


def make_table(rows: int = 100) -> pa.Table:
    columns = {"number": list(range(rows)), "ids": [[row, None] for row in range(rows)]}
    return build_table(SCHEMA, columns, run_id="a")


def test_a_table_has_exactly_the_columns_of_its_schema() -> None:
    table = build_table(SCHEMA, {"ids": [[1], None], "number": [1, 2]}, run_id="a")
    assert table.schema == SCHEMA
    assert table.to_pylist() == [{"run_id": "a", "number": 1, "ids": [1]}, {"run_id": "a", "number": 2, "ids": None}]


def test_constants_alone_make_one_row_and_no_rows_make_none() -> None:
    assert build_table(SCHEMA, {}, run_id="a", number=1, ids=[1]).num_rows == 1
    assert build_table(SCHEMA, {"number": [], "ids": []}, run_id="a").num_rows == 0


def test_columns_that_are_missing_or_unknown_are_named() -> None:
    with pytest.raises(ValueError, match=r"^columns differ from the schema: \['ids', 'other'\]$"):
        build_table(SCHEMA, {"number": [1]}, run_id="a", other=1)


def test_a_value_that_does_not_fit_its_type_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        build_table(SCHEMA, {"number": [2**31], "ids": [[1]]}, run_id="a")


def test_equal_tables_give_equal_bytes_however_they_are_chunked(tmp_path: Path) -> None:
    table = make_table()
    chunked = pa.concat_tables([table.slice(0, 7), table.slice(7, 1), table.slice(8)])
    sliced = pa.concat_tables([make_table(30), table]).slice(30)
    assert chunked.equals(table) and sliced.equals(table)
    assert table_bytes(table) == table_bytes(chunked) == table_bytes(sliced) == table_bytes(make_table())


def test_a_column_may_be_given_as_arrow_chunks() -> None:
    numbers = pa.chunked_array([[1, 2], [3]], pa.int32())
    built = build_table(SCHEMA, {"number": numbers, "ids": [[1]] * 3}, run_id="a")
    assert table_bytes(built) == table_bytes(build_table(SCHEMA, {"number": [1, 2, 3], "ids": [[1]] * 3}, run_id="a"))


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(table_bytes(make_table()))
    assert read_table(tmp_path / "file", SCHEMA).equals(make_table())


def test_a_column_that_an_older_file_lacks_reads_as_null_and_one_of_a_newer_file_is_left_out(tmp_path: Path) -> None:
    pq.write_table(pa.table({"later": ["x"], "number": pa.array([1], pa.int32()), "run_id": ["a"]}), tmp_path / "file")
    table = read_table(tmp_path / "file", SCHEMA)
    assert table.schema == SCHEMA
    assert table.to_pylist() == [{"run_id": "a", "number": 1, "ids": None}]


def test_missing_and_foreign_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"^{tmp_path}/none is missing$"):
        read_table(tmp_path / "none", SCHEMA)
    for content in (b"", b"PAR1", b"PAR1 but no Parquet PAR1"):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(StoreError, match=f"^{tmp_path}/file is not readable as Parquet: .*$"):
            read_table(tmp_path / "file", SCHEMA)
    pq.write_table(pa.table({"run_id": ["a"], "number": ["no number"], "ids": [[1]]}), tmp_path / "file")
    with pytest.raises(StoreError, match=f"^{tmp_path}/file is not readable as Parquet: .*$"):
        read_table(tmp_path / "file", SCHEMA)


def test_a_truncated_file_is_never_read(tmp_path: Path) -> None:
    data = table_bytes(make_table())
    for length in random.Random(0).sample(range(len(data)), 50):
        (tmp_path / "file").write_bytes(data[:length])
        with pytest.raises(StoreError):
            read_table(tmp_path / "file", SCHEMA)


def test_a_flipped_bit_is_found_in_every_page_and_is_never_worse_than_an_error_elsewhere(tmp_path: Path) -> None:
    rng = random.Random(0)
    data = table_bytes(make_table())
    pages = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    spans = [pages.column(index) for index in range(pages.num_columns)]
    for position in rng.sample(range(len(data)), 300):
        flipped = bytearray(data)
        flipped[position] ^= 1 << rng.randrange(8)
        (tmp_path / "file").write_bytes(flipped)
        try:
            table = read_table(tmp_path / "file", SCHEMA)
        except StoreError:
            continue
        offsets = [span.dictionary_page_offset or span.data_page_offset for span in spans]
        in_pages = any(
            offset <= position < offset + span.total_compressed_size
            for offset, span in zip(offsets, spans, strict=True)
        )
        assert not in_pages or table.equals(make_table())
