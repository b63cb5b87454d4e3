"""What a replay reads: the right steps, whole or not at all, each group once."""

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import storage.replay
from storage.catalog import query
from storage.errors import StoreError
from storage.history import History
from storage.layout import Layout
from storage.replay import RunSteps, StoredStep, find_steps, read_steps
from storage.runs import write_run
from storage.store import open_store
from tests.storage.small_history import make_history, make_run, make_step
from tests.tasks.past_history import write_past, write_pool


def steps_of(layout: Layout, runs: str = "*", where: str = "true") -> dict[str, tuple[int, ...]]:
    return {one.run: one.steps for one in find_steps(layout, runs, where)}


def read(layout: Layout, run: str = "first", **options: bool) -> tuple[list[StoredStep], list[str]]:
    faults: list[str] = []
    chosen = find_steps(layout, run)[0]
    return list(read_steps(layout, chosen, faults, **options)), [*chosen.faults, *faults]


def test_steps_are_chosen_by_glob_and_condition(small_store: Layout) -> None:
    assert steps_of(small_store) == {"first": (1, 2, 3), "second": (1, 2, 3)}
    assert steps_of(small_store, "se*") == {"second": (1, 2, 3)}
    assert steps_of(small_store, "second, fir*") == steps_of(small_store)
    assert steps_of(small_store, where="step > 1 or run_id = 'first'") == {"first": (1, 2, 3), "second": (2, 3)}
    assert steps_of(small_store, where="rounds = 2 and target = 3") == {"first": (2,), "second": (2,)}


@pytest.mark.parametrize(
    ("runs", "where", "message"),
    [
        ("third", "true", "no committed step matches --runs 'third'"),
        ("*", "step > 9", "--where 'step > 9'"),
        ("*", "stp > 9", "no condition on runs and steps: query failed: Binder Error"),
        ("*", "step > 2) --", "no condition on runs and steps"),
        ("*", "true); drop view steps; select (true", "no condition on runs and steps: Parser Error"),
        ("*", "true), coalesce((true", "no condition on runs and steps: Parser Error"),
        ("*", "step > 1, step < 3", "no condition on runs and steps: Invalid Input Error"),
        ("fir\\st", "true", "no committed step matches"),
        ("it's", "true", "no committed step matches"),
    ],
)
def test_what_matches_nothing_or_is_no_condition_is_refused_in_one_line(
    small_store: Layout, runs: str, where: str, message: str
) -> None:
    with pytest.raises(StoreError) as refused:
        find_steps(small_store, runs, where)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_a_condition_may_end_with_a_comment(small_store: Layout) -> None:
    assert steps_of(small_store, where="step = 2 -- the middle") == {"first": (2,), "second": (2,)}


