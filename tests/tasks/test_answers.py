"""What a reward can be told from."""

import pytest

from tasks.answers import reads


@pytest.mark.parametrize(
    ("reward", "answer", "readable"),
    [
        ("arithmetic", "1,234", True),
        ("arithmetic", "-2/3", True),
        ("arithmetic", "2, 3 and 4", False),
        ("arithmetic", "39,\\!916", False),
        ("arithmetic", "9" * 100, False),
        ("arithmetic", "1/0", False),
        ("countdown", '{"numbers": [1, 2], "target": 3}', True),
        ("countdown", '{"numbers": [1, 2]}', False),
        ("countdown", '{"numbers": 1, "target": 3}', False),
        ("countdown", "3", False),
        ("countdown", "__import__('os').system('touch /tmp/owned')", False),
        ("somebody's own", "anything", True),
    ],
)
def test_a_verifier_is_asked_whether_it_can_use_an_answer(reward: str, answer: str, readable: bool) -> None:
    assert reads(reward, answer) is readable
