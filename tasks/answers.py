"""Which reward a reference answer is meant for: the form of answer that each verifier reads."""

import json
from collections.abc import Callable, Mapping

from models.rewards.arithmetic import is_number, last_number

UNTOLD = "none"
"""Reward of a dataset whose answers no verifier reads: it can be forecast and imported to, not trained on."""


def is_readable_number(answer: str) -> bool:
    """Whether an answer is one number: the arithmetic verifier takes the last one of any text."""
    return is_number(answer) and last_number(answer) is not None


def is_game(answer: str) -> bool:
    """Whether an answer is `{"numbers": [...], "target": n}`, as the Countdown verifier reads it."""
    try:
        game = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    if not isinstance(game, dict) or not isinstance(game.get("numbers"), list):
        return False
    return all(type(number) is int for number in (*game["numbers"], game.get("target")))


FORMS: Mapping[str, Callable[[str], bool]] = {"countdown": is_game, "arithmetic": is_readable_number}
"""Rewards that can be told from an answer, the most particular first."""


def reads(reward: str, answer: str) -> bool:
    """Whether an answer has the form that a reward needs; True where none is known."""
    return reward not in FORMS or FORMS[reward](answer)
