"""Writes are whole or absent, whatever happens to the process or the disk."""

import errno
import hashlib
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.errors import StoreError
from storage.files import (
    check_writable,
    file_digest,
    is_writable,
    new_folder,
    numbers_in,
    remove_leftovers,
    set_aside,
    write_once,
    write_over,
)
from tests.storage.processes import CAN_BE_REFUSED, WITHOUT_OVERRIDE, hear, output, say, start

needs_setpriv = pytest.mark.skipif(not CAN_BE_REFUSED, reason="needs setpriv to give up root's rights")


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_file_is_written_whole_below_folders_that_did_not_exist(tmp_path: Path) -> None:
    write_once(tmp_path / "a" / "b" / "file", b"content")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"content"
    assert files_below(tmp_path) == [tmp_path / "a" / "b" / "file"]


def test_a_file_that_exists_is_not_written_again(tmp_path: Path) -> None:
    write_once(tmp_path / "file", b"first")
    with pytest.raises(FileExistsError):
        write_once(tmp_path / "file", b"second")
    assert (tmp_path / "file").read_bytes() == b"first"
    assert files_below(tmp_path) == [tmp_path / "file"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP])
def test_a_file_system_without_hard_links_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreError) as refused:
        write_once(tmp_path / "file", b"content")
    assert str(refused.value) == (
        f"cannot write {tmp_path / 'file'}: its file system has no hard links ({os.strerror(code)}), without which "
        "two writers could overwrite each other: put the store on one that has, with --store"
    )
    assert files_below(tmp_path) == []


def test_of_two_racing_processes_exactly_one_writes_each_file(tmp_path: Path) -> None:
    racers = [start("race_to_write", tmp_path, 200) for _ in range(2)]
    for racer in racers:
        say(racer, "go")
    won = [{int(line) for line in output(racer)} for racer in racers]
    assert won[0] | won[1] == set(range(200))
    assert won[0] & won[1] == set()
    for racer, numbers in zip(racers, won, strict=True):
        for number in numbers:
            assert (tmp_path / str(number)).read_text() == str(racer.pid) * 1000
    assert len(files_below(tmp_path)) == 200


def test_a_killed_writer_leaves_only_whole_files_and_folders(tmp_path: Path) -> None:
    rng = random.Random(0)
    counts = [0]
    for _ in range(15):
        writer = start("write_files_for_ever", tmp_path)
        assert hear(writer) == "ready"
        time.sleep(rng.uniform(0.0, 0.06))
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        visible = [path for path in files_below(tmp_path) if ".tmp" not in str(path.relative_to(tmp_path))]
        assert all(file_digest(path) == path.name for path in visible)
        folders = [path for path in tmp_path.glob("folder-*") if path.is_dir()]
        assert all(len(list(folder.iterdir())) == 2 for folder in folders)
        counts.append(len(visible))
    assert counts == sorted(counts) and counts[-1] > 15
    assert list(tmp_path.glob(".*.tmp")), "no kill hit a write: the test has lost its point"
    remove_leftovers(tmp_path)
    assert list(tmp_path.rglob(".*")) == []
    assert len(files_below(tmp_path)) == counts[-1]


def test_a_file_written_over_is_the_old_or_the_new_one_at_any_instant(tmp_path: Path) -> None:
    writer = start("write_over_for_ever", tmp_path / "file")
    assert hear(writer) == "ready"
    seen = {(tmp_path / "file").read_bytes() for _ in range(400)}
    writer.kill()
    writer.communicate()
    assert seen <= {b"a" * 100_000, b"b" * 100_000}


