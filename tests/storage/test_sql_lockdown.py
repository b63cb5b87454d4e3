"""A user's SQL reads the views and does nothing else, however it is worded.

Each attack may fail in its own way. What counts: it is refused in one line, the
store and all around it are as they were, and what lies outside is not shown.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.cli import main
from storage.catalog import query_locked
from storage.errors import StoreError
from storage.files import file_digest
from storage.layout import Layout

SECRET = "outside-of-the-store"


@pytest.fixture(scope="module")
def house(small_store: Layout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `store`, secrets beside it, and links to them in the store; checked at the end to be unchanged."""
    house = tmp_path_factory.mktemp("house")
    shutil.copytree(small_store.root, house / "store")
    (house / "secret.txt").write_text(SECRET)
    (house / "secret.csv").write_text(f"a\n{SECRET}\n")
    (house / "secret.json").write_text(f'{{"a": "{SECRET}"}}')
    shutil.copy(Layout(house / "store").part("rollouts", "first", 1), house / "secret.parquet")
    for name in ("secret.txt", "secret.csv", "secret.parquet"):
        (house / "store" / name).symlink_to(house / name)
    (house / "store" / "up").symlink_to(house)
    (house / "work").mkdir()
    before = snapshot(house)
    working_folder = Path.cwd()
    os.chdir(house / "work")
    yield house
    os.chdir(working_folder)
    assert snapshot(house) == before


def snapshot(folder: Path) -> dict[str, str]:
    names = [Path(root, name) for root, folders, files in os.walk(folder) for name in (*folders, *files)]
    return {str(path): file_digest(path) if path.is_file() else "" for path in names}


def refusal_of(house: Path, sql: str) -> str:
    """The message that a query is refused with; the names `$store` and `$house` stand for paths."""
    sql = sql.replace("$store", str(house / "store")).replace("$house", str(house))
    with pytest.raises(StoreError) as refused:
        query_locked(Layout(house / "store"), sql)
    message = str(refused.value)
    assert "\n" not in message and SECRET not in message
    return message


STATEMENTS = [
    ("copy rollouts to '$store/x.parquet'", "COPY"),
    ("copy (select 1) to '$house/x.csv'", "COPY"),
    ("copy rollouts from '$house/secret.parquet'", "COPY"),
    ("export database '$store/x'", "EXPORT"),
    ("import database '$store/x'", "PRAGMA"),
    ("attach '$store/x.duckdb'", "ATTACH"),
    ("attach ':memory:' as x", "ATTACH"),
    ("detach memory", "DETACH"),
    ("use raw", "SET"),
    ("install httpfs", "LOAD"),
    ("load httpfs", "LOAD"),
    ("set enable_external_access = true", "SET"),
    ("set variable x = 1", "SET"),
    ("reset enable_external_access", "SET"),
    ("pragma database_list", "PRAGMA"),
    ("pragma enable_profiling", "PRAGMA"),
    ("call pragma_version()", "CALL"),
    ("checkpoint", "CALL"),
    ("vacuum", "VACUUM"),
    ("create table x as select 1", "CREATE"),
    ("create temp table x as select 1", "CREATE"),
    ("create or replace view rollouts as select 1", "CREATE"),
    ("create macro x() as 1", "CREATE"),
    ("create secret (type s3)", "CREATE"),
    ("drop view rollouts", "DROP"),
    ("alter view rollouts rename to x", "ALTER"),
    ("comment on view rollouts is 'x'", "ALTER"),
    ("insert into runs values (1)", "INSERT"),
    ("update runs set state = 'x'", "UPDATE"),
    ("delete from runs", "DELETE"),
    ("truncate runs", "DELETE"),
    ("merge into runs using (select 1) on true when matched then delete", "MERGE_INTO"),
    ("begin", "TRANSACTION"),
    ("prepare x as select 1", "PREPARE"),
    ("execute x", "EXECUTE"),
    ("explain select 1", "EXPLAIN"),
    ("explain analyze copy (select 1) to '$store/x.csv'", "EXPLAIN"),
    ("explain analyze select 1", "EXPLAIN"),
    ("select 1; select 2", "SELECT, SELECT"),
    ("select 1; drop view rollouts", "SELECT, DROP"),
    ("select 1;;copy (select 1) to '$store/x.csv'", "SELECT, COPY"),
    ("/* select */ drop /**/ view rollouts -- select", "DROP"),
    ("select 1 \x00; drop view rollouts", "SELECT, DROP"),
    ("pivot rollouts on success using count(*)", "MULTI (a PIVOT must name its values: ON column IN (...))"),
    ("", "nothing"),
    (" ; -- nothing", "nothing"),
]


@pytest.mark.parametrize(("sql", "kinds"), STATEMENTS)
def test_any_statement_but_one_select_is_refused(house: Path, sql: str, kinds: str) -> None:
    assert refusal_of(house, sql) == f"only one SELECT is allowed, not: {kinds}"


