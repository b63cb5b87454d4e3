"""The datasets that are made on first use. A pool and its held-out set never share a problem."""

from collections.abc import Callable

from models.problems import arithmetic, countdown
from models.records import Problem


def _countdown(size: int, split: str, seed: int) -> list[Problem]:
    return countdown.make_problems(size, split=split, min_numbers=3, max_numbers=4, seed=seed)


BUILTIN: dict[str, Callable[[], list[Problem]]] = {
    "arithmetic-pool": lambda: arithmetic.make_problems(1000, split="pool", seed=1),
    "arithmetic-heldout": lambda: arithmetic.make_problems(200, split="heldout", seed=2),
    "digits-pool": lambda: arithmetic.make_digit_problems(300, split="pool", seed=1),
    "digits-heldout": lambda: arithmetic.make_digit_problems(100, split="heldout", seed=2),
    "countdown-pool": lambda: _countdown(2000, "pool", seed=1),
    "countdown-heldout": lambda: _countdown(1000, "heldout", seed=2),
}
