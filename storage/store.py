"""Opening a store: its marker file, and its format version."""

import contextlib
import json
from pathlib import Path

from storage.errors import StoreError, StoreVersionError
from storage.files import write_once
from storage.layout import Layout

FORMAT_VERSION = 1


def open_store(root: Path, *, create: bool = False) -> Layout:
    """The layout of the store at `root`.

    Raises:
        StoreVersionError: a newer Foreroll wrote it.
        StoreError: there is none and `create` is off, or `root` cannot become one.
    """
    layout = Layout(root.absolute())
    try:
        if create:
            _create(layout)
        _check_exists(layout)
    except PermissionError as error:
        raise StoreError(f"cannot read {layout.root}: {error.strerror}") from error
    found = _read_version(layout.store_file())
    if found > FORMAT_VERSION:
        raise StoreVersionError(layout.store_file(), found, FORMAT_VERSION)
    return layout


def _check_exists(layout: Layout) -> None:
    if layout.root.exists() and not layout.root.is_dir():
        raise StoreError(f"{layout.root} is a file: name a folder with --store")
    if not layout.store_file().exists():
        raise StoreError(f"no store at {layout.root}: run `foreroll train` first, or name one with --store")


def _create(layout: Layout) -> None:
    if layout.root.is_file() or layout.store_file().exists():
        return
    if _holds_something(layout.root) and not layout.store_file().exists():
        raise StoreError(f"{layout.root} is no store and is not empty: name an empty or new folder with --store")
    with contextlib.suppress(FileExistsError):  # somebody else created it just now
        write_once(layout.store_file(), json.dumps({"format_version": FORMAT_VERSION}).encode() + b"\n")


def _holds_something(folder: Path) -> bool:
    return folder.is_dir() and any(not child.name.startswith(".") for child in folder.iterdir())


def _read_version(path: Path) -> int:
    try:
        return int(json.loads(path.read_text())["format_version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not readable ({error}): restore it, or use another --store") from error
