"""A limit on the whole of a call, however slowly its answer trickles in."""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

A = TypeVar("A")


def within(seconds: float, call: Callable[[], A]) -> A:
    """What `call` returns or raises; its thread is a daemon, and is left alone when it takes longer.

    Raises:
        TimeoutError: there was no answer in time.
    """
    answers: SimpleQueue[tuple[A | None, BaseException | None]] = SimpleQueue()

    def work() -> None:
        try:
            answers.put((call(), None))
        except BaseException as error:
            answers.put((None, error))

    Thread(target=work, name="asking-in-time", daemon=True).start()
    try:
        answer, error = answers.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no whole answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]
