"""Prompts keep their identity across files and runs, and datasets their order."""

import hashlib
import logging

import pyarrow as pa
import pytest

from storage.errors import StoreError
from storage.files import file_digest
from storage.layout import Layout
from storage.prompts import (
    dataset_digest,
    dataset_names,
    holds_dataset,
    prompt_id,
    read_dataset,
    read_embeddings,
    write_dataset,
    write_embeddings,
)
from tests.storage.small_history import make_prompt

GOLDEN = [
    ([("user", "numbers 3 4 5 target 12")], "22de770b2af90d416c786bdd5fa9b9f9"),
    ([("user", "")], "e5b1d7378a9407f43e56df7a0ca48279"),
    ([("user", "caf\u00e9 \u2192 \U0001f600")], "07f06ac91f7bc35c8cb7cfbf9e4ac9b9"),
    ([("user", 'a "quoted"\nline')], "e14d05a4e4f1a0016ed748ad5940864d"),
    ([("user", "one"), ("assistant", "two"), ("user", "three")], "c92b7d3fbac2eddf748eb3535a2dd9a1"),
]


@pytest.mark.parametrize(("messages", "golden"), GOLDEN)
def test_the_identity_of_a_prompt_never_changes(messages: list[tuple[str, str]], golden: str) -> None:
    assert prompt_id(messages) == golden


def test_the_identity_is_a_digest_of_roles_and_contents_as_compact_json() -> None:
    text = '[["user","one"],["assistant","two \u2192"]]'
    expected = hashlib.sha256(text.encode()).hexdigest()[:32]
    assert prompt_id([("user", "one"), ("assistant", "two \u2192")]) == expected


@pytest.mark.parametrize(
    "content",
    [
        "cafe\u0301\nau lait",
        "caf\u00e9\r\nau lait",
        "caf\u00e9\rau lait",
        "  caf\u00e9\nau lait",
        "\u00a0\tcaf\u00e9\nau lait \r\n\n",
    ],
)
def test_ways_to_write_the_same_text_are_the_same_prompt(content: str) -> None:
    assert prompt_id([("user", content)]) == prompt_id([("user", "caf\u00e9\nau lait")])


@pytest.mark.parametrize(
    "messages",
    [
        [("user", "Two")],
        [("user", "t wo")],
        [("user", "t\nwo")],
        [("user", "\uff54wo")],  # compatibility forms stay apart: NFC, not NFKC
        [("assistant", "two")],
        [("user", "two"), ("user", "")],
        [("user", "t"), ("user", "wo")],
        [("user", 'two"],["user","')],
    ],
)
def test_other_texts_and_roles_are_other_prompts(messages: list[tuple[str, str]]) -> None:
    assert prompt_id(messages) != prompt_id([("user", "two")])


def test_system_prompt_answer_reward_and_instruction_are_no_part_of_the_identity(layout: Layout) -> None:
    assert prompt_id([("system", "be brief"), ("user", "two")]) == prompt_id([("user", "two")])
    for name, changes in (("one", {}), ("two", {"answer": "3", "reward": "other", "system": "s", "instruction": "i"})):
        write_dataset(layout, name, [make_prompt("two", **changes)])
    ids = [read_dataset(layout, name)["prompt_id"].to_pylist() for name in ("one", "two")]
    assert ids == [[prompt_id([("user", "two")])]] * 2


def test_text_that_is_not_valid_unicode_has_an_identity() -> None:
    assert prompt_id([("user", "\ud800")]) != prompt_id([("user", "\ud801")])


def test_a_dataset_is_read_as_it_was_written_in_its_own_order(layout: Layout) -> None:
    rows = [
        make_prompt("b\r\n", tags='{"level": 1}'),
        make_prompt("a", messages=[("user", "a"), ("assistant", "?"), ("user", "c")], system="s", instruction="i"),
    ]
    write_dataset(layout, "toy", rows)
    common = {"dataset": "toy", "answer": "2", "reward": "countdown"}
    assert read_dataset(layout, "toy").to_pylist() == [
        {
            **common,
            "position": 0,
            "prompt_id": prompt_id([("user", "b")]),
            "messages": [{"role": "user", "content": "b\r\n"}],
            "text": "b\r\n",
            "system": "",
            "instruction": "",
            "tags": '{"level": 1}',
        },
        {
            **common,
            "position": 1,
            "prompt_id": prompt_id(rows[1]["messages"]),
            "messages": [{"role": role, "content": text} for role, text in rows[1]["messages"]],
            "text": "a\n\n?\n\nc",
            "system": "s",
            "instruction": "i",
            "tags": "{}",
        },
    ]
    assert dataset_digest(layout, "toy") == file_digest(layout.dataset("toy"))


def test_a_prompt_that_is_twice_in_a_dataset_is_refused_with_both_places(layout: Layout) -> None:
    with pytest.raises(StoreError) as refused:
        write_dataset(layout, "toy", [make_prompt(text) for text in ("a", "b", "c", " b\r\n", "a")])
    assert str(refused.value) == "dataset toy: prompt 3 is the same as prompt 1: remove one"
    assert not holds_dataset(layout, "toy")


def test_a_large_dataset_is_searched_for_duplicates_in_a_blink(layout: Layout) -> None:
    rows = [make_prompt(f"prompt {number}") for number in range(50_000)]
    with pytest.raises(StoreError, match=r"prompt 50000 is the same as prompt 49999"):
        write_dataset(layout, "large", [*rows, rows[-1]])


def test_a_dataset_that_exists_is_not_replaced(layout: Layout) -> None:
    write_dataset(layout, "toy", [make_prompt("a")])
    with pytest.raises(StoreError, match=r"^dataset toy exists already: choose another name$"):
        write_dataset(layout, "toy", [make_prompt("b")])
    assert read_dataset(layout, "toy")["text"].to_pylist() == ["a"]


def test_a_dataset_that_does_not_exist_is_refused_with_those_that_do(layout: Layout) -> None:
    with pytest.raises(StoreError) as refused:
        read_dataset(layout, "toy")
    assert str(refused.value) == f"no dataset toy in {layout.root}; it has: none"
    for name in ("b", "a"):
        write_dataset(layout, name, [make_prompt(name)])
    assert dataset_names(layout) == ["a", "b"]
    with pytest.raises(StoreError, match=r"it has: a, b$"):
        read_dataset(layout, "toy")


def test_embeddings_are_cached_once_and_made_again_when_damaged(
    layout: Layout, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_embeddings(layout, "encoder", "toy") is None
    embeddings = pa.array([[1.0, 0.0], [0.0, 1.0]], pa.list_(pa.float32()))
    write_embeddings(layout, "encoder", "toy", ["a", "b"], embeddings)
    write_embeddings(layout, "encoder", "toy", ["c", "d"], embeddings)
    found = read_embeddings(layout, "encoder", "toy")
    assert found and found.to_pylist() == [
        {"prompt_id": "a", "embedding": [1.0, 0.0]},
        {"prompt_id": "b", "embedding": [0.0, 1.0]},
    ]
    layout.embeddings("encoder", "toy").write_bytes(b"PAR1")
    with caplog.at_level(logging.WARNING):
        assert read_embeddings(layout, "encoder", "toy") is None
    assert caplog.messages[0].endswith("; set aside as toy.parquet.unreadable and made again")
    write_embeddings(layout, "encoder", "toy", ["a", "b"], embeddings)
    assert read_embeddings(layout, "encoder", "toy") == found