def test_threads_that_write_one_file_do_not_mix(tmp_path: Path) -> None:
    contents = [bytes([number]) * 50_000 for number in range(8)]
    threads = [threading.Thread(target=write_over, args=(tmp_path / "file", content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file").read_bytes() in contents
    assert files_below(tmp_path) == [tmp_path / "file"]


def test_a_new_folder_appears_only_when_its_block_ends_well(tmp_path: Path) -> None:
    with new_folder(tmp_path / "folder") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_text("content")
        assert not (tmp_path / "folder").exists()
    assert (tmp_path / "folder" / "sub" / "file").read_text() == "content"
    with pytest.raises(RuntimeError), new_folder(tmp_path / "other") as folder:
        (folder / "file").write_text("content")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_new_folder_does_not_replace_one_that_exists(tmp_path: Path) -> None:
    with new_folder(tmp_path / "folder") as folder:
        (folder / "file").write_text("first")
    with pytest.raises(StoreError, match=f"^cannot write {tmp_path}/folder: Directory not empty$"):  # noqa: SIM117
        with new_folder(tmp_path / "folder") as folder:
            (folder / "file").write_text("second")
    assert (tmp_path / "folder" / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_leftovers_go_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "step" / ".checkpoint.1-ab.tmp" / "policy").mkdir(parents=True)
    (tmp_path / "step" / ".checkpoint.1-ab.tmp" / "policy" / ".weights.tmp").write_text("half")
    (tmp_path / "step" / ".part-0.parquet.1-ab.tmp").write_text("half")
    (tmp_path / "step" / "part-0.parquet").write_text("whole")
    remove_leftovers(tmp_path)
    assert files_below(tmp_path) == [tmp_path / "step" / "part-0.parquet"]
    assert list((tmp_path / "step").iterdir()) == [tmp_path / "step" / "part-0.parquet"]
    remove_leftovers(tmp_path / "nothing here")


def test_a_file_set_aside_keeps_its_content_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_text("damaged")
    assert set_aside(tmp_path / "part-0.parquet") == tmp_path / "part-0.parquet.unreadable"
    assert files_below(tmp_path) == [tmp_path / "part-0.parquet.unreadable"]


def test_numbers_are_read_from_names_that_match_whole(tmp_path: Path) -> None:
    for name in (
        "part-10.parquet",
        "part-2.parquet",
        "part-x.parquet",
        "part-3.parquet.tmp",
        ".part-4.parquet",
        "part-",
    ):
        (tmp_path / name).write_text("")
    assert numbers_in(tmp_path, re.compile(r"part-(\d+)\.parquet")) == [2, 10]
    assert numbers_in(tmp_path / "nothing here", re.compile(r"(\d+)")) == []


def test_a_digest_is_sha256_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert file_digest(tmp_path / "file") == hashlib.sha256(b"abc").hexdigest()


def test_a_file_in_the_place_of_a_folder_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "part", tmp_path / "file" / "deeper" / "part"):
        for write in (write_once, write_over):
            with pytest.raises(StoreError) as refused:
                write(path, b"content")
            assert str(refused.value).startswith(f"cannot write {path}: ")
            assert "\n" not in str(refused.value)


@needs_setpriv
def test_a_read_only_folder_is_one_clear_line_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o555)
    path = tmp_path / "locked" / "file"
    message = f"cannot write {path}: Permission denied: make it writable, or use another --store"
    assert output(start("write_where_it_may_not", path, before=WITHOUT_OVERRIDE)) == [message, message]
    assert list((tmp_path / "locked").iterdir()) == []


def test_a_file_size_limit_is_one_clear_line_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    message = f"cannot write {tmp_path}/file: File too large"
    assert output(start("write_with_little_room", tmp_path / "file", 10_000)) == [message, message]
    assert (tmp_path / "file").read_text() == "before"
    assert files_below(tmp_path) == [tmp_path / "file"]


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_one_clear_line_and_nothing_is_left(full_disk: Path) -> None:
    write_once(full_disk / "before", b"whole")
    for write in (write_once, write_over):
        with pytest.raises(StoreError) as refused:
            write(full_disk / "file", b"x" * 100_000)
        assert str(refused.value) == (
            f"cannot write {full_disk}/file: No space left on device: free some space and run again; "
            "what is stored is intact"
        )
    assert files_below(full_disk) == [full_disk / "before"]
    assert (full_disk / "before").read_bytes() == b"whole"


def test_a_folder_is_writable_where_a_file_can_be_created(tmp_path: Path) -> None:
    assert is_writable(tmp_path)
    assert not is_writable(tmp_path / "nothing here")
    check_writable(tmp_path / "not" / "yet" / "there")
