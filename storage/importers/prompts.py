"""Prompt files made elsewhere: rows become prompts of the store, or are named with what is wrong.

Known layouts: `question`/`problem`/`prompt` with `answer`/`solution`; TRL's
`prompt` as text or messages; verl's messages with `reward_model.ground_truth`;
SkyRL's `reward_spec`; ROLL's and open-instruct's `messages`, also as JSON in a
text.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage.importers.answers import AnswerError, answer_text
from storage.importers.columns import MISSING, Where, find_columns, lookup, missing_column
from storage.importers.sources import Row, read_rows, sample_of
from storage.importers.texts import clean, has_half_pair, split_instruction, split_turns, text_fault, text_notes
from storage.prompts import Message

ALIASES: Mapping[str, Sequence[str]] = {
    "prompt": ("prompt", "messages", "question", "problem", "query", "input", "text"),
    "answer": (
        "reward_model.ground_truth", "reward_spec.ground_truth", "ground_truth", "answer", "final_answer",
        "expected_answer", "solution", "target", "label", "gt",
    ),
    "system": ("system", "system_prompt"),
    "instruction": ("instruction",),
}  # fmt: skip
"""Columns that may hold each part of a prompt, most telling first."""

TAGS = (
    "data_source", "source", "dataset", "ability", "level", "subject", "topic", "type", "category", "domain", "grade",
    "split", "index", "idx", "id", "unique_id", "extra_info.split", "extra_info.index", "extra_info.level",
    "extra_info.subject",
)  # fmt: skip
"""Columns that become tags when they are there; a nested one is named by its last part."""

_ROLES = ("system", "developer", "user", "assistant")


class PromptError(ValueError):
    """A row that is no usable prompt; the message says why."""


@dataclass(frozen=True)
class Prompt:
    """A row as `storage.prompts` stores it, but for its reward."""

    messages: list[Message]
    answer: str
    system: str
    instruction: str
    tags: str


@dataclass(frozen=True)
class PromptColumns:
    """Which columns of a file hold what."""

    fields: Mapping[str, str]
    tags: Mapping[str, str]
    """Tag to column."""


@dataclass(frozen=True)
class Parsed:
    """One row: a prompt with notes, or a fault."""

    number: int
    prompt: Prompt | None = None
    fault: str = ""
    notes: list[str] = field(default_factory=list)


def find_prompt_columns(path: Path, given: Mapping[str, str], tags: Sequence[str], where: Where) -> PromptColumns:
    """Look at the first rows of a file.

    Args:
        given: columns that the user named.
        tags: further columns to keep as tags.

    Raises:
        StoreError: no column holds the prompts or the answers, or one that was named is not there.
    """
    sample = sample_of(path, where)
    fields = find_columns(path.name, sample, ALIASES, given)
    for needed in ("prompt", "answer"):
        if needed not in fields:
            raise missing_column(path.name, sample, needed, ALIASES[needed])
    known = [column for column in TAGS if column not in fields.values()]
    found: dict[str, str] = {}
    for column in (*known, *tags):
        held = any(_is_plain(lookup(row.values, column)) for row in sample)
        if held and (column in tags or column.rpartition(".")[2] not in found):
            found[column.rpartition(".")[2]] = column
        elif column in tags:
            raise missing_column(path.name, sample, f"tag {column}", [column])
    return PromptColumns(fields, found)


def parse_prompts(path: Path, columns: PromptColumns, where: Where) -> Iterator[Parsed]:
    """Every chosen row of a file."""
    for row in read_rows(path):
        if where(row):
            yield parse_prompt(row, columns)


def parse_prompt(row: Row, columns: PromptColumns) -> Parsed:
    """One row."""
    if row.fault:
        return Parsed(row.number, fault=row.fault)
    notes: list[str] = []
    try:
        system, messages = _problem(lookup(row.values, columns.fields["prompt"]), notes)
        answer, about_answer = answer_text(_or_none(row.values, columns.fields["answer"]))
    except (PromptError, AnswerError) as error:
        return Parsed(row.number, fault=str(error))
    text, instruction = split_instruction(messages[-1][1])
    messages[-1] = (messages[-1][0], clean(text))
    if instruction:
        notes.append("known instructions behind the problem, kept apart from it")
    prompt = Prompt(
        messages=messages,
        answer=answer,
        system=system or _text(row.values, columns.fields.get("system")),
        instruction=instruction or _text(row.values, columns.fields.get("instruction")),
        tags=json.dumps(_tags(row.values, columns.tags), ensure_ascii=False),
    )
    return Parsed(row.number, prompt, notes=[*notes, *about_answer])


def read_problem(value: Any) -> list[Message]:
    """The problem in a logged prompt: its messages, without system prompt and known instruction.

    Raises:
        PromptError: there is none.
    """
    _, messages = _problem(value, [])
    role, text = messages[-1]
    return [*messages[:-1], (role, clean(split_instruction(text)[0]))]


def _problem(value: Any, notes: list[str]) -> tuple[str, list[Message]]:
    """System prompt and messages."""
    if value is MISSING or value is None:
        raise PromptError("the prompt is null" if value is None else "there is no prompt")
    messages = _messages(value)
    turns = split_turns(messages[-1][1])
    if turns is not None:
        messages = [*messages[:-1], *turns]
        notes.append("chat templates in the text, read as messages")
    for _, text in messages:
        notes += [note for note in text_notes(text) if note not in notes]
    system = "\n\n".join(clean(text) for role, text in messages if role in ("system", "developer"))
    rest = [(role, clean(text)) for role, text in messages if role not in ("system", "developer")]
    if not rest:
        raise PromptError("there is nothing but a system prompt")
    _check(messages, rest)
    return system, rest


def _check(messages: list[Message], rest: list[Message]) -> None:
    for role, text in messages:
        if role not in _ROLES:
            raise PromptError(f"a message has role {role!r}; known are {', '.join(_ROLES)}")
        fault = text_fault(text)
        if fault:
            raise PromptError("the prompt is empty" if fault == "empty" else f"prompt: {fault}")
    if rest[-1][0] != "user":
        raise PromptError("the last message is the assistant's: nothing is left to answer")


def _messages(value: Any) -> list[Message]:
    """A prompt as messages: text, a list of messages, or that list as JSON in a text."""
    if isinstance(value, str) and value.lstrip().startswith("[{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return [("user", value)]
    if isinstance(value, str):
        return [("user", value)]
    if not isinstance(value, list):
        raise PromptError(f"the prompt is no text and no list of messages, but {type(value).__name__}")
    if not value:
        raise PromptError("the prompt is an empty list of messages")
    return [_message(one) for one in value]


def _message(value: Any) -> Message:
    if not isinstance(value, Mapping) or not isinstance(value.get("role"), str):
        raise PromptError("the prompt is a list, and not of messages with role and content")
    content = value.get("content")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if not all(isinstance(part, str) for part in parts):
            raise PromptError("a message holds something but text")
        content = "\n".join(str(part) for part in parts)
    if not isinstance(content, str):
        raise PromptError("a message has no text")
    return value["role"], content


def _or_none(values: Mapping[str, Any], column: str) -> Any:
    found = lookup(values, column)
    return None if found is MISSING else found


def _text(values: Mapping[str, Any], column: str | None) -> str:
    found = _or_none(values, column) if column else None
    return clean(found) if isinstance(found, str) and not text_fault(found) else ""


def _tags(values: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    found = {tag: lookup(values, column) for tag, column in columns.items()}
    return {tag: value for tag, value in found.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    """Whether a value can be a tag: a number or text that JSON can hold."""
    if isinstance(value, str):
        return not has_half_pair(value)
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
