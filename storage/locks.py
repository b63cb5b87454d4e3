"""One process advances a run: a lock file that names its holder and shows that it lives."""

import contextlib
import fcntl
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from storage.errors import RunLockedError, StoreError
from storage.files import make_folder, refusal, write_once, write_over
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
    """Start of the process, seconds since 1970; for people, since a step of the clock changes it."""
    epoch: int
    """How many processes have held the run, this one included."""
    heartbeat: float
    """Last sign of life, seconds since 1970."""
    birth: str = ""
    """What `birth_of` says; tells the process from a later one with the same pid. Empty in old lock files."""

    def __str__(self) -> str:
        age = max(0.0, time.time() - self.heartbeat)
        return f"process {self.pid} on {self.host} (last sign of life {age:.0f} s ago)"

    def is_same_process(self, other: "Holder") -> bool:
        return (self.host, self.pid, self.started, self.epoch) == (other.host, other.pid, other.started, other.epoch)

    def is_dead(self) -> bool:
        """On this host: no such process; elsewhere: no heartbeat for `STALE_SECONDS`."""
        if self.host != socket.gethostname():
            return time.time() - self.heartbeat > STALE_SECONDS
        return has_died(self.pid, self.birth) if self.birth else self._has_died_by_the_clock()

    def _has_died_by_the_clock(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            is_another = abs(process.create_time() - self.started) > 1.0
            return bool(is_another or process.status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True


def has_died(pid: int, birth: str) -> bool:
    """Whether a process of this host is gone, perhaps with another one in its place."""
    try:
        return birth_of(pid) != birth or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def birth_of(pid: int) -> str:
    """Id of the machine's boot, and clock ticks since then at which a process started: no step of the clock moves it.

    Raises:
        psutil.NoSuchProcess: it is gone.
    """
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(pid) from None
    fields = status.rpartition(")")[2].split()  # the second field is a name, which may hold anything
    return f"{boot} {fields[22 - 3]}"


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
    _dead_holder(layout, run)


def _dead_holder(layout: Layout, run: str) -> Holder | None:
    holder = read_holder(layout, run)
    if holder is not None and not holder.is_dead():
        raise RunLockedError(run, str(holder))
    return holder


def _acquire(layout: Layout, run: str) -> "RunLock":
    process = psutil.Process()
    with one_at_a_time(layout.lock_guard()):
        before = _dead_holder(layout, run)
        known = read_run(layout, run)
        epoch = 1 + max(before.epoch if before else 0, known.epoch if known else 0)
        holder = Holder(
            host=socket.gethostname(),
            pid=process.pid,
            started=process.create_time(),
            epoch=epoch,
            heartbeat=time.time(),
            birth=birth_of(process.pid),
        )
        lock = RunLock(layout.lock_file(run), holder)
        try:
            lock.path.unlink(missing_ok=True)
            write_once(lock.path, lock.content())
        except FileExistsError:
            raise RunLockedError(run, "a process that took it just now") from None
        except OSError as error:
            raise StoreError(refusal(lock.path, error)) from error
    return lock


def read_holder(layout: Layout, run: str) -> Holder | None:
    """Who holds a run, None when nobody does."""
    path = layout.lock_file(run)
    try:
        return Holder(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        message = f"lock {path} is not readable ({error}): delete it if no process advances run {run}"
        raise StoreError(message) from error


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
        if not self.is_ours():
            raise StoreError(f"the lock {self.path} was taken away from this process: nothing more is written")

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Renew the heartbeat in the background."""
        done = threading.Event()

        def beat() -> None:
            while not done.wait(HEARTBEAT_SECONDS):
                if not self.is_ours():
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
        if self.is_ours():
            with contextlib.suppress(OSError):  # the next process finds its holder dead
                self.path.unlink()

    def is_ours(self) -> bool:
        """Whether the lock file still names this process."""
        try:
            return Holder(**json.loads(self.path.read_text())).is_same_process(self.holder)
        except (OSError, ValueError, TypeError):
            return False


@contextlib.contextmanager
def one_at_a_time(guard: Path) -> Iterator[None]:
    """Hold a guard file for the length of the block; others of this machine wait, and a killed holder lets go.

    Between judging a lock stale and replacing it, or between two looks at what a folder holds, nobody else may do so.

    Raises:
        StoreError: the guard cannot be written; errors of the block pass as they are.
    """
    with contextlib.ExitStack() as stack:
        try:
            make_folder(guard.parent)
            file = stack.enter_context(guard.open("w"))  # open for writing, as NFS wants it for an exclusive lock
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise StoreError(refusal(guard, error)) from error
        yield
