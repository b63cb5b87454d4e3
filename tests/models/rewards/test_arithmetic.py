from fractions import Fraction

import pytest

from models.rewards.arithmetic import is_number, last_number, verify_arithmetic


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4", 4),
        ("-4", -4),
        ("+7", 7),
        ("\u22124", -4),
        ("1,234", 1234),
        ("$-1,234,567.50.", Fraction(-246913500, 200) + Fraction(0)),
        ("4.0", 4),
        ("4.", 4),
        ("0.1", Fraction(1, 10)),
        ("2/3", Fraction(2, 3)),
        ("-2\u20443", Fraction(-2, 3)),
        ("1e3", 1000),
        ("25e-1", Fraction(5, 2)),
        ("007", 7),
        ("7-3", 3),
        ("7 - 3 = 4", 4),
        ("x=-5", -5),
        ("(2)-3", 3),
        ("10 apples", 10),
        ("5cm", 5),
        ("1, 2, 3", 3),
        ("1,2", 2),
        ("the answer is 12!", 12),
    ],
)
def test_the_last_number_is_read_exactly(text: str, number: Fraction | int):
    assert last_number(text) == number


@pytest.mark.parametrize(
    "text", ["", "none", "x2", "1_000", "\uff14", "\u0664", "1/0", "1e9999", "1e-99999999999", "9" * 65, "1" * 10**6]
)
def test_what_is_no_plain_number_is_none(text: str):
    assert last_number(text) is None


@pytest.mark.parametrize(
    ("response", "answer", "success"),
    [
        ("4 + 9 - 3 = 10", "10", True),
        ("<answer>10</answer> and 11", "10", True),
        ("10 or so\n11", "10", False),
        ("\\boxed{10.0}", "10", True),
        ("1,010", "1010", True),
        ("10.0000000000000000001", "10", False),
        ("0.30000000000000004", "0.3", False),
        ("-3", "3", False),
        ("", "0", False),
        ("<answer></answer>", "0", False),
        ("__import__('os').getpid() or 10", "10", True),
        ("__import__('os').system('echo 10')", "11", False),
    ],
)
def test_the_final_answer_is_compared(response: str, answer: str, success: bool):
    verdict = verify_arithmetic(response, answer)
    assert (verdict.success, verdict.reward) == (success, float(success))


@pytest.mark.parametrize("answer", ["", "ten", "nan", "inf"])
def test_a_reference_that_is_no_number_is_our_fault_and_raises(answer: str):
    with pytest.raises(ValueError, match="is no number"):
        verify_arithmetic("10", answer)


@pytest.mark.parametrize(
    "unit", ["1,", "1,111", "1,111,", "1.", "1/", "1e", "-", "1_", "111", "1 ", "<answer>", "\\boxed{", "{", "(", "\n"]
)
def test_a_megabyte_of_anything_comes_to_an_end(unit: str):
    verify_arithmetic(unit * (10**6 // len(unit)), "10")


@pytest.mark.parametrize("text", ["4", " -4 ", "\u22124", "1,234", "4.0", "2/3", "1e3", "9" * 100])
def test_one_number_and_nothing_else(text: str):
    assert is_number(text)


@pytest.mark.parametrize("text", ["", "4.", "1, 2", "1,2", "10 apples", "$4", "4%", "x=4", "39,\\!916", "7-3", "-"])
def test_more_or_less_than_one_number(text: str):
    assert not is_number(text)
