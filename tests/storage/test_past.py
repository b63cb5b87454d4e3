"""The groups of committed steps, read up to a snapshot."""

from typing import Any

import pyarrow as pa
import pytest

import storage.past
from storage.catalog import query
from storage.history import History
from storage.layout import Layout
from storage.past import commits_digest, groups_digest, read_groups, snapshot
from storage.schemas import PAST
from tests.storage.small_history import make_history, make_record, make_step, write_parts


def counts(groups: pa.Table) -> list[tuple[Any, ...]]:
    """Run, step, prompt, successes and valid rollouts of each row."""
    return [tuple(row.values())[:5] for row in groups.to_pylist()]


def test_groups_come_in_the_order_of_the_snapshot_of_steps_and_of_rounds(small_store: Layout) -> None:
    groups = read_groups(small_store, {"second": 1, "first": 2})
    assert groups.schema == PAST
    assert counts(groups) == [
        ("second", 1, "p0", 1, 2),
        ("second", 1, "p1", 0, 2),
        ("first", 1, "p0", 1, 2),
        ("first", 1, "p1", 0, 2),
        ("first", 2, "p0", 1, 2),
        ("first", 2, "p1", 0, 2),
        ("first", 2, "p2", 2, 2),
    ]
    assert set(groups["mean_tokens"].to_pylist()) == {3.0}


@pytest.mark.parametrize("read_rows", [1, 5, 200_000])
def test_groups_agree_with_the_view_however_many_rows_are_read_at_once(
    small_store: Layout, monkeypatch: pytest.MonkeyPatch, read_rows: int
) -> None:
    monkeypatch.setattr(storage.past, "READ_ROWS", read_rows)
    view = query(
        small_store,
        "select run_id, step, prompt_id, successes, valid, mean_tokens from groups where valid > 0 "
        "order by run_id, step, round, prompt_id",
    )
    steps = snapshot(small_store, ["first", "second"])
    assert steps == {"first": 3, "second": 3}
    assert read_groups(small_store, steps).to_pylist() == view.to_pylist()


def test_groups_keep_the_order_in_which_their_round_was_written(history: History, layout: Layout) -> None:
    prompts = [f"p{number}" for number in (7, 3, 9, 1)]
    keys = {"group_id": [f"g{prompt}" for prompt in prompts], "sample": [0] * 4}
    text = {"response": [""] * 4, "finish_reason": ["stop"] * 4, "sampling": ["{}"] * 4}
    tokens = {"prompt_tokens": [1] * 4, "response_tokens": [None, 1, 2, 3]}
    constants = {"attempt": 0, "policy_version": 0, "engine": "toy"}
    history.write("rollouts", 1, {**keys, "prompt_id": prompts, **text, **tokens}, round=0, **constants)
    verdicts = {"reward": [1.0, None, 1.0, 0.0], "success": [True, None, True, False]}
    said = {
        "reward_status": ["ok"] * 4,
        "reward_parts": ["{}"] * 4,
        "admitted": [True] * 4,
        "reject_reason": [None] * 4,
    }
    history.write("rewards", 1, {**keys, **verdicts, **said}, round=0)
    history.commit(1, make_record(1))
    groups = read_groups(layout, {"first": 1})
    assert counts(groups) == [("first", 1, "p7", 1, 1), ("first", 1, "p9", 1, 1), ("first", 1, "p1", 0, 1)]
    assert groups["mean_tokens"].to_pylist() == [None, 2.0, 3.0]


def test_only_the_prompts_asked_for_are_read(small_store: Layout) -> None:
    steps = snapshot(small_store, ["first", "second"])
    assert counts(read_groups(small_store, steps, ["p2", "elsewhere"])) == [
        ("first", 2, "p2", 2, 2),
        ("second", 2, "p2", 2, 2),
    ]
    assert len(read_groups(small_store, steps, [])) == 0


def test_a_run_that_grows_changes_nothing_up_to_the_snapshot(layout: Layout) -> None:
    history = make_history(layout, "first", 2)
    before = read_groups(layout, {"first": 2})
    digests = groups_digest(before), commits_digest(layout, "first", 2)
    make_step(history, 3)
    write_parts(history, 4)
    again = read_groups(layout, {"first": 2})
    assert again.equals(before)
    assert (groups_digest(again), commits_digest(layout, "first", 2)) == digests
    assert len(read_groups(layout, {"first": 9})) == len(before) + 2  # step 4 is not committed
    assert commits_digest(layout, "first", 3) != digests[1]
    assert groups_digest(read_groups(layout, {"first": 3})) != digests[0]


def test_steps_that_are_damaged_missing_or_not_committed_are_named_and_left_out(
    layout: Layout, caplog: pytest.LogCaptureFixture
) -> None:
    history = make_history(layout, "first", 5, rounds=2)
    write_parts(history, 6)
    layout.part("rewards", "first", 1, 1).unlink()
    part = layout.part("rollouts", "first", 2, 0)
    part.write_bytes(part.read_bytes()[:-20])
    record = layout.commit("first", 3)
    record.write_bytes(b"torn")
    layout.commit("first", 4).unlink()
    groups = read_groups(layout, {"first": 6})
    assert {row[1] for row in counts(groups)} == {5}
    assert len(groups) == 3
    for path in (layout.part("rewards", "first", 1, 1), part, record):
        assert str(path.relative_to(layout.root)) in caplog.text


def test_a_run_that_is_not_there_has_no_groups(layout: Layout) -> None:
    assert snapshot(layout, ["nobody"]) == {"nobody": -1}
    assert read_groups(layout, {"nobody": 3}).equals(PAST.empty_table())
    assert read_groups(layout, {}).schema == PAST


@pytest.mark.parametrize(
    "change", [{"run_id": "b"}, {"step": 2}, {"prompt_id": "q"}, {"successes": 2}, {"valid": 5}, {"mean_tokens": 2.5}]
)
def test_the_digest_tells_every_column(change: dict[str, Any]) -> None:
    row = {"run_id": "a", "step": 1, "prompt_id": "p", "successes": 1, "valid": 4, "mean_tokens": None}
    one, other = (pa.Table.from_pylist([row, {**row, **last}], schema=PAST) for last in ({}, change))
    assert groups_digest(one) == groups_digest(pa.concat_tables([one.slice(0, 1), one.slice(1)]))
    assert groups_digest(one) != groups_digest(other)


def test_a_step_with_a_flipped_byte_is_left_out_whole(layout: Layout) -> None:
    make_history(layout, "first", 2)
    path = layout.part("rewards", "first", 1)
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(content)
    assert set(read_groups(layout, {"first": 2})["step"].to_pylist()) == {2}
