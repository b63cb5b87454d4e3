"""What a new run pins of other runs' history, and what it reads of it later."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from models.settings import ForerollSettings, MoppsSettings
from storage.errors import StoreError
from storage.history import History
from storage.layout import Layout
from storage.past import read_groups
from storage.runs import write_run
from storage.schemas import PAST
from storage.store import open_store
from tasks.past import check_past, past_runs, pin_past, read_past
from tests.storage.small_history import make_history, make_run, make_small_store, make_step

POOL = ["p2", "p0", "unseen"]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Runs `first` and `second` of three committed steps each."""
    layout = open_store(tmp_path / "store", create=True)
    make_small_store(layout)
    return layout


def pin(
    layout: Layout, past: str = "all", run: str = "new", forked_from: dict[str, Any] | None = None
) -> dict[str, Any]:
    return pin_past(layout, run, ForerollSettings(past=past), POOL, forked_from or {})


def test_groups_become_rows_of_the_pool_and_runs_are_numbered_without_gaps() -> None:
    rows = [
        ("a", 1, "elsewhere", 1, 8, 5.0),
        ("b", 2, "p0", 3, 8, 7.0),
        ("b", 3, "p2", 4, 7, None),
        ("c", 1, "p0", 0, 1, 9.0),
        ("b", 4, "p0", 5, 8, 1.0),
    ]
    past = past_runs(pa.Table.from_pylist([dict(zip(PAST.names, row, strict=True)) for row in rows], PAST), POOL)
    assert past.run.tolist() == [0, 0, 1, 0]
    assert past.step.tolist() == [2, 3, 1, 4]
    assert past.row.tolist() == [1, 0, 1, 1]
    assert past.successes.tolist() == [3, 4, 0, 5]
    assert past.valid.tolist() == [8, 7, 1, 8]
    assert past.mean_tokens.tolist()[::2] == [7.0, 9.0] and past.mean_tokens[1] != past.mean_tokens[1]
    assert len(past_runs(PAST.empty_table(), POOL)) == 0


def test_a_run_pins_every_other_run_that_shares_a_prompt(layout: Layout) -> None:
    write_run(layout, make_run("idle"))
    assert pin(layout)["past"] == {"first": 3, "second": 3}
    assert pin(layout, run="first")["past"] == {"second": 3}
    assert pin_past(layout, "new", ForerollSettings(), ["unseen"], {}) == {"past": {}}
    assert pin_past(layout, "new", MoppsSettings(), POOL, {})["past"] == {}


def test_the_setting_says_which_runs_are_read(layout: Layout) -> None:
    for past, runs in (
        ("none", []),
        ("first", ["first"]),
        ("s*, first", ["first", "second"]),
        ("*", ["first", "second"]),
    ):
        assert list(pin(layout, past)["past"]) == runs
    check_past(layout, ForerollSettings(past="s*,first"))
    check_past(layout, MoppsSettings())
    with pytest.raises(StoreError) as refused:
        check_past(layout, ForerollSettings(past="first,third"))
    assert str(refused.value) == (f"predictor.past: no run is called 'third' in {layout.root}; it has: first, second")


def test_of_its_parent_a_fork_reads_nothing_later_than_the_fork(layout: Layout) -> None:
    pins = pin(layout, forked_from={"run": "first", "step": 1})
    assert pins["past"] == {"first": 1, "second": 3}
    groups = read_past(layout, "new", pins, POOL)
    assert groups.filter(pa.compute.equal(groups["run_id"], "first"))["step"].to_pylist() == [1]
    assert pin(layout, forked_from={"run": "first", "step": 0})["past"] == {"second": 3}
    assert pin(layout, forked_from={"run": "first", "step": 4})["past"] == {"first": 3, "second": 3}


def test_what_was_pinned_is_read_again_whatever_was_added_since(layout: Layout) -> None:
    pins = pin(layout)
    before = read_past(layout, "new", pins, POOL)
    assert before.equals(read_groups(layout, {"first": 3, "second": 3}, POOL))
    make_step(History(layout, "second"), 4)
    make_history(layout, "third", 2)
    write_run(layout, make_run("third"))
    assert read_past(layout, "new", pins, POOL).equals(before)
    assert pin(layout)["past"] == {"first": 3, "second": 4, "third": 2}


def test_a_pinned_run_that_is_gone_or_changed_is_named(layout: Layout) -> None:
    pins = pin(layout)
    layout.part("rewards", "first", 2).unlink()
    with pytest.raises(StoreError, match=r"run new forecasts from what runs first, second did, .* is not what it was"):
        read_past(layout, "new", pins, POOL)
    layout.commit("second", 3).unlink()
    with pytest.raises(
        StoreError, match=r"from steps 1 to 3 of run second, of which the store has only 2 any more: re"
    ):
        read_past(layout, "new", pins, POOL)
    shutil.rmtree(layout.table_of_run("steps", "first"))
    with pytest.raises(StoreError, match=r"from steps 1 to 3 of run first, of which the store has none any more: rest"):
        read_past(layout, "new", pins, POOL)


def test_a_run_from_before_there_were_pins_reads_nothing(layout: Layout) -> None:
    assert len(read_past(layout, "old", {"threads": 1}, POOL)) == 0
