"""Checkpoints: folders that appear whole, are found by step, and are pruned."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from storage.errors import StoreError
from storage.files import new_folder, numbers_in, remove_leftovers
from storage.layout import STEP_FOLDER, Layout

MARKER = "checkpoint.json"


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint's folder says of itself."""

    run: str
    step: int
    policy_version: int
    predictor: str
    """Name of the predictor whose state it holds."""
    skipped_in_a_row: int
    """Updates skipped in a row, up to and including this step."""


@contextlib.contextmanager
def write_checkpoint(layout: Layout, checkpoint: Checkpoint) -> Iterator[Path]:
    """A folder to put `policy/`, `optimizer/` and `predictor/` in; it becomes the checkpoint when the block ends.

    Raises:
        StoreError: the file system refuses a write.
    """
    path = layout.checkpoint(checkpoint.run, checkpoint.step)
    with new_folder(path) as folder:
        try:
            yield folder
        except SafetensorError as error:  # how safetensors words a full disk
            raise StoreError(f"cannot write {path}: {error}; what is stored is intact") from error
        (folder / MARKER).write_text(json.dumps(asdict(checkpoint)) + "\n")


def read_checkpoint(folder: Path) -> Checkpoint:
    """What the checkpoint says of itself.

    Raises:
        StoreError: its marker is missing or damaged.
    """
    try:
        return Checkpoint(**json.loads((folder / MARKER).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"checkpoint {folder} is damaged ({error}): delete it, and the one before is used") from error


def checkpoint_steps(layout: Layout, run: str) -> list[int]:
    """Steps that have a checkpoint, ascending."""
    return numbers_in(layout.checkpoints(run), STEP_FOLDER)


def remove_checkpoint_leftovers(layout: Layout, run: str) -> None:
    """Delete half-written checkpoints; call while holding the run's lock."""
    remove_leftovers(layout.checkpoints(run))


def prune_checkpoints(layout: Layout, run: str, *, keep: int, best: int | None) -> None:
    """Delete all but the newest `keep` checkpoints and the one of step `best`."""
    for step in checkpoint_steps(layout, run)[:-keep]:
        if step != best:
            folder = layout.checkpoint(run, step)
            doomed = folder.with_name(f".{folder.name}.tmp")
            folder.rename(doomed)
            shutil.rmtree(doomed)


def save_arrays(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """Named arrays as `arrays.safetensors`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: array.copy(order="C") for name, array in arrays.items()}, folder / "arrays.safetensors")


def load_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Named arrays as `save_arrays` wrote them.

    Raises:
        StoreError: they are missing or damaged.
    """
    try:
        loaded: dict[str, np.ndarray] = load_file(folder / "arrays.safetensors")
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"checkpoint {folder.parent} is damaged ({error}): delete it, and the one before is used"
        ) from error
    return loaded
