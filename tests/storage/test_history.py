"""Parts are written once, and a step exists when its commit record does."""

import contextlib
import logging
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from storage.committed import damaged_files
from storage.errors import MismatchError, StoreError
from storage.files import file_digest
from storage.history import History
from storage.layout import Layout
from storage.schemas import HISTORY
from tests.storage.processes import hear, say, start, write_steps
from tests.storage.small_history import (
    make_history,
    make_record,
    make_step,
    write_acquisitions,
    write_forecasts,
    write_parts,
    write_updates,
)


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def test_a_part_is_read_as_it_was_written(history: History, layout: Layout) -> None:
    write_forecasts(history, 1)
    keys = {"run_id": "first", "step": 1, "predictor": "mopps", "p_sd": 0.125}
    assert history.read("forecasts", 1).to_pylist() == [
        {**keys, "prompt_id": "p0", "p_success": 0.5, "expected_tokens": None},
        {**keys, "prompt_id": "p1", "p_success": 0.25, "expected_tokens": 3.0},
        {**keys, "prompt_id": "p2", "p_success": 0.75, "expected_tokens": 3.0},
    ]
    assert history.holds("forecasts", 1)
    assert not history.holds("forecasts", 2)
    assert not history.holds("acquisitions", 1)


def test_rounds_are_read_in_order_and_other_files_are_passed_over(history: History, layout: Layout) -> None:
    for round_ in (1, 0):
        write_acquisitions(history, 1, round_)
    folder = layout.parts("acquisitions", "first", 1)
    for name in ("part-0 (copy).parquet", "part-x.parquet", ".part-2.parquet.7-ab.tmp", "part-3.parquet.unreadable"):
        (folder / name).write_text("")
    assert history.rounds("acquisitions", 1) == [0, 1]
    assert history.read_rounds("acquisitions", 1)["round"].to_pylist() == [0, 0, 0, 1]


def test_reading_what_is_not_there_names_it(history: History, layout: Layout) -> None:
    with pytest.raises(StoreError) as refused:
        history.read("forecasts", 1)
    assert str(refused.value) == f"{layout.part('forecasts', 'first', 1)} is missing"
    with pytest.raises(StoreError) as refused:
        history.read_rounds("rewards", 1)
    assert str(refused.value) == f"{layout.parts('rewards', 'first', 1)} holds no part: restore it"


def test_an_equal_part_is_accepted_and_left_alone(history: History, layout: Layout) -> None:
    write_updates(history, 1)
    before = layout.part("updates", "first", 1).stat().st_mtime_ns
    write_updates(history, 1)
    assert layout.part("updates", "first", 1).stat().st_mtime_ns == before


def test_equal_rows_that_another_arrow_wrote_as_other_bytes_are_accepted(history: History, layout: Layout) -> None:
    write_forecasts(history, 1)
    path = layout.part("forecasts", "first", 1)
    pq.write_table(history.read("forecasts", 1), path, compression="gzip")
    write_forecasts(history, 1)


def test_a_different_part_is_refused_and_the_columns_are_named(history: History, layout: Layout) -> None:
    write_updates(history, 1)
    before = layout.part("updates", "first", 1).read_bytes()
    with pytest.raises(MismatchError) as refused:
        write_updates(history, 1, loss=0.5000000000000001)
    assert str(refused.value) == (
        f"{layout.part('updates', 'first', 1)} differs in loss from what this process computed for the same step: "
        "the store, the config or the libraries changed since; continue under another name with --run NEW --from first"
    )
    assert layout.part("updates", "first", 1).read_bytes() == before


def test_a_part_with_other_rows_is_refused(history: History) -> None:
    write_forecasts(history, 1)
    columns = {"prompt_id": ["p0"], "p_success": [0.5], "p_sd": [0.125], "expected_tokens": [None]}
    with pytest.raises(MismatchError, match=r"differs in its number of rows from"):
        history.write("forecasts", 1, columns, predictor="mopps")


def test_an_unreadable_part_of_an_open_step_is_set_aside_and_made_again(
    history: History, layout: Layout, caplog: pytest.LogCaptureFixture
) -> None:
    path = layout.part("forecasts", "first", 1)
    write_forecasts(history, 1)
    whole = path.read_bytes()
    damage(path)
    with caplog.at_level(logging.WARNING):
        assert not history.holds("forecasts", 1)
    assert caplog.messages[0].startswith(f"{path} is not readable as Parquet: ")
    assert caplog.messages[0].endswith("; set aside as part-0.parquet.unreadable and made again")
    assert path.with_name("part-0.parquet.unreadable").read_bytes() == whole[:-1]
    write_forecasts(history, 1)
    assert path.read_bytes() == whole


def test_an_unreadable_part_that_is_only_ever_compared_is_made_again_too(history: History, layout: Layout) -> None:
    path = layout.part("updates", "first", 1)
    write_updates(history, 1)
    whole = path.read_bytes()
    damage(path)
    write_updates(history, 1)
    assert path.read_bytes() == whole
    assert path.with_name("part-0.parquet.unreadable").read_bytes() == whole[:-1]


