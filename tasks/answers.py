"""Which reward a reference answer is meant for: what a verifier can read."""

from collections.abc import Callable, Mapping

from models.rewards import VERIFIERS
from models.rewards.arithmetic import is_number
from models.rewards.base import score

UNTOLD = "none"
"""Reward of a dataset whose answers no verifier reads: it can be forecast and imported to, not trained on."""

_PROBE = "<answer>0</answer>"


def reads(reward: str, answer: str) -> bool:
    """Whether the verifier of a reward can use a reference answer; True where there is no such verifier."""
    if reward not in VERIFIERS:
        return True
    return _has_form(reward, answer) and score(VERIFIERS[reward], _PROBE, answer)[1] != "error"


def readers() -> Mapping[str, Callable[[str], bool]]:
    """What tells for rewards that answers show whether it can use an answer: the rewards that an answer shows."""
    return {reward: reader(reward) for reward in ("countdown", "arithmetic")}


def reader(reward: str) -> Callable[[str], bool]:
    """What tells whether a reward can use an answer."""
    return lambda answer: reads(reward, answer)


def _has_form(reward: str, answer: str) -> bool:
    """The arithmetic verifier looks for the last number of any text; a reference must be a number, and no more."""
    return reward != "arithmetic" or is_number(answer)
