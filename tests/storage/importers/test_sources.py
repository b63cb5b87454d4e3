"""Files are what their content says; a row that cannot be read is named, and the rows after it follow."""

import json
from pathlib import Path

import pytest

from storage.errors import StoreError
from storage.importers.columns import Where, lookup
from storage.importers.sources import Row, expand, kind_of, read_rows, sample_of
from tests.storage.importers.files import write_lines, write_parquet

ROWS = [{"a": 1, "b": {"c": "x"}}, {"a": 2, "b": {"c": "y"}}]


def values(path: Path) -> list[dict[str, object]]:
    return [dict(row.values) for row in read_rows(path)]


def test_the_same_rows_come_out_of_every_kind_of_file_whatever_its_name(tmp_path: Path) -> None:
    array = tmp_path / "array.txt"
    array.write_text("\ufeff" + json.dumps(ROWS, indent=1))
    lines = write_lines(tmp_path / "lines.json", ROWS)
    parquet = write_parquet(tmp_path / "data", ROWS)
    for path, kind in ((array, "JSON array"), (lines, "JSON lines"), (parquet, "Parquet")):
        assert kind_of(path) == kind
        assert values(path) == ROWS
        assert [row.number for row in read_rows(path)] == [1, 2]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_finds_its_delimiter_and_keeps_quoted_line_feeds(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "table.csv"
    text = f'\ufeffprompt{delimiter}answer\n"two\nlines, with; all| of\tthem"{delimiter}4\nplain{delimiter}5\n'
    path.write_text(text)
    assert list(read_rows(path)) == [
        Row(2, {"prompt": "two\nlines, with; all| of\tthem", "answer": "4"}),
        Row(4, {"prompt": "plain", "answer": "5"}),
    ]


def test_bad_lines_are_named_with_their_reason_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines = [b'{"a": 1}', b"{torn", b"\xff", b"[1]", b"", b'{"a": ' + b"[" * 200_000, b'{"a": 2}']
    path.write_bytes(b"\n".join(lines))
    rows = list(read_rows(path))
    assert [(row.number, row.fault) for row in rows] == [
        (1, ""),
        (2, "no JSON (Expecting property name enclosed in double quotes at column 2)"),
        (3, "not UTF-8 (byte 0xff)"),
        (4, "no JSON object, but list"),
        (6, "no JSON (nested too deeply)"),
        (7, ""),
    ]
    assert [row.values for row in rows if not row.fault] == [{"a": 1}, {"a": 2}]


def test_a_line_separator_of_unicode_does_not_end_a_json_line(tmp_path: Path) -> None:
    assert values(write_lines(tmp_path / "rows.jsonl", [{"a": "x\u2028y\x85z"}])) == [{"a": "x\u2028y\x85z"}]


def test_csv_rows_of_other_lengths_and_bytes_are_faults_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"a,b\n1,2\n3\n4,\xff\n5,6,7\n8,9\n")
    assert [(row.number, row.fault or dict(row.values)) for row in read_rows(path)] == [
        (2, {"a": "1", "b": "2"}),
        (3, "1 cells where the header names 2 columns"),
        (4, "not UTF-8"),
        (5, "3 cells where the header names 2 columns"),
        (6, {"a": "8", "b": "9"}),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"PAR1 torn", "is not readable as Parquet after row 0"),
        (b'[{"a": 1}, ', "begins like a JSON array and is none"),
        (b"a,a\n1,2\n", "two columns have the same name: a, a"),
        (b"a,,b\n1,2,3\n", "the first line names no columns"),
    ],
)
def test_files_that_cannot_be_read_at_all_are_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(StoreError) as refused:
        list(read_rows(path))
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_a_torn_parquet_file_says_how_far_it_was_read(tmp_path: Path) -> None:
    whole = write_parquet(tmp_path / "whole.parquet", [{"a": "x" * 50 + str(number)} for number in range(2000)])
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(StoreError, match=r"torn\.parquet is not readable as Parquet after row 0"):
        list(read_rows(torn))


def test_a_folder_stands_for_its_files_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("10.jsonl", "9.jsonl", "1.jsonl", "notes.md"):
        (tmp_path / name).write_text("{}")
    assert [path.name for path in expand([tmp_path])] == ["1.jsonl", "9.jsonl", "10.jsonl"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="holds no file that ends in"):
        expand([tmp_path / "empty"])
    with pytest.raises(StoreError, match="does not exist"):
        expand([tmp_path / "nothing"])


def test_nested_columns_are_found_by_their_path_also_inside_json_text() -> None:
    row = {"a.b": 0, "a": {"b": 1, "c": None}, "text": '{"d": {"e": 2}}', "torn": "{"}
    assert [lookup(row, path) for path in ("a.b", "a.c", "text.d.e")] == [0, None, 2]
    missing = [lookup(row, path) for path in ("x", "a.x", "a.b.c", "torn.a", "text.d.x")]
    assert {type(value).__name__ for value in missing} == {"_Missing"}


def test_rows_are_chosen_by_values_as_text_or_as_numbers() -> None:
    rows = [Row(1, {"t": 1.0, "m": "a"}), Row(2, {"t": 0.5, "m": "a"}), Row(3, {"t": "1.00", "m": "a"}), Row(4, {})]
    assert [row.number for row in rows if Where({"t": "1", "m": "a"})(row)] == [1, 3]
    assert [row.number for row in rows if Where({"m": "a'; drop table x"})(row)] == []
    single = Row(5, {"t": 0.6000000238418579, "i": 1000001, "x": float("inf")})
    assert [Where(wanted)(single) for wanted in ({"t": "0.6"}, {"t": "0.61"}, {"i": "1000000"}, {"x": "nan"})] == [
        True, False, False, False,
    ]  # fmt: skip
    assert Where({"m": "b"})(Row(5, fault="torn")), "a row that cannot be read is never dropped unsaid"


def test_a_filter_that_leaves_nothing_is_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [{"a": 1}, {"a": 2}])
    with pytest.raises(StoreError, match=r"no row to use among 2 \(--where a=3\)"):
        sample_of(path, Where({"a": "3"}))
