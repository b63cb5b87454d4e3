"""Dynamic sampling: why groups are left out, and when a step stops sampling."""

import pytest

from models.acquisition.dynamic_sampling import Outcome, reject_reasons, wants_another_round
from models.settings import DynamicSamplingSettings


def make_outcomes(*pairs: tuple[int, int]) -> list[Outcome]:
    """Outcomes of (successes, valid) pairs."""
    return [Outcome(successes, valid) for successes, valid in pairs]


@pytest.mark.parametrize(
    ("successes", "valid", "informative"),
    [
        (0, 8, False),
        (1, 8, True),
        (7, 8, True),
        (8, 8, False),
        (0, 0, False),
        (1, 1, False),
        (0, 1, False),
        (1, 2, True),
    ],
)
def test_a_group_is_informative_when_some_succeed_and_some_fail(successes: int, valid: int, informative: bool) -> None:
    assert Outcome(successes, valid).informative is informative


def test_without_filtering_every_group_with_two_valid_rollouts_is_trained_on() -> None:
    outcomes = make_outcomes((0, 8), (8, 8), (3, 8), (1, 1), (0, 1), (0, 0), (2, 2))
    expected = [None, None, None, "too_few_valid", "too_few_valid", "too_few_valid", None]
    assert reject_reasons(outcomes, filtering=False, room=0) == expected


def test_with_filtering_each_group_that_teaches_nothing_says_why() -> None:
    outcomes = make_outcomes((0, 8), (8, 8), (3, 8), (1, 1), (0, 0), (0, 2), (2, 2))
    expected = ["all_wrong", "all_correct", None, "too_few_valid", "too_few_valid", "all_wrong", "all_correct"]
    assert reject_reasons(outcomes, filtering=True, room=7) == expected


def test_informative_groups_beyond_the_room_are_surplus_in_order_of_rank() -> None:
    outcomes = make_outcomes((1, 8), (0, 8), (2, 8), (3, 8), (8, 8), (4, 8))
    expected = [None, "all_wrong", None, "surplus", "all_correct", "surplus"]
    assert reject_reasons(outcomes, filtering=True, room=2) == expected


@pytest.mark.parametrize("room", [0, -3])
def test_a_full_batch_takes_nothing(room: int) -> None:
    assert reject_reasons(make_outcomes((1, 8), (0, 8)), filtering=True, room=room) == ["surplus", "all_wrong"]


def test_a_round_without_groups_has_no_reasons() -> None:
    assert reject_reasons([], filtering=True, room=4) == []


def wants(enabled: bool = True, informative: int = 15, rounds: int = 3, remaining: int = 1) -> bool:
    """One informative group, one round and one candidate short of each limit."""
    settings = DynamicSamplingSettings(enabled=enabled, max_rounds=4)
    return wants_another_round(settings, informative=informative, batch_size=16, rounds=rounds, remaining=remaining)


def test_sampling_goes_on_while_the_batch_is_short() -> None:
    assert wants() and wants(informative=0)


@pytest.mark.parametrize(
    "limit",
    [{"enabled": False}, {"informative": 16}, {"informative": 17}, {"rounds": 4}, {"rounds": 5}, {"remaining": 0}],
)
def test_sampling_stops_at_each_limit_by_itself(limit: dict[str, int]) -> None:
    assert not wants(**limit)


def test_rounds_fill_the_batch_without_using_a_group_twice() -> None:
    """Three rounds of four groups for a batch of three: one, then one, then two informative groups."""
    rounds = [
        make_outcomes((0, 8), (1, 8), (8, 8), (0, 8)),
        make_outcomes((0, 8), (0, 8), (8, 8), (5, 8)),
        make_outcomes((2, 8), (0, 8), (6, 8), (0, 8)),
    ]
    settings, admitted, done = DynamicSamplingSettings(enabled=True, max_rounds=4), 0, 0
    while wants_another_round(settings, informative=admitted, batch_size=3, rounds=done, remaining=12 - 4 * done):
        reasons = reject_reasons(rounds[done], filtering=True, room=3 - admitted)
        admitted += reasons.count(None)
        done += 1
    assert (admitted, done) == (3, 3)
    assert reasons == [None, "all_wrong", "surplus", "all_wrong"]
