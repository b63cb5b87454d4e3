from pathlib import Path

import pyarrow.parquet as pq
import pytest

from storage.layout import Layout
from storage.unfinished import UnfinishedPart

COLUMNS = {
    "group_id": ["g0", "g0"],
    "sample": [0, 1],
    "prompt_token_ids": [[1], [1]],
    "token_ids": [[2], [3]],
    "logprobs": [[-0.5], [-0.25]],
    "finish_reason": ["stop", "length"],
    "policy_version": [4, 4],
}


@pytest.fixture
def round_(tmp_path: Path) -> UnfinishedPart:
    return UnfinishedPart(Layout(tmp_path), "tokens", "run", 3, 1, round=1)


def test_nothing_saved_reads_as_no_rows(round_: UnfinishedPart) -> None:
    assert len(round_.read()) == 0


def test_saved_rows_come_back_in_order_with_their_step_and_round(round_: UnfinishedPart) -> None:
    round_.save(COLUMNS)
    round_.save({**COLUMNS, "group_id": ["g1", "g1"]})
    found = round_.read()
    assert found["group_id"].to_pylist() == ["g0", "g0", "g1", "g1"]
    assert set(found["step"].to_pylist()) == {3} and set(found["round"].to_pylist()) == {1}


def test_an_unreadable_file_is_set_aside_and_the_others_are_read(
    round_: UnfinishedPart, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    round_.save(COLUMNS)
    round_.save({**COLUMNS, "group_id": ["g1", "g1"]})
    (broken,) = tmp_path.rglob("rows-0.parquet")
    broken.write_bytes(broken.read_bytes()[:-9])
    assert round_.read()["group_id"].to_pylist() == ["g1", "g1"]
    assert "set aside as rows-0.parquet.unreadable" in caplog.text
    round_.save(COLUMNS)
    assert round_.read()["group_id"].to_pylist() == ["g1", "g1", "g0", "g0"]


def test_removed_rows_are_gone_and_removing_twice_is_fine(round_: UnfinishedPart, tmp_path: Path) -> None:
    round_.save(COLUMNS)
    round_.remove()
    round_.remove()
    assert len(round_.read()) == 0
    assert list(tmp_path.rglob("*.unfinished")) == []


@pytest.mark.parametrize("column", ["step", "run_id", "round"])
def test_rows_of_another_part_are_set_aside(tmp_path: Path, column: str, caplog: pytest.LogCaptureFixture) -> None:
    constants = {"run_id": "run", "step": 3, "round": 1}
    ours = UnfinishedPart(Layout(tmp_path), "tokens", "run", 3, 1, round=1)
    ours.save(COLUMNS)
    theirs = UnfinishedPart(Layout(tmp_path), "tokens", "run", 3, 1, round=1)
    theirs.constants = constants | {column: "other" if column == "run_id" else 9}
    theirs.save(COLUMNS)
    assert len(ours.read()) == 2
    assert f"is of another part: {column} is not" in caplog.text


def test_a_file_that_lacks_a_column_is_set_aside(round_: UnfinishedPart, tmp_path: Path) -> None:
    round_.save(COLUMNS)
    (saved,) = tmp_path.rglob("rows-0.parquet")
    pq.write_table(pq.read_table(saved, partitioning=None).drop_columns(["logprobs"]), saved)
    assert len(round_.read()) == 0
    assert not saved.exists()


def test_other_entries_of_the_folder_are_passed_over(round_: UnfinishedPart, tmp_path: Path) -> None:
    round_.save(COLUMNS)
    (saved,) = tmp_path.rglob("rows-0.parquet")
    saved.with_name("rows-00.parquet").write_text("x")
    saved.with_name("rows-3.parquet").mkdir()
    assert len(round_.read()) == 2
