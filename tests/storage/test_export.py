"""Results of queries as files."""

import io
import json

import duckdb
import pyarrow.parquet as pq
import pytest

from storage.errors import StoreError
from storage.export import export_bytes

NESTED = "select 1 as a, 'x,y' as b, [1, 2] as c union all select 2, null, []"


def test_every_format_holds_the_rows() -> None:
    table = duckdb.sql(NESTED).to_arrow_table()
    rows = [{"a": 1, "b": "x,y", "c": [1, 2]}, {"a": 2, "b": None, "c": []}]
    assert export_bytes(table, "csv") == b'a,b,c\n1,"x,y","[1, 2]"\n2,,[]\n'
    assert [json.loads(line) for line in export_bytes(table, "json").splitlines()] == rows
    assert pq.read_table(io.BytesIO(export_bytes(table, "parquet"))).to_pylist() == rows


def test_a_type_that_parquet_lacks_is_one_clear_line() -> None:
    with pytest.raises(StoreError, match=r"cannot be written as Parquet \(.*interval\): cast the column to text"):
        export_bytes(duckdb.sql("select interval 1 month as a").to_arrow_table(), "parquet")
