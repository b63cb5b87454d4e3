"""A history of others becomes a run: every outcome once, matched by content, all of it visible at once or nothing."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from storage.catalog import query
from storage.committed import damaged_files
from storage.errors import RunLockedError, StoreError
from storage.files import file_digest
from storage.importers.planning import ImportRequest, plan_import
from storage.importers.writing import TABLES
from storage.layout import Layout
from storage.locks import hold_run
from storage.past import read_groups, snapshot
from storage.prompts import write_dataset
from storage.runs import check_trained_here, list_runs, read_run
from tests.storage.importers.files import TEXTS, write_lines, write_parquet
from tests.storage.importers.small_imports import do_import, groups, refusal
from tests.storage.small_history import make_prompt

ROOT = Path(__file__).parents[3]


def test_a_table_becomes_groups_and_rollouts_of_a_finished_run(layout: Layout, ids: list[str], table: Path) -> None:
    report = do_import(layout, table, model="Qwen/Q", temperature=0.6)
    assert report.totals == {"steps": 2, "groups": 3, "informative_groups": 2, "rollouts": 12, "successes": 8}
    expected = [(1, ids[0], 4, 4, 1, None), (1, ids[2], 4, 4, 4, None), (3, ids[0], 4, 4, 3, None)]
    assert groups(layout) == sorted(expected)
    rollouts = query(layout, "select * from rollouts where step = 3 order by sample").to_pylist()
    assert [row["sample"] for row in rollouts] == [0, 1, 2, 3]
    assert [(row["success"], row["reward"], row["reward_status"]) for row in rollouts] == [
        *[(True, 1.0, "ok")] * 3, (False, 0.0, "ok"),
    ]  # fmt: skip
    assert {row["response"] for row in rollouts} == {None}
    assert {(row["policy_version"], row["engine"], row["admitted"], row["round"]) for row in rollouts} == {
        (2, "imported", True, 0)
    }
    assert json.loads(rollouts[0]["sampling"]) == {"model": "Qwen/Q", "temperature": 0.6}
    run = read_run(layout, "past")
    assert run and (run.state, run.target, run.epoch) == ("finished", 3, 1)
    source = run.config["imported"]
    assert source["files"] == [{"name": "table.jsonl", "sha256": file_digest(table)}]
    assert (source["format"], source["model"], source["temperature"], source["matched"]) == ("table", "Qwen/Q", 0.6, 3)
    steps = query(layout, "select step, groups, informative_groups, rollouts, successes from steps order by 1")
    assert [tuple(row.values()) for row in steps.to_pylist()] == [(1, 2, 1, 8, 5), (3, 1, 1, 4, 3)]
    assert damaged_files(layout) == []
    with pytest.raises(StoreError, match=r"run past was imported from table\.jsonl and cannot be trained on"):
        check_trained_here(run)


def test_forecasters_read_an_imported_run_as_any_other(layout: Layout, ids: list[str], table: Path) -> None:
    do_import(layout, table)
    assert snapshot(layout, ["past"]) == {"past": 3}
    found = read_groups(layout, {"past": 3}).select(["run_id", "step", "prompt_id", "successes", "valid"])
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("past", 1, ids[2], 4, 4), ("past", 1, ids[0], 1, 4), ("past", 3, ids[0], 3, 4),
    ]  # fmt: skip


def test_prompts_are_found_by_text_id_position_or_tags(layout: Layout, ids: list[str], tmp_path: Path) -> None:
    counts = {"n_correct": 1, "k": 2}
    ways: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"problem": f"user\n{TEXTS[1]}\nassistant\n"}, {}),
        ({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": TEXTS[1]}]}, {}),
        ({"prompt": ids[1]}, {}),
        ({"prompt_id": ids[1]}, {}),
        ({"prompt": 1}, {}),
        ({"position": 1}, {}),
        ({"which": 1}, {"columns": {"position": "which"}}),
        ({"index": 11}, {}),
        ({"index": 11.0, "id": 5}, {}),
        ({"key": "11"}, {"keys": {"index": "key"}}),
    ]
    for number, (way, options) in enumerate(ways):
        file = write_lines(tmp_path / f"{number}.jsonl", [{**way, **counts}])
        do_import(layout, file, run=f"way-{number}", **options)
        assert groups(layout, f"way-{number}") == [(1, ids[1], 2, 2, 1, None)], way


def test_rows_without_a_prompt_and_prompts_of_another_text_are_left_out_and_told_apart(
    layout: Layout, ids: list[str], tmp_path: Path
) -> None:
    rows = [(TEXTS[0], 10), ("what is 1 * 2, again?", 11), ("unknown", 99), (TEXTS[2], None)]
    file = write_lines(
        tmp_path / "rows.jsonl",
        [{"question": text, "index": index, "successes": 0, "attempts": 2} for text, index in rows],
    )
    report = do_import(layout, file)
    assert (report.reading.rows, report.reading.matched) == (4, 2)
    assert report.reading.changed == ["rows.jsonl:2: what is 1 * 2, again?"]
    assert report.reading.unmatched == ["rows.jsonl:3: unknown"]
    assert [row[1] for row in groups(layout)] == sorted([ids[0], ids[2]])


def test_a_known_id_with_another_text_counts_as_changed(layout: Layout, ids: list[str], tmp_path: Path) -> None:
    rows = [{"prompt_id": ids[0], "prompt": text, "successes": 1, "attempts": 2} for text in ("other", TEXTS[0])]
    report = do_import(layout, write_lines(tmp_path / "rows.jsonl", rows))
    assert (len(report.reading.changed), report.reading.matched) == (1, 1)


def test_tags_must_tell_prompts_apart(layout: Layout, ids: list[str], tmp_path: Path) -> None:
    file = write_lines(tmp_path / "rows.jsonl", [{"level": 1, "successes": 0, "attempts": 2}])
    assert "has no tag level; its tags: index" in refusal(layout, file, keys={"level": "level"})
    write_dataset(layout, "same", [make_prompt(text, tags='{"index": 1}') for text in "ab"])
    with pytest.raises(StoreError, match="have the same index: match by more tags"):
        plan_import(layout, ImportRequest([file], "same", "r", keys={"index": "level"}))
    assert "found no column for the prompt" in refusal(layout, file)


def test_trl_completions_are_grouped_by_prompt_and_step(layout: Layout, ids: list[str], tmp_path: Path) -> None:
    def rows(step: int, texts: list[str]) -> list[dict[str, Any]]:
        return [
            {
                "step": step,
                "prompt": f"system\nYou are helpful.\nuser\n{text}\nassistant\n",
                "completion": f"answer {number}",
                "accuracy_reward": [1.0, 0.0, float("nan")][number % 3],
                "format_reward": 0.5,
                "advantage": 0.25,
            }
            for number, text in enumerate(texts)
        ]

    folder = tmp_path / "completions"
    folder.mkdir()
    write_parquet(folder / "completions_00002.parquet", rows(2, [TEXTS[0]] * 3 + [TEXTS[1]] * 3))
    write_parquet(folder / "completions_00010.parquet", rows(10, [TEXTS[0], TEXTS[1], TEXTS[0], TEXTS[1]]))
    report = do_import(layout, folder)
    assert report.totals["groups"] == 4
    assert groups(layout) == sorted(
        [
            (2, ids[0], 3, 2, 1, None),
            (2, ids[1], 3, 2, 1, None),
            (10, ids[0], 2, 1, 1, None),
            (10, ids[1], 2, 2, 1, None),
        ]
    )
    found = query(layout, "select response, reward, success, reward_status, reward_parts, sample from rollouts "
                          "where step = 2 and prompt_id = $id order by sample", {"id": ids[0]}).to_pylist()  # fmt: skip
    assert [row["response"] for row in found] == ["answer 0", "answer 1", "answer 2"]
    assert [(row["reward"], row["success"], row["reward_status"]) for row in found] == [
        (1.0, True, "ok"), (0.0, False, "ok"), (None, None, "unparsable"),
    ]  # fmt: skip
    assert json.loads(found[2]["reward_parts"]) == {"format_reward": 0.5}


def test_which_reward_is_the_success_must_be_clear(layout: Layout, ids: list[str], tmp_path: Path) -> None:
    row = {"step": 1, "prompt": TEXTS[0], "completion": "c", "brief": 1.0, "polite": 0.0, "advantage": 0.0}
    file = write_parquet(tmp_path / "c.parquet", [row])
    assert "which of the rewards brief, polite says that an answer is right? Name it with --map score=" in refusal(
        layout, file
    )
    do_import(layout, file, columns={"score": "polite"})
    assert [row[4] for row in groups(layout)] == [0]


def test_verl_dumps_take_accuracy_as_success_and_score_as_reward(
    layout: Layout, ids: list[str], tmp_path: Path
) -> None:
    def rows(step: int, **more: Any) -> list[dict[str, Any]]:
        return [
            {"input": f"user\n{TEXTS[0]}\nassistant\n", "output": "o", "gts": "2", "score": score, "step": step, **more}
            for score in (-1.0, 1.0)
        ]

    plain = tmp_path / "plain"
    plain.mkdir()
    for step in (9, 10):
        write_lines(plain / f"{step}.jsonl", rows(step))
    assert "the score -1 is neither 0 nor 1: say what is a success with --success-threshold" in refusal(layout, plain)
    do_import(layout, plain, threshold=0.5)
    assert groups(layout) == [(9, ids[0], 2, 2, 1, None), (10, ids[0], 2, 2, 1, None)]
    judged = write_lines(tmp_path / "3.jsonl", rows(3, acc=False, pred="7"))
    do_import(layout, judged, run="judged")
    rewards = query(layout, "select reward, success from rollouts where run_id = 'judged' order by sample")
    assert rewards.to_pylist() == [{"reward": -1.0, "success": False}, {"reward": 1.0, "success": False}]


def test_lm_eval_samples_are_read_by_document_metric_and_filter(layout: Layout, ids: list[str], tmp_path: Path) -> None:
    rows = [
        {
            "doc_id": number,
            "doc": {"question": text, "answer": "#### 2"},
            "target": "2",
            "arguments": {"gen_args_0": {"arg_0": f"Question: {text}\nAnswer:", "arg_1": {"until": ["\n"]}}},
            "resps": [[f"It is {number}"]],
            "filtered_resps": [str(number)],
            "filter": name,
            "metrics": ["exact_match"],
            "doc_hash": "0" * 64,
            "exact_match": float(number == 0),
        }
        for number, text in enumerate(TEXTS)
        for name in ("strict-match", "flexible-extract")
    ]
    file = write_lines(tmp_path / "samples_gsm8k_2026.jsonl", rows)
    message = refusal(layout, file)
    assert "the rows have 2 values of filter (flexible-extract, strict-match)" in message
    assert "--where filter=VALUE" in message
    do_import(layout, file, where={"filter": "strict-match"})
    assert sorted(groups(layout)) == sorted((1, one, 1, 1, int(one == ids[0]), None) for one in ids)
    assert set(query(layout, "select response from rollouts")["response"].to_pylist()) == {
        "It is 0", "It is 1", "It is 2",
    }  # fmt: skip


def test_a_row_may_hold_the_lists_of_a_whole_group(layout: Layout, ids: list[str], tmp_path: Path) -> None:
    row = {"question": TEXTS[0], "score": [True, False, True], "response": ["a", "b", "c"], "tokens": [5, 7, 9]}
    do_import(layout, write_lines(tmp_path / "rows.jsonl", [row]))
    assert groups(layout) == [(1, ids[0], 3, 3, 2, 7.0)]
    torn = write_lines(tmp_path / "torn.jsonl", [{**row, "response": ["a"]}])
    assert "torn.jsonl:1: 1 values of response for 3 scores" in refusal(layout, torn, run="other")


def test_tables_of_text_rates_and_steps_from_zero(layout: Layout, ids: list[str], tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text(f"step;problem;pass_rate;n;mean_tokens\n0;{TEXTS[0]};0.75;8;10.4\n1;{TEXTS[0]};1.0;8;\n")
    report = do_import(layout, file)
    assert report.reading.starts_at_zero()
    assert groups(layout) == [(1, ids[0], 8, 8, 6, 10.0), (2, ids[0], 8, 8, 8, None)]
    run = read_run(layout, "past")
    assert run and run.target == 2


def test_several_models_are_refused_and_chosen(layout: Layout, ids: list[str], tmp_path: Path) -> None:
    rows = [
        {"question": TEXTS[0], "successes": number, "attempts": 4, "model": model, "temperature": 1.0}
        for number, model in enumerate(("a/b", "a/c"))
    ]
    file = write_lines(tmp_path / "rows.jsonl", rows)
    assert "the rows have 2 values of model (a/b, a/c)" in refusal(layout, file)
    for number, model in enumerate(("a/b", "a/c")):
        do_import(layout, file, run=f"m{number}", where={"model": model})
        assert groups(layout, f"m{number}") == [(1, ids[0], 4, 4, number, None)]
        run = read_run(layout, f"m{number}")
        assert run and (run.config["imported"]["model"], run.config["imported"]["temperature"]) == (model, 1.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"successes": 5}, "5 successes of 4 attempts"),
        ({"successes": -1}, "successes is -1, no whole number from 0 to 100,000,000"),
        ({"successes": 1.5}, "successes is 1.5, no whole number from 0 to 100,000,000"),
        ({"successes": None}, "successes is None, no whole number from 0 to 100,000,000"),
        ({"successes": "'; drop table runs; --"}, 'successes is "\'; drop table runs; --", no whole number from'),
        ({"successes": {"a": [None, {"b": None}]}}, "successes is {'a': [None, {'b': None}]}, no whole number"),
        ({"successes": float("nan")}, "successes is nan, no whole number"),
        ({"successes": 10**400}, "no whole number from 0 to 100,000,000"),
        ({"attempts": 0}, "attempts is 0, not from 1 to 100,000"),
        ({"attempts": 10**8}, "attempts is 100000000, not from 1 to 100,000"),
        ({"step": 2**70}, "step is 1180591620717411303424, no whole number"),
        ({"step": -1}, "the step is -1, no whole number"),
        ({"step": "x"}, "the step is 'x', no whole number"),
        ({"question": None}, "there is no prompt"),
        ({"question": {"a": 1}}, "the prompt is no text and no list of messages, but dict"),
        ({"tokens": -3}, "tokens is -3, no number from 0"),
    ],
)
def test_rows_that_cannot_be_used_are_named_and_only_left_out_when_asked(
    layout: Layout, ids: list[str], tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    good = {"step": 1, "question": TEXTS[0], "successes": 1, "attempts": 4, "tokens": 3}
    file = write_lines(tmp_path / "rows.jsonl", [good, {**good, "question": TEXTS[1], **changes}])
    message = refusal(layout, file)
    assert message.startswith("1 of 2 rows cannot be used; mend them, or leave them out with --skip-bad:\n")
    assert reason in message and "rows.jsonl:2: " in message
    assert groups(layout) == [] and list_runs(layout) == []
    report = do_import(layout, file, skip_bad=True)
    assert len(report.reading.faults) == 1
    assert groups(layout) == [(1, ids[0], 4, 4, 1, 3.0)]


def test_the_same_prompt_twice_in_a_step_of_a_table_is_not_counted_twice(
    layout: Layout, ids: list[str], table: Path, tmp_path: Path
) -> None:
    twice = tmp_path / "twice.jsonl"
    twice.write_text(table.read_text() * 2)
    message = refusal(layout, twice)
    assert message.startswith("3 of 6 rows cannot be used")
    assert "twice.jsonl:4: the prompt of twice.jsonl:1 again, in the same step" in message
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(table.read_bytes())
    assert f"{copy} has the content of {table}: name one of them" in refusal(layout, table, copy)


@pytest.mark.parametrize("content", ["", "step,question,successes,attempts\n", '{"question": \n'])
def test_a_history_of_zero_groups_is_one_clear_line(
    layout: Layout, ids: list[str], tmp_path: Path, content: str
) -> None:
    file = tmp_path / "rows"
    file.write_text(content)
    message = refusal(layout, file)
    assert len(message.splitlines()) == 1 and str(file) in message


def test_a_history_of_other_prompts_imports_nothing(layout: Layout, ids: list[str], tmp_path: Path) -> None:
    file = write_lines(tmp_path / "rows.jsonl", [{"question": "x\x1b[2J", "successes": 1, "attempts": 2}])
    assert refusal(layout, file) == (
        "none of 1 rows has a prompt of dataset toy: nothing was imported:\n  rows.jsonl:1: x\ufffd[2J"
    )
    assert not layout.run_file("past").exists() and not layout.lock_file("past").exists()


def test_a_second_import_of_the_same_outcomes_adds_nothing_under_any_name(
    layout: Layout, ids: list[str], table: Path, tmp_path: Path
) -> None:
    do_import(layout, table)
    before = {path: file_digest(path) for path in sorted(layout.root.rglob("*")) if path.is_file()}
    renamed = tmp_path / "renamed.jsonl"
    renamed.write_bytes(table.read_bytes())
    assert do_import(layout, table).known_as == "past"
    assert do_import(layout, renamed, run="again").known_as == "past"
    assert {path: file_digest(path) for path in sorted(layout.root.rglob("*")) if path.is_file()} == before | {
        layout.lock_guard(): file_digest(layout.lock_guard())
    }


def test_another_file_under_a_used_name_is_refused(layout: Layout, ids: list[str], table: Path, tmp_path: Path) -> None:
    do_import(layout, table)
    other = write_lines(tmp_path / "other.jsonl", [{"question": TEXTS[0], "successes": 0, "attempts": 2}])
    assert "run past exists, imported from table.jsonl with other content or in another way" in refusal(layout, other)
    assert "with other content or in another way" in refusal(layout, table, where={"step": "1"})


def test_a_run_that_was_trained_here_is_never_written_to(layout: Layout, ids: list[str], table: Path) -> None:
    from storage.runs import write_run
    from tests.storage.small_history import make_history, make_run

    make_history(layout, "past", 1)
    assert "run past has a history and no" in refusal(layout, table)
    write_run(layout, make_run("past"))
    assert "run past exists, and was not imported: choose another --run" in refusal(layout, table)


def test_an_import_that_fails_leaves_nothing(
    layout: Layout, ids: list[str], table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr("storage.importers.writing._counts", fail)
    assert refusal(layout, table) == "disk full"
    assert list_runs(layout) == [] and groups(layout) == []
    assert not [path for path in layout.history().rglob("*") if path.is_file()]


KILLED = """
import os, signal, sys
from pathlib import Path
from storage.importers import writing
from storage.importers.histories import run_import
from storage.importers.planning import ImportRequest, plan_import
from storage.layout import Layout

