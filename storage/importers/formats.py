"""Histories as others write them: which columns tell a format, and which hold what.

- `table`: a row a prompt and step, with successes and attempts, or a row a rollout with its score.
- `trl`: `completions_*.parquet` of `log_completions`; a column for each reward function.
- `verl`: `rollout_data_dir/<step>.jsonl`; a row a rollout, with its score and what the scorer added.
- `lm-eval`: `samples_<task>_*.jsonl` of lm-evaluation-harness; a row a document and filter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.errors import StoreError
from storage.importers.columns import MISSING, columns_of, lookup
from storage.importers.prompts import ALIASES
from storage.importers.sources import Row

_COMMON: Mapping[str, Sequence[str]] = {
    "prompt_id": ("prompt_id",),
    "step": ("step", "global_step", "training_step"),
    "score": (),
    "reward": (),
    "response": (),
    "tokens": ("response_tokens", "completion_tokens", "mean_tokens", "num_tokens", "tokens"),
    "prompt_tokens": ("prompt_tokens",),
    "model": ("model", "model_name"),
    "temperature": ("temperature",),
}


@dataclass(frozen=True)
class Format:
    """How a kind of history names its columns."""

    marks: tuple[str, ...]
    """Columns that all of its files have."""
    aliases: Mapping[str, Sequence[str]]
    """Columns that may hold a field, most telling first."""
    ignored: tuple[str, ...] = ()
    """Columns of numbers that are no reward."""
    keeps_parts: bool = True
    """Whether its further columns of numbers are parts of the reward."""


FORMATS: Mapping[str, Format] = {
    "lm-eval": Format(
        marks=("doc", "resps"),
        aliases={
            **_COMMON,
            "prompt": tuple(f"doc.{column}" for column in ALIASES["prompt"]),
            "response": ("resps",),
            "filter": ("filter",),
        },
        ignored=("doc_id", "target"),
    ),
    "verl": Format(
        marks=("input", "output", "score"),
        aliases={**_COMMON, "prompt": ("input",), "score": ("acc", "score"), "reward": ("score",),
                 "response": ("output",)},
    ),
    "trl": Format(
        marks=("step", "prompt", "completion"),
        aliases={**_COMMON, "prompt": ("prompt",), "response": ("completion",)},
        ignored=("advantage",),
    ),
    "table": Format(
        marks=(),
        aliases={
            **_COMMON,
            "prompt": ALIASES["prompt"],
            "position": ("position",),
            "successes": ("successes", "n_correct", "num_correct", "n_success", "passed"),
            "attempts": ("attempts", "k", "n", "n_samples", "num_samples", "samples", "rollouts", "n_total"),
            "rate": ("success_rate", "pass_rate", "solve_rate"),
            "score": ("success", "is_correct", "correct", "score", "reward"),
            "response": ("response", "completion", "output"),
        },
        keeps_parts=False,
    ),
}  # fmt: skip
"""Formats by name, the most particular first."""

_PREFERRED = ("accuracy", "correct", "exact_match", "acc", "math_verify", "pass@1")
"""Words in the names of rewards that say whether an answer is right."""


def detect_format(sample: Sequence[Row]) -> str:
    """The first format whose columns are all there."""
    names = columns_of(sample)
    return next(name for name, one in FORMATS.items() if set(one.marks) <= set(names))


def check_format(file: str, name: str, sample: Sequence[Row]) -> None:
    """Refuse a format whose columns are not there.

    Raises:
        StoreError: names them.
    """
    names = columns_of(sample)
    lacking = [mark for mark in FORMATS[name].marks if mark not in names]
    if lacking:
        raise StoreError(
            f"{file} is no {name} log: it has no column {', '.join(lacking)}; its columns: {', '.join(names)}"
        )


def find_score(file: str, format_: str, sample: Sequence[Row], taken: Sequence[str]) -> str:
    """The column that says whether a rollout succeeded, where the format names each reward as it likes.

    Raises:
        StoreError: there is none, or which of several it is cannot be told.
    """
    found = reward_columns(format_, sample, taken)
    preferred = [one for word in _PREFERRED for one in found if word in one.lower()]
    if len(found) == 1 or len(set(preferred)) == 1:
        return (preferred or found)[0]
    if not found:
        raise StoreError(f"{file}: found no column of rewards; its columns: {', '.join(columns_of(sample))}")
    raise StoreError(
        f"{file}: which of the rewards {', '.join(found)} says that an answer is right? Name it with --map score=COLUMN"
    )


def reward_columns(format_: str, sample: Sequence[Row], taken: Sequence[str]) -> list[str]:
    """Columns of numbers that no other field takes; of an lm-eval log, its metrics."""
    if format_ == "lm-eval":
        listed = lookup(sample[0].values, "metrics")
        names = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else columns_of(sample)
    else:
        names = columns_of(sample)
    left_out = {*taken, *FORMATS[format_].ignored}
    return [name for name in names if name not in left_out and _holds_numbers(sample, name)]


def _holds_numbers(sample: Sequence[Row], column: str) -> bool:
    found = [lookup(row.values, column) for row in sample]
    held = [value for value in found if value is not MISSING and value is not None]
    return bool(held) and all(_is_number(value) for value in held)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
