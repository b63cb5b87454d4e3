"""Shows on a terminal how many rows of a file went by."""

from collections.abc import Iterable
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def show_rows(rows: Iterable[T]) -> Iterable[T]:
    """Pass rows on, with a count that goes away at the end; silent where no terminal is."""
    watched: Iterable[T] = tqdm(rows, unit=" rows", disable=None, leave=False)
    return watched
