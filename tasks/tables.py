"""Rows of cells as text, the head first."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line each for a terminal: columns as wide as their widest cell, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    head, *below = rows
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *below)]


def counted(number: int, what: str) -> str:
    """`1 group`, `1,000 groups`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
