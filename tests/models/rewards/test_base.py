import math

import pytest

from models.problems import BUILTIN
from models.records import Verdict
from models.rewards import VERIFIERS
from models.rewards.base import score
from models.rewards.extract import final_answer


def test_a_verdict_is_passed_on_as_ok():
    verdict = Verdict(reward=0.5, success=False)
    assert score(lambda response, answer: verdict, "r", "a") == (verdict, "ok")


@pytest.mark.parametrize("error", [ValueError, KeyError, RecursionError, MemoryError, AssertionError])
def test_a_verifier_that_raises_costs_its_own_sample(error: type[Exception]):
    def verifier(response: str, answer: str) -> Verdict:
        raise error("broken")

    assert score(verifier, "r", "a") == (None, "error")


def test_stopping_the_program_is_no_failure_of_a_verifier():
    def verifier(response: str, answer: str) -> Verdict:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(verifier, "r", "a")


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_finite_number_is_unparsable(reward: float):
    assert score(lambda response, answer: Verdict(reward, True), "r", "a") == (None, "unparsable")


def test_a_lying_verifier_that_returns_no_verdict_is_an_error():
    for lie in (None, 1.0, "1", Verdict("1", True), Verdict(None, True)):
        assert score(lambda response, answer, lie=lie: lie, "r", "a") == (None, "error")


@pytest.mark.parametrize("name", VERIFIERS)
def test_every_verifier_takes_code_as_text(name: str, tmp_path):
    marker = tmp_path / "ran"
    attack = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    answer = {"countdown": '{"numbers": [1, 2], "target": 3}', "arithmetic": "-123454321"}[name]
    for response in (attack, f"<answer>{attack}</answer>", f"\\boxed{{{attack}}}"):
        verdict, status = score(VERIFIERS[name], response, answer)
        assert status == "ok" and verdict is not None and not verdict.success
    assert not marker.exists()


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<answer> 1 </answer>", "1"),
        ("<answer>1</answer><answer>2</answer>", "2"),
        ("<answer>1</answer> <answer>2", "1"),
        ("inside <answer></answer>: <answer>3</answer>", "3"),
        ("<answer>a <answer>b</answer>", "b"),
        ("</answer> 5", "</answer> 5"),
        ("\\boxed{1} then <answer>2</answer>", "2"),
        ("\\boxed{1} \\boxed{2}", "2"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{1", "\\boxed{1"),
        ("first\n last \n\n", "last"),
        ("one\rtwo", "two"),
        ("", None),
        (" \n ", None),
    ],
)
def test_the_final_answer_is_found(response: str, answer: str | None):
    assert final_answer(response) == answer


def test_every_builtin_dataset_names_a_verifier_that_reads_its_answers():
    for problem in BUILTIN["arithmetic-heldout"]()[:20]:
        verdict, status = score(VERIFIERS[problem.reward], f"<answer>{problem.answer}</answer>", problem.answer)
        assert status == "ok" and verdict is not None and verdict.success
