"""No two runs hold the same outcomes: whoever imports at once, is killed, or gives files in another order."""

import os
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from storage.catalog import query
from storage.errors import StoreError
from storage.importers.known import discard
from storage.importers.sources import Row
from storage.layout import Layout
from storage.locks import hold_run
from storage.runs import list_runs
from tests.storage.importers.files import TEXTS, make_dataset, write_lines
from tests.storage.importers.small_imports import do_import, groups, refusal
from tests.storage.processes import CAN_BE_REFUSED, WITHOUT_OVERRIDE, hear, output, say, start


def counted(layout: Layout) -> int:
    """Groups of all runs."""
    found: int = query(layout, "select count(*) as n from groups")["n"][0].as_py()
    return found


def states(layout: Layout) -> list[tuple[str, str]]:
    return [(run.run, run.state) for run in list_runs(layout)]


def test_of_two_imports_at_once_under_two_names_one_counts(layout: Layout, ids: list[str], table: Path) -> None:
    both = [start("import_when_told", layout.root, table, run) for run in ("one", "two")]
    assert [hear(process) for process in both] == ["read", "read"]  # neither saw the other when it looked first
    for process in both:
        say(process, "go")
    told = [output(process) for process in both]
    assert told in ([["one"], ["one"]], [["two"], ["two"]])
    assert states(layout) == [(told[0][0], "finished")] and counted(layout) == 3


def test_killed_at_any_point_then_imported_under_another_name_then_again_counts_once(
    ids: list[str], layout: Layout, table: Path, tmp_path: Path
) -> None:
    forks = start("fork_dying_imports", table)
    assert hear(forks) == "ready"
    seen = set()
    for number in range(1, 100, 3):
        copy = Layout(tmp_path / f"copy-{number}")
        shutil.copytree(layout.root, copy.root)
        say(forks, f"{copy.root} {number}")
        if (code := int(hear(forks))) == 0:
            break
        assert code == -signal.SIGKILL
        visible = counted(copy)
        assert visible in (0, 3)
        holder = do_import(copy, table, run="other").known_as or "other"
        assert holder == ("past" if visible else "other"), number
        assert states(copy) == [(holder, "finished")]
        assert do_import(copy, table).known_as == holder
        assert states(copy) == [(holder, "finished")] and counted(copy) == 3
        kept = [path.name for path in (copy.history() / "rollouts").iterdir()]
        assert kept == [f"run_id={holder}"]
        seen.add(visible)
    assert forks.stdin
    forks.stdin.close()
    assert forks.wait() == 0 and seen == {0, 3} and number > 10


def test_a_first_run_that_reads_again_sees_one_that_came_meanwhile(layout: Layout, ids: list[str], table: Path) -> None:
    process = start("import_when_told", layout.root, table, "first")
    assert hear(process) == "read"
    do_import(layout, table, run="second")
    say(process, "go")
    assert output(process) == ["second"]
    assert states(layout) == [("second", "finished")] and counted(layout) == 3


def test_a_killed_import_gives_its_name_to_another_source(
    layout: Layout, ids: list[str], table: Path, tmp_path: Path
) -> None:
    forks = start("fork_dying_imports", table)
    say(forks, f"{layout.root} 6")
    forks.communicate()
    assert states(layout) == [("past", "running")]
    other = write_lines(tmp_path / "other.jsonl", [{"question": TEXTS[0], "successes": 0, "attempts": 2}])
    assert do_import(layout, other).totals["groups"] == 1
    assert states(layout) == [("past", "finished")]


def test_a_killed_import_whose_run_a_living_process_holds_is_not_discarded(
    layout: Layout, ids: list[str], table: Path
) -> None:
    forks = start("fork_dying_imports", table)
    say(forks, f"{layout.root} 6")
    forks.communicate()
    with hold_run(layout, "past"):
        assert do_import(layout, table, run="other").totals["groups"] == 3
        assert states(layout) == [("past", "running"), ("other", "finished")]
    assert do_import(layout, table).known_as == "other"
    assert states(layout) == [("other", "finished")] and counted(layout) == 3


