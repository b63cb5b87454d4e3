"""DuckDB views over the committed steps of all runs.

Views are built for each connection, from the files that commit records name,
and only those that the query reads: opening Parquet footers is what costs.
"""

import json
import logging
import os
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from storage.errors import StoreError
from storage.files import file_digest
from storage.layout import Layout
from storage.prompts import dataset_names
from storage.runs import list_runs
from storage.schemas import HISTORY, PROMPTS

logger = logging.getLogger(__name__)

_PARQUET_END = b"PAR1"

_RUNS = pa.schema(
    {
        "run_id": pa.string(),
        "state": pa.string(),
        "created_at": pa.string(),
        "target": pa.int64(),
        "message": pa.string(),
        "config": pa.string(),
        "pins": pa.string(),
        "forked_from": pa.string(),
    }
)


@dataclass(frozen=True)
class _View:
    needs: tuple[str, ...]
    sql: str


_VIEWS = {
    "forecasts": _View(
        ("raw.forecasts", "raw.acquisitions"),
        """
        select f.run_id, f.step, f.prompt_id, f.predictor, f.p_success, f.p_sd, f.expected_tokens,
               a.utility, a.diversity, a.propensity, a.decision, a.rank, a.round
        from raw.forecasts f left join (
            select * from raw.acquisitions
            qualify row_number() over (partition by run_id, step, prompt_id order by round desc) = 1
        ) a using (run_id, step, prompt_id)
        """,
    ),
    "rollouts": _View(
        ("raw.rollouts", "raw.rewards"),
        """
        select r.run_id, r.step, r.round, r.prompt_id, r.group_id, r.sample, r.attempt, r.policy_version, r.engine,
               r.response, r.prompt_tokens, r.response_tokens, r.finish_reason, w.reward, w.success,
               w.reward_status, w.reward_parts, w.admitted, w.reject_reason, r.sampling
        from raw.rollouts r left join raw.rewards w using (run_id, step, group_id, sample)
        """,
    ),
    "groups": _View(
        ("rollouts", "forecasts"),
        """
        select g.*, g.successes > 0 and g.successes < g.valid as informative,
               g.successes / nullif(g.valid, 0) as success_rate,
               f.p_success, f.p_sd, f.expected_tokens, f.propensity, f.decision
        from (
            select run_id, step, any_value(round) as round, prompt_id, group_id, count(*) as rollouts,
                   count(success) as valid, count_if(success)::bigint as successes, avg(reward) as mean_reward,
                   avg(response_tokens) as mean_tokens, bool_or(admitted) as admitted,
                   any_value(reject_reason) as reject_reason
            from rollouts group by run_id, step, prompt_id, group_id
        ) g left join forecasts f using (run_id, step, prompt_id)
        """,
    ),
    **{name: _View((f"raw.{name}",), f"from raw.{name}") for name in HISTORY if name not in ("forecasts", "rollouts")},
}
VIEWS = (*_VIEWS, "prompts", "runs")


def connect(layout: Layout, sql: str) -> duckdb.DuckDBPyConnection:
    """An in-memory connection with every view that `sql` names."""
    con = duckdb.connect(config={"python_enable_replacements": False, "max_temp_directory_size": "0GB"})
    con.execute("create schema raw")
    files = None
    for name in _views_needed(sql):
        if name == "runs":
            _create_runs(con, layout)
        elif name == "prompts":
            paths = [layout.dataset(dataset) for dataset in dataset_names(layout)]
            con.execute(f"create view prompts as {_relation(paths, PROMPTS)}")
        elif name in _VIEWS:
            con.execute(f"create view {name} as {_VIEWS[name].sql}")
        else:
            files = _committed_files(layout) if files is None else files
            table = name.removeprefix("raw.")
            con.execute(f"create view {name} as {_relation(files[table], HISTORY[table])}")
    return con


def query(layout: Layout, sql: str, parameters: dict[str, Any] | None = None) -> pa.Table:
    """Run our own query over the views."""
    with connect(layout, sql) as con:
        return con.sql(sql, params=parameters or {}).to_arrow_table()


def query_locked(layout: Layout, sql: str) -> pa.Table:
    """Run a user's query: one SELECT, which can write, attach and install nothing, and reads only the store.

    Raises:
        StoreError: the statement is refused, wrong or fails.
    """
    try:
        _check_one_select(sql)
        with connect(layout, sql) as con:
            con.execute(f"set allowed_directories = [{_quote(str(layout.root) + '/')}]")
            con.execute("set enable_external_access = false")
            con.execute("set lock_configuration = true")
            return con.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        raise StoreError(f"query refused: {str(error).strip()}") from error


