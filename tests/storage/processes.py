"""What other processes do in the tests of storage: `python -m tests.storage.processes NAME ARGUMENT ...`.

Heavy imports live inside the functions, so that a process which needs none of them is soon at work.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from storage.errors import StoreError
from storage.files import new_folder, write_once, write_over

ROOT = Path(__file__).parents[2]

IS_ROOT = os.geteuid() == 0
WITHOUT_OVERRIDE = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"] if IS_ROOT else []
"""Takes from root the right to write where the permissions forbid it."""

CAN_BE_REFUSED = not IS_ROOT or shutil.which("setpriv") is not None
"""Whether a process can be started that permissions hold for."""


def start(name: str, *arguments: object, before: Sequence[str] = ()) -> "subprocess.Popen[str]":
    """Start a function of this module in a process of its own, its stdin and stdout piped."""
    command = [*before, sys.executable, "-u", "-m", "tests.storage.processes", name, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def output(process: "subprocess.Popen[str]") -> list[str]:
    """The lines that a process prints, which must end well."""
    text, _ = process.communicate()
    assert process.returncode == 0
    return text.splitlines()


def say(process: "subprocess.Popen[str]", line: str) -> None:
    """Send a line to a process."""
    assert process.stdin
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process: "subprocess.Popen[str]") -> str:
    """The next line that a process prints."""
    assert process.stdout
    return process.stdout.readline().rstrip("\n")


def race_to_write(folder: str, files: str) -> None:
    """Try to create each file, and print the numbers of those that were won."""
    sys.stdin.readline()
    for number in range(int(files)):
        try:
            write_once(Path(folder, str(number)), str(os.getpid()).encode() * 1000)
            print(number)
        except FileExistsError:
            pass


def write_files_for_ever(folder: str) -> None:
    """Create files named by their digest, and folders of two such files, until killed."""
    print("ready")
    while True:
        with new_folder(Path(folder, f"folder-{os.urandom(4).hex()}")) as parts:
            for _ in range(2):
                data = os.urandom(100_000)
                (parts / hashlib.sha256(data).hexdigest()).write_bytes(data)
        data = os.urandom(200_000)
        write_once(Path(folder, hashlib.sha256(data).hexdigest()), data)


def write_over_for_ever(path: str) -> None:
    """Put other content in place of a file, until killed."""
    for letter in "ab" * 1_000_000:
        write_over(Path(path), letter.encode() * 100_000)
        print("ready")


def write_with_little_room(path: str, limit: str) -> None:
    """Write more than the process may, and print the error."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    write_where_it_may_not(path)


def write_where_it_may_not(path: str) -> None:
    """Write each way, and print the errors."""
    for write in (write_once, write_over):
        try:
            write(Path(path), b"x" * 100_000)
        except StoreError as error:
            print(error)


def write_steps(root: str, run: str, steps: str) -> None:
    """Resume a run that has no computation in it: write and commit every step that is not committed."""
    from storage.history import History
    from storage.layout import Layout
    from tests.storage.small_history import make_record, write_parts

    history = History(Layout(Path(root)), run)
    history.remove_leftovers()
    for step in range(history.last_committed() + 1, int(steps) + 1):
        write_parts(history, step, rounds=2)
        history.commit(step, make_record(step, rounds=2))


def fork_writers(root: str, run: str, steps: str) -> None:
    """At each line on stdin: fork a process that does `write_steps`, print its pid, and at its end its exit code."""
    import tests.storage.small_history  # noqa: F401

    print("ready")
    while sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            write_steps(root, run, steps)
            os._exit(0)
        print(pid)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def count_until(root: str, steps: str) -> None:
    """Count the rows of a growing store, over and over, until it has so many steps."""
    from storage.catalog import query
    from storage.layout import Layout

    counts = """
    select (select count(*) from steps) as steps, (select count(*) from rollouts) as rollouts,
           (select count(success) from rollouts) as scored, (select count(*) from forecasts) as forecasts,
           (select count(*) from groups) as groups
    """
    seen = 0
    while seen < int(steps):
        row = query(Layout(Path(root)), counts).to_pylist()[0]
        seen = row["steps"]
        print(*row.values())


