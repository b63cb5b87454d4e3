import pyarrow as pa

from tasks.observed import explored


def test_explored_are_those_whose_decision_says_so_and_none_where_nobody_selected() -> None:
    decisions = pa.table({"decision": pa.array(["acquired", "explored", None], pa.string())})
    assert explored(decisions).tolist() == [False, True, False]
    assert explored(decisions.slice(2)).tolist() == [False] and explored(decisions.slice(3)).tolist() == []
