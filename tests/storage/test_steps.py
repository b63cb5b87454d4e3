"""A step is read whole or not at all."""

import logging

import pytest

from storage.catalog import query
from storage.errors import StoreError
from storage.layout import Layout
from storage.past import read_groups
from storage.schemas import REWARDS, ROLLOUTS
from storage.steps import read_step

READ = {"rollouts": ROLLOUTS, "rewards": REWARDS}


def test_a_step_has_the_rows_of_all_its_rounds(small_store: Layout) -> None:
    assert {name: len(table) for name, table in read_step(small_store, "first", 2, READ).items()} == {
        "rollouts": 6,
        "rewards": 6,
    }


@pytest.mark.parametrize(("content", "fault"), [(None, "is missing"), (b"torn", "is not readable as Parquet: ")])
def test_a_commit_record_that_cannot_be_read_is_no_empty_step(
    store_copy: Layout, content: bytes | None, fault: str
) -> None:
    record = store_copy.commit("first", 2)
    record.unlink()
    if content is not None:
        record.write_bytes(content)
    with pytest.raises(StoreError) as refused:
        read_step(store_copy, "first", 2, READ)
    assert str(refused.value).startswith(f"{record} {fault}")


def test_a_damaged_commit_record_is_named_once_to_whoever_goes_on(
    store_copy: Layout, caplog: pytest.LogCaptureFixture
) -> None:
    record = store_copy.commit("first", 2)
    record.write_bytes(b"torn")
    with caplog.at_level(logging.WARNING):
        assert set(read_groups(store_copy, {"first": 3})["step"].to_pylist()) == {1, 3}
        assert [message.endswith(": step 2 of run first is left out") for message in caplog.messages] == [True]
        caplog.clear()
        assert query(store_copy, "select distinct step from groups", run="first").num_rows == 2
        assert [message.endswith(": the step is left out") for message in caplog.messages] == [True]