@pytest.mark.parametrize("where", ["true", "step > 1"])
def test_what_is_wrong_with_the_store_is_not_said_of_the_condition(
    small_store: Layout, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fail(layout: Layout) -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr("storage.catalog.runs_table", fail)
    with pytest.raises(StoreError, match=r"^the disk is gone$"):
        find_steps(small_store, where=where)


def test_groups_are_those_of_the_view_in_order_of_rank(small_store: Layout) -> None:
    found, faults = read(small_store)
    assert faults == []
    view = query(
        small_store,
        "select step, prompt_id, valid, successes, mean_tokens, propensity, decision from groups "
        "where run_id = 'first' order by step, round, prompt_id",
    ).to_pylist()
    names = ("prompt_id", "valid", "successes", "mean_tokens", "propensity", "decision")
    rows = [{"step": one.step, **row} for one in found for row in one.groups.select(names).to_pylist()]
    assert rows == view
    assert [one.candidates["prompt_id"].to_pylist() for one in found] == [["p0", "p1", "p2"]] * 3
    assert found[0].tokens is None


def test_log_probabilities_come_with_their_prompts_where_asked_for(small_store: Layout) -> None:
    found, _ = read(small_store, logprobs=True)
    assert found[1].tokens is not None
    assert found[1].tokens["prompt_id"].to_pylist() == ["p0", "p0", "p1", "p1", "p2", "p2"]
    assert found[1].tokens["logprobs"].to_pylist() == [[-0.5, -0.25, -0.125]] * 6


def test_steps_read_one_by_one_are_those_read_together(small_store: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    together, _ = read(small_store)
    monkeypatch.setattr(storage.replay, "READ_ROWS", 1)
    assert read(small_store)[0] == together


def test_no_more_rows_are_held_than_a_step_adds_to_the_bound(
    small_store: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    stored = storage.replay._stored
    monkeypatch.setattr(storage.replay, "READ_ROWS", 20)
    monkeypatch.setattr(storage.replay, "_stored", lambda batch: held.append(len(batch)) or stored(batch))
    read(small_store)
    assert held == [2, 1]


@pytest.mark.parametrize("table", ["rollouts", "rewards", "acquisitions", "forecasts"])
def test_a_torn_file_costs_its_step_and_is_named(store_copy: Layout, table: str) -> None:
    path = store_copy.part(table, "first", 2)
    path.write_bytes(path.read_bytes()[:-20])
    found, faults = read(store_copy)
    assert [one.step for one in found] == [1, 3]
    assert faults == [f"run first: step 2 is left out: {path.relative_to(store_copy.root)} is damaged"]


def test_a_file_with_a_flipped_byte_costs_its_step(store_copy: Layout) -> None:
    path = store_copy.part("rewards", "first", 3)
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF
    path.write_bytes(data)
    found, faults = read(store_copy)
    assert [one.step for one in found] == [1, 2]
    assert len(faults) == 1 and "run first: step 3 is left out" in faults[0] and "\n" not in faults[0]


def test_a_missing_step_and_a_missing_file_are_named(store_copy: Layout) -> None:
    store_copy.commit("first", 2).unlink()
    store_copy.part("rewards", "first", 3).unlink()
    found, faults = read(store_copy)
    assert [one.step for one in found] == [1]
    assert faults == [
        "run first: step 2 has no commit record: left out",
        "run first: step 3 is left out: history/rewards/run_id=first/step=00000003/part-0.parquet is missing",
    ]


def test_lost_steps_are_named_in_a_replay_of_several_runs(store_copy: Layout) -> None:
    make_history(store_copy, "third", 12)
    write_run(store_copy, make_run("third", created_at="2026"))
    store_copy.commit("second", 2).unlink()
    for step in (1, 2, *range(4, 9)):
        store_copy.commit("third", step).unlink()
    assert [(one.run, one.faults) for one in find_steps(store_copy)] == [
        ("first", ()),
        ("second", ("run second: step 2 has no commit record: left out",)),
        ("third", ("run third: steps 1, 2, 4, 5, 6 and 2 more have no commit record: left out",)),
    ]


def test_a_torn_commit_record_is_named(store_copy: Layout, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    path = store_copy.commit("first", 2)
    path.write_bytes(path.read_bytes()[:-20])
    found, faults = read(store_copy)
    assert [one.step for one in found] == [1, 3]
    assert faults == ["run first: step 2 is left out: the commit record is damaged"]


def test_a_step_that_is_committed_while_steps_are_looked_for_is_no_fault(
    store_copy: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask_and_go_on(layout: Layout, *arguments: Any) -> pa.Table:
        found = query(layout, *arguments)
        make_step(History(layout, "first"), 4)
        return found

    monkeypatch.setattr(storage.replay, "query", ask_and_go_on)
    assert find_steps(store_copy, "first") == [RunSteps("first", (1, 2, 3), ())]
    monkeypatch.undo()
    assert find_steps(store_copy, "first") == [RunSteps("first", (1, 2, 3, 4), ())]


def test_gaps_of_an_imported_history_are_no_fault(tmp_path: Path) -> None:
    layout = open_store(tmp_path / "store", create=True)
    ids = write_pool(layout, "toy", ["one", "two"])
    write_past(layout, "old", {10: [(ids[0], [True])], 20: [(ids[1], [False])]}, config={"imported": {}})
    assert find_steps(layout) == [RunSteps("old", (10, 20), ())]


def test_groups_without_a_verdict_are_none(tmp_path: Path) -> None:
    layout = open_store(tmp_path / "store", create=True)
    ids = write_pool(layout, "toy", ["one", "two"])
    write_past(layout, "old", {1: [(ids[0], [True, None, False]), (ids[1], [None, None])]})
    found = list(read_steps(layout, find_steps(layout)[0], []))
    assert found[0].groups.select(["prompt_id", "successes", "valid"]).to_pylist() == [
        {"prompt_id": ids[0], "successes": 1, "valid": 2}
    ]
