"""The arithmetic verifier: compares the last number of the answer with the reference, exactly."""

import re
from collections import deque
from fractions import Fraction

from models.records import Verdict
from models.rewards.extract import final_answer

MAX_NUMBER_CHARS = 64
MAX_EXPONENT_CHARS = 3

# A hyphen is a sign unless it stands right behind a term, as in `7-3`; a digit
# right behind a letter, as in `x2`, is part of a name, and `1_000` is no number.
_NUMBER = re.compile(
    r"(?:(?<![0-9A-Za-z_)\]])[-+])?(?<![0-9A-Za-z_])"
    r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]++)(?!_)(?:\.[0-9]+)?"
    r"(?:[eE][-+]?(?P<exponent>[0-9]+)|/(?P<divisor>[0-9]+))?"
)
_TYPOGRAPHY = str.maketrans({"−": "-", "\u2013": "-", "\u2044": "/"})


def verify_arithmetic(response: str, answer: str) -> Verdict:
    """Score a response against a number such as `-4`, `1,234`, `4.0` or `2/3`.

    Raises:
        ValueError: the reference answer is no number.
    """
    expected = last_number(answer)
    if expected is None:
        raise ValueError(f"reference answer {answer[:MAX_NUMBER_CHARS]!r} is no number")
    found = last_number(final_answer(response) or "")
    success = found == expected
    return Verdict(reward=float(success), success=success, parts={"parsed": float(found is not None)})


def is_number(text: str) -> bool:
    """Whether a text is one number and nothing else, be it too long to be read."""
    return _NUMBER.fullmatch(text.strip().translate(_TYPOGRAPHY)) is not None


def last_number(text: str) -> Fraction | None:
    """The last number in a text, None when there is none or it is too long to be an answer."""
    matches = deque(_NUMBER.finditer(text.translate(_TYPOGRAPHY)), maxlen=1)
    if not matches:
        return None
    number = matches[0]
    if len(number[0]) > MAX_NUMBER_CHARS or len(number["exponent"] or "") > MAX_EXPONENT_CHARS:
        return None
    try:
        return Fraction(number[0].replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return None
