"""The Countdown verifier: parses the answer, and computes it with exact fractions.

The answer is model output, so it is data: its characters are checked against a
short list, its syntax tree is walked node by node, and nothing is ever
evaluated.
"""

import ast
import json
import re
from fractions import Fraction

from models.records import Verdict
from models.rewards.extract import final_answer

MAX_ANSWER_CHARS = 256
_ALLOWED = re.compile(r"[0-9+\-*/() ]+")
_TYPOGRAPHY = str.maketrans({"×": "*", "÷": "/", "−": "-", "\u2013": "-"})


def verify_countdown(response: str, answer: str) -> Verdict:
    """Score a response against `{"numbers": [...], "target": n}`.

    Success means: the last answer in the response is an expression of the four
    operations over exactly the given numbers, each used once, and equals the
    target. A sign before a term is allowed, and so is a right-hand side, `= 41`,
    which is not read. Anything else is a wrong answer, not an error.
    """
    problem = json.loads(answer)
    found = final_answer(response) or ""
    parsed = _parse(found.split("=")[0].translate(_TYPOGRAPHY).strip())
    if parsed is None:
        return Verdict(reward=0.0, success=False, parts={"parsed": 0.0})
    value, used = parsed
    success = sorted(used) == sorted(problem["numbers"]) and value == problem["target"]
    return Verdict(reward=float(success), success=success, parts={"parsed": 1.0})


def _parse(expression: str) -> tuple[Fraction, list[int]] | None:
    """Exact value and the numbers used, or None when it is no arithmetic expression."""
    if len(expression) > MAX_ANSWER_CHARS or not _ALLOWED.fullmatch(expression):
        return None
    try:
        tree = ast.parse(expression, mode="eval")
        used: list[int] = []
        return _value(tree.body, used), used
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, used: list[int]) -> Fraction:
    match node:
        case ast.Constant(value=int(number)):
            used.append(number)
            return Fraction(number)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, used)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, used)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left, used) + _value(right, used)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _value(left, used) - _value(right, used)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _value(left, used) * _value(right, used)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _value(left, used) / _value(right, used)
        case _:
            raise ValueError(f"{type(node).__name__} is not arithmetic")
