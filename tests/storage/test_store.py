"""Opening and creating a store."""

from pathlib import Path

import pytest

from storage.errors import StoreError, StoreVersionError
from storage.store import FORMAT_VERSION, open_store
from tests.storage.processes import CAN_BE_REFUSED, WITHOUT_OVERRIDE, hear, output, say, start

needs_setpriv = pytest.mark.skipif(not CAN_BE_REFUSED, reason="needs setpriv to give up root's rights")


def refusal_of(root: Path, *, create: bool = False) -> str:
    with pytest.raises(StoreError) as refused:
        open_store(root, create=create)
    return str(refused.value)


@pytest.mark.parametrize("existing", [False, True])
def test_a_store_is_created_in_a_new_or_empty_folder(tmp_path: Path, existing: bool) -> None:
    root = tmp_path / "deep" / "store"
    if existing:
        root.mkdir(parents=True)
        (root / ".DS_Store").write_text("")
    layout = open_store(root, create=True)
    assert layout.root == root
    assert layout.store_file().read_text() == '{"format_version": 1}\n'
    assert open_store(root) == layout == open_store(root, create=True)


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store(Path("store"), create=True).root == tmp_path / "store"


def test_a_store_that_does_not_exist_is_not_created_unasked(tmp_path: Path) -> None:
    assert refusal_of(tmp_path / "none") == (
        f"no store at {tmp_path}/none: run `foreroll train` first, or name one with --store"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_newer_store_is_refused_with_both_versions(tmp_path: Path) -> None:
    open_store(tmp_path / "store", create=True)
    (tmp_path / "store" / "store.json").write_text('{"format_version": 7, "more": []}')
    with pytest.raises(StoreVersionError) as refused:
        open_store(tmp_path / "store")
    assert str(refused.value) == (
        f"{tmp_path}/store/store.json has format version 7, and this Foreroll reads up to version {FORMAT_VERSION}: "
        "install a newer Foreroll, or use another --store"
    )
    assert (refused.value.found, refused.value.supported) == (7, FORMAT_VERSION)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"format_version": null}', b"\xff\xfe", b'"1"'])
def test_a_damaged_marker_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "store.json").write_bytes(content)
    message = refusal_of(tmp_path, create=True)
    assert message.startswith(f"{tmp_path}/store.json is not readable (")
    assert message.endswith("): restore it, or use another --store")
    assert (tmp_path / "store.json").read_bytes() == content


@pytest.mark.parametrize("create", [False, True])
def test_a_file_is_no_store(tmp_path: Path, create: bool) -> None:
    (tmp_path / "file").write_text("precious")
    assert refusal_of(tmp_path / "file", create=create) == f"{tmp_path}/file is a file: name a folder with --store"
    assert (tmp_path / "file").read_text() == "precious"


def test_a_folder_below_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    assert refusal_of(tmp_path / "file" / "store", create=True).startswith(
        f"cannot write {tmp_path}/file/store/store.json: "
    )


def test_a_folder_with_other_things_does_not_become_a_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    assert refusal_of(tmp_path, create=True) == (
        f"{tmp_path} is no store and is not empty: name an empty or new folder with --store"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_processes_that_create_one_store_at_the_same_time_all_open_it(tmp_path: Path) -> None:
    for number in range(5):
        creators = [start("create_store_when_told", tmp_path / str(number)) for _ in range(3)]
        assert [hear(creator) for creator in creators] == ["ready"] * 3
        for creator in creators:
            say(creator, "go")
        assert [output(creator) for creator in creators] == [["created"]] * 3


@needs_setpriv
def test_a_read_only_folder_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o555)
    assert output(start("open_read_only", tmp_path / "locked" / "store", before=WITHOUT_OVERRIDE)) == [
        f"cannot write {tmp_path}/locked/store/store.json: Permission denied: make it writable, or use another --store"
    ]
    assert list((tmp_path / "locked").iterdir()) == []


@needs_setpriv
def test_a_folder_that_may_not_be_entered_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o000)
    without_search = [option.replace("-dac_override", "-dac_override,-dac_read_search") for option in WITHOUT_OVERRIDE]
    assert output(start("open_read_only", tmp_path / "locked" / "store", before=without_search)) == [
        f"cannot read {tmp_path}/locked/store: Permission denied"
    ]
