"""How a history that was not made here will be read: its format, its columns, and how its prompts are found."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage.errors import StoreError
from storage.files import file_digest
from storage.importers.columns import Where, check_columns, columns_of, find_columns, missing_column
from storage.importers.formats import FORMATS, check_format, detect_format, find_score, reward_columns
from storage.importers.matching import Matcher
from storage.importers.outcomes import HistoryColumns
from storage.importers.sources import Row, expand, natural, sample_of
from storage.layout import Layout, check_name
from storage.prompts import read_dataset


@dataclass(frozen=True)
class ImportRequest:
    """What a user asks for."""

    files: Sequence[Path]
    dataset: str
    run: str
    format: str = "auto"
    columns: Mapping[str, str] = field(default_factory=dict)
    """Field to column, as the user named them."""
    where: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    """Tag of a prompt to the column that has it."""
    threshold: float | None = None
    """The least score that is a success; None where scores are 0 or 1."""
    model: str | None = None
    temperature: float | None = None
    skip_bad: bool = False


@dataclass(frozen=True)
class ImportPlan:
    """How a request will be read."""

    request: ImportRequest
    digests: Mapping[Path, str]
    """SHA-256 of each file, in the order in which they are read."""
    format: str
    columns: HistoryColumns
    matcher: Matcher

    @property
    def files(self) -> Sequence[Path]:
        """The files, in the order in which they are read."""
        return list(self.digests)

    @property
    def source(self) -> dict[str, Any]:
        """What a run file says of where its outcomes come from, and how they were read."""
        facts = {
            "files": [{"name": path.name, "sha256": digest} for path, digest in self.digests.items()],
            "format": self.format,
            "dataset": self.request.dataset,
            "columns": dict(self.columns.fields),
            "where": dict(self.request.where),
            "matched_by": self.matcher.keys,
            "success_threshold": self.columns.threshold,
        }
        return storable(facts)

    def check_unchanged(self) -> None:
        """Refuse what was read when it may not be what was digested.

        Raises:
            StoreError: a file has other content now, or is gone.
        """
        for path, digest in self.digests.items():
            if _digest(path) != digest:
                raise StoreError(
                    f"{path} changed while it was read: nothing was imported; run again when nobody writes to it"
                )


def storable(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts as JSON gives them back, with what is no Unicode text replaced: names of files may hold anything."""
    found: dict[str, Any] = json.loads(json.dumps(facts, ensure_ascii=False).encode("utf-8", "replace"))
    return found


def plan_import(layout: Layout, request: ImportRequest) -> ImportPlan:
    """Find out how files are to be read.

    Raises:
        StoreError: the dataset, a file or a column is not there.
    """
    check_name("run", request.run)
    _check_numbers(request)
    digests = _digests(expand(request.files))
    files = list(digests)
    sample = sample_of(files[0], Where(request.where))
    name = detect_format(sample) if request.format == "auto" else request.format
    check_format(files[0].name, name, sample)
    check_columns(files[0].name, sample, request.keys.values(), "--match")
    matcher = Matcher(request.dataset, read_dataset(layout, request.dataset), request.keys)
    fields = _fields(files[0].name, name, sample, request)
    if not request.keys and not {"prompt_id", "position"} & set(fields):
        matcher.use_tags_of(columns_of(sample))
    if not {"prompt", "prompt_id", "position"} & set(fields) and not matcher.keys:
        raise missing_column(files[0].name, sample, "prompt", FORMATS[name].aliases["prompt"])
    taken = [*fields.values(), *matcher.keys.values(), *request.where]
    parts = reward_columns(name, sample, taken) if FORMATS[name].keeps_parts else []
    columns = HistoryColumns(fields, parts, request.threshold)
    return ImportPlan(request, digests, name, columns, matcher)


def _check_numbers(request: ImportRequest) -> None:
    if request.threshold is not None and not math.isfinite(request.threshold):
        raise StoreError(f"--success-threshold {request.threshold} is no number")
    if request.temperature is not None and not 0 <= request.temperature < math.inf:
        raise StoreError(f"--temperature {request.temperature} is no number from 0 on")


def _digests(files: Sequence[Path]) -> dict[Path, str]:
    """SHA-256 of each file, in an order that does not depend on the one given: it numbers the samples of a group.

    Raises:
        StoreError: two have the same content, which would count twice.
    """
    first: dict[str, Path] = {}
    for path in files:
        digest = _digest(path)
        if digest in first:
            other = first[digest]
            same = f"{path} is named twice: name it once" if path == other else ""
            raise StoreError(same or f"{path} has the content of {other}: name one of them")
        first[digest] = path
    ordered = sorted(first.items(), key=lambda found: (natural(found[1]), found[0]))
    return {path: digest for digest, path in ordered}


def _digest(path: Path) -> str:
    try:
        return file_digest(path)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def _fields(file: str, name: str, sample: Sequence[Row], request: ImportRequest) -> dict[str, str]:
    """The column of each field that is read.

    Raises:
        StoreError: there is no telling what a success is.
    """
    aliases = FORMATS[name].aliases
    fields = find_columns(file, sample, aliases, request.columns)
    if name == "table":
        return _table_fields(file, sample, fields)
    if "score" not in fields:
        fields["score"] = find_score(file, name, sample, list(fields.values()))
    return fields


def _table_fields(file: str, sample: Sequence[Row], fields: dict[str, str]) -> dict[str, str]:
    """A table has counts, or a score for each rollout; of what both could be, counts win."""
    counted = "successes" in fields or "rate" in fields
    if counted and "attempts" in fields:
        dropped = ["score", "reward", "response", *(["rate"] if "successes" in fields else [])]
    elif "score" in fields:
        dropped = ["successes", "rate", "attempts"]
    else:
        needed = "attempts" if counted else "successes"
        raise missing_column(file, sample, needed, FORMATS["table"].aliases[needed])
    return {field: column for field, column in fields.items() if field not in dropped}
