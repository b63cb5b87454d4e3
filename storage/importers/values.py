"""Numbers of a history as files write them: of their own type, or as text."""

import math
from typing import Any

from storage.importers.columns import MISSING
from storage.importers.faults import one_line

_TRUTHS = {"true": 1.0, "false": 0.0}
MAX_WHOLE = 10**8
"""No count and no step is larger."""


class ValueFault(ValueError):
    """A value that cannot be used; the message says why."""


def whole(value: Any, what: str) -> int:
    """A count or a step.

    Raises:
        ValueFault: it is no whole number from 0 to `MAX_WHOLE`.
    """
    number = _number(value)
    if number is None or not 0 <= number <= MAX_WHOLE or not float(number).is_integer():
        raise ValueFault(f"{what} is {_show(value)}, no whole number from 0 to {MAX_WHOLE:,}")
    return int(number)


def maybe_whole(value: Any, what: str) -> int | None:
    """A count, rounded when it is a mean; None when there is none.

    Raises:
        ValueFault: it is no number from 0 to `MAX_WHOLE`.
    """
    if value is MISSING or value is None or value == "":
        return None
    number = _number(value)
    if number is None or not 0 <= number <= MAX_WHOLE:
        raise ValueFault(f"{what} is {_show(value)}, no number from 0 to {MAX_WHOLE:,}")
    return round(number)


def score(value: Any) -> float | None:
    """A score; None when it is null, NaN or infinite.

    Raises:
        ValueFault: it is no number at all.
    """
    if value is None or value == "":
        return None
    number = _number(value)
    if number is None:
        raise ValueFault(f"the score is {_show(value)}, no number")
    return float(number) if math.isfinite(number) else None


def _number(value: Any) -> float | int | None:
    if isinstance(value, str):
        text = value.strip().lower()
        if text in _TRUTHS:
            return _TRUTHS[text]
        try:
            return float(text)
        except ValueError:
            return None
    if isinstance(value, int):
        return value if abs(value) <= 2**63 else math.inf if value > 0 else -math.inf
    return value if isinstance(value, float) else None


def _show(value: Any) -> str:
    if value is MISSING:
        return "missing"
    return one_line(repr(value), 40)