@pytest.mark.parametrize(
    "sql",
    [
        "with x as (copy (select 1) to '$store/x.csv') select * from x",
        "with x as (copy (select 1) to '$store/store.json' (format csv)) select * from x",
        "with x as (copy (from runs) to '$store/history/rollouts/run_id=first/step=00000001/part-0.parquet') from x",
        "with x as (copy (select 1) to 'x.csv') select * from x",
        "with x as (copy (select 1) to '.tmp/x.csv') select * from x",
        "with x as (copy (select 1) to '/dev/stdout') select * from x",
        "select * from (with x as (copy (select 1) to '$store/x.csv') select * from x)",
        "select * from query('with x as (copy (select 1) to ''$store/x.csv'') select * from x')",
        "select * from query('copy (select 1) to ''$store/x.csv''')",
        "select * from query('select 1; drop view rollouts')",
        "with x as (insert into runs values (1) returning *) select * from x",
        "with x as (update runs set state = 'x' returning *) select * from x",
        "with x as (delete from rollouts returning *) select * from x",
        "with x as (delete from raw.rollouts returning *) select * from x",
        "with x as (attach '$store/x.db') select * from x",
        "with x as (create table y as select 1) select * from x",
        "from enable_logging('QueryLog', storage = 'file', storage_path = '$store/log')",
        "from enable_profiling()",
        "from add_grammar_extension('x')",
        "from force_checkpoint()",
        "select nextval('x')",
    ],
)
def test_a_select_that_would_write_is_refused(house: Path, sql: str) -> None:
    assert refusal_of(house, sql).startswith("query failed: ")


PLACES = [
    "$house/secret.txt", "$house/secret.csv", "$house/secret.json", "$house/secret.parquet", "../secret.txt",
    "../secret.parquet", "$store/../secret.txt", "$store/../secret.parquet", "$store/secret.txt", "$store/secret.csv",
    "$store/secret.parquet", "$store/up/secret.txt", "$store/up/secret.parquet", "$store/*", "$house/*", "/etc/passwd",
    "/proc/self/environ", "/proc/self/cmdline", "/dev/stdin", "~/.bashrc", "file:///etc/passwd", "s3://bucket/x.parquet",
    "https://127.0.0.1/x.csv",
]  # fmt: skip


@pytest.mark.parametrize(
    "function",
    [
        "read_csv", "read_text", "read_blob", "read_parquet", "parquet_scan", "read_json", "read_json_objects",
        "read_ndjson", "sniff_csv", "parquet_metadata", "parquet_schema", "parquet_kv_metadata", "read_duckdb", "glob",
        "query_table",
    ],
)  # fmt: skip
def test_no_function_reads_a_file(house: Path, function: str) -> None:
    for place in ("$house/secret.parquet", "$store/secret.csv"):
        assert refusal_of(house, f"select * from {function}('{place}') -- runs").startswith("query failed: ")


@pytest.mark.parametrize("place", PLACES)
def test_no_place_is_read(house: Path, place: str) -> None:
    for source in (f"read_text('{place}')", f"read_parquet(['$store/x', '{place}'])", f"glob('{place}')", f"'{place}'"):
        assert refusal_of(house, f"select * from {source} -- runs").startswith("query failed: ")


@pytest.mark.parametrize(
    "sql",
    [
        "select * from SECRET", "from house", "from small_store", "from STATEMENTS", "select getenv('HOME')",
        "from duckdb_secrets()", "from which_secret('s3://x', 's3')", "from duckdb_extensions()",
        "from sqlite_scan('$house/secret.txt', 'x')", "from postgres_scan('', '', '')", "from iceberg_scan('$house')",
        "from read_xlsx('$house/secret.txt')", "from st_read('$house/secret.txt')", "from pandas_scan()",
        "from python_arrow_scan()", "from arrow_scan()", "from seq_scan()", "from python_map_function((select 1))",
    ],
)  # fmt: skip
def test_nothing_of_this_process_or_of_an_extension_is_shown(house: Path, sql: str) -> None:
    assert refusal_of(house, sql).startswith("query failed: ")


@pytest.mark.parametrize(
    "sql",
    [
        "select " + "(" * 50_000 + "1" + ")" * 50_000,
        "select " + "not " * 5_000 + "true",
        "select " + "+".join(["1"] * 20_000),
        "select * from " + "(select * from " * 2_000 + "runs" + ")" * 2_000,
        "select " + "[" * 500 + "]" * 500,
        "with " + ",".join(f"a{number} as (select 1)" for number in range(2_000)) + " select 1",
    ],
    ids=["parentheses", "not", "plus", "subqueries", "lists", "with"],
)
def test_a_query_too_deep_to_run_is_refused_and_kills_nothing(house: Path, sql: str) -> None:
    message = refusal_of(house, sql)
    assert message.startswith("query failed: ") and len(message) < 300


