"""Finds the prompt of a dataset that a row of a foreign history means."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from storage.errors import StoreError
from storage.importers.columns import MISSING, lookup
from storage.importers.prompts import PromptError, read_problem
from storage.importers.texts import readings
from storage.importers.values import ValueFault, whole
from storage.prompts import prompt_id

_KEYS = ("unique_id", "id", "index", "idx", "split")
"""Tags that may tell prompts apart, most telling first."""


class Matcher:
    """The prompts of a dataset by text, by id, by position and by tags."""

    def __init__(self, dataset: str, prompts: pa.Table, keys: Mapping[str, str]) -> None:
        """Match by text and id; by the tags of `keys` too, each of which is in a column of the file.

        Raises:
            StoreError: a prompt lacks a tag, or the tags do not tell all prompts apart.
        """
        self._dataset = dataset
        self._ids: list[str] = prompts["prompt_id"].to_pylist()
        self._known = set(self._ids)
        self._tags = [json.loads(text or "{}") for text in prompts["tags"].to_pylist()]
        self._of_text: dict[str, str | None] = {}
        self.keys = dict(keys)
        self._of_key = self._by_tags(list(keys)) if keys else {}

    def use_tags_of(self, columns: Sequence[str]) -> None:
        """Match by tags that are also columns of a file, when these tell all prompts apart."""
        shared = [key for key in _KEYS if key in columns and all(key in tags for tags in self._tags)]
        for wanted in (*([key] for key in shared), shared):
            if wanted and len({self._key(tags, wanted) for tags in self._tags}) == len(self._tags):
                self.keys = {tag: tag for tag in wanted}
                self._of_key = self._by_tags(wanted)
                return

    def find(self, values: Mapping[str, Any], fields: Mapping[str, str]) -> tuple[str | None, bool]:
        """`prompt_id` of a row, None where there is none; and whether its key is of a prompt with another text.

        Raises:
            ValueFault: the row says nothing of its prompt.
        """
        by_key = self._by_key(values, fields)
        if "prompt" not in fields:
            return by_key, False
        by_text = self._by_text(lookup(values, fields["prompt"]))
        return by_text, by_text is None and by_key is not None

    def _by_key(self, values: Mapping[str, Any], fields: Mapping[str, str]) -> str | None:
        if "prompt_id" in fields:
            found = lookup(values, fields["prompt_id"])
            return found if isinstance(found, str) and found in self._known else None
        if self.keys:
            return self._of_key.get(tuple(_plain(lookup(values, column)) for column in self.keys.values()))
        return self._at(lookup(values, fields["position"])) if "position" in fields else None

    def _by_text(self, value: Any) -> str | None:
        if value is MISSING or value is None:
            raise ValueFault("there is no prompt")
        if isinstance(value, int) and not isinstance(value, bool):
            return self._at(value)
        if isinstance(value, str):
            if value not in self._of_text:
                self._of_text[value] = value if value in self._known else self._among(value)
            return self._of_text[value]
        try:
            return self._known_id(read_problem(value))
        except PromptError as error:
            raise ValueFault(str(error)) from None

    def _among(self, text: str) -> str | None:
        return next((found for messages in readings(text) if (found := self._known_id(messages))), None)

    def _known_id(self, messages: Sequence[tuple[str, str]]) -> str | None:
        found = prompt_id(messages)
        return found if found in self._known else None

    def _at(self, value: Any) -> str | None:
        position = whole(value, "the position")
        return self._ids[position] if position < len(self._ids) else None

    def _by_tags(self, wanted: Sequence[str]) -> dict[tuple[str, ...], str]:
        """Prompts by their tags.

        Raises:
            StoreError: a prompt lacks one, or two prompts have the same.
        """
        found: dict[tuple[str, ...], str] = {}
        for identity, tags in zip(self._ids, self._tags, strict=True):
            lacking = [tag for tag in wanted if tag not in tags]
            if lacking:
                raise StoreError(
                    f"dataset {self._dataset}: prompt {identity} has no tag {lacking[0]}; its tags: "
                    f"{', '.join(tags) or 'none'}"
                )
            if found.setdefault(self._key(tags, wanted), identity) != identity:
                raise StoreError(
                    f"dataset {self._dataset}: prompts {found[self._key(tags, wanted)]} and {identity} have the same "
                    f"{', '.join(wanted)}: match by more tags"
                )
        return found

    def _key(self, tags: Mapping[str, Any], wanted: Sequence[str]) -> tuple[str, ...]:
        return tuple(_plain(tags[tag]) for tag in wanted)


def _plain(value: Any) -> str:
    """Tags are compared as text; 7.0 is 7."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
