"""Arithmetic: sums and differences of two or three numbers of one or two digits.

reasoning-gym invents the problems; this module words them, and deals every
problem to the pool or the held-out set by a hash of its terms.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from models.records import Problem
from models.seeding import derive_seed

INSTRUCTION = "Give only the resulting number, inside <answer></answer>."
BARE_INSTRUCTION = "Answer with the number only."
MAX_TERMS = 3
MAX_DIGITS = 2

# Of every 4 problems, 3 may train a policy, 1 may measure it.
_SPLITS = ("pool", "pool", "pool", "heldout")


def split_of(expression: str) -> str:
    """Split (`pool` or `heldout`) of an expression, the same in every order of its terms."""
    digest = hashlib.sha256(" ".join(_terms(expression)).encode()).digest()
    return _SPLITS[digest[0] % len(_SPLITS)]


def make_digit_problems(size: int, *, split: str, seed: int) -> list[Problem]:
    """`size` different problems of single digits, worded as a question, for the smallest chat models."""
    return [
        replace(problem, text=f"What is {problem.text.removesuffix(' =')}?", instruction=BARE_INSTRUCTION)
        for problem in make_problems(size, split=split, seed=seed, max_digits=1)
    ]


def make_problems(size: int, *, split: str, seed: int, max_digits: int = MAX_DIGITS) -> list[Problem]:
    """`size` different problems of one split, in the generator's order.

    Two problems with the same terms in another order are one problem. There
    are few of two single digits, so most are longer.

    Raises:
        ValueError: when too few problems were found for `size`.
    """
    problems: list[Problem] = []
    seen: set[tuple[str, ...]] = set()
    for expression, answer in _draw(size * 40, seed, max_digits):
        key = _terms(expression)
        if key in seen or split_of(expression) != split:
            continue
        seen.add(key)
        problems.append(
            Problem(
                text=f"{expression} =",
                answer=answer,
                reward="arithmetic",
                instruction=INSTRUCTION,
                tags={"terms": len(key)},
            )
        )
        if len(problems) == size:
            return problems
    raise ValueError(f"only {len(problems)} of {size} different arithmetic problems found: ask for fewer")


def _terms(expression: str) -> tuple[str, ...]:
    """Signed terms in sorted order: `4 + 9 - 3` is +4, +9, -3."""
    tokens = ["+", *expression.split()]
    return tuple(sorted(sign + number for sign, number in zip(tokens[::2], tokens[1::2], strict=True)))


def _draw(tries: int, seed: int, max_digits: int) -> Iterator[tuple[str, str]]:
    import reasoning_gym  # 1 s to import, and needed only when problems are made

    dataset = reasoning_gym.create_dataset(
        "chain_sum",
        size=tries,
        seed=derive_seed("arithmetic", seed),  # reasoning-gym adds the index, so neighbouring seeds would overlap
        min_terms=2,
        max_terms=MAX_TERMS,
        min_digits=1,
        max_digits=max_digits,
    )
    for index in range(tries):
        item = dataset[index]
        yield item["metadata"]["expression"], item["answer"]
