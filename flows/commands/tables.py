"""Plain tables for a terminal."""

from collections.abc import Sequence
from typing import Any

from tasks.tables import aligned


def format_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns as wide as their widest cell, two spaces apart."""
    return "\n".join(aligned([[str(cell) for cell in row] for row in (header, *rows)]))
