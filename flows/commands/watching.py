"""Shows on a terminal how far a command is; silent where no terminal is."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def show_rows(rows: Iterable[T]) -> Iterable[T]:
    """Pass rows on, with a count that goes away at the end."""
    watched: Iterable[T] = tqdm(rows, unit=" rows", disable=None, leave=False)
    return watched


@contextmanager
def show_steps(total: int) -> Iterator[Callable[[str], None]]:
    """A bar over so many steps, which goes away at the end; it is told the run of each step that is done."""
    with tqdm(total=total, unit="step", disable=None, leave=False) as bar:

        def advance(run: str) -> None:
            bar.set_description_str(run, refresh=False)
            bar.update()

        yield advance
