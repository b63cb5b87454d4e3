"""One problem has one identity in every file that holds it, whatever was wrapped around it."""

import pytest

from storage.importers.answers import AnswerError, answer_text
from storage.importers.texts import readings, split_instruction, split_turns, text_fault, text_notes
from storage.prompts import prompt_id

PROBLEM = "What is $1 + 1$?\n\nShow your work."
BOXED = "Let's think step by step and output the final answer within \\boxed{}."
SYSTEM = "You are a helpful\n\nassistant."
R1 = "A conversation between User and Assistant. The User asks a question, and the Assistant solves it."


@pytest.mark.parametrize(
    "logged",
    [
        PROBLEM,
        f"{PROBLEM} {BOXED}\n",
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{PROBLEM} {BOXED}<|im_end|>\n"
        "<|im_start|>assistant\n",
        f"<|im_start|>user\n{PROBLEM}\n<|im_end|>\n<|im_start|>assistant\n<think>",
        f"system\n{SYSTEM}\nuser\n{PROBLEM}\nassistant\n",
        f"user\n{PROBLEM} {BOXED}\nassistant\n<think>\n",
        f"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{SYSTEM}<|eot_id|>"
        f"<|start_header_id|>user<|end_header_id|>\n\n{PROBLEM}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        f"system\n\n{SYSTEM}user\n\n{PROBLEM}assistant\n\n".replace("assistant.user", "assistant.\nuser"),
        f"<bos><start_of_turn>user\n{PROBLEM}<end_of_turn>\n<start_of_turn>model\n",
        f"user\n{PROBLEM}\nmodel\n",
        f"<s> [INST] {PROBLEM} [/INST]",
        f"<｜begin▁of▁sentence｜>{SYSTEM}<｜User｜>{PROBLEM}<｜Assistant｜><think>\n",
        f"{PROBLEM}<think>\n",
        f"{R1}\nUser: {PROBLEM}\nAssistant: <think>",
    ],
)  # fmt: skip
def test_a_logged_prompt_is_read_as_its_problem(logged: str) -> None:
    assert prompt_id([("user", PROBLEM)]) in {prompt_id(messages) for messages in readings(logged)}


def test_templates_with_several_turns_become_messages() -> None:
    text = (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"
    )
    assert split_turns(text) == [("system", "be brief"), ("user", "a"), ("assistant", "b"), ("user", "c")]
    assert split_turns(f"{R1} Tags matter. User: x\ny Assistant: <think>") == [
        ("system", f"{R1} Tags matter."),
        ("user", "x\ny"),
    ]
    assert split_turns("what does <|im_start|> mean in a prompt?") is None
    assert split_turns("plain") is None


def test_only_known_instructions_are_taken_off_and_only_from_the_end() -> None:
    assert split_instruction(f"a {BOXED} \n") == ("a", BOXED)
    for text in (f"{BOXED} a", BOXED, "Think hard.", "a\n"):
        assert split_instruction(text) == (text, "")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a\tb\r\nc\u00a0\u200b \U0001f600 数", ""),
        (" \n", "empty"),
        ("\ufeff\u200b\u00a0", "empty"),
        ("a\x00", "control character U+0000 at 1: the text was damaged on its way"),
        ("\x0crac{1}{2}", "control character U+000C at 0: the text was damaged on its way"),
        ("a\ud800", "half a surrogate pair, which is no Unicode text"),
        ("a<|endoftext|>b", "chat template token <|endoftext|> in a text that is no known template"),
        ("|x| < |y| <|> 3", ""),
    ],
)
def test_what_is_wrong_with_a_text(text: str, fault: str) -> None:
    assert text_fault(text) == fault


def test_what_is_worth_a_look_is_noted() -> None:
    assert text_notes("a b") == []
    assert text_notes("a\r\u200bb") == [
        "carriage returns, stored as line feeds",
        "invisible characters or hard spaces, kept",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (" 4 ", "4"),
        (4, "4"),
        (22.0, "22"),
        (2.5, "2.5"),
        (17376828000.0, "17376828000"),
        (1e300, "1e+300"),
        (10**30, "1" + "0" * 30),
        (["9.6\n"], "9.6"),
        ([[4]], "4"),
        ({"numbers": [1, 2], "target": 3}, '{"numbers": [1, 2], "target": 3}'),
        ("He has 3 + 4 = <<3+4=7>>7.\n#### 1,234", "1,234"),
        ("#### 7", "#### 7"),
        ("a #### b\nc", "a #### b\nc"),
        ("so it is $\\boxed{1}$ or rather $\\boxed{\\frac{1}{2}}$.", "\\frac{1}{2}"),
        ("\\boxed{open", "\\boxed{open"),
        ("39,\\!916,\\!800", "39,\\!916,\\!800"),
        ("b\r\nc", "b\nc"),
    ],
)
def test_answers_become_text(value: object, text: str) -> None:
    assert answer_text(value)[0] == text


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "the answer is null"),
        ("", "the answer is empty"),
        ("\u200b", "the answer is empty"),
        ([], "the answer is a list of 0: which one counts, it does not say"),
        (["1", "2"], "the answer is a list of 2: which one counts, it does not say"),
        (float("nan"), "the answer is nan, which is no number"),
        (float("inf"), "the answer is inf, which is no number"),
        ("a\x0cb", "answer: control character U+000C at 1: the text was damaged on its way"),
        ({"a": float("nan")}, "the answer holds a NaN or infinity"),
        ({"a": "\ud800"}, "answer: half a surrogate pair, which is no Unicode text"),
    ],
)
def test_answers_that_cannot_be_used_say_why(value: object, reason: str) -> None:
    with pytest.raises(AnswerError) as refused:
        answer_text(value)
    assert str(refused.value) == reason


def test_thousands_separators_are_noted() -> None:
    noted = [
        value for value in ("15,600", "39,\\!916,\\!800", "$1{,}000$", "1.5", "2, 3", "x,y") if answer_text(value)[1]
    ]
    assert noted == ["15,600", "39,\\!916,\\!800"]
