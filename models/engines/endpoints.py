"""Which server gets the next request: the least busy of those that work, never more at one than it is to have."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Endpoints:
    """The addresses of one fleet; safe to use from many threads."""

    def __init__(self, addresses: Sequence[str], most: int) -> None:
        """Take them all as working.

        Args:
            most: requests in flight at each.
        """
        self._lock = threading.Condition()
        self._most = most
        self._busy = dict.fromkeys(addresses, 0)
        self._faults: dict[str, str] = {}

    @property
    def addresses(self) -> list[str]:
        """All of them, working or not."""
        return list(self._busy)

    @property
    def working(self) -> list[str]:
        """Those that have not failed since they were last taken back."""
        with self._lock:
            return [address for address in self._busy if address not in self._faults]

    @property
    def faults(self) -> dict[str, str]:
        """Why each of the others was given up."""
        with self._lock:
            return dict(self._faults)

    @contextmanager
    def lend(self) -> Iterator[str | None]:
        """The working address with the fewest requests, one more while the block lasts; None where none works.

        Waits while all that work have their most.
        """
        with self._lock:
            while (address := self._least_busy()) is not None and self._busy[address] >= self._most:
                self._lock.wait()
            if address is not None:
                self._busy[address] += 1
        try:
            yield address
        finally:
            if address is not None:
                with self._lock:
                    self._busy[address] -= 1
                    self._lock.notify_all()

    def give_up(self, address: str, reason: str) -> bool:
        """Lend an address no more; says whether this is news."""
        with self._lock:
            news = address not in self._faults
            self._faults[address] = reason
            self._lock.notify_all()
            return news

    def take_back(self, address: str) -> None:
        """Lend an address again."""
        with self._lock:
            self._faults.pop(address, None)
            self._lock.notify_all()

    def _least_busy(self) -> str | None:
        free = [address for address in self._busy if address not in self._faults]
        return min(free, key=self._busy.__getitem__, default=None)
