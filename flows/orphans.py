"""Temporary Prefect servers that outlived their process, because it was killed."""

import contextlib
import os

import psutil

from storage.locks import birth_of, has_died

OWNER = "FOREROLL_PROCESS"
"""Environment variable, inherited by the server, that tells which process it serves."""


def stop_orphans() -> None:
    """Stop the servers of processes that have died; one that this process starts will be known as its own.

    Call before Prefect is imported. Servers that nobody marked, and those of containers, are left alone.
    """
    os.environ[OWNER] = f"{os.getpid()} {birth_of(os.getpid())}"
    for process in psutil.process_iter(["cmdline"]):
        if any(word.startswith("prefect.server") for word in process.info["cmdline"] or ()) and _is_orphan(process):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()


def _is_orphan(process: psutil.Process) -> bool:
    try:
        if _pid_namespace(process.pid) != _pid_namespace(os.getpid()):  # the pid that it names is none of ours
            return False
        pid, _, birth = process.environ().get(OWNER, "").partition(" ")
    except (psutil.Error, OSError):  # another user's, or gone
        return False
    return pid.isdecimal() and has_died(int(pid), birth)


def _pid_namespace(pid: int) -> str:
    """The kernel's name for what a process takes pids to mean; a container has its own.

    Raises:
        OSError: the process is another user's, or gone.
    """
    return os.readlink(f"/proc/{pid}/ns/pid")
