"""Cool-down and cap: who rests, who comes back first, and that nobody starves."""

import numpy as np
import pytest

from models.acquisition.rest import Visits, candidates_wanted, rested
from models.settings import AcquisitionSettings


def make_visits(size: int, *batches: list[int]) -> Visits:
    visits = Visits.none(size)
    for batch in batches:
        visits.add(np.array(batch, np.int64))
    return visits


def rows(visits: Visits, wanted: int = 1, cooldown: int = 0, cap: int = 0) -> list[int]:
    return rested(visits, wanted, AcquisitionSettings(cooldown=cooldown, cap=cap)).tolist()


def test_an_acquired_prompt_rests_for_as_many_steps_as_asked() -> None:
    visits, found = make_visits(3, [1]), []
    for _ in range(5):
        found.append(1 in rows(visits, cooldown=3))
        visits.add(np.array([0]))
    assert found == [False, False, False, True, True]


def test_without_cooldown_and_cap_all_are_considered() -> None:
    assert rows(make_visits(4, [0, 1], [1, 2])) == [0, 1, 2, 3]


def test_prompts_at_the_cap_are_not_considered() -> None:
    assert rows(make_visits(4, [0, 1], [1, 2], [1]), cap=2) == [0, 2, 3]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(2, [4, 5]), (3, [2, 4, 5]), (4, [1, 2, 4, 5]), (6, [0, 1, 2, 3, 4, 5]), (9, [0, 1, 2, 3, 4, 5])],
)
def test_the_longest_rested_come_back_when_too_few_are_left(wanted: int, expected: list[int]) -> None:
    assert rows(make_visits(6, [2], [1], [3, 0]), wanted, cooldown=5) == expected


def test_prompts_at_the_cap_come_back_last() -> None:
    """0 is at the cap and rested long ago; 1 rests; 2 and 3 are free."""
    visits = make_visits(4, [0], [0], [1])
    assert [rows(visits, wanted, cooldown=2, cap=2) for wanted in (2, 3, 4)] == [[2, 3], [1, 2, 3], [0, 1, 2, 3]]


def test_a_step_never_has_fewer_candidates_than_it_wants_or_the_pool_has() -> None:
    rng, visits = np.random.default_rng(0), Visits.none(20)
    settings = AcquisitionSettings(batch_size=4, cooldown=7, cap=3)
    wanted = candidates_wanted(settings, rounds=2)
    for _ in range(40):
        found = rested(visits, wanted, settings)
        assert len(set(found.tolist())) == len(found) >= 16 and (np.diff(found) > 0).all()
        visits.add(rng.choice(found, 4, replace=False))


def test_a_step_wants_the_candidates_asked_for_or_twice_what_it_may_acquire() -> None:
    assert candidates_wanted(AcquisitionSettings(batch_size=16, candidates=128), rounds=4) == 128
    assert candidates_wanted(AcquisitionSettings(batch_size=16), rounds=4) == 128
    assert candidates_wanted(AcquisitionSettings(batch_size=16), rounds=1) == 32
