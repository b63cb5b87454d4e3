"""Which groups are trained on is decided by success, and never by a shaped reward."""

import pytest

from models.acquisition.dynamic_sampling import reject_reasons
from models.records import Verdict
from tasks.score import _outcomes


@pytest.mark.parametrize(("success", "reason"), [(False, "all_wrong"), (True, "all_correct")])
def test_a_group_whose_rewards_vary_but_whose_successes_do_not_is_left_out(success: bool, reason: str) -> None:
    """A tenth for a wrong answer that can be parsed makes rewards vary where outcomes do not."""
    verdicts = [Verdict(reward=0.1 * (index % 2), success=success) for index in range(8)]
    outcomes = _outcomes(["group"] * 8, [verdict.success for verdict in verdicts])
    assert reject_reasons(list(outcomes.values()), filtering=True, room=1) == [reason]
