"""One process advances a run: a lock file that names its holder and shows that it lives."""

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from storage.errors import RunLockedError, StoreError
from storage.files import make_folder, write_once, write_over
from storage.layout import Layout
from storage.runs import read_run

HEARTBEAT_SECONDS = 10.0
STALE_SECONDS = 120.0
"""A holder on another host counts as dead when its last heartbeat is older than this."""


@dataclass(frozen=True)
class Holder:
    """The process behind a lock."""

    host: str
    pid: int
    started: float
    """Start of the process, seconds since 1970; tells it from a later process with the same pid."""
    epoch: int
    """How many processes have held the run, this one included."""
    heartbeat: float
    """Last sign of life, seconds since 1970."""

    def __str__(self) -> str:
        age = max(0.0, time.time() - self.heartbeat)
        return f"process {self.pid} on {self.host} (last sign of life {age:.0f} s ago)"

    def is_same_process(self, other: "Holder") -> bool:
        return (self.host, self.pid, self.started, self.epoch) == (other.host, other.pid, other.started, other.epoch)

    def is_dead(self) -> bool:
        """On this host: no such process; elsewhere: no heartbeat for `STALE_SECONDS`."""
        if self.host != socket.gethostname():
            return time.time() - self.heartbeat > STALE_SECONDS
        try:
            return bool(abs(psutil.Process(self.pid).create_time() - self.started) > 1.0)
        except psutil.NoSuchProcess:
            return True


@contextlib.contextmanager
def hold_run(layout: Layout, run: str) -> Iterator["RunLock"]:
    """Hold the lock of a run for the length of the block.

    Raises:
        RunLockedError: a living process holds it.
    """
    lock = _acquire(layout, run)
    try:
        with lock.beating():
            yield lock
    finally:
        lock.release()


def check_free(layout: Layout, run: str) -> None:
    """Refuse a run that a living process holds.

    Raises:
        RunLockedError: names the holder.
    """
    holder = read_holder(layout, run)
    if holder is not None and not holder.is_dead():
        raise RunLockedError(run, str(holder))


def _acquire(layout: Layout, run: str) -> "RunLock":
    process = psutil.Process()
    with _one_at_a_time(layout.runs()):
        check_free(layout, run)
        layout.lock_file(run).unlink(missing_ok=True)
        known = read_run(layout, run)
        epoch = known.epoch + 1 if known else 1
        holder = Holder(socket.gethostname(), process.pid, process.create_time(), epoch, time.time())
        lock = RunLock(layout.lock_file(run), holder)
        try:
            write_once(lock.path, lock.content())
        except FileExistsError:
            raise RunLockedError(run, "a process that took it just now") from None
    return lock


def read_holder(layout: Layout, run: str) -> Holder | None:
    """Who holds a run, None when nobody does."""
    path = layout.lock_file(run)
    try:
        return Holder(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"lock {path} is not readable ({error}): delete it if no process advances run {run}"
        ) from error


class RunLock:
    """A lock that is held."""

    def __init__(self, path: Path, holder: Holder) -> None:
        self.path = path
        self.holder = holder

    @property
    def epoch(self) -> int:
        return self.holder.epoch

    def content(self) -> bytes:
        return json.dumps(asdict(self.holder)).encode() + b"\n"

    def check(self) -> None:
        """Refuse to go on when another process has taken the run.

        Raises:
            StoreError: the lock file is gone or names another holder.
        """
        if not self._is_ours():
            raise StoreError(f"the lock {self.path} was taken away from this process: nothing more is written")

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Renew the heartbeat in the background."""
        done = threading.Event()

        def beat() -> None:
            while not done.wait(HEARTBEAT_SECONDS):
                if not self._is_ours():
                    return
                self.holder = replace(self.holder, heartbeat=time.time())
                with contextlib.suppress(StoreError):  # a full disk must not end the run: its own writes will say so
                    write_over(self.path, self.content())

        thread = threading.Thread(target=beat, name="run-lock-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def release(self) -> None:
        """Delete the lock file if it is still ours."""
        if self._is_ours():
            self.path.unlink(missing_ok=True)

    def _is_ours(self) -> bool:
        try:
            return Holder(**json.loads(self.path.read_text())).is_same_process(self.holder)
        except (OSError, ValueError, TypeError):
            return False


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Between judging a lock stale and replacing it, nobody else may do the same."""
    make_folder(folder)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
