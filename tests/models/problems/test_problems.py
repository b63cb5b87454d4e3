import json
import random

import pytest

from models.problems import BUILTIN, arithmetic, countdown
from models.problems.countdown import MAX_NUMBER, MAX_TARGET, problem_text


def keys(problems) -> set:
    found = [json.loads(problem.answer) for problem in problems]
    return {(tuple(sorted(answer["numbers"])), answer["target"]) for answer in found}


def make_countdown(size: int, split: str, seed: int = 5):
    return countdown.make_problems(size, split=split, min_numbers=3, max_numbers=4, seed=seed)


def test_a_countdown_problem_is_worded_from_its_answer():
    for problem in make_countdown(20, "pool"):
        answer = json.loads(problem.answer)
        assert problem.text == problem_text(answer["numbers"], answer["target"])
        assert len(answer["numbers"]) in (3, 4) and problem.tags["numbers"] == len(answer["numbers"])
        assert max(answer["numbers"]) <= MAX_NUMBER and 1 <= answer["target"] <= MAX_TARGET
        assert (problem.reward, problem.instruction) == ("countdown", countdown.INSTRUCTION)


def test_the_same_seed_gives_the_same_different_problems():
    first, second = make_countdown(60, "pool"), make_countdown(60, "pool")
    assert first == second
    assert len(keys(first)) == 60
    assert len(keys(first) & keys(make_countdown(60, "pool", seed=6))) < 10


def test_countdown_splits_share_no_problem():
    splits = [keys(make_countdown(60, split)) for split in ("pool", "heldout", "warmup")]
    assert len(set.union(*splits)) == 180


def test_a_split_does_not_depend_on_the_order_of_numbers():
    rng = random.Random(0)
    for _ in range(50):
        numbers = [rng.randint(1, 20) for _ in range(4)]
        shuffled = rng.sample(numbers, 4)
        assert countdown.split_of(numbers, 24) == countdown.split_of(shuffled, 24)


def test_asking_for_more_problems_than_there_are_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(countdown, "_draw", lambda *arguments: iter([([1, 2], 3), ([2, 1], 3)]))
    with pytest.raises(ValueError, match="only 1 of 2 different Countdown problems"):
        countdown.make_problems(2, split=countdown.split_of([1, 2], 3), min_numbers=2, max_numbers=2, seed=0)


def test_arithmetic_is_worded_with_its_right_answer():
    for problem in arithmetic.make_problems(50, split="pool", seed=3):
        tokens = ["+", *problem.text.removesuffix(" =").split()]
        terms = [int(sign + number) for sign, number in zip(tokens[::2], tokens[1::2], strict=True)]
        assert str(sum(terms)) == problem.answer
        assert len(terms) in (2, 3) and max(map(abs, terms)) < 100
        assert problem.reward == "arithmetic"


def test_arithmetic_splits_share_no_problem_in_any_order():
    def terms(problem) -> tuple[str, ...]:
        tokens = ["+", *problem.text.removesuffix(" =").split()]
        return tuple(sorted(map("".join, zip(tokens[::2], tokens[1::2], strict=True))))

    pool, heldout = BUILTIN["arithmetic-pool"](), BUILTIN["arithmetic-heldout"]()
    assert (len(pool), len(heldout)) == (1000, 200)
    assert len({terms(problem) for problem in pool + heldout}) == 1200


@pytest.mark.slow
def test_countdown_pool_and_heldout_are_disjoint_and_of_the_promised_size():
    pool, heldout = BUILTIN["countdown-pool"](), BUILTIN["countdown-heldout"]()
    assert (len(keys(pool)), len(keys(heldout))) == (2000, 1000)
    assert not keys(pool) & keys(heldout)
