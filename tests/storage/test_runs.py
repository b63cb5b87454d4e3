"""Run files."""

import logging

import pytest

from storage.errors import StoreError
from storage.layout import Layout
from storage.runs import list_runs, read_run, write_run
from tests.storage.small_history import make_run


def test_a_run_file_is_read_as_it_was_written(layout: Layout) -> None:
    run = make_run("first", forked_from={"run": "other", "step": 3}, message="überraschend", state="stopped")
    write_run(layout, run)
    assert read_run(layout, "first") == run


def test_a_run_that_does_not_exist_is_none(layout: Layout) -> None:
    assert read_run(layout, "first") is None
    assert list_runs(layout) == []


def test_a_run_file_takes_the_place_of_the_one_before(layout: Layout) -> None:
    write_run(layout, make_run("first"))
    write_run(layout, make_run("first", state="finished"))
    assert read_run(layout, "first") == make_run("first", state="finished")
    assert [path.name for path in layout.runs().iterdir()] == ["first.json"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run": "first"}', '{"unknown": 1}'])
def test_a_damaged_run_file_is_refused_by_name(layout: Layout, content: str) -> None:
    layout.runs().mkdir()
    layout.run_file("first").write_text(content)
    with pytest.raises(StoreError) as refused:
        read_run(layout, "first")
    assert str(refused.value).startswith(f"run file {layout.run_file('first')} is not readable (")
    assert str(refused.value).endswith("): restore it, or set it aside")


def test_runs_are_listed_oldest_first_and_damaged_ones_are_named_and_left_out(
    layout: Layout, caplog: pytest.LogCaptureFixture
) -> None:
    write_run(layout, make_run("a", created_at="2025-01-03"))
    write_run(layout, make_run("b", created_at="2025-01-01"))
    write_run(layout, make_run("c", created_at="2025-01-02"))
    layout.run_file("d").write_text("{")
    (layout.runs() / ".e.json.7-ab.tmp").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert [run.run for run in list_runs(layout)] == ["b", "c", "a"]
    assert len(caplog.messages) == 1 and str(layout.run_file("d")) in caplog.messages[0]
