"""`prompts add`, `prompts check` and `history import`, as a user calls them: clear reports, and no traceback."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import flows.commands.prompt_files
from flows.cli import main
from storage.importers.adding import add_dataset
from storage.store import open_store

PROMPTS = [{"question": f"what is {number} + 1?", "answer": str(number + 1), "level": number} for number in range(4)]


def foreroll(*words: str | Path) -> Result:
    """The command in this process."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with the dataset `sums`."""
    open_store(tmp_path / "store", create=True)
    file = write(tmp_path / "sums.jsonl", PROMPTS)
    assert foreroll("prompts", "add", file, "--name", "sums", "--store", tmp_path / "store").exit_code == 0
    return tmp_path / "store"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A history of three groups over two steps."""
    path = tmp_path / "past.csv"
    path.write_text("epoch,question,passed,n\n1,what is 0 + 1?,1,4\n1,what is 2 + 1?,4,4\n2,what is 0 + 1?,2,4\n")
    return path


def test_adding_prompts_prints_what_was_found_and_makes_the_store(tmp_path: Path) -> None:
    file = write(tmp_path / "sums.jsonl", [*PROMPTS, PROMPTS[0], {**PROMPTS[1], "answer": "3"}])
    result = foreroll("prompts", "add", file, "--name", "sums", "--store", tmp_path / "new")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "sums.jsonl (JSON lines)",
        "  prompt <- question",
        "  answer <- answer",
        "  tags <- level",
        "reward arithmetic",
        "6 rows, 4 different prompts that can be used",
        "2 rows repeat a problem and were counted once",
        "1 of these have another answer:",
        "  sums.jsonl:6: answer '3' is not that of the same problem at sums.jsonl:2, which is kept",
        "added dataset sums: 4 prompts",
    ]
    again = foreroll("prompts", "add", file, "--name", "sums", "--store", tmp_path / "new")
    assert again.exit_code == 0 and "dataset sums has just these 4 prompts already: nothing was added" in again.output
    query = "select text, answer, reward, tags->>'level' as level from prompts order by position"
    listed = foreroll("sql", "--store", tmp_path / "new", "--format", "csv", query)
    assert listed.output.splitlines()[1:3] == ["what is 0 + 1?,1,arithmetic,0", "what is 1 + 1?,2,arithmetic,1"]
    assert "sums     4        arithmetic" in foreroll("prompts", "list", "--store", tmp_path / "new").output


def test_a_share_is_held_out_as_a_dataset_of_its_own_the_same_prompts_in_any_file(tmp_path: Path) -> None:
    rows = [{"question": f"what is {one} + 1?", "answer": str(one + 1)} for one in range(2000)]
    options = ("--name", "sums", "--heldout", "0.2", "--store")
    texts = {}
    for name, some in (("all", rows), ("half", rows[::2])):
        added = foreroll("prompts", "add", write(tmp_path / name, some), *options, tmp_path / f"{name}-store")
        assert added.exit_code == 0
        query = "select text, dataset from prompts"
        listed = foreroll("sql", "--store", tmp_path / f"{name}-store", "--format", "json", query)
        texts[name] = {row["text"]: row["dataset"] for row in map(json.loads, listed.output.splitlines())}
        sizes = Counter(texts[name].values())
        added_last = f" prompts\nadded dataset sums: {sizes['sums']:,} prompts\n"
        assert "\nadded dataset sums-heldout: " in added.output and added.output.endswith(added_last)
        assert abs(sizes["sums-heldout"] / len(some) - 0.2) < 4 * (0.2 * 0.8 / len(some)) ** 0.5
    assert texts["half"].items() <= texts["all"].items() and len(texts["all"]) == len(rows)
    again = foreroll("prompts", "add", tmp_path / "all", *options, tmp_path / "all-store")
    assert again.exit_code == 0 and again.output.count("prompts already: nothing was added") == 2


def held_out_apart(file: Path, store: Path, share: str = "0.5") -> Result:
    """The file as dataset `sums`, with a share of it held out."""
    return foreroll("prompts", "add", file, "--name", "sums", "--heldout", share, "--store", store)


def datasets(store: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in sorted(store.glob("prompts/*/part-0.parquet"))}


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A file of forty problems."""
    return write(tmp_path / "many", [{"question": f"what is {one} + 1?", "answer": str(one + 1)} for one in range(40)])


