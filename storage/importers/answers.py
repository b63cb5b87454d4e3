"""Reference answers as files hold them, made the text that a verifier reads."""

import json
import math
from collections.abc import Mapping
from typing import Any

from storage.importers.texts import clean, text_fault

_BOXED = "\\boxed{"
_EXACT = 2**53
"""Below this every whole number is a float of its own."""


class AnswerError(ValueError):
    """An answer that cannot be used; the message says why."""


def answer_text(value: Any) -> tuple[str, list[str]]:
    """The answer as text, and notes on what was done to it.

    Raises:
        AnswerError: there is none, or which it is cannot be told.
    """
    notes = []
    while isinstance(value, list) and len(value) == 1:
        value, notes = value[0], ["answers that are lists of one, taken out"]
    if value is None:
        raise AnswerError("the answer is null")
    if isinstance(value, list):
        raise AnswerError(f"the answer is a list of {len(value)}: which one counts, it does not say")
    if isinstance(value, Mapping):
        return _json(value), [*notes, "answers that are objects, kept as JSON"]
    if isinstance(value, str):
        text, cut = _from_solution(value)
        return _checked(text), [*notes, *cut, *_separators(text)]
    return _number(value), notes


def _json(value: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        raise AnswerError("the answer holds a NaN or infinity") from None
    return _checked(text)


def _number(value: Any) -> str:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise AnswerError(f"the answer is {value}, which is no number")
        return str(int(value)) if value.is_integer() and abs(value) < _EXACT else repr(value)
    return str(value)


def _checked(text: str) -> str:
    fault = text_fault(text)
    if fault:
        raise AnswerError("the answer is empty" if fault == "empty" else f"answer: {fault}")
    return clean(text)


def _from_solution(text: str) -> tuple[str, list[str]]:
    """The final answer of a worked solution: what follows `####` on its last line, or what is in its last box."""
    before, mark, after = text.rpartition("####")
    if mark and before.strip() and "\n" not in after.strip():
        return after, ["answers cut to what follows ####"]
    boxed = _last_boxed(text)
    return (boxed, ["answers cut to the last \\boxed{}"]) if boxed is not None else (text, [])


def _last_boxed(text: str) -> str | None:
    start = text.rfind(_BOXED)
    if start < 0:
        return None
    depth = 1
    for position in range(start + len(_BOXED), len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start + len(_BOXED) : position]
    return None


def _separators(text: str) -> list[str]:
    digits = text.strip().replace("\\!", "").replace("{,}", ",")
    grouped = "," in digits and digits.replace(",", "").replace(".", "").lstrip("-$").isdecimal()
    return ["answers with thousands separators, kept"] if grouped else []
