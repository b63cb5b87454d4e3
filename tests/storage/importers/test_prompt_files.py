"""Rows in the layouts of others become prompts; what cannot is named, and nothing is lost unsaid."""

import json
from pathlib import Path
from typing import Any

import pytest

from storage.errors import StoreError
from storage.importers.adding import add_dataset, check_dataset, survey
from storage.importers.columns import Where
from storage.importers.prompts import find_prompt_columns, parse_prompts
from storage.layout import Layout
from storage.prompts import prompt_id, read_dataset, write_dataset
from tests.storage.importers.files import write_lines, write_parquet
from tests.storage.small_history import make_prompt

ALL = Where({})
SUFFIX = "Let's think step by step and output the final answer within \\boxed{}."


def parse(path: Path, **given: str) -> list[Any]:
    return list(parse_prompts(path, find_prompt_columns(path, given, (), ALL), ALL))


def verl_row(**changes: Any) -> dict[str, Any]:
    row = {
        "data_source": "gsm8k",
        "prompt": [{"role": "system", "content": "be brief"}, {"role": "user", "content": f"1 + 1 = ? {SUFFIX}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {"split": "train", "index": 7},
    }
    return {**row, **changes}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"question": "1 + 1 = ?", "answer": "2"}, ("", "")),
        ({"problem": "1 + 1 = ?", "solution": "It is $\\boxed{2}$."}, ("", "")),
        ({"problem": "1 + 1 = ?", "solution": "long \\boxed{9}", "answer": 2.0}, ("", "")),
        ({"prompt": "1 + 1 = ?", "ground_truth": "2"}, ("", "")),
        ({"prompt": [{"role": "user", "content": "1 + 1 = ?"}], "solution": "2"}, ("", "")),
        ({"messages": '[{"role": "user", "content": "1 + 1 = ?"}]', "ground_truth": "2"}, ("", "")),
        ({"prompt": [{"role": "user", "content": [{"type": "text", "text": "1 + 1 = ?"}]}], "answer": 2}, ("", "")),
        ({"prompt": "1 + 1 = ?", "reward_spec": {"method": "rule", "ground_truth": "2"}}, ("", "")),
        ({"prompt": "1 + 1 = ?", "reward_model": '{"ground_truth": 2}'}, ("", "")),
        ({"question": "1 + 1 = ?", "answer": "2", "system": "be brief", "instruction": "go"}, ("be brief", "go")),
        (verl_row(), ("be brief", SUFFIX)),
        (verl_row(extra_info=None), ("be brief", SUFFIX)),
    ],
)
@pytest.mark.parametrize("write", [write_lines, write_parquet])
def test_known_layouts_are_read_without_being_told(
    tmp_path: Path, row: dict[str, Any], expected: tuple[str, str], write: Any
) -> None:
    [parsed] = parse(write(tmp_path / "file", [row]))
    assert parsed.fault == ""
    assert parsed.prompt.messages == [("user", "1 + 1 = ?")]
    assert parsed.prompt.answer == "2"
    assert (parsed.prompt.system, parsed.prompt.instruction) == expected


def test_columns_can_be_named_and_wrong_names_are_refused_with_those_there(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [{"q": "a", "question": "b", "meta": {"gold": "1"}, "answer": "2"}])
    [parsed] = parse(path, prompt="q", answer="meta.gold")
    assert (parsed.prompt.messages, parsed.prompt.answer) == ([("user", "a")], "1")
    for given, message in (
        ({"answer": "gold"}, "rows.jsonl has no column gold; its columns: q, question, meta, answer"),
        ({"gold": "answer"}, "--map gold=answer: no such field; there are prompt, answer, system, instruction"),
    ):
        with pytest.raises(StoreError) as refused:
            parse(path, **given)
        assert message in str(refused.value)
    with pytest.raises(
        StoreError, match=r"found no column for the answer .*its columns: q\. Name it with --map answer="
    ):
        parse(write_lines(tmp_path / "bare.jsonl", [{"q": "a"}]), prompt="q")