def test_what_a_process_left_that_died_between_the_two_parts_is_completed_by_the_same_command(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert held_out_apart(many, tmp_path / "whole").exit_code == 0
    whole = datasets(tmp_path / "whole")
    assert set(whole) == {"sums", "sums-heldout"}
    left = 1

    def die_second(*arguments: Any) -> bool:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return add_dataset(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(flows.commands.prompt_files, "add_dataset", die_second)
        assert held_out_apart(many, tmp_path / "torn").exit_code != 0
    assert set(datasets(tmp_path / "torn")) == {"sums-heldout"}
    assert held_out_apart(many, tmp_path / "torn").exit_code == 0
    assert datasets(tmp_path / "torn") == whole


def test_a_dataset_that_stands_without_its_held_out_part_is_refused_and_nothing_is_written(
    many: Path, tmp_path: Path
) -> None:
    foreroll("prompts", "add", many, "--name", "sums", "--store", tmp_path / "store")
    before = datasets(tmp_path / "store")
    refused = held_out_apart(many, tmp_path / "store")
    assert refused.exit_code == 2
    assert refused.output == "foreroll: dataset sums exists already, without sums-heldout: choose another name\n"
    assert datasets(tmp_path / "store") == before


def test_another_held_out_part_or_share_under_the_same_name_is_refused_and_nothing_is_written(
    many: Path, tmp_path: Path
) -> None:
    message = "exists already, with other prompts (--where and --heldout choose): choose another name\n"
    for store, share in (("other", None), ("share", "0.2")):
        if share is None:
            foreroll("prompts", "add", many, "--name", "sums-heldout", "--store", tmp_path / store)
        else:
            held_out_apart(many, tmp_path / store, share)
        before = datasets(tmp_path / store)
        refused = held_out_apart(many, tmp_path / store)
        assert refused.exit_code == 2 and refused.output.endswith(f"foreroll: dataset sums-heldout {message}")
        assert before and datasets(tmp_path / store) == before


def test_a_share_that_leaves_a_dataset_empty_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "sums.jsonl", PROMPTS)
    for share, held in (("0.0001", 0), ("0.9999", 4)):
        done = foreroll("prompts", "add", file, "--name", "sums", "--heldout", share, "--store", tmp_path / "new")
        assert done.exit_code == 2 and f"of 4 prompts holds {held} out: nothing was added; choose" in done.output
    for share in ("nan", "1", "-0.1"):
        done = foreroll("prompts", "add", file, "--name", "sums", "--heldout", share, "--store", tmp_path / "new")
        assert done.exit_code == 2 and "is no share: name a number from 0 to 1" in done.output
    taken = foreroll("prompts", "add", file, "--name", "countdown", "--heldout", "0.5", "--store", tmp_path / "new")
    assert taken.exit_code == 2 and "dataset countdown-heldout is built in: choose another name" in taken.output
    assert not (tmp_path / "new").exists()


def test_bad_rows_refuse_the_file_ten_are_named_and_can_be_left_out(tmp_path: Path) -> None:
    bad = [{"question": f"q{number}", "answer": None} for number in range(12)]
    file = write(tmp_path / "rows.jsonl", [PROMPTS[0], *bad])
    refused = foreroll("prompts", "add", file, "--name", "sums", "--store", tmp_path / "new")
    assert refused.exit_code == 2
    lines = refused.output.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("foreroll: "))
    assert lines[start] == ("foreroll: 12 of 13 rows cannot be used; mend them, or leave them out with --skip-bad:")
    assert lines[start + 1] == "  rows.jsonl:2: the answer is null"
    assert lines[start + 10 :] == ["  rows.jsonl:11: the answer is null", "  and 2 more"]
    assert not (tmp_path / "new").exists()
    added = foreroll("prompts", "add", file, "--name", "sums", "--store", tmp_path / "new", "--skip-bad")
    assert added.exit_code == 0 and "added dataset sums: 1 prompts" in added.output
    checked = foreroll("prompts", "check", file, "--store", tmp_path / "new")
    assert checked.exit_code == 1 and checked.output.count("the answer is null") == 12


