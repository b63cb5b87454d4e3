"""Temporary servers of killed processes are stopped; all others live on."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import flows.orphans
from flows.orphans import OWNER, stop_orphans
from storage.locks import birth_of

SERVER = "prefect.server.api.server:create_app"


@contextmanager
def sleeping(*words: str, owner: str | None) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that looks like a server."""
    environment = {name: value for name, value in os.environ.items() if name != OWNER}
    environment |= {} if owner is None else {OWNER: owner}
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *words], env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_only_servers_of_processes_of_ours_that_have_died_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWNER, "")
    dead = subprocess.Popen(["sleep", "600"])
    gone, alive = f"{dead.pid} {birth_of(dead.pid)}", f"{os.getpid()} {birth_of(os.getpid())}"
    dead.kill()
    dead.wait()
    with (
        sleeping(SERVER, owner=gone) as orphan,
        sleeping(SERVER, owner=alive) as served,
        sleeping(SERVER, owner=None) as unmarked,
        sleeping(SERVER, owner="nonsense") as odd,
        sleeping("another.program", owner=gone) as other,
        sleeping(SERVER, owner=gone) as contained,
        sleeping(SERVER, owner=gone) as hidden,
    ):
        namespace = flows.orphans._pid_namespace

        def namespaces(pid: int) -> str:
            if pid == hidden.pid:
                raise PermissionError
            return "pid:[1]" if pid == contained.pid else namespace(pid)

        monkeypatch.setattr(flows.orphans, "_pid_namespace", namespaces)
        stop_orphans()
        assert orphan.wait(timeout=60) != 0
        spared = served, unmarked, odd, other, contained, hidden
        assert [one.poll() for one in spared] == [None] * len(spared)
    assert os.environ[OWNER] == alive
