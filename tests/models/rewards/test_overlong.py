import pytest

from models.rewards.overlong import overlong_penalty


@pytest.mark.parametrize(
    ("tokens", "penalty"), [(0, 0.0), (80, 0.0), (81, -0.05), (90, -0.5), (99, -0.95), (100, -1.0)]
)
def test_the_penalty_grows_linearly_over_the_buffer(tokens: int, penalty: float) -> None:
    assert overlong_penalty(tokens, max_tokens=100, buffer=20) == pytest.approx(penalty)


def test_a_buffer_as_long_as_the_response_punishes_every_token() -> None:
    assert overlong_penalty(1, max_tokens=4, buffer=4) == -0.25


def test_it_is_equation_13_of_dapo_at_every_length() -> None:
    longest, cache = 50, 12
    for tokens in range(longest + 1):
        expected = 0.0 if tokens <= longest - cache else ((longest - cache) - tokens) / cache
        assert overlong_penalty(tokens, max_tokens=longest, buffer=cache) == pytest.approx(expected)