def test_an_unreadable_part_of_a_committed_step_is_refused_by_name(history: History, layout: Layout) -> None:
    make_step(history, 1)
    for name in ("forecasts", "updates"):
        damage(layout.part(name, "first", 1))
    for attempt in (
        lambda: history.holds("forecasts", 1),
        lambda: write_forecasts(history, 1),
        lambda: history.read("forecasts", 1),
    ):
        with pytest.raises(StoreError) as refused:
            attempt()
        assert str(refused.value).startswith(f"{layout.part('forecasts', 'first', 1)} is not readable as Parquet: ")
    with pytest.raises(StoreError) as refused:
        write_updates(history, 1)
    assert str(refused.value).startswith(f"{layout.part('updates', 'first', 1)} is not readable as Parquet: ")
    assert list(layout.history().rglob("*.unreadable")) == []


def test_a_commit_record_describes_every_file_of_its_step(history: History, layout: Layout) -> None:
    make_step(history, 1)
    make_step(history, 2, rounds=2)
    record = history.read("steps", 2).to_pylist()[0]
    files = record.pop("files")
    assert record == {"run_id": "first", "step": 2, **make_record(2, rounds=2)}
    folder = "run_id=first/step=00000002"
    assert [(file["path"], file["rows"]) for file in files] == [
        (f"history/forecasts/{folder}/part-0.parquet", 3),
        (f"history/acquisitions/{folder}/part-0.parquet", 3),
        (f"history/acquisitions/{folder}/part-1.parquet", 1),
        (f"history/tokens/{folder}/part-0.parquet", 4),
        (f"history/tokens/{folder}/part-1.parquet", 2),
        (f"history/rollouts/{folder}/part-0.parquet", 4),
        (f"history/rollouts/{folder}/part-1.parquet", 2),
        (f"history/rewards/{folder}/part-0.parquet", 4),
        (f"history/rewards/{folder}/part-1.parquet", 2),
        (f"history/updates/{folder}/part-0.parquet", 1),
        (f"history/predictor_updates/{folder}/part-0.parquet", 1),
    ]
    for file in files:
        path = layout.root / file["path"]
        assert (file["bytes"], file["sha256"]) == (path.stat().st_size, file_digest(path))


def test_a_step_is_committed_once(history: History, layout: Layout) -> None:
    make_step(history, 1)
    before = layout.commit("first", 1).read_bytes()
    with pytest.raises(StoreError) as refused:
        history.commit(1, {**make_record(1), "epoch": 2})
    assert str(refused.value) == "step 1 of run first was committed by another process: stop one of them"
    assert layout.commit("first", 1).read_bytes() == before


def test_a_step_with_an_unreadable_part_is_not_committed(history: History, layout: Layout) -> None:
    write_parts(history, 1)
    damage(layout.part("rewards", "first", 1))
    with pytest.raises(StoreError, match=f"^{layout.part('rewards', 'first', 1)} is not readable as Parquet: "):
        history.commit(1, make_record(1))
    assert history.committed_steps() == []


def test_only_steps_with_a_commit_record_are_committed(history: History, layout: Layout) -> None:
    assert (history.committed_steps(), history.last_committed()) == ([], -1)
    for step in (10, 2, 0):
        make_step(history, step)
    write_parts(history, 11)
    (layout.table_of_run("steps", "first") / "step=00000012").mkdir()
    (layout.table_of_run("steps", "first") / "step=copy").mkdir()
    assert (history.committed_steps(), history.last_committed()) == ([0, 2, 10], 10)
    assert History(layout, "second").committed_steps() == []


def test_leftovers_of_the_run_go_and_those_of_other_runs_stay(history: History, layout: Layout) -> None:
    for run in ("first", "second"):
        make_history(layout, run, steps=1)
        for name in ("forecasts", "steps"):
            (layout.parts(name, run, 1) / ".part-0.parquet.7-ab.tmp").write_text("half")
    history.remove_leftovers()
    assert sorted(path.parts[-3] for path in layout.history().rglob("*.tmp")) == ["run_id=second", "run_id=second"]
    assert damaged_files(layout) == []


def test_the_same_steps_give_the_same_bytes_in_any_store(tmp_path: Path) -> None:
    for store in ("one", "two"):
        make_history(Layout(tmp_path / store), "first", steps=2, rounds=2)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


def test_a_writer_killed_at_random_leaves_whole_steps_and_a_resumed_one_the_same_bytes(layout: Layout) -> None:
    steps = 6
    rng = random.Random(0)
    history = History(layout, "first")
    writers = start("fork_writers", layout.root, "first", steps)
    assert hear(writers) == "ready"
    codes = []
    for _ in range(16):
        before = history.committed_steps()
        say(writers, "go")
        pid = int(hear(writers))
        time.sleep(rng.uniform(0.0, 0.06))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        codes.append(int(hear(writers)))
        assert history.committed_steps()[: len(before)] == before
        assert_whole(history, layout)
    writers.communicate("")
    assert codes.count(-signal.SIGKILL) > 5
    write_steps(str(layout.root), "first", str(steps))
    assert history.committed_steps() == list(range(steps + 1))
    killed = digests(layout.root)
    shutil.rmtree(layout.history())
    write_steps(str(layout.root), "first", str(steps))
    assert killed == digests(layout.root)


def assert_whole(history: History, layout: Layout) -> None:
    """Every part that exists is readable, and every committed one is what was committed."""
    committed = history.committed_steps()
    assert committed == list(range(len(committed)))
    assert damaged_files(layout) == []
    for name in HISTORY:
        for round_ in history.rounds(name, len(committed)):
            assert history.holds(name, len(committed), round_)


def digests(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): file_digest(path) for path in root.rglob("*") if path.is_file()}