def hold_when_told(root: str) -> None:
    """For each run named on stdin: try to hold it, say how that went, and let go at the next line."""
    from storage.errors import RunLockedError
    from storage.layout import Layout
    from storage.locks import hold_run

    print("ready")
    while run := sys.stdin.readline().strip():
        try:
            with hold_run(Layout(Path(root)), run) as lock:
                print(f"held {lock.epoch}")
                sys.stdin.readline()
        except RunLockedError as error:
            print(f"refused {error}")
            sys.stdin.readline()


def hold_read_only(root: str) -> None:
    """Try to hold a run where nothing can be written, and print the error."""
    from storage.layout import Layout
    from storage.locks import hold_run

    try:
        with hold_run(Layout(Path(root)), "first"):
            print("held")
    except StoreError as error:
        print(error)


def publish_read_only(root: str) -> None:
    """Try to publish a version of `base` where nothing can be written, and print the error."""
    from storage.layout import Layout
    from storage.registry import publish
    from tests.storage.small_registry import make_version

    try:
        publish(Layout(Path(root)), "base", make_version())
    except StoreError as error:
        print(error)


def open_read_only(root: str) -> None:
    """Try to create a store, and print the error."""
    from storage.store import open_store

    try:
        open_store(Path(root), create=True)
    except StoreError as error:
        print(error)


def create_store_when_told(root: str) -> None:
    """Create the store, and at once a file in it."""
    from storage.store import open_store

    print("ready")
    sys.stdin.readline()
    layout = open_store(Path(root), create=True)
    layout.runs().mkdir(exist_ok=True)
    print("created")


def publish_when_told(root: str, count: str) -> None:
    """Publish so many versions of `base`, and print their numbers."""
    from storage.layout import Layout
    from storage.registry import publish
    from tests.storage.small_registry import make_version

    print("ready")
    sys.stdin.readline()
    for _ in range(int(count)):
        print(publish(Layout(Path(root)), "base", make_version()))


def _die_at_sync(number: int) -> None:
    """Have this process killed instead of the given call that syncs a file or folder."""
    import signal

    left, sync = number, os.fsync

    def deadly(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(descriptor)

    os.fsync = deadly


def publish_and_die(root: str, calls: str) -> None:
    """Publish a version of `base`, and be killed instead of the given call that syncs a file or folder."""
    from storage.layout import Layout
    from storage.registry import publish
    from tests.storage.small_registry import make_version

    _die_at_sync(int(calls))
    publish(Layout(Path(root)), "base", make_version())


def import_when_told(root: str, file: str, run: str) -> None:
    """Import a file into dataset `toy`, having read it wait for a line, and print the run that has the outcomes."""
    from storage.importers.sources import Row
    from storage.layout import Layout
    from tests.storage.importers.small_imports import do_import

    def wait(rows: Iterable[Row]) -> Iterable[Row]:
        yield from rows
        print("read")
        sys.stdin.readline()

    print(do_import(Layout(Path(root)), Path(file), run=run, watch=wait).known_as or run)


def fork_dying_imports(file: str) -> None:
    """For each root and number on stdin: fork an import that is killed in place of that sync; print its exit code."""
    from storage.layout import Layout
    from tests.storage.importers.small_imports import do_import

    print("ready")
    while line := sys.stdin.readline():
        root, number = line.split()
        pid = os.fork()
        if pid == 0:
            _die_at_sync(int(number))
            do_import(Layout(Path(root)), Path(file))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def import_with_little_room(root: str, file: str, *limits: str) -> None:
    """Import where no file may be larger than each limit in turn, and print the errors."""
    import resource

    from storage.layout import Layout
    from tests.storage.importers.small_imports import do_import

    for limit in limits:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
        try:
            do_import(Layout(Path(root)), Path(file))
        except StoreError as error:
            print(error)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
