"""Checkpoints appear whole, and old ones go."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from storage.checkpoints import (
    Checkpoint,
    checkpoint_steps,
    load_arrays,
    prune_checkpoints,
    read_checkpoint,
    remove_checkpoint_leftovers,
    save_arrays,
    write_checkpoint,
)
from storage.errors import StoreError
from storage.layout import Layout

ABOUT = Checkpoint(run="first", step=0, policy_version=0, predictor="gps", skipped_in_a_row=0)
ARRAYS = {"mean": np.arange(6, dtype=np.float32).reshape(2, 3), "count": np.array(7)}


def make_checkpoint(layout: Layout, step: int) -> Checkpoint:
    about = replace(ABOUT, step=step, policy_version=step - 1)
    with write_checkpoint(layout, about) as folder:
        save_arrays(folder / "predictor", ARRAYS)
    return about


def test_a_checkpoint_is_read_as_it_was_written(layout: Layout) -> None:
    about = make_checkpoint(layout, 3)
    folder = layout.checkpoint("first", 3)
    assert read_checkpoint(folder) == about
    loaded = load_arrays(folder / "predictor")
    assert sorted(loaded) == ["count", "mean"]
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(loaded[name], array)
        assert loaded[name].dtype == array.dtype


def test_arrays_that_are_not_contiguous_are_saved_by_value(tmp_path: Path) -> None:
    save_arrays(tmp_path, {"turned": ARRAYS["mean"].T, "every_other": np.arange(6)[::2]})
    loaded = load_arrays(tmp_path)
    assert loaded["turned"].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert loaded["every_other"].tolist() == [0, 2, 4]


def test_a_checkpoint_that_failed_leaves_nothing(layout: Layout) -> None:
    with pytest.raises(RuntimeError), write_checkpoint(layout, ABOUT) as folder:
        save_arrays(folder / "predictor", ARRAYS)
        raise RuntimeError
    assert checkpoint_steps(layout, "first") == []
    assert list(layout.checkpoints("first").iterdir()) == []


def test_steps_are_ascending_and_leftovers_and_other_folders_are_no_checkpoints(layout: Layout) -> None:
    assert checkpoint_steps(layout, "first") == []
    for step in (10, 0, 2):
        make_checkpoint(layout, step)
    for name in (".step=00000004.7-ab.tmp", "step=copy", "step=5"):
        (layout.checkpoints("first") / name).mkdir()
    assert checkpoint_steps(layout, "first") == [0, 2, 10]
    remove_checkpoint_leftovers(layout, "first")
    assert not (layout.checkpoints("first") / ".step=00000004.7-ab.tmp").exists()
    assert checkpoint_steps(layout, "first") == [0, 2, 10]


@pytest.mark.parametrize(
    ("keep", "best", "left"),
    [(2, None, [3, 4]), (2, 1, [1, 3, 4]), (1, 4, [4]), (2, 99, [3, 4]), (9, None, [0, 1, 2, 3, 4])],
)
def test_all_but_the_newest_and_the_best_are_pruned(
    layout: Layout, keep: int, best: int | None, left: list[int]
) -> None:
    for step in range(5):
        make_checkpoint(layout, step)
    prune_checkpoints(layout, "first", keep=keep, best=best)
    assert checkpoint_steps(layout, "first") == left
    assert len(list(layout.checkpoints("first").iterdir())) == len(left)


def test_a_damaged_checkpoint_is_named_with_the_way_out(layout: Layout) -> None:
    make_checkpoint(layout, 3)
    folder = layout.checkpoint("first", 3)
    (folder / "checkpoint.json").write_text("{")
    for content in (b"", b"\xff" * 100, None):
        arrays = folder / "predictor" / "arrays.safetensors"
        arrays.write_bytes(content) if content is not None else arrays.unlink()
        for read in (lambda: read_checkpoint(folder), lambda: load_arrays(folder / "predictor")):
            with pytest.raises(StoreError) as refused:
                read()
            assert str(refused.value).startswith(f"checkpoint {folder} is damaged (")
            assert str(refused.value).endswith("): delete it, and the one before is used")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_one_clear_line_and_leaves_the_checkpoint_before(small_disk: Path) -> None:
    layout = Layout(small_disk)
    make_checkpoint(layout, 1)
    with pytest.raises(StoreError) as refused, write_checkpoint(layout, replace(ABOUT, step=2)) as folder:
        save_arrays(folder / "predictor", {"large": np.zeros(1_000_000)})
    assert str(refused.value).startswith(f"cannot write {layout.checkpoint('first', 2)}: ")
    assert "No space left on device" in str(refused.value)
    assert str(refused.value).endswith("; what is stored is intact")
    assert [path.name for path in layout.checkpoints("first").iterdir()] == ["step=00000001"]
