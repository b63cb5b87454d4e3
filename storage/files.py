"""Writes that are whole or absent: temporary name, fsync, then the real name."""

import contextlib
import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from storage.errors import StoreError

TEMPORARY = ".tmp"
UNREADABLE = ".unreadable"


def write_once(path: Path, data: bytes) -> None:
    """Create `path` with `data`, or leave nothing.

    Raises:
        FileExistsError: `path` exists; of two writers exactly one succeeds.
        StoreError: the file system refuses the write.
    """
    with _temporary(path) as temporary:
        _write_synced(temporary, data)
        _link(temporary, path)
    sync_folder(path.parent)


def write_over(path: Path, data: bytes) -> None:
    """Put `data` in place of what `path` held; a reader sees the old or the new bytes."""
    with _temporary(path) as temporary:
        _write_synced(temporary, data)
        os.replace(temporary, path)
    sync_folder(path.parent)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A file to fill; when the block ends well it is synced and becomes `path`, else it is gone.

    Raises:
        FileExistsError: `path` exists.
    """
    with _temporary(path) as temporary:
        yield temporary
        _sync(temporary)
        _link(temporary, path)
    sync_folder(path.parent)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill; when the block ends well it is synced and becomes `path`, else it is gone."""
    with _temporary(path) as temporary:
        temporary.mkdir()
        yield temporary
        for file in sorted(temporary.rglob("*")):
            _sync(file)
        _sync(temporary)
        os.rename(temporary, path)
    sync_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Delete what killed writers left under `folder`; only its one rightful writer may call this.

    Raises:
        StoreError: the file system refuses it.
    """
    for leftover in sorted(folder.rglob(f"*{TEMPORARY}")):
        try:
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink(missing_ok=True)  # its folder may have been a leftover too
        except OSError as error:
            raise StoreError(refusal(leftover, error)) from error


def set_aside(path: Path) -> Path:
    """Rename an unreadable file, so that it can be made again and still be looked at.

    Raises:
        StoreError: the file system refuses it.
    """
    aside = path.with_name(path.name + UNREADABLE)
    try:
        os.replace(path, aside)
    except OSError as error:
        raise StoreError(refusal(path, error)) from error
    return aside


def numbers_in(folder: Path, name: re.Pattern[str]) -> list[int]:
    """The numbers in the entries of a folder that `name` matches whole, ascending; others are passed over."""
    if not folder.is_dir():
        return []
    found = (name.fullmatch(entry) for entry in os.listdir(folder))
    return sorted(int(match[1]) for match in found if match)


def file_digest(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_writable(folder: Path) -> bool:
    """Whether a file can be created in a folder, found out by doing it."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def check_writable(folder: Path) -> None:
    """Refuse a folder in which, or in whose nearest existing parent, nothing can be created.

    Raises:
        StoreError: names the folder.
    """
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not is_writable(existing):
        raise StoreError(f"cannot write in {existing}: make it writable, or use another --store")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    _sync(folder)


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    # The random part tells apart threads, and processes of two containers that share a volume and a pid.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}{TEMPORARY}")
    try:
        make_folder(path.parent)
        yield temporary
    except OSError as error:
        if isinstance(error, FileExistsError):
            raise
        raise StoreError(refusal(path, error)) from error
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, each one's name synced, so that no file in it can be lost with it.

    Raises:
        NotADirectoryError: a file has its name; not FileExistsError, which tells of the file to be written.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{folder} is a file") from None
    sync_folder(folder.parent)


def refusal(path: Path, error: OSError) -> str:
    """One line for a write that the file system refused."""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"cannot write {path}: {error.strerror}: make it writable, or use another --store"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"cannot write {path}: {error.strerror}: free some space and run again; what is stored is intact"
    return f"cannot write {path}: {error.strerror or error}"


def _link(temporary: Path, path: Path) -> None:
    """Give a file its real name, unless that is taken: a rename would put it in place of the other."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise StoreError(
                f"cannot write {path}: its file system has no hard links ({error.strerror}), without which two writers "
                "could overwrite each other: put the store on one that has, with --store"
            ) from error
        raise


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
