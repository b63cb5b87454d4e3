"""The history: write-once parts of a step, and the commit record that makes them count.

Parts are the write-ahead log of a run. A part that exists is whole; a step
whose commit record exists is visible to queries.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import MismatchError, StoreError
from storage.files import file_digest, remove_leftovers, write_once
from storage.layout import Layout
from storage.parquet import build_table, read_table, table_bytes
from storage.schemas import HISTORY, STEPS

UNREADABLE = ".unreadable"

logger = logging.getLogger(__name__)


class History:
    """The parts of one run."""

    def __init__(self, layout: Layout, run: str) -> None:
        self._layout = layout
        self.run = run

    def write(self, name: str, step: int, columns: Mapping[str, Any], round_: int = 0, **constants: Any) -> None:
        """Write one part; an equal part that exists already is left alone.

        Raises:
            MismatchError: a part with other content exists.
        """
        table = build_table(HISTORY[name], columns, run_id=self.run, step=step, **constants)
        path = self._layout.part(name, self.run, step, round_)
        data = table_bytes(table)
        try:
            write_once(path, data)
        except FileExistsError:
            if path.read_bytes() != data:
                raise MismatchError(
                    f"{path} differs from what this process computed for the same step: the store, the config or "
                    "the libraries changed since; continue under another name with --run NEW --from "
                    f"{self.run}"
                ) from None

    def read(self, name: str, step: int, round_: int = 0) -> pa.Table:
        """One part."""
        return read_table(self._layout.part(name, self.run, step, round_), HISTORY[name])

    def read_rounds(self, name: str, step: int) -> pa.Table:
        """The parts of all rounds of a step, in order."""
        return pa.concat_tables([self.read(name, step, round_) for round_ in self.rounds(name, step)])

    def holds(self, name: str, step: int, round_: int = 0) -> bool:
        """Whether a part exists; an unreadable one of an open step is set aside, so that it is made again."""
        path = self._layout.part(name, self.run, step, round_)
        if not path.exists():
            return False
        try:
            read_table(path, HISTORY[name])
        except StoreError as error:
            if self._layout.commit(self.run, step).exists():
                raise
            aside = path.with_name(path.name + UNREADABLE)
            os.replace(path, aside)
            logger.warning("%s; set aside as %s and made again", error, aside.name)
            return False
        return True

    def rounds(self, name: str, step: int) -> list[int]:
        """Rounds of a step that have a part, in order."""
        folder = self._layout.parts(name, self.run, step)
        return sorted(int(path.stem.removeprefix("part-")) for path in folder.glob("part-*.parquet"))

    def commit(self, step: int, record: Mapping[str, Any]) -> None:
        """Write the commit record of a step: after this, and not before, the step exists for queries."""
        files = [self._describe(path) for name in HISTORY if name != "steps" for path in self._parts(name, step)]
        columns = {name: [value] for name, value in {**record, "files": files}.items()}
        table = build_table(STEPS, {**columns, "run_id": [self.run], "step": [step]})
        try:
            write_once(self._layout.commit(self.run, step), table_bytes(table))
        except FileExistsError:
            raise StoreError(
                f"step {step} of run {self.run} was committed by another process: stop one of them"
            ) from None

    def committed_steps(self) -> list[int]:
        """Steps that have a commit record, ascending."""
        folder = self._layout.table_of_run("steps", self.run)
        return sorted(int(path.parent.name.removeprefix("step=")) for path in folder.glob("step=*/part-0.parquet"))

    def last_committed(self) -> int:
        """The newest committed step, -1 when there is none."""
        return max(self.committed_steps(), default=-1)

    def remove_leftovers(self) -> None:
        """Delete what killed writers of this run left behind; call while holding the run's lock."""
        for name in HISTORY:
            remove_leftovers(self._layout.table_of_run(name, self.run))

    def _parts(self, name: str, step: int) -> list[Path]:
        return [self._layout.part(name, self.run, step, round_) for round_ in self.rounds(name, step)]

    def _describe(self, path: Path) -> dict[str, Any]:
        return {
            "path": path.relative_to(self._layout.root).as_posix(),
            "rows": pq.read_metadata(path).num_rows,
            "bytes": path.stat().st_size,
            "sha256": file_digest(path),
        }
