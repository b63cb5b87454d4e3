"""A polite end: the first SIGTERM or Ctrl-C lets the step come to a safe point, the second ends at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tasks.opening import RunInterrupted

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Whether somebody asked the process to end."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def check(self) -> None:
        """Leave here if asked to.

        Raises:
            RunInterrupted: at a point where the history is whole.
        """
        if self.signal is not None:
            raise RunInterrupted(self.signal)


@contextmanager
def listen_for_stop() -> Iterator[StopRequest]:
    """Catch the signals for the length of the block; outside the main thread nothing can be caught."""
    request = StopRequest()

    def note(number: int, frame: FrameType | None) -> None:
        if request.signal is not None:
            raise KeyboardInterrupt
        request.signal = number

    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
