import json

import pytest

from models.rewards.countdown import verify_countdown

ANSWER = json.dumps({"numbers": [3, 7, 20], "target": 200})


def succeeds(response: str, answer: str = ANSWER) -> bool:
    verdict = verify_countdown(response, answer)
    assert verdict.reward == float(verdict.success)
    return verdict.success


@pytest.mark.parametrize(
    "response",
    [
        "(3+7)*20",
        "20*(7+3)",
        " ( 3 + 7 ) * 20 ",
        "(3+7)*20 = 200",
        "(3+7)*20=200",
        "<answer>(3+7)*20</answer>",
        "I add <answer>3+7</answer>, no: <answer>\n(3+7) * 20\n</answer>.",
        "so \\boxed{(3+7)*20}",
        "Add three and seven.\n(3+7)*20",
        "(3+7)×20",
        "-(3+7)*-20",
        "+(3+7)*20",
        "((((3+7))))*20",
    ],
)
def test_a_right_expression_succeeds(response: str):
    assert succeeds(response)


@pytest.mark.parametrize(
    "response",
    [
        "",
        " \n\t ",
        "200",
        "(3+7)*20+0",
        "3+7",
        "(3+7)*20*1",
        "(3+7)*2*10",
        "3*7*20",
        "(3+3+4)*20",
        "200 = (3+7)*20",
        "(03+7)*20",
        "(3+7)*2_0",
        "(3+7)*20.0",
        "(3+7)*2e1",
        "(3+7)*0x14",
        "(3+7)(20)",
        "3+7*20)",
        "((3+7)*20",
        "(3+7)*20; 1",
        "(3+7)*20,",
        "(3+7)*20 if 1 else 0",
        "<answer></answer>",
        "<answer>(3+7)*20",
        "<answer>(3+7)*20</answer> or <answer>3</answer>",
        "3 7 20",
    ],
)
def test_anything_else_is_a_wrong_answer_and_no_error(response: str):
    assert not succeeds(response)


@pytest.mark.parametrize(
    ("expression", "numbers", "target"),
    [
        ("3**2", [3, 2], 9),
        ("7//2", [7, 2], 3),
        ("7%4", [7, 4], 3),
        ("1<<3", [1, 3], 8),
        ("~3", [3], -4),
        ("3,", [3], 3),
    ],
)
def test_operators_other_than_the_four_are_wrong(expression, numbers, target):
    assert not succeeds(expression, json.dumps({"numbers": numbers, "target": target}))


@pytest.mark.parametrize(
    "attack",
    [
        "__import__('os').system('touch /tmp/foreroll-was-here')",
        "(3+7)*20+__import__('os').getpid()*0",
        "().__class__.__bases__[0].__subclasses__()",
        "exec('raise SystemExit')",
        "open('/etc/passwd').read()",
        "(lambda: 200)()",
        "[200 for _ in (1,)][0]",
        "f'{200}'",
        "9**9**9**9",
        "(3+7)*20 #",
        "\\\n200",
        "(3+7)*20\x00",
        "{0.__class__}",
        "%s%s%s",
    ],
)
def test_hostile_answers_are_wrong_answers(attack: str):
    for response in (attack, f"<answer>{attack}</answer>", f"\\boxed{{{attack}}}"):
        assert not succeeds(response)


@pytest.mark.parametrize("digits", ["(３+７)*２０", "(٣+٧)*٢٠", "(³+⁷)*²⁰", "(Ⅲ+Ⅶ)*ⅩⅩ"])
def test_unicode_digits_are_no_numbers(digits: str):
    assert not succeeds(digits)


@pytest.mark.parametrize("expression", ["3/(7-7)+20", "1/0", "20/(3-3)"])
def test_division_by_zero_is_a_wrong_answer(expression: str):
    assert not succeeds(expression)


def test_fractions_are_exact():
    assert succeeds("6/(1-3/4)", json.dumps({"numbers": [1, 3, 4, 6], "target": 24}))
    assert not succeeds("1/3+1/3+1/3-1/10000000000000000000", json.dumps({"numbers": [1] * 4 + [3] * 3, "target": 1}))


def test_repeated_numbers_are_used_as_often_as_given():
    answer = json.dumps({"numbers": [5, 5, 12], "target": 22})
    assert succeeds("5+5+12", answer)
    assert not succeeds("5+17", answer)


@pytest.mark.parametrize(
    "huge",
    [
        "(" * 10**6,
        "(" * 120 + "3" + ")" * 120,
        "-" * 250 + "3",
        "9" * 10**6,
        "9" * 250,
        "1+" * 10**6 + "1",
        "<answer>" * 130_000,
        "</answer>" * 120_000,
        "<answer></answer" * 70_000,
        "\\boxed{" * 150_000,
        "\\boxed{" + "{" * 10**6,
        " " * 10**6 + "x",
        "\n" * 10**6,
        "=" * 10**6,
        "\U0001f600" * 10**6,
    ],
)
def test_huge_answers_come_to_an_end(huge: str):
    assert not succeeds(huge)


def test_the_longest_products_are_computed():
    assert not succeeds("*".join(["99"] * 85))


def test_a_broken_reference_is_our_fault_and_raises():
    with pytest.raises(ValueError):
        verify_countdown("1+2", "{not json")
