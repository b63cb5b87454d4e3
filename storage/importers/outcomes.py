"""Reads a foreign history into outcomes: one row a rollout, matched to the prompts of a dataset."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from storage.importers.columns import MISSING, Where, lookup
from storage.importers.faults import Fault, one_line
from storage.importers.matching import Matcher
from storage.importers.sources import Row, read_rows
from storage.importers.values import ValueFault, maybe_whole, score, whole

OUTCOMES = pa.schema(
    {
        "step": pa.int64(),
        "prompt_id": pa.string(),
        "reward": pa.float64(),
        "success": pa.bool_(),
        "parts": pa.string(),
        "response": pa.large_string(),
        "prompt_tokens": pa.int32(),
        "response_tokens": pa.int32(),
    }
)
SINGLE = ("model", "temperature", "filter")
"""Fields of which a run has one value."""
_CHUNK = 50_000
MAX_ATTEMPTS = 100_000
"""Rollouts that one row may stand for."""


@dataclass(frozen=True)
class HistoryColumns:
    """How the rows of a history are read."""

    fields: Mapping[str, str]
    parts: Sequence[str]
    """Columns of numbers that are kept as parts of the reward."""
    threshold: float | None
    """The least score that is a success; None where scores are 0 or 1."""


@dataclass
class Reading:
    """What the rows of a history were."""

    rows: int = 0
    matched: int = 0
    unmatched: list[str] = field(default_factory=list)
    """Rows whose prompt the dataset does not have."""
    changed: list[str] = field(default_factory=list)
    """Rows whose key is that of a prompt with another text."""
    faults: list[Fault] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    """Outcomes by `OUTCOMES`, in the order of the rows."""
    groups: dict[tuple[int, str], tuple[Path, int]] = field(default_factory=dict)
    """File and row of the groups that a single row tells of."""
    single: dict[str, set[str]] = field(default_factory=dict)
    """Values of the fields of which a run has one."""

    def table(self) -> pa.Table:
        """The outcomes; step 0 of a history moves all steps by one, since step 0 of a run has no rollouts."""
        table = pa.concat_tables(self.tables)
        if not self.starts_at_zero():
            return table
        return table.set_column(0, OUTCOMES.field("step"), pc.add(table["step"], 1))

    def last_step(self) -> int:
        """The last step as it is stored."""
        return max(int(pc.max(table["step"]).as_py()) for table in self.tables) + self.starts_at_zero()

    def starts_at_zero(self) -> bool:
        """Whether the history counts its steps from 0."""
        return any(pc.min(table["step"]).as_py() == 0 for table in self.tables)


def read_outcomes(path: Path, columns: HistoryColumns, where: Where, matcher: Matcher, reading: Reading) -> None:
    """Add the chosen rows of a file to what was read."""
    rollouts: list[tuple[Any, ...]] = []
    for row in read_rows(path):
        if not where(row):
            continue
        reading.rows += 1
        try:
            rollouts += _read_row(path, row, columns, matcher, reading)
        except ValueFault as fault:
            reading.faults.append(Fault(path.name, row.number, str(fault)))
        if len(rollouts) >= _CHUNK:
            reading.tables.append(_table(rollouts))
            rollouts = []
    if rollouts:
        reading.tables.append(_table(rollouts))


def _table(rollouts: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rollouts, strict=True)
    return pa.table([pa.array(column, one.type) for column, one in zip(columns, OUTCOMES, strict=True)], OUTCOMES)


def _read_row(
    path: Path, row: Row, columns: HistoryColumns, matcher: Matcher, reading: Reading
) -> list[tuple[Any, ...]]:
    """The rollouts of one row, as rows of `OUTCOMES`."""
    if row.fault:
        raise ValueFault(row.fault)
    for name in SINGLE:
        if name in columns.fields:
            value = lookup(row.values, columns.fields[name])
            reading.single.setdefault(name, set()).add(f"{value:g}" if isinstance(value, float) else str(value))
    found, changed = matcher.find(row.values, columns.fields)
    step = whole(lookup(row.values, columns.fields["step"]), "the step") if "step" in columns.fields else 1
    rollouts = list(_rollouts(row.values, columns))
    if found is None:
        said = f"{path.name}:{row.number}: {_describe(row.values, columns.fields)}"
        (reading.changed if changed else reading.unmatched).append(said)
        return []
    if len(rollouts) != 1 or "successes" in columns.fields or "rate" in columns.fields:
        place = path, row.number
        before = reading.groups.setdefault((step, found), place)
        if before != place:
            raise ValueFault(
                f"the prompt of {before[0].name}:{before[1]} again, in the same step; if the file has a column of "
                "steps, name it with --map step=COLUMN"
            )
    reading.matched += 1
    return [(step, found, *values) for values in rollouts]


def _rollouts(values: Mapping[str, Any], columns: HistoryColumns) -> Iterator[tuple[Any, ...]]:
    """Reward, success, parts, response, prompt tokens and response tokens of each rollout that a row tells of."""
    fields = columns.fields
    prompt_tokens = maybe_whole(_value(values, fields, "prompt_tokens"), "prompt_tokens")
    if "attempts" in fields:
        successes, attempts = _counts(values, fields)
        tokens = maybe_whole(_value(values, fields, "tokens"), "tokens")
        for sample in range(attempts):
            yield float(sample < successes), sample < successes, "{}", None, prompt_tokens, tokens
        return
    scores = _many(_value(values, fields, "score"))
    rewards = _many(_value(values, fields, "reward")) if "reward" in fields else scores
    responses = _spread(_value(values, fields, "response"), len(scores), "response")
    tokens_ = _spread(_value(values, fields, "tokens"), len(scores), "tokens")
    if len(rewards) != len(scores):
        raise ValueFault(f"{len(rewards)} rewards for {len(scores)} scores")
    parts = json.dumps({name: score(lookup(values, name)) for name in columns.parts if name in values})
    for found, reward, response, tokens in zip(scores, rewards, responses, tokens_, strict=True):
        number, judged = score(reward), score(found)
        success = None if number is None else _success(judged, columns.threshold)
        yield (
            None if success is None else number, success, parts, _text(response), prompt_tokens,
            maybe_whole(tokens, "tokens"),
        )  # fmt: skip


def _counts(values: Mapping[str, Any], fields: Mapping[str, str]) -> tuple[int, int]:
    attempts = whole(_value(values, fields, "attempts"), "attempts")
    if not 1 <= attempts <= MAX_ATTEMPTS:
        raise ValueFault(f"attempts is {attempts}, not from 1 to {MAX_ATTEMPTS:,}")
    if "successes" in fields:
        successes = whole(_value(values, fields, "successes"), "successes")
    else:
        rate = score(_value(values, fields, "rate"))
        if rate is None or abs(rate * attempts - round(rate * attempts)) > 1e-3:
            raise ValueFault(f"a rate of {rate} is no whole number of {attempts} attempts")
        successes = round(rate * attempts)
    if not 0 <= successes <= attempts:
        raise ValueFault(f"{successes} successes of {attempts} attempts")
    return successes, attempts


def _success(number: float | None, threshold: float | None) -> bool | None:
    if number is None:
        return None
    if threshold is not None:
        return number >= threshold
    if number not in (0.0, 1.0):
        raise ValueFault(f"the score {number:g} is neither 0 nor 1: say what is a success with --success-threshold")
    return number == 1.0


def _value(values: Mapping[str, Any], fields: Mapping[str, str], name: str) -> Any:
    return lookup(values, fields[name]) if name in fields else None


def _many(value: Any) -> list[Any]:
    if value is MISSING:
        raise ValueFault("there is no score")
    if isinstance(value, list) and not value:
        raise ValueFault("the list of scores is empty")
    return value if isinstance(value, list) else [value]


def _spread(value: Any, count: int, what: str) -> list[Any]:
    """One value a rollout: a list of as many, or the one that all share; lists around a single value are opened."""
    while isinstance(value, list) and count == 1:
        if len(value) != 1:
            return [None]
        value = value[0]
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise ValueFault(f"{len(value)} values of {what} for {count} scores")
    return value


def _text(value: Any) -> str | None:
    """A response as text that can be stored."""
    if not isinstance(value, str):
        return None
    return value.encode("utf-8", "replace").decode()


def _describe(values: Mapping[str, Any], fields: Mapping[str, str]) -> str:
    """What a row says of its prompt, short."""
    said = [lookup(values, fields[name]) for name in ("prompt", "prompt_id", "position") if name in fields]
    return one_line(said[0] if said else {**values})
