"""One process advances a run, whatever became of the one before it."""

import errno
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import storage.locks
from storage.errors import RunLockedError, StoreError
from storage.layout import Layout
from storage.locks import STALE_SECONDS, birth_of, check_free, hold_run, one_at_a_time, read_holder
from storage.runs import write_run
from tests.storage.processes import CAN_BE_REFUSED, WITHOUT_OVERRIDE, hear, output, say, start
from tests.storage.small_history import make_run


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A living process that does nothing."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def make_lock(layout: Layout, run: str = "first", **changes: Any) -> bytes:
    """The lock file of a holder that is this process, but for the changes."""
    process = psutil.Process()
    holder = {"host": socket.gethostname(), "pid": process.pid, "started": process.create_time(), "epoch": 3}
    content = json.dumps({**holder, "heartbeat": time.time(), **changes}).encode()
    layout.runs().mkdir(exist_ok=True)
    layout.lock_file(run).write_bytes(content)
    return content


def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_lock_names_its_holder_while_it_is_held_and_is_gone_afterwards(layout: Layout) -> None:
    with hold_run(layout, "first") as lock:
        holder = read_holder(layout, "first")
        assert holder == lock.holder
        assert (holder.host, holder.pid, holder.epoch) == (socket.gethostname(), os.getpid(), 1)
        lock.check()
    assert read_holder(layout, "first") is None
    check_free(layout, "first")


def test_a_lock_is_gone_when_its_block_fails(layout: Layout) -> None:
    with pytest.raises(RuntimeError), hold_run(layout, "first"):
        raise RuntimeError
    assert not layout.lock_file("first").exists()


def test_a_second_process_is_told_who_holds_the_run(layout: Layout) -> None:
    holder = start("hold_when_told", layout.root)
    assert hear(holder) == "ready"
    say(holder, "first")
    assert hear(holder) == "held 1"
    for attempt in (lambda: hold_run(layout, "first").__enter__(), lambda: check_free(layout, "first")):
        with pytest.raises(RunLockedError) as refused:
            attempt()
        assert str(refused.value) == (
            f"run first is held by process {holder.pid} on {socket.gethostname()} (last sign of life 0 s ago): "
            "wait for it, stop it, or choose another --run"
        )
        assert refused.value.run == "first"
    with hold_run(layout, "second"):
        pass
    say(holder, "let go")
    holder.communicate("")
    with hold_run(layout, "first"):
        pass


def test_this_process_cannot_hold_a_run_twice(layout: Layout) -> None:
    with hold_run(layout, "first"), pytest.raises(RunLockedError), hold_run(layout, "first"):
        pass


def test_a_holder_that_was_killed_is_followed_at_once_even_before_it_is_reaped(layout: Layout) -> None:
    holder = start("hold_when_told", layout.root)
    assert hear(holder) == "ready"
    say(holder, "first")
    assert hear(holder) == "held 1"
    holder.kill()
    while psutil.Process(holder.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.001)
    with hold_run(layout, "first") as lock:
        assert lock.epoch == 2
    holder.communicate()


def test_a_dead_pid_of_this_host_is_followed_at_once(layout: Layout) -> None:
    make_lock(layout, pid=dead_pid())
    with hold_run(layout, "first") as lock:
        assert lock.epoch == 4


def test_a_pid_that_another_process_has_by_now_is_told_by_its_birth(
    layout: Layout, sleeper: "subprocess.Popen[bytes]"
) -> None:
    make_lock(layout, pid=sleeper.pid, birth=birth_of(sleeper.pid))
    with pytest.raises(RunLockedError, match=f"held by process {sleeper.pid} on"):
        check_free(layout, "first")
    make_lock(layout, pid=sleeper.pid, birth=birth_of(os.getpid()))
    with hold_run(layout, "first") as lock:
        assert lock.holder.pid == os.getpid()


def test_a_step_of_the_clock_makes_no_living_holder_look_dead(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step moves the boot time, and with it the start that the kernel's ticks are translated to."""
    with hold_run(layout, "first") as lock:
        boot, held = psutil.boot_time(), lock.holder
        monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: boot + 3600)
        assert psutil.Process(held.pid).create_time() > held.started + 3500
        with pytest.raises(RunLockedError):
            check_free(layout, "first")


def test_a_birth_is_in_ticks_since_boot_whatever_the_process_is_called(sleeper: "subprocess.Popen[bytes]") -> None:
    name = Path("/proc/self/comm")
    before = name.read_text()
    name.write_text("a) R 1 (b")
    try:
        births = [birth_of(process.pid).split() for process in (psutil.Process(), sleeper)]
    finally:
        name.write_text(before)
    starts = [psutil.Process(process.pid).create_time() - psutil.boot_time() for process in (psutil.Process(), sleeper)]
    assert [int(ticks) / os.sysconf("SC_CLK_TCK") for _, ticks in births] == pytest.approx(starts, abs=0.011)
    assert births[0][0] == births[1][0]
    with pytest.raises(psutil.NoSuchProcess):
        birth_of(dead_pid())


def test_in_an_old_lock_file_the_process_is_told_by_its_start(
    layout: Layout, sleeper: "subprocess.Popen[bytes]"
) -> None:
    started = psutil.Process(sleeper.pid).create_time()
    make_lock(layout, pid=sleeper.pid, started=started)
    with pytest.raises(RunLockedError, match=f"held by process {sleeper.pid} on"):
        check_free(layout, "first")
    make_lock(layout, pid=sleeper.pid, started=started - 60)
    with hold_run(layout, "first") as lock:
        assert lock.holder.pid == os.getpid()


