"""What is read of a run's selections: first rounds of committed steps, beside forecasts and outcomes."""

from storage.layout import Layout
from storage.logged import candidate_counts, read_acquired, read_candidates


def test_steps_are_counted_with_their_candidates(small_store: Layout) -> None:
    assert candidate_counts(small_store, "first") == [(1, 3), (2, 3), (3, 3)]
    assert candidate_counts(small_store, "nobody") == []


def test_candidates_of_first_rounds_come_with_forecast_and_outcome(small_store: Layout) -> None:
    """Step 2 rolls out p2 in its second round, so that its first round knows no outcome of it."""
    rows = read_candidates(small_store, "second", 2, 3).to_pylist()
    assert [row["step"] for row in rows] == [2, 2, 2, 3, 3, 3]
    found = {row["prompt_id"]: row for row in rows if row["step"] == 2}
    assert found["p0"] == {
        "step": 2, "prompt_id": "p0", "propensity": 1.0, "decision": "acquired", "p_success": 0.5, "p_sd": 0.125,
        "expected_tokens": None, "successes": 1, "valid": 2,
    }  # fmt: skip
    assert (found["p1"]["successes"], found["p1"]["valid"]) == (0, 2)
    p2 = found["p2"]
    assert (p2["decision"], p2["propensity"], p2["successes"], p2["valid"]) == ("not_chosen", 0.25, None, None)


def test_what_was_acquired_is_in_order_of_step_round_and_rank(small_store: Layout) -> None:
    table = read_acquired(small_store, "first", 2, 3)
    assert table["step"].to_pylist() == [2, 2, 2, 3, 3]
    assert table["prompt_id"].to_pylist() == ["p0", "p1", "p2", "p0", "p1"]