def test_tags_are_known_facts_and_those_asked_for(tmp_path: Path) -> None:
    row = {"question": "a", "answer": "1", "level": "Level 3", "extra_info": {"index": 4, "split": "x"}, "split": "y"}
    path = write_lines(tmp_path / "rows.jsonl", [{**row, "hops": 2, "long": "never asked for", "subject": None}])
    columns = find_prompt_columns(path, {}, ["hops"], ALL)
    [parsed] = parse_prompts(path, columns, ALL)
    assert json.loads(parsed.prompt.tags) == {"level": "Level 3", "split": "y", "index": 4, "hops": 2}
    with pytest.raises(StoreError, match="found no column for the tag nothing"):
        find_prompt_columns(path, {}, ["nothing"], ALL)


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        (None, "the prompt is null"),
        ("", "the prompt is empty"),
        ("\u200b \n", "the prompt is empty"),
        (3, "the prompt is no text and no list of messages, but int"),
        ([], "the prompt is an empty list of messages"),
        (["a"], "the prompt is a list, and not of messages with role and content"),
        ([{"role": "user", "content": None}], "a message has no text"),
        ([{"role": "user", "content": [{"type": "image"}]}], "a message holds something but text"),
        ([{"role": "tool", "content": "x"}], "a message has role 'tool'; known are system, developer, user, assistant"),
        ([{"role": "system", "content": "x"}], "there is nothing but a system prompt"),
        (
            [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],
            "the last message is the assistant's: nothing is left to answer",
        ),
        ("a\x0cb", "prompt: control character U+000C at 1: the text was damaged on its way"),
        ("\ud800", "prompt: half a surrogate pair, which is no Unicode text"),
    ],
)
def test_prompts_that_cannot_be_used_say_why(tmp_path: Path, prompt: Any, reason: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        json.dumps({"prompt": "fine", "answer": "1"}) + "\n" + json.dumps({"prompt": prompt, "answer": "1"})
    )
    assert [parsed.fault for parsed in parse(path)] == ["", reason]


def numbers(answer: str) -> bool:
    return answer.isdecimal()


def test_duplicates_count_once_and_other_answers_are_named(tmp_path: Path, layout: Layout) -> None:
    rows = [("a", "1"), ("b", "2"), (" a\r\n", "1"), (f"b {SUFFIX}", "3"), ("c", None), ("d", "4")]
    path = write_lines(tmp_path / "rows.jsonl", [{"prompt": prompt, "answer": answer} for prompt, answer in rows])
    sources = {path: find_prompt_columns(path, {}, (), ALL)}
    found = survey(sources, ALL, {"number": numbers}, strict=False)
    assert (found.rows, found.prompts, found.duplicates, found.rewards) == (6, 3, 2, ["number"])
    assert [str(fault) for fault in found.faults] == ["rows.jsonl:5: the answer is null"]
    assert [str(fault) for fault in found.conflicts] == [
        "rows.jsonl:4: answer '3' is not that of the same problem at rows.jsonl:2, which is kept"
    ]
    assert add_dataset(layout, "toy", sources, ALL, "number", numbers)
    stored = read_dataset(layout, "toy").to_pylist()
    assert [(row["text"], row["answer"], row["position"], row["reward"]) for row in stored] == [
        ("a", "1", 0, "number"), ("b", "2", 1, "number"), ("d", "4", 2, "number"),
    ]  # fmt: skip
    assert [row["prompt_id"] for row in stored] == [prompt_id([("user", text)]) for text in "abd"]


def test_a_dataset_is_added_once_and_never_replaced(tmp_path: Path, layout: Layout) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [{"prompt": "a", "answer": "1"}])
    sources = {path: find_prompt_columns(path, {}, (), ALL)}
    assert add_dataset(layout, "toy", sources, ALL, "r", numbers)
    before = layout.dataset("toy").read_bytes()
    assert not add_dataset(layout, "toy", sources, ALL, "r", numbers)
    write_lines(path, [{"prompt": "b", "answer": "1"}])
    with pytest.raises(StoreError, match=r"dataset toy exists already, with other prompts .*: choose another name"):
        add_dataset(layout, "toy", sources, ALL, "r", numbers)
    assert layout.dataset("toy").read_bytes() == before
    assert [path.name for path in layout.dataset("toy").parent.iterdir()] == ["part-0.parquet"]


def test_an_answer_that_the_reward_cannot_use_is_a_fault_only_where_the_reward_was_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [{"prompt": text, "answer": text} for text in ("1", "x")])
    sources = {path: find_prompt_columns(path, {}, (), ALL)}
    assert survey(sources, ALL, {"number": numbers}, strict=False).rewards == []
    found = survey(sources, ALL, {"number": numbers}, strict=True)
    assert [str(fault) for fault in found.faults] == ["rows.jsonl:2: reward number cannot be told from the answer 'x'"]


def test_batches_of_a_large_file_keep_their_positions(
    tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.importers.adding._BATCH", 3)
    path = write_lines(tmp_path / "rows.jsonl", [{"prompt": f"p{number}", "answer": "1"} for number in range(8)])
    add_dataset(layout, "toy", {path: find_prompt_columns(path, {}, (), ALL)}, ALL, "r", numbers)
    table = read_dataset(layout, "toy")
    assert table["position"].to_pylist() == list(range(8))
    assert table["text"].to_pylist() == [f"p{number}" for number in range(8)]


def test_a_stored_dataset_is_checked(layout: Layout) -> None:
    write_dataset(layout, "toy", [make_prompt("a", answer="1"), make_prompt("b\x00", answer="x")])
    rows, problems = check_dataset(layout, "toy", lambda reward, answer: reward == "countdown" and answer.isdecimal())
    identity = prompt_id([("user", "b\x00")])
    assert rows == 2
    assert problems == [
        f"{identity}: prompt: control character U+0000 at 1: the text was damaged on its way",
        f"{identity}: reward countdown cannot be told from the answer 'x'",
    ]