def test_a_reward_is_told_from_the_answers_or_named(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for name, answers, reward in (
        ("numbers", ["1", "-2.5", "1,234"], "arithmetic"),
        ("games", [{"numbers": [1, 2], "target": 3}], "countdown"),
        ("words", ["1", "x = 2"], "none"),
    ):
        file = write(tmp_path / name, [{"prompt": str(answer), "answer": answer} for answer in answers])
        assert f"reward {reward}" in foreroll("prompts", "add", file, "--name", name, "--store", store).output
    file = write(tmp_path / "words", [{"prompt": "a", "answer": "x"}, {"prompt": "b", "answer": "2, 3"}])
    strict = foreroll("prompts", "add", file, "--name", "w", "--store", store, "--reward", "arithmetic")
    assert strict.exit_code == 2 and "words:2: reward arithmetic cannot be told from the answer '2, 3'" in strict.output
    other = foreroll("prompts", "add", file, "--name", "w", "--store", store, "--reward", "judge")
    assert "reward judge (no verifier" in other.output and other.exit_code == 0


def test_a_dataset_is_checked(store: Path) -> None:
    good = foreroll("prompts", "check", "sums", "--store", store)
    assert (good.exit_code, good.output) == (0, "dataset sums: 4 prompts, 0 with problems\n")
    missing = foreroll("prompts", "check", "nothing", "--store", store)
    assert missing.exit_code == 2 and "foreroll: no dataset nothing in" in missing.output
    (store / "prompts" / "sums" / "part-0.parquet").write_bytes(b"PAR1torn")
    torn = foreroll("prompts", "check", "sums", "--store", store)
    assert torn.exit_code == 2 and "is not readable as Parquet" in torn.output


def test_an_imported_history_is_a_run_like_any_other_but_cannot_be_trained_on(store: Path, table: Path) -> None:
    words = ("history", "import", table, "--dataset", "sums", "--run", "past", "--map", "step=epoch", "--store", store)
    result = foreroll(*words, "--model", "org/name", "--temperature", "0.7")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "past.csv: format table",
        "  prompt <- question",
        "  successes <- passed",
        "  attempts <- n",
        "  step <- epoch",
        "3 rows, 3 matched to prompts of sums",
        "imported run past: 2 steps, 3 groups, 2 informative groups, 12 rollouts, 7 successes",
    ]
    again = foreroll(*words)
    assert again.exit_code == 0 and "imported already, as run past: nothing was added" in again.output
    runs = foreroll("runs", "--store", store).output.splitlines()
    assert runs[1].split()[:5] == ["past", "finished", "2/2", "imported", "table"]
    detail = foreroll("runs", "past", "--store", store)
    assert detail.exit_code == 0
    assert "informative       2 of 3 groups (67%)" in detail.output and '"name": "past.csv"' in detail.output
    query = "select step, text, successes, informative from groups join prompts using (prompt_id) order by 1, 2"
    listed = foreroll("sql", "--store", store, "--format", "csv", query).output.splitlines()
    assert listed[1:] == ["1,what is 0 + 1?,1,true", "1,what is 2 + 1?,4,false", "2,what is 0 + 1?,2,true"]
    shown = foreroll("prompts", "show", "--store", store, identity(store, "what is 0 + 1?"))
    assert shown.exit_code == 0 and shown.output.endswith("responses of run past at step 2:\nnone was kept\n")
    doctor = foreroll("doctor", "--store", store)
    assert doctor.exit_code == 0 and "1 runs, 0 problems" in doctor.output
    for options in (["--run", "past"], ["--run", "new", "--from", "past"], ["--preset", "countdown", "--run", "past"]):
        refused = foreroll("train", "--store", store, *options)
        assert (refused.exit_code, refused.output) == (
            2, "foreroll: run past was imported from past.csv and cannot be trained on: choose another --run\n",
        )  # fmt: skip


def identity(store: Path, text: str) -> str:
    query = f"select prompt_id from prompts where text = '{text}'"
    return foreroll("sql", "--store", store, "--format", "csv", query).output.splitlines()[1]


def test_a_preset_cannot_fork_an_imported_run(store: Path, table: Path) -> None:
    foreroll("history", "import", table, "--dataset", "sums", "--run", "past", "--map", "step=epoch", "--store", store)
    refused = foreroll("train", "--store", store, "--preset", "countdown", "--run", "new", "--from", "past")
    assert refused.exit_code == 2 and "cannot fork past: run past has no checkpoint" in refused.output


