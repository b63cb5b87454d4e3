"""What is wrong with rows of a file that was not made here: each is named, few are shown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SHOWN = 10
"""Faults that a summary names; it tells how many there are."""


@dataclass(frozen=True)
class Fault:
    """One row that cannot be used as it is."""

    file: str
    """Name of the file, without its folder."""
    row: int
    """Line of a text file; number of the row, from 1 on, of a JSON array or Parquet file."""
    reason: str

    def __str__(self) -> str:
        return f"{one_line(self.file)}:{self.row}: {one_line(self.reason, 200)}"


def one_line(text: object, width: int = 72) -> str:
    """A text of others on one printable line of at most `width` characters."""
    line = " ".join(str(text).split())
    line = "".join(character if character.isprintable() else "\ufffd" for character in line)
    return line if len(line) <= width else f"{line[: width - 1]}…"


@dataclass
class Notes:
    """Things that were mended or are worth a look, counted by kind, each with the first row that had it."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, kinds: Iterable[str], file: Path, row: int) -> None:
        """Count what one row had."""
        for kind in kinds:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            if kind not in self.first:
                self.first[kind] = f"{one_line(file.name)}:{row}"

    def lines(self) -> list[str]:
        """One line a kind."""
        return [f"{count:,} x {kind} (first {self.first[kind]})" for kind, count in self.counts.items()]


def summary(faults: Sequence[object], *, shown: int = SHOWN) -> str:
    """The first few faults, one a line, and how many more there are."""
    lines = [f"  {fault}" for fault in faults[:shown]]
    if len(faults) > shown:
        lines.append(f"  and {len(faults) - shown:,} more")
    return "\n".join(lines)