def _check_one_select(sql: str) -> None:
    statements = duckdb.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(statement.type.name for statement in statements) or "nothing"
        raise StoreError(f"only one SELECT is allowed, not: {kinds}")


def _views_needed(sql: str) -> list[str]:
    """Views that a query reads, each after those that it needs itself."""
    ordered: list[str] = []

    def add(name: str) -> None:
        if name in ordered:
            return
        for needed in _VIEWS[name].needs if name in _VIEWS else ():
            add(needed)
        ordered.append(name)

    for name in _named(sql):
        add(name)
    return ordered


def _named(sql: str) -> list[str]:
    """Views whose names stand in the query's text; all when none does, so that `show tables` lists them.

    DuckDB's own list of a query's tables is no help: it binds columns, and fails before the views exist.
    """
    words = set(re.findall(r"[a-z_]+", sql.lower()))
    raw = [f"raw.{table}" for table in HISTORY if table in words] if "raw" in words else []
    return [name for name in VIEWS if name in words] + raw or list(VIEWS)


def _create_runs(con: duckdb.DuckDBPyConnection, layout: Layout) -> None:
    rows = [
        {
            "run_id": run.run,
            "state": run.state,
            "created_at": run.created_at,
            "target": run.target,
            "message": run.message,
            "config": json.dumps(run.config),
            "pins": json.dumps(run.pins),
            "forked_from": json.dumps(run.forked_from),
        }
        for run in list_runs(layout)
    ]
    con.register("_runs", pa.Table.from_pylist(rows, schema=_RUNS))
    con.execute("create table runs as from _runs")


def damaged_files(layout: Layout) -> list[tuple[str, str]]:
    """Path and fault of every committed file that is missing or whose bytes are not those that were committed."""
    faults = [(str(path), "damaged") for path in _commit_records(layout) if not _is_whole(path)]
    for path, size, digest in _named_files([path for path in _commit_records(layout) if _is_whole(path)]):
        file = layout.root / path
        if not file.exists():
            faults.append((path, "missing"))
        elif not _is_whole(file, size) or file_digest(file) != digest:
            faults.append((path, "damaged"))
    return faults


def _committed_files(layout: Layout) -> defaultdict[str, list[Path]]:
    """Files of all committed steps by table; damaged ones are named in a warning and left out."""
    files: defaultdict[str, list[Path]] = defaultdict(list)
    files["steps"] = [path for path in _commit_records(layout) if _kept(path)]
    for name, size, _ in _named_files(files["steps"]):
        path = layout.root / name
        if _kept(path, size):
            files[Path(name).parts[1]].append(path)
    return files


def _commit_records(layout: Layout) -> list[Path]:
    return sorted((layout.history() / "steps").glob("run_id=*/step=*/part-0.parquet"))


def _named_files(records: list[Path]) -> list[tuple[str, int, str]]:
    """Path below the root, size and digest of each file that commit records name."""
    if not records:
        return []
    with duckdb.connect() as con:
        return con.execute(
            "select file.path, file.bytes, file.sha256 from "
            f"(select unnest(files) as file from read_parquet({_list(records)}, union_by_name = true))"
        ).fetchall()


def _kept(path: Path, size: int | None = None) -> bool:
    whole = _is_whole(path, size)
    if not whole:
        logger.warning("%s is missing or damaged: its rows are left out", path)
    return whole


def _is_whole(path: Path, size: int | None = None) -> bool:
    """Whether a file ends like Parquet, at the size that was committed: what a query can afford to check."""
    try:
        with path.open("rb") as file:
            file.seek(-len(_PARQUET_END), os.SEEK_END)
            return file.read() == _PARQUET_END and size in (None, file.tell())
    except OSError:
        return False


def _relation(paths: list[Path], schema: pa.Schema) -> str:
    """SQL of a table's files behind its declared columns; a typed empty relation when there are none."""
    types = duckdb.from_arrow(schema.empty_table())
    empty = ", ".join(f'null::{kind} as "{name}"' for name, kind in zip(types.columns, types.types, strict=True))
    nothing = f"select {empty} where false"
    if not paths:
        return nothing
    return (
        f"{nothing} union all by name "
        f"from read_parquet({_list(paths)}, union_by_name = true, hive_partitioning = false)"
    )


def _list(paths: list[Path]) -> str:
    return "[" + ", ".join(_quote(str(path)) for path in paths) + "]"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