point, root, file = sys.argv[1:]
renames = 0
real_rename, real_step = os.rename, writing._write_step

def rename(*names):
    global renames
    real_rename(*names)
    renames += 1
    if point == f"rename-{renames}":
        os.kill(os.getpid(), signal.SIGKILL)

def step(*args):
    if point == "second step" and args[3] == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return real_step(*args)

os.rename = rename
writing._write_step = step
request = ImportRequest(files=[Path(file)], dataset="toy", run="past")
run_import(Layout(Path(root)), plan_import(Layout(Path(root)), request))
"""


@pytest.mark.parametrize("point", ["second step", "rename-1", "rename-2", "rename-3"])
def test_an_import_killed_at_any_point_is_invisible_or_whole_and_can_be_repeated(
    layout: Layout, ids: list[str], table: Path, tmp_path: Path, point: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, point, str(layout.root), str(table)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    visible = groups(layout)
    assert len(visible) == (3 if point == "rename-3" else 0)
    do_import(layout, table)
    assert len(groups(layout)) == 3
    run = read_run(layout, "past")
    assert run and run.state == "finished"
    assert damaged_files(layout) == []
    assert not list(layout.history().rglob("*.tmp"))
    untouched = do_import(layout, table, run="past")
    assert untouched.known_as == "past"
    for name in TABLES:
        parts = sorted(layout.table_of_run(name, "past").rglob("*.parquet"))
        assert [path.parent.name for path in parts] == ["step=00000001", "step=00000003"]


def test_leftovers_of_other_runs_are_not_touched(layout: Layout, ids: list[str], table: Path) -> None:
    others = [layout.history() / "rewards" / name for name in (".run_id=past.2.12-01234567.tmp", "run_id=past.2")]
    for other in others:
        other.mkdir(parents=True)
    mine = layout.history() / "rewards" / ".run_id=past.12-01234567.tmp"
    mine.mkdir()
    do_import(layout, table)
    assert [path.exists() for path in (*others, mine)] == [True, True, False]


def test_two_at_once_the_second_is_told_who_holds_the_run(layout: Layout, ids: list[str], table: Path) -> None:
    with hold_run(layout, "past"), pytest.raises(RunLockedError, match="run past is held by process"):
        do_import(layout, table)
    do_import(layout, table)
    assert len(groups(layout)) == 3


def test_options_that_are_no_numbers_are_refused(layout: Layout, ids: list[str], table: Path) -> None:
    assert "--success-threshold nan is no number" in refusal(layout, table, threshold=float("nan"))
    assert "--temperature -1 is no number from 0 on" in refusal(layout, table, temperature=-1)
    assert "run name 'A/b' is not allowed" in refusal(layout, table, run="A/b")
    with pytest.raises(StoreError, match="no dataset nope"):
        plan_import(layout, ImportRequest([table], "nope", "r"))
    assert "table.jsonl is no verl log: it has no column input, output, score" in refusal(layout, table, format="verl")
