from pathlib import Path

import pytest

from storage.layout import Layout
from storage.unfinished import UnfinishedRound

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
def round_(tmp_path: Path) -> UnfinishedRound:
    return UnfinishedRound(Layout(tmp_path), "tokens", "run", 3, 1)


def test_nothing_saved_reads_as_no_rows(round_: UnfinishedRound) -> None:
    assert len(round_.read()) == 0


def test_saved_rows_come_back_in_order_with_their_step_and_round(round_: UnfinishedRound) -> None:
    round_.save(COLUMNS)
    round_.save({**COLUMNS, "group_id": ["g1", "g1"]})
    found = round_.read()
    assert found["group_id"].to_pylist() == ["g0", "g0", "g1", "g1"]
    assert set(found["step"].to_pylist()) == {3} and set(found["round"].to_pylist()) == {1}


def test_an_unreadable_file_is_set_aside_and_the_others_are_read(
    round_: UnfinishedRound, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    round_.save(COLUMNS)
    round_.save({**COLUMNS, "group_id": ["g1", "g1"]})
    (broken,) = tmp_path.rglob("rows-0.parquet")
    broken.write_bytes(broken.read_bytes()[:-9])
    assert round_.read()["group_id"].to_pylist() == ["g1", "g1"]
    assert "set aside as rows-0.parquet.unreadable" in caplog.text
    round_.save(COLUMNS)
    assert round_.read()["group_id"].to_pylist() == ["g1", "g1", "g0", "g0"]


def test_removed_rows_are_gone_and_removing_twice_is_fine(round_: UnfinishedRound, tmp_path: Path) -> None:
    round_.save(COLUMNS)
    round_.remove()
    round_.remove()
    assert len(round_.read()) == 0
    assert list(tmp_path.rglob("*.unfinished")) == []