def test_a_long_query_that_is_not_deep_runs(house: Path) -> None:
    layout = Layout(house / "store")
    numbers = ",".join(map(str, range(20_000)))
    assert query_locked(layout, f"select count(*) as n from steps where step in ({numbers})").to_pylist() == [{"n": 6}]
    assert query_locked(layout, f"select length('{'x' * 1_000_000}') as n").to_pylist() == [{"n": 1_000_000}]


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("select count(*) as n from rollouts", [{"n": 28}]),
        ("select count(*) as n from ROLLOUTS;", [{"n": 28}]),
        ('select count(*) as n from "rollouts" -- ; drop view rollouts', [{"n": 28}]),
        ("select count(*) as n from memory.main.rollouts", [{"n": 28}]),
        ("select count(*) as n from raw.rewards", [{"n": 28}]),
        ("from runs select run_id order by 1", [{"run_id": "first"}, {"run_id": "second"}]),
        ("values (1)", [{"col0": 1}]),
        ("select 'copy rollouts to x; drop view runs' as a", [{"a": "copy rollouts to x; drop view runs"}]),
        ("/* from forecasts */ select count(*) as n from steps", [{"n": 6}]),
        ("with recursive t(n) as (select 1 union select n + 1 from t where n < 5) select max(n) n from t", [{"n": 5}]),
        ("with r as (from rollouts where step = 2) select count(*) as n from r", [{"n": 12}]),
        (
            "select f.decision, count(*) as n, sum(r.success::int)::int as s from rollouts r "
            "join forecasts f using (run_id, step, prompt_id) group by all order by all",
            [{"decision": "acquired", "n": 16, "s": 10}, {"decision": "explored", "n": 12, "s": 0}],
        ),
        ("select column_name from (describe runs) limit 1", [{"column_name": "run_id"}]),
        ("pivot groups on informative in (true, false) using count(*) group by run_id order by run_id",
         [{"run_id": "first", "true": 3, "false": 4}, {"run_id": "second", "true": 3, "false": 4}]),
        ("from query('select 1 as x')", [{"x": 1}]),
        ("select count(*) as n from query_table(['rollouts'])", [{"n": 28}]),
    ],
)  # fmt: skip
def test_queries_of_one_select_run(house: Path, sql: str, rows: list[dict[str, object]]) -> None:
    assert query_locked(Layout(house / "store"), sql).to_pylist() == rows


def test_tables_can_be_listed_described_and_summarised(house: Path) -> None:
    layout = Layout(house / "store")
    assert query_locked(layout, "show tables")["name"].to_pylist() == [
        "acquisitions", "evaluations", "forecasts", "groups", "predictor_updates", "predictors", "prompts", "rewards",
        "rollouts", "runs", "steps", "tokens", "updates",
    ]  # fmt: skip
    described = query_locked(layout, "describe forecasts")["column_name"].to_pylist()
    assert described == [
        "run_id", "step", "prompt_id", "predictor", "p_success", "p_sd", "expected_tokens", "utility", "diversity",
        "propensity", "decision", "rank", "round",
    ]  # fmt: skip
    summary = query_locked(layout, "summarize rollouts").to_pylist()
    assert {row["column_name"]: row["count"] for row in summary}["success"] == 28


def test_a_name_in_the_text_of_a_query_harms_nothing(house: Path) -> None:
    layout = Layout(house / "store")
    for name in ("x'; drop view rollouts; --", 'x" union select 1', "../../etc", "$run", "{run}", "%s", "\\"):
        quoted = name.replace("'", "''")
        rows = query_locked(layout, f"select count(*) as n from rollouts where run_id = '{quoted}'").to_pylist()
        assert rows == [{"n": 0}]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("selct 1", 'query failed: Parser Error: syntax error at or near "selct"'),
        (
            "select * from rolouts",
            'query failed: Catalog Error: Table with name rolouts does not exist! Did you mean "rollouts"?',
        ),
        ("select 1 +\nfrom\nrollouts", 'query failed: Parser Error: syntax error at or near "from"'),
        ("select error('boom')", "query failed: Invalid Input Error: boom"),
        (
            "select ?",
            "query failed: Invalid Input Error: Values were not provided for the following parameters: 1",
        ),
        ("select '\udcff'", "query failed: it is not valid Unicode text"),
    ],
)
def test_a_slip_is_one_short_line(house: Path, sql: str, message: str) -> None:
    assert refusal_of(house, sql) == message


@pytest.mark.parametrize(
    "sql", ["select * from rolouts", "drop view rollouts", "from '/etc/passwd'", "select '\udcff'"]
)
def test_the_command_line_ends_with_code_2_and_one_line(house: Path, sql: str) -> None:
    result = CliRunner().invoke(main, ["sql", "--store", str(house / "store"), sql])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("foreroll: ") and result.stderr.count("\n") == 1
