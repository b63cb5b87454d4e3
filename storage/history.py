"""The history: write-once parts of a step, and the commit record that makes them count.

Parts are the write-ahead log of a run. A part that exists is whole; a step
whose commit record exists is visible to queries.
"""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import MismatchError, StoreError
from storage.files import file_digest, numbers_in, remove_leftovers, set_aside, write_once
from storage.layout import PART_FILE, STEP_FOLDER, Layout
from storage.parquet import build_table, read_table, table_bytes
from storage.schemas import HISTORY, STEPS

logger = logging.getLogger(__name__)


def group_id(run: str, step: int, prompt_id: str) -> str:
    """Identity of a group: a prompt is acquired at most once a step."""
    return hashlib.sha256(f"{run}\x1f{step}\x1f{prompt_id}".encode()).hexdigest()[:32]


class History:
    """The parts of one run."""

    def __init__(self, layout: Layout, run: str) -> None:
        self._layout = layout
        self.run = run

    def write(self, name: str, step: int, columns: Mapping[str, Any], round_: int = 0, **constants: Any) -> None:
        """Write one part; an equal part that exists already is left alone.

        Raises:
            MismatchError: a part with other content exists.
            StoreError: an unreadable part of a committed step exists.
        """
        table = build_table(HISTORY[name], columns, run_id=self.run, step=step, **constants)
        path = self._layout.part(name, self.run, step, round_)
        data = table_bytes(table)
        try:
            write_once(path, data)
        except FileExistsError:
            if not self.holds(name, step, round_):
                write_once(path, data)
            elif path.read_bytes() != data:
                self._check_equal(path, self.read(name, step, round_), table)

    def read(self, name: str, step: int, round_: int = 0) -> pa.Table:
        """One part."""
        return read_table(self._layout.part(name, self.run, step, round_), HISTORY[name])

    def read_rounds(self, name: str, step: int) -> pa.Table:
        """The parts of all rounds of a step, in order.

        Raises:
            StoreError: there is none, or one is unreadable.
        """
        rounds = self.rounds(name, step)
        if not rounds:
            raise StoreError(f"{self._layout.parts(name, self.run, step)} holds no part: restore it")
        return pa.concat_tables([self.read(name, step, round_) for round_ in rounds])

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
            logger.warning("%s; set aside as %s and made again", error, set_aside(path).name)
            return False
        return True

    def rounds(self, name: str, step: int) -> list[int]:
        """Rounds of a step that have a part, in order."""
        return numbers_in(self._layout.parts(name, self.run, step), PART_FILE)

    def commit(self, step: int, record: Mapping[str, Any]) -> None:
        """Write the commit record of a step: after this, and not before, the step exists for queries.

        Raises:
            StoreError: a part is unreadable, or the step is committed already.
        """
        files = [
            self._describe(name, step, round_)
            for name in HISTORY
            if name != "steps"
            for round_ in self.rounds(name, step)
        ]
        columns = {name: [value] for name, value in {**record, "files": files}.items()}
        table = build_table(STEPS, {**columns, "run_id": [self.run], "step": [step]})
        try:
            write_once(self._layout.commit(self.run, step), table_bytes(table))
        except FileExistsError:
            message = f"step {step} of run {self.run} was committed by another process: stop one of them"
            raise StoreError(message) from None

    def committed_steps(self) -> list[int]:
        """Steps that have a commit record, ascending."""
        steps = numbers_in(self._layout.table_of_run("steps", self.run), STEP_FOLDER)
        return [step for step in steps if self._layout.commit(self.run, step).exists()]

    def last_committed(self) -> int:
        """The newest committed step, -1 when there is none."""
        return max(self.committed_steps(), default=-1)

    def remove_leftovers(self) -> None:
        """Delete what killed writers of this run left behind; call while holding the run's lock."""
        for name in HISTORY:
            remove_leftovers(self._layout.table_of_run(name, self.run))

    def _check_equal(self, path: Path, stored: pa.Table, computed: pa.Table) -> None:
        """Compares rows, not bytes: another release of Arrow may write equal rows as other bytes.

        Columns that the stored file was written without are no difference.
        """
        younger = set(computed.column_names) - set(pq.read_schema(path).names)
        differing = [
            name for name in computed.column_names if name not in younger and not stored[name].equals(computed[name])
        ]
        if differing:
            what = ", ".join(differing) if len(stored) == len(computed) else "its number of rows"
            raise MismatchError(
                f"{path} differs in {what} from what this process computed for the same step: the store, the config "
                f"or the libraries changed since; continue under another name with --run NEW --from {self.run}"
            )

    def _describe(self, name: str, step: int, round_: int) -> dict[str, Any]:
        path = self._layout.part(name, self.run, step, round_)
        return {
            "path": path.relative_to(self._layout.root).as_posix(),
            "rows": len(self.read(name, step, round_)),
            "bytes": path.stat().st_size,
            "sha256": file_digest(path),
        }
