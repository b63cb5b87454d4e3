"""Many requests at once, by threads that no process waits for."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


def ask_all(ask: Callable[[Q, Event], A], questions: Sequence[Q], threads: int) -> Iterator[tuple[int, A]]:
    """(position, answer) as answers come; after a failure no other begins, and those that had begun come first.

    Threads are daemons: a process that is told to end leaves its questions
    unanswered. The event is set once nobody listens any more.

    Raises:
        BaseException: the first that `ask` raised, at the end.
    """
    waiting = deque(enumerate(questions))
    answers: SimpleQueue[tuple[int, A | None, BaseException | None]] = SimpleQueue()
    nobody_listens = Event()

    def work() -> None:
        while True:
            try:
                position, question = waiting.popleft()
            except IndexError:
                return
            try:
                answers.put((position, ask(question, nobody_listens), None))
            except BaseException as error:
                answers.put((position, None, error))

    for _ in range(min(threads, len(questions))):
        Thread(target=work, name="asking", daemon=True).start()
    left, failure = len(questions), None
    try:
        while left > 0:
            position, answer, error = answers.get()
            left -= 1
            if error is None:
                yield position, answer  # type: ignore[misc]
            elif failure is None:
                failure = error
                left -= _drain(waiting)
    finally:
        _drain(waiting)
        nobody_listens.set()
    if failure:
        raise failure


def _drain(waiting: "deque[tuple[int, Q]]") -> int:
    """Take out what no thread has taken yet; says how many."""
    taken = 0
    while True:
        try:
            waiting.popleft()
        except IndexError:
            return taken
        taken += 1
