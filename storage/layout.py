"""Every path of a store, one line each."""

import re
from dataclasses import dataclass
from pathlib import Path

from storage.errors import StoreError

STEP_FOLDER = re.compile(r"step=(\d{8,})")
SAVED_FILE = re.compile(r"rows-(0|[1-9]\d*)\.parquet")
VERSION_FOLDER = re.compile(r"([1-9]\d*)")
PART_FILE = re.compile(r"part-(\d+)\.parquet")

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def check_name(kind: str, name: str) -> str:
    """Return `name` when it can name a run, dataset or predictor.

    Raises:
        StoreError: it could be mistaken for a path or is no portable file name.
    """
    if not _NAME.fullmatch(name):
        raise StoreError(
            f"{kind} name {name!r} is not allowed: use up to 64 of a-z, 0-9, '.', '_' and '-', "
            "beginning with a letter or digit"
        )
    return name


@dataclass(frozen=True)
class Layout:
    """The paths below one store's root."""

    root: Path

    def store_file(self) -> Path:
        return self.root / "store.json"

    def history(self) -> Path:
        return self.root / "history"

    def table_of_run(self, table: str, run: str) -> Path:
        return self.history() / table / f"run_id={check_name('run', run)}"

    def parts(self, table: str, run: str, step: int) -> Path:
        return self.table_of_run(table, run) / f"step={step:08d}"

    def part(self, table: str, run: str, step: int, round_: int = 0) -> Path:
        return self.parts(table, run, step) / f"part-{round_}.parquet"

    def unfinished(self, table: str, run: str, step: int, round_: int) -> Path:
        return self.parts(table, run, step) / f"round-{round_}.unfinished"

    def commit(self, run: str, step: int) -> Path:
        return self.part("steps", run, step)

    def datasets(self) -> Path:
        return self.root / "prompts"

    def dataset(self, name: str) -> Path:
        return self.datasets() / check_name("dataset", name) / "part-0.parquet"

    def embeddings(self, encoder: str, dataset: str) -> Path:
        return self.root / "embeddings" / encoder / f"{check_name('dataset', dataset)}.parquet"

    def models(self) -> Path:
        return self.root / "models"

    def checkpoints(self, run: str) -> Path:
        return self.root / "checkpoints" / check_name("run", run)

    def checkpoint(self, run: str, step: int) -> Path:
        return self.checkpoints(run) / f"step={step:08d}"

    def predictors(self) -> Path:
        return self.root / "predictors"

    def predictor(self, name: str) -> Path:
        return self.predictors() / check_name("predictor", name)

    def predictor_version(self, name: str, version: int) -> Path:
        return self.predictor(name) / str(version)

    def predictor_guard(self, name: str) -> Path:
        return self.predictor(name) / ".guard"

    def publisher_guard(self, name: str) -> Path:
        return self.predictor(name) / ".publisher"

    def promotions(self, name: str) -> Path:
        return self.predictor(name) / "promotions.jsonl"

    def runs(self) -> Path:
        return self.root / "runs"

    def run_file(self, run: str) -> Path:
        return self.runs() / f"{check_name('run', run)}.json"

    def lock_guard(self) -> Path:
        return self.runs() / ".guard"

    def lock_file(self, run: str) -> Path:
        return self.runs() / f"{check_name('run', run)}.lock"