def test_unmatched_rows_are_counted_and_shown(store: Path, tmp_path: Path) -> None:
    rows = [{"question": PROMPTS[0]["question"], "successes": 1, "attempts": 2}]
    rows += [{"question": f"unknown {number}", "successes": 1, "attempts": 2} for number in range(5)]
    file = write(tmp_path / "rows.jsonl", rows)
    result = foreroll("history", "import", file, "--dataset", "sums", "--run", "past", "--store", store)
    assert "6 rows, 1 matched to prompts of sums\n5 rows have no prompt there, and were left out:\n" in result.output
    assert "  rows.jsonl:4: unknown 2\n  and 2 more\n" in result.output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"PAR1\x00\x00torn", "is not readable as Parquet"),
        (b"\x00\x01\x02\xff\xfe", "no row to use among 0"),
        (b"just a sentence\n", "no row to use among 0"),
        (b"question\tsuccesses,attempts\nx\t1,2\n", "found no column for"),
        (b'{"question": "x"}\n', "found no column for the successes"),
        (b'{"question": "what is 0 + 1?", "successes": 1}\n', "found no column for the attempts"),
        (b'{"question": "\xff"}\n', "not UTF-8"),
        (b'{"\\ud800": "\\ud800", "question": "\\ud800", "score": 1}\n', "none of 1 rows has a prompt"),
        (b'{"question": "x", "score": ' + b"9" * 5000 + b"}\n", "no JSON"),
        (b'[{"question": "x", "score": 1}, null, 7]', "cannot be used"),
        (b"[]", "no row to use among 0"),
    ],
)
def test_hostile_files_are_reported_without_a_traceback(
    store: Path, tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "hostile"
    file.write_bytes(content)
    result = foreroll("history", "import", file, "--dataset", "sums", "--run", "past", "--store", store)
    assert result.exit_code == 2
    assert message in result.output and "foreroll: " in result.output
    added = foreroll("prompts", "add", file, "--name", "new", "--store", store)
    assert added.exit_code == 2 and "foreroll: " in added.output
    assert "\nrun" not in foreroll("runs", "--store", store).output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dataset", "nothing"], "no dataset nothing in"),
        (["--run", "../x"], "run name '../x' is not allowed"),
        (["--map", "steps=epoch"], "--map steps=epoch: no such field; there are prompt_id, step"),
        (["--map", "step"], "--map 'step' is not NAME=VALUE"),
        (["--map", "step=nothing"], "past.csv has no column nothing; its columns: epoch, question, passed, n"),
        (["--where", "n=5"], "no row to use among 3 (--where n=5)"),
        (["--where", "x"], "--where 'x' is not NAME=VALUE"),
        (["--match", "level"], "--match level: past.csv has no column level; its columns: epoch, question"),
        (["--match", "colour=n"], "has no tag colour; its tags: level"),
        (["--format", "trl"], "past.csv is no trl log"),
        (["--success-threshold", "inf"], "--success-threshold inf is no number"),
    ],
)
def test_wrong_options_are_one_clear_line(store: Path, table: Path, words: list[str], message: str) -> None:
    command = ["history", "import", str(table), "--dataset", "sums", "--run", "past", "--store", str(store), *words]
    result = foreroll(*command)
    assert result.exit_code == 2
    [line] = [line for line in result.output.splitlines() if line.startswith("foreroll: ")]
    assert message in line


def test_there_must_be_a_store_to_import_into(tmp_path: Path, table: Path) -> None:
    result = foreroll("history", "import", table, "--dataset", "d", "--run", "r", "--store", tmp_path / "none")
    assert (result.exit_code, "no store at" in result.output) == (2, True)
    assert not (tmp_path / "none").exists()
    builtin = foreroll("prompts", "add", table, "--name", "countdown-pool", "--store", tmp_path / "none")
    assert builtin.exit_code == 2 and "dataset countdown-pool is built in: choose another name" in builtin.output
    missing = foreroll("prompts", "add", tmp_path / "nothing.csv", "--name", "d", "--store", tmp_path / "none")
    assert missing.exit_code == 2 and "nothing.csv does not exist: mend the path" in missing.output