@pytest.mark.parametrize("field", ["response", "tokens", "prompt_tokens", "model", "temperature"])
def test_columns_that_decide_no_outcome_make_no_other_source(
    layout: Layout, ids: list[str], tmp_path: Path, field: str
) -> None:
    row = {"question": TEXTS[0], "score": 1, "grade": 0, "one": 1, "two": 2}
    file = write_lines(tmp_path / "rows.jsonl", [row])
    do_import(layout, file, columns={field: "one"})
    for columns in ({}, {field: "two"}):
        assert do_import(layout, file, run="again", columns=columns).known_as == "past"
        assert do_import(layout, file, columns=columns).known_as == "past"
    assert do_import(layout, file, run="graded", columns={field: "one", "score": "grade"}).known_as == ""


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Three files with one rollout each of one group: two are named alike, and `9` comes before `10`."""
    files = []
    for number, name in enumerate(("9.jsonl", "10.jsonl", "more/10.jsonl")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        row = {"step": 1, "question": TEXTS[0], "score": number % 2, "response": name}
        files.append(write_lines(path, [row]))
    return files


def test_the_order_of_files_makes_no_difference(layout: Layout, ids: list[str], parts: list[Path]) -> None:
    other = Layout(layout.root.parent / "other")
    make_dataset(other)
    do_import(layout, *parts)
    do_import(other, *reversed(parts))
    samples = "select sample, response, success from rollouts order by 1"
    assert query(layout, samples).equals(query(other, samples))
    assert query(layout, samples)["response"][0].as_py() == "9.jsonl"
    assert do_import(layout, *reversed(parts), run="again").known_as == "past"
    assert do_import(layout, parts[1], parts[0], parts[2]).known_as == "past"


def test_a_file_that_another_run_holds_is_not_counted_again_among_others(
    layout: Layout, ids: list[str], parts: list[Path]
) -> None:
    do_import(layout, parts[0])
    message = "1 of 3 files were imported already, as run past: leave out 9.jsonl"
    assert refusal(layout, *parts, run="more") == message
    do_import(layout, *parts[1:], run="more")
    assert refusal(layout, *parts[:2], run="third").startswith("1 of 2 files were imported already, as run ")
    assert [run for run, _ in states(layout)] == ["past", "more"]


def test_one_file_under_two_names_in_one_command_is_refused(
    layout: Layout, ids: list[str], table: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.jsonl"
    link.symlink_to(table)
    assert refusal(layout, table, table) == f"{table} is named twice: name it once"
    assert refusal(layout, table, link) == f"{link} has the content of {table}: name one of them"
    assert do_import(layout, link).known_as == "" and do_import(layout, table, run="again").known_as == "past"


def test_a_file_that_changes_while_it_is_read_imports_nothing(layout: Layout, ids: list[str], table: Path) -> None:
    def grow(rows: Iterable[Row]) -> Iterable[Row]:
        with table.open("a") as file:
            file.write("\n")
        return rows

    assert refusal(layout, table, watch=grow) == (
        f"{table} changed while it was read: nothing was imported; run again when nobody writes to it"
    )
    assert states(layout) == [] and groups(layout) == []
    assert do_import(layout, table).totals["groups"] == 3


def test_a_full_disk_in_mid_import_leaves_nothing_and_it_can_be_repeated(
    layout: Layout, ids: list[str], table: Path
) -> None:
    limits = [0, 300, 2_000, 4_000]
    lines = output(start("import_with_little_room", layout.root, table, *limits))
    assert len(lines) == len(limits)
    assert all(line.startswith("cannot write ") and line.endswith(": File too large") for line in lines)
    assert any("/history/" in line for line in lines)
    assert states(layout) == [] and not [path for path in layout.history().rglob("*") if path.is_file()]
    assert do_import(layout, table).totals["groups"] == 3


@pytest.mark.skipif(not CAN_BE_REFUSED, reason="needs setpriv to give up root's rights")
def test_a_store_that_only_its_history_cannot_be_written_in_is_one_clear_line(
    layout: Layout, ids: list[str], table: Path
) -> None:
    layout.history().mkdir(mode=0o555)
    unlimited = os.sysconf("SC_PAGE_SIZE") * 1_000
    [line] = output(start("import_with_little_room", layout.root, table, unlimited, before=WITHOUT_OVERRIDE))
    assert line.startswith(f"cannot write {layout.history()}")
    assert line.endswith(": Permission denied: make it writable, or use another --store")
    assert states(layout) == []


def test_a_run_file_that_cannot_be_deleted_is_one_clear_line(layout: Layout) -> None:
    layout.run_file("past").mkdir(parents=True)
    with pytest.raises(StoreError) as refused:
        discard(layout, "past")
    assert str(refused.value).startswith(f"cannot write {layout.run_file('past')}: ")
