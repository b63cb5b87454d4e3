import signal
import subprocess
import sys
import time
from threading import Event

import pytest

from models.engines.asking import ask_all


def test_every_question_is_answered_once_by_at_most_so_many_threads() -> None:
    busy, most = [], []

    def ask(question: int, _: Event) -> int:
        busy.append(question)
        most.append(len(busy))
        time.sleep(0.002)
        busy.remove(question)
        return question * question

    answers = list(ask_all(ask, range(50), threads=4))
    assert sorted(answers) == [(position, position * position) for position in range(50)]
    assert 1 < max(most) <= 4


def test_no_question_has_no_answer() -> None:
    assert list(ask_all(lambda question, _: question, [], threads=4)) == []


def test_after_a_failure_none_begins_and_those_that_had_begun_come_first() -> None:
    begun = []

    def ask(question: int, _: Event) -> int:
        begun.append(question)
        time.sleep(0.01 if question == 2 else 0.05)
        if question == 2:
            raise RuntimeError("two")
        return question

    answers = []
    with pytest.raises(RuntimeError, match="two"):
        for position, _ in ask_all(ask, range(100), threads=3):
            answers.append(position)
    assert {0, 1} <= set(answers) and 2 not in answers
    assert len(begun) < 10
    assert sorted(answers) == sorted(set(begun) - {2})


def test_who_stops_listening_stops_the_questions() -> None:
    begun, told = [], []

    def ask(question: int, nobody_listens: Event) -> int:
        begun.append(question)
        if question > 0:
            told.append(nobody_listens.wait(5))
        return question

    answers = ask_all(ask, range(100), threads=2)
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    asked = len(begun)
    time.sleep(0.1)
    assert len(begun) == asked < 100
    assert told and all(told)


_WAITING = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts the tests may have it ignored
from models.engines.asking import ask_all
def ask(question, nobody_listens):
    print("asked", flush=True)
    time.sleep(600)
list(ask_all(ask, range(4), threads=4))
"""


def test_an_interrupted_process_does_not_wait_for_answers() -> None:
    process = subprocess.Popen([sys.executable, "-c", _WAITING], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and process.stdout.readline().startswith(b"asked")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) != 0