def test_a_holder_on_another_host_is_judged_by_its_heartbeat(layout: Layout) -> None:
    make_lock(layout, host="elsewhere", pid=7, heartbeat=time.time() - STALE_SECONDS + 20)
    with pytest.raises(RunLockedError, match=r"held by process 7 on elsewhere \(last sign of life 100 s ago\)"):
        check_free(layout, "first")
    make_lock(layout, host="elsewhere", pid=7, heartbeat=time.time() - STALE_SECONDS - 1)
    with hold_run(layout, "first") as lock:
        assert lock.epoch == 4


def test_the_epoch_rises_with_every_process_that_holds_the_run(layout: Layout) -> None:
    write_run(layout, make_run("first", epoch=7))
    with hold_run(layout, "first") as lock:
        assert lock.epoch == 8
    make_lock(layout, pid=dead_pid(), epoch=20)
    with hold_run(layout, "first") as lock:
        assert lock.epoch == 21


def test_a_lock_that_was_taken_away_is_noticed_and_left_alone(layout: Layout) -> None:
    with hold_run(layout, "first") as lock:
        other = make_lock(layout, host="elsewhere", pid=7)
        with pytest.raises(StoreError) as refused:
            lock.check()
        assert str(refused.value) == (
            f"the lock {layout.lock_file('first')} was taken away from this process: nothing more is written"
        )
    assert layout.lock_file("first").read_bytes() == other


def test_a_lock_that_was_deleted_is_noticed(layout: Layout) -> None:
    with hold_run(layout, "first") as lock:
        layout.lock_file("first").unlink()
        with pytest.raises(StoreError, match=r"was taken away from this process"):
            lock.check()


def test_the_heartbeat_is_renewed_while_the_lock_is_held(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.locks, "HEARTBEAT_SECONDS", 0.01)
    with hold_run(layout, "first") as lock:
        first = read_holder(layout, "first")
        assert first
        deadline = time.time() + 10
        while (now := read_holder(layout, "first")) == first and time.time() < deadline:
            time.sleep(0.005)
        assert now and now.heartbeat > first.heartbeat and now.is_same_process(first)
        lock.check()
    assert not layout.lock_file("first").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": 1}', b"\xff"])
def test_a_damaged_lock_is_refused_with_the_way_out(layout: Layout, content: bytes) -> None:
    layout.runs().mkdir()
    layout.lock_file("first").write_bytes(content)
    with pytest.raises(StoreError) as refused, hold_run(layout, "first"):
        pass
    assert str(refused.value).startswith(f"lock {layout.lock_file('first')} is not readable (")
    assert str(refused.value).endswith("): delete it if no process advances run first")
    assert layout.lock_file("first").read_bytes() == content


def test_of_two_processes_that_race_for_a_free_or_stale_lock_exactly_one_wins(layout: Layout) -> None:
    racers = [start("hold_when_told", layout.root) for _ in range(2)]
    assert [hear(racer) for racer in racers] == ["ready", "ready"]
    gone = dead_pid()
    winners = set()
    for number in range(40):
        run = f"run-{number}"
        if number % 2:
            make_lock(layout, run, pid=gone)
        for racer in racers if number % 4 < 2 else reversed(racers):
            say(racer, run)
        answers = [hear(racer) for racer in racers]
        won = [answer.startswith("held") for answer in answers]
        assert sorted(won) == [False, True], answers
        winner, loser = (racers[won.index(True)], answers[won.index(False)])
        assert loser.startswith(f"refused run {run} is held by process {winner.pid} on {socket.gethostname()} ")
        holder = read_holder(layout, run)
        assert holder and holder.pid == winner.pid and holder.epoch == (4 if number % 2 else 1)
        winners.add(winner.pid)
        for racer in racers:
            say(racer, "let go")
    for racer in racers:
        racer.communicate("")
    assert list(layout.runs().glob("*.lock")) == []


@pytest.mark.skipif(not CAN_BE_REFUSED, reason="needs setpriv to give up root's rights")
def test_a_read_only_store_is_one_clear_line(layout: Layout) -> None:
    layout.runs().mkdir(mode=0o555)
    assert output(start("hold_read_only", layout.root, before=WITHOUT_OVERRIDE)) == [
        f"cannot write {layout.lock_guard()}: Permission denied: make it writable, or use another --store"
    ]


@pytest.mark.skipif(not CAN_BE_REFUSED, reason="needs setpriv to give up root's rights")
def test_a_stale_lock_that_cannot_be_replaced_is_one_clear_line(layout: Layout) -> None:
    make_lock(layout, pid=dead_pid())
    layout.lock_guard().touch()
    layout.runs().chmod(0o555)
    assert output(start("hold_read_only", layout.root, before=WITHOUT_OVERRIDE)) == [
        f"cannot write {layout.lock_file('first')}: Permission denied: make it writable, or use another --store"
    ]


def test_an_error_of_the_block_that_is_guarded_passes_as_it_is(layout: Layout) -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "elsewhere")
    with pytest.raises(OSError) as raised, one_at_a_time(layout.lock_guard()):
        raise error
    assert raised.value is error
    with one_at_a_time(layout.lock_guard()):  # and lets go
        pass


def test_a_guard_that_cannot_be_made_is_one_clear_line(layout: Layout) -> None:
    layout.runs().touch()
    with pytest.raises(StoreError) as refused, one_at_a_time(layout.lock_guard()):
        pass
    assert str(refused.value) == f"cannot write {layout.lock_guard()}: {layout.runs()} is a file"
