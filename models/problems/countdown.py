"""Countdown: reach a target from given numbers, each used exactly once.

reasoning-gym invents the problems; this module words them, and deals every
problem to one of three disjoint splits by a hash of its content, so that what
warms a policy up, what trains it and what measures it never meet.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence

from models.records import Problem
from models.seeding import derive_seed

INSTRUCTION = (
    "Combine all the numbers left of the arrow, each exactly once, with + - * / and parentheses, "
    "so that the result equals the number right of the arrow. "
    "Give only the expression, inside <answer></answer>."
)
MAX_NUMBER = 20
MAX_TARGET = 99

# Of every 8 problems, 4 may warm a policy up, 3 may train it, 1 may measure it.
_SPLITS = ("warmup", "warmup", "warmup", "warmup", "pool", "pool", "pool", "heldout")


def split_of(numbers: Sequence[int], target: int) -> str:
    """Split (`warmup`, `pool` or `heldout`) of a problem, the same in every order of its numbers."""
    digest = hashlib.sha256(f"{sorted(numbers)}:{target}".encode()).digest()
    return _SPLITS[digest[0] % len(_SPLITS)]


def problem_text(numbers: Sequence[int], target: int) -> str:
    """Canonical wording, e.g. `3 7 20 -> 41`."""
    return f"{' '.join(map(str, numbers))} -> {target}"


def make_problems(size: int, *, split: str, min_numbers: int, max_numbers: int, seed: int) -> list[Problem]:
    """`size` different problems of one split, in the generator's order.

    Two problems with the same target and the same numbers in another order are one problem.

    Raises:
        ValueError: when the ranges hold too few problems for `size`.
    """
    problems: list[Problem] = []
    seen: set[tuple[tuple[int, ...], int]] = set()
    for numbers, target in _draw(size * 40, min_numbers, max_numbers, seed):
        key = (tuple(sorted(numbers)), target)
        if key in seen or split_of(numbers, target) != split:
            continue
        seen.add(key)
        answer = json.dumps({"numbers": numbers, "target": target})
        problems.append(
            Problem(
                text=problem_text(numbers, target),
                answer=answer,
                reward="countdown",
                instruction=INSTRUCTION,
                tags={"numbers": len(numbers)},
            )
        )
        if len(problems) == size:
            return problems
    raise ValueError(f"only {len(problems)} of {size} different Countdown problems found: ask for fewer")


def _draw(tries: int, min_numbers: int, max_numbers: int, seed: int) -> Iterator[tuple[list[int], int]]:
    import reasoning_gym  # 1 s to import, and needed only when problems are made

    dataset = reasoning_gym.create_dataset(
        "countdown",
        size=tries,
        seed=derive_seed("countdown", seed),  # reasoning-gym adds the index, so neighbouring seeds would overlap
        min_numbers=min_numbers,
        max_numbers=max_numbers,
        min_value=1,
        max_value=MAX_NUMBER,
        min_target=1,
        max_target=MAX_TARGET,
    )
    for index in range(tries):
        metadata = dataset[index]["metadata"]
        yield list(metadata["numbers"]), int(metadata["target"])
