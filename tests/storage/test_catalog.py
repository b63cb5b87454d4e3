"""Queries see the committed steps, whole, whatever else lies in the store."""

import logging
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.catalog import query
from storage.committed import damaged_files
from storage.files import write_over
from storage.history import History
from storage.layout import Layout
from storage.parquet import read_table, table_bytes
from storage.runs import write_run
from storage.schemas import HISTORY, STEPS
from storage.store import open_store
from tests.storage.processes import output, start
from tests.storage.small_history import TABLES, make_history, make_record, make_run, make_step, write_parts

COUNTS = {
    "forecasts": 18, "acquisitions": 20, "tokens": 28, "rollouts": 28, "rewards": 28, "updates": 6,
    "predictor_updates": 6, "evaluations": 0, "steps": 6, "groups": 14, "prompts": 2, "runs": 2,
}  # fmt: skip
"""Rows of the small store: two runs of three steps with one, two and one rounds."""


def count(layout: Layout, view: str) -> int:
    rows: int = query(layout, f"select count(*) as rows from {view}")["rows"][0].as_py()
    return rows


def first_rows(layout: Layout, sql: str, **parameters: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = query(layout, sql, parameters).to_pylist()
    return rows


@pytest.mark.parametrize("view", COUNTS)
def test_views_show_the_rows_of_committed_steps_alone(small_store: Layout, view: str) -> None:
    assert count(small_store, view) == COUNTS[view]


@pytest.mark.parametrize("view", COUNTS)
def test_views_of_an_empty_store_have_the_columns_of_a_full_one(layout: Layout, small_store: Layout, view: str) -> None:
    empty = query(layout, f"from {view}")
    assert len(empty) == 0
    assert empty.schema == query(small_store, f"from {view}").schema


@pytest.mark.parametrize("table", HISTORY)
def test_tables_as_they_are_stored_have_their_declared_columns(layout: Layout, table: str) -> None:
    assert query(layout, f"from raw.{table}").schema.equals(HISTORY[table].remove_metadata())


def test_a_rollout_is_joined_to_its_reward(small_store: Layout) -> None:
    where = "run_id = $run and step = 2 and prompt_id = 'p0' and sample = 1"
    assert first_rows(small_store, f"from rollouts where {where}", run="second") == [
        {
            "run_id": "second", "step": 2, "round": 0, "prompt_id": "p0", "group_id": "second-2-p0", "sample": 1,
            "attempt": 0, "policy_version": 1, "engine": "toy", "response": "answer to p0", "prompt_tokens": 2,
            "response_tokens": 3, "finish_reason": "stop", "reward": 0.0, "success": False, "reward_status": "ok",
            "reward_parts": "{}", "admitted": True, "reject_reason": None, "sampling": "{}",
        }
    ]  # fmt: skip


def test_a_forecast_is_joined_to_the_last_decision_on_it(small_store: Layout) -> None:
    rows = first_rows(
        small_store,
        "select step, prompt_id, p_success, decision, rank, round, propensity from forecasts "
        "where run_id = 'first' and step < 3 order by step, prompt_id",
    )
    assert [tuple(row.values()) for row in rows] == [
        (1, "p0", 0.5, "acquired", 0, 0, 1.0),
        (1, "p1", 0.25, "explored", 1, 0, 1.0),
        (1, "p2", 0.75, "not_chosen", None, 0, 0.25),
        (2, "p0", 0.5, "acquired", 0, 0, 1.0),
        (2, "p1", 0.25, "explored", 1, 0, 1.0),
        (2, "p2", 0.75, "acquired", 0, 1, 1.0),
    ]


def test_a_group_counts_its_rollouts_and_knows_its_forecast(small_store: Layout) -> None:
    rows = first_rows(
        small_store,
        "select round, prompt_id, rollouts, valid, successes, informative, success_rate, mean_tokens, p_success, "
        "decision from groups where run_id = 'first' and step = 2 order by prompt_id",
    )
    assert [tuple(row.values()) for row in rows] == [
        (0, "p0", 2, 2, 1, True, 0.5, 3.0, 0.5, "acquired"),
        (0, "p1", 2, 2, 0, False, 0.0, 3.0, 0.25, "explored"),
        (1, "p2", 2, 2, 2, False, 1.0, 3.0, 0.75, "acquired"),
    ]


def test_a_group_without_a_valid_rollout_has_no_rate(history: History, layout: Layout) -> None:
    write_parts(history, 1)
    path = layout.part("rewards", "first", 1)
    rewards = read_table(path, HISTORY["rewards"]).to_pylist()
    nothing = {"reward": None, "success": None, "reward_status": "timeout", "admitted": False}
    table = pa.Table.from_pylist([{**row, **nothing} for row in rewards], schema=HISTORY["rewards"])
    path.write_bytes(table_bytes(table))
    history.commit(1, make_record(1))
    rows = first_rows(layout, "select valid, successes, informative, success_rate, mean_reward from groups")
    assert [tuple(row.values()) for row in rows] == [(0, 0, False, None, None)] * 2


def test_runs_and_prompts_have_their_views(small_store: Layout) -> None:
    assert first_rows(small_store, "select run_id, state, target, config from runs order by run_id") == [
        {"run_id": "first", "state": "running", "target": 3, "config": '{"seed": 0}'},
        {"run_id": "second", "state": "running", "target": 3, "config": '{"seed": 0}'},
    ]
    assert first_rows(small_store, "select dataset, position, text from prompts order by position") == [
        {"dataset": "toy", "position": 0, "text": "what is 1 + 1?"},
        {"dataset": "toy", "position": 1, "text": "what is 1 * 2?"},
    ]


def test_what_is_not_committed_is_invisible(history: History, layout: Layout) -> None:
    make_step(history, 1)
    write_parts(history, 2)
    for table in TABLES:
        folder = layout.parts(table, "first", 1)
        shutil.copy(folder / "part-0.parquet", folder / "part-1.parquet")
        shutil.copy(folder / "part-0.parquet", folder / ".part-2.parquet.7-ab.tmp")
    shutil.copytree(layout.parts("steps", "first", 1), layout.parts("steps", "first", 3).with_suffix(".tmp"))
    assert {view: count(layout, view) for view in ("forecasts", "rollouts", "rewards", "groups", "steps")} == {
        "forecasts": 3, "rollouts": 4, "rewards": 4, "groups": 2, "steps": 1,
    }  # fmt: skip


def test_readers_see_whole_steps_and_never_fewer_while_a_writer_commits(layout: Layout) -> None:
    readers = [start("count_until", layout.root, 8) for _ in range(2)]
    writer = start("write_steps", layout.root, "first", 7)
    assert output(writer) == []
    for reader in readers:
        counts = [tuple(map(int, line.split())) for line in output(reader)]
        assert counts == sorted(counts)
        for steps, rollouts, scored, forecasts, groups in counts:
            assert (rollouts, scored, forecasts, groups) == (6 * steps, 6 * steps, 3 * steps, 3 * steps)
        assert counts[-1][0] == 8


@pytest.mark.parametrize("fault", ["deleted", "truncated", "emptied", "cut at the end"])
def test_a_damaged_file_is_named_and_its_rows_are_left_out(
    store_copy: Layout, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = store_copy.part("rollouts", "first", 2, 1)
    content = path.read_bytes()
    if fault == "deleted":
        path.unlink()
    else:
        path.write_bytes({"truncated": content[:100], "emptied": b"", "cut at the end": content[:-1]}[fault])
    with caplog.at_level(logging.WARNING):
        assert count(store_copy, "rollouts") == COUNTS["rollouts"] - 2
    assert caplog.messages == [f"{path} is missing or damaged: its rows are left out"]
    assert count(store_copy, "rewards") == COUNTS["rewards"]
    kind = "missing" if fault == "deleted" else "damaged"
    assert damaged_files(store_copy) == [(str(path.relative_to(store_copy.root)), kind)]


def test_a_flipped_byte_is_found_by_its_digest_and_breaks_no_query(
    store_copy: Layout, caplog: pytest.LogCaptureFixture
) -> None:
    path = store_copy.part("rollouts", "first", 1)
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(content)
    assert damaged_files(store_copy) == [(str(path.relative_to(store_copy.root)), "damaged")]
    with caplog.at_level(logging.WARNING):
        rows = first_rows(store_copy, "select count(*) as n, max(response) as r, max(group_id) as g from rollouts")
        assert query(store_copy, "from rollouts").num_rows == COUNTS["rollouts"] - 4
    assert rows[0]["n"] in (COUNTS["rollouts"] - 4, COUNTS["rollouts"])
    assert f"{path} is missing or damaged: its rows are left out" in caplog.messages


@pytest.mark.parametrize("position", range(0, 4000, 400))
def test_no_flipped_byte_anywhere_breaks_a_query(store_copy: Layout, position: int) -> None:
    path = store_copy.part("rollouts", "first", 1)
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 0x81
    path.write_bytes(content)
    assert query(store_copy, "from raw.rollouts").num_rows in (COUNTS["rollouts"] - 4, COUNTS["rollouts"])
    assert damaged_files(store_copy) == [(str(path.relative_to(store_copy.root)), "damaged")]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 no Parquet PAR1", None])
def test_a_damaged_commit_record_is_named_and_hides_its_step(
    store_copy: Layout, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = store_copy.commit("first", 2)
    if content is None:
        content = path.read_bytes()[:-200] + b"PAR1"
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert query(store_copy, "from steps").num_rows == COUNTS["steps"] - 1
    assert f"{path} is missing or damaged: its rows are left out" in caplog.messages
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert count(store_copy, "rollouts") == COUNTS["rollouts"] - 6
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"{path} is not readable as Parquet: ")
    assert caplog.messages[0].endswith(": the step is left out")
    assert damaged_files(store_copy) == [(str(path.relative_to(store_copy.root)), "damaged")]


def test_a_step_before_the_last_that_has_no_commit_record_is_missing(store_copy: Layout) -> None:
    for step in (1, 3):
        store_copy.commit("first", step).unlink()
    (lost,) = damaged_files(store_copy)  # that step 3 was ever committed nothing tells
    assert lost == ("history/steps/run_id=first/step=00000001/part-0.parquet", "missing")
    write_run(store_copy, make_run("first", config={"imported": {}}))
    assert damaged_files(store_copy) == []


def test_damaged_run_files_and_datasets_break_no_query(store_copy: Layout, caplog: pytest.LogCaptureFixture) -> None:
    store_copy.run_file("first").write_text("{")
    path = store_copy.dataset("toy")
    path.write_bytes(path.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        assert (count(store_copy, "runs"), count(store_copy, "prompts")) == (1, 0)
    assert len(caplog.messages) == 2
    assert ("prompts/toy/part-0.parquet", "damaged") in damaged_files(store_copy)


def test_a_whole_store_has_no_damaged_files(small_store: Layout, layout: Layout) -> None:
    assert damaged_files(small_store) == []
    assert damaged_files(layout) == []


def test_a_record_that_names_a_file_elsewhere_is_not_followed(store_copy: Layout, tmp_path: Path) -> None:
    outside = tmp_path / "outside.parquet"
    shutil.copy(store_copy.part("rollouts", "second", 1), outside)
    record = read_table(store_copy.commit("first", 1), STEPS).to_pylist()[0]
    for path in (str(outside), "../outside.parquet", "history/rollouts/../../../outside.parquet"):
        files = [{**file, "path": path} if "/rollouts/" in file["path"] else file for file in record["files"]]
        table = pa.Table.from_pylist([{**record, "files": files}], schema=STEPS)
        write_over(store_copy.commit("first", 1), table_bytes(table))
        assert count(store_copy, "rollouts") == COUNTS["rollouts"] - 4


def test_a_column_that_older_files_lack_reads_as_null(layout: Layout) -> None:
    history = History(layout, "first")
    make_step(history, 2)
    write_parts(history, 1)
    for table, column in (("forecasts", "p_sd"), ("rewards", "reject_reason"), ("acquisitions", "diversity")):
        path = layout.part(table, "first", 1)
        path.write_bytes(table_bytes(read_table(path, HISTORY[table]).drop_columns([column])))
    history.commit(1, make_record(1))
    path = layout.commit("first", 1)
    path.write_bytes(table_bytes(read_table(path, STEPS).drop_columns(["evaluate_seconds"])))
    assert first_rows(
        layout, "select step, sum(p_sd) as sd, count(*) as n from forecasts group by step order by step"
    ) == [
        {"step": 1, "sd": None, "n": 3},
        {"step": 2, "sd": 0.375, "n": 3},
    ]
    assert first_rows(layout, "select count(reject_reason) as n, count(*) as all from rollouts") == [{"n": 0, "all": 8}]
    assert first_rows(layout, "select step, evaluate_seconds as s from steps order by step") == [
        {"step": 1, "s": None},
        {"step": 2, "s": 1.0},
    ]


def test_a_column_of_a_newer_file_does_not_disturb(history: History, layout: Layout) -> None:
    write_parts(history, 1)
    path = layout.part("forecasts", "first", 1)
    table = read_table(path, HISTORY["forecasts"])
    path.write_bytes(table_bytes(table.add_column(0, "later", pa.array([1, 2, 3]))))
    history.commit(1, make_record(1))
    assert query(layout, "from raw.forecasts").column_names == HISTORY["forecasts"].names


@pytest.mark.parametrize(
    "name", ["it's", 'a "b"', "st*r?[1]", "a{b,c}", "ünï cödé", "%41", "new\nline", "a;b", "$x", "s3:"]
)
def test_a_store_may_have_any_path(tmp_path: Path, name: str) -> None:
    layout = open_store(tmp_path / name, create=True)
    make_history(layout, "first", steps=1)
    make_history(open_store(tmp_path / "star1", create=True), "first", steps=2)
    assert count(layout, "rollouts") == 4
    assert damaged_files(layout) == []


def test_a_store_may_lie_behind_a_link(small_store: Layout, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(small_store.root)
    assert count(Layout(tmp_path / "link"), "rollouts") == COUNTS["rollouts"]


def test_only_the_tables_that_a_query_names_are_opened(store_copy: Layout, caplog: pytest.LogCaptureFixture) -> None:
    shutil.rmtree(store_copy.history() / "tokens")
    with caplog.at_level(logging.WARNING):
        count(store_copy, "rollouts")
        assert caplog.messages == []
        count(store_copy, "tokens")
        assert len(caplog.messages) == 8


def test_a_query_of_ours_that_is_wrong_raises_as_it_is(layout: Layout) -> None:
    with pytest.raises(duckdb.BinderException):
        query(layout, "select nothing from rollouts")


def test_parameters_are_values_and_never_sql(small_store: Layout) -> None:
    write = "first'; drop view rollouts; --"
    assert first_rows(small_store, "select count(*) as n from rollouts where run_id = $run", run=write) == [{"n": 0}]


def test_times_are_in_utc(small_store: Layout) -> None:
    rows = first_rows(small_store, "select distinct committed_at::varchar as at from steps")
    assert rows == [{"at": "2025-01-01 00:00:00+00"}]


def test_ids_stay_text(layout: Layout) -> None:
    write_run(layout, make_run("0012"))
    make_history(layout, "0012", steps=1)
    assert first_rows(layout, "select distinct run_id from rollouts") == [{"run_id": "0012"}]
    assert first_rows(layout, "select run_id from runs") == [{"run_id": "0012"}]
    assert pq.read_schema(layout.part("rollouts", "0012", 1)).field("run_id").type == pa.string()
