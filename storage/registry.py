"""Published predictors: immutable numbered versions of a name, and which of them was promoted.

A version is a folder, `predictors/<name>/<number>/`, that appears whole. `@best`
is the last one that `promotions.jsonl` beside it names and that is still there.
"""

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from safetensors import SafetensorError
from safetensors.numpy import load, save

from storage.errors import StoreError
from storage.files import file_digest, new_folder, numbers_in, remove_leftovers
from storage.layout import VERSION_FOLDER, Layout
from storage.locks import one_at_a_time
from storage.parquet import read_table, table_bytes
from storage.promotions import Promotion, add_promotion, promotions
from storage.schemas import PAST

logger = logging.getLogger(__name__)

_CONFIG, _LINEAGE, _SCORES = "config.json", "lineage.json", "scores.json"
_STATE, _PAST = "state.safetensors", "past.parquet"


@dataclass(frozen=True)
class Version:
    """What a version holds."""

    config: Mapping[str, Any]
    """The predictor's settings, and all else that a state must fit; when published also `published_at` and `files`."""
    lineage: Mapping[str, Any]
    """What it was trained on, with digests."""
    scores: Mapping[str, Any]
    """How well it forecast in replay."""
    state: dict[str, np.ndarray]
    """The predictor's state."""
    past: pa.Table
    """The groups that it was trained on, rows of `schemas.PAST`."""


@contextlib.contextmanager
def publishing(layout: Layout, name: str) -> Iterator[None]:
    """Keep other publishers of a name waiting while one compares, publishes and promotes.

    Raises:
        StoreError: the name is not allowed, or nothing can be written.
    """
    with one_at_a_time(layout.publisher_guard(name)):
        yield


def publish(layout: Layout, name: str, version: Version) -> int:
    """Store a version under the next number; a publisher that is killed leaves none.

    The number of a version that was promoted and deleted is not given again.

    Raises:
        StoreError: the name is not allowed, the promotions log is damaged, or the file system refuses the write.
    """
    with one_at_a_time(layout.predictor_guard(name)):
        remove_leftovers(layout.predictor(name))
        given = [*versions(layout, name), *(line.version for line in promotions(layout, name))]
        number = max(given, default=0) + 1
        with new_folder(layout.predictor_version(name, number)) as folder:
            _write(folder, version)
    return number


def promote(layout: Layout, name: str, version: int, reason: str) -> None:
    """Make a version the one that `@best` means, and log why.

    Raises:
        StoreError: there is no such version.
    """
    _check_exists(layout, name, version)
    with one_at_a_time(layout.predictor_guard(name)):
        add_promotion(layout, name, Promotion(version, reason, _now()))


def standing_promotions(layout: Layout, name: str) -> list[Promotion]:
    """The promotions of versions that are still there, oldest first; the last is that of `@best`.

    Raises:
        StoreError: the log is damaged.
    """
    known = versions(layout, name)
    return [line for line in promotions(layout, name) if line.version in known]


def predictor_names(layout: Layout) -> list[str]:
    """Names that have a version."""
    folders = layout.predictors().glob("[!.]*")
    return sorted(folder.name for folder in folders if numbers_in(folder, VERSION_FOLDER))


def versions(layout: Layout, name: str) -> list[int]:
    """Versions of a name, ascending."""
    return numbers_in(layout.predictor(name), VERSION_FOLDER)


def resolve(layout: Layout, reference: str) -> tuple[str, int]:
    """Name and number that `NAME`, `NAME@latest`, `NAME@best` or `NAME@NUMBER` means; the first two mean the same.

    Raises:
        StoreError: there is no such version.
    """
    name, at, wanted = reference.partition("@")
    known = versions(layout, name)
    if not known:
        names = ", ".join(predictor_names(layout)) or "none"
        raise StoreError(f"no predictor {name!r} is published in {layout.root}; it has: {names}")
    if wanted == "latest" or not at:
        return name, known[-1]
    if wanted == "best":
        return name, _best(layout, name)
    if not (wanted.isascii() and wanted.isdigit()):
        raise StoreError(f"predictor {reference!r}: after the @ comes the number of a version, latest or best")
    _check_exists(layout, name, int(wanted))
    return name, int(wanted)


def read_version(layout: Layout, name: str, number: int) -> Version:
    """A version, all of its files compared with their digests.

    Raises:
        StoreError: there is none, or it is damaged.
    """
    _check_exists(layout, name, number)
    folder = layout.predictor_version(name, number)
    try:
        config, lineage, scores = _read_about(folder)
        for file, digest in config["files"].items():
            if file_digest(folder / file) != digest:
                raise StoreError(f"{file} is not what was published")
        return Version(
            config=config,
            lineage=lineage,
            scores=scores,
            state=load((folder / _STATE).read_bytes()),
            past=read_table(folder / _PAST, PAST),
        )
    except (OSError, ValueError, SafetensorError, StoreError) as error:
        raise StoreError(
            f"version {number} of predictor {name} is damaged ({error}): restore or delete {folder}"
        ) from error


def version_digest(layout: Layout, name: str, number: int) -> str:
    """SHA-256 of a version's config, which holds the digests of its other files.

    Raises:
        StoreError: there is no such version.
    """
    _check_exists(layout, name, number)
    return file_digest(layout.predictor_version(name, number) / _CONFIG)


def list_versions(layout: Layout) -> list[dict[str, Any]]:
    """Name, number, config, lineage, scores and last promotion of every version; a damaged one is left out, named."""
    return [row for name in predictor_names(layout) for row in _list_versions(layout, name)]


def damaged_predictors(layout: Layout) -> list[tuple[str, str]]:
    """Path below the root and fault of every version that is not as it was published, and of damaged promotion logs."""
    faulty: list[Path] = []
    for name in sorted(folder.name for folder in layout.predictors().glob("[!.]*")):
        for number in versions(layout, name):
            with _noting(layout.predictor_version(name, number), faulty):
                read_version(layout, name, number)
        with _noting(layout.promotions(name), faulty):
            promotions(layout, name)
    return [(path.relative_to(layout.root).as_posix(), "damaged") for path in faulty]


@contextlib.contextmanager
def _noting(path: Path, faulty: list[Path]) -> Iterator[None]:
    try:
        yield
    except StoreError:
        faulty.append(path)


def _list_versions(layout: Layout, name: str) -> list[dict[str, Any]]:
    try:
        log = standing_promotions(layout, name)
    except StoreError as error:
        logger.warning("%s", error)
        log = []
    rows = []
    for number in versions(layout, name):
        folder = layout.predictor_version(name, number)
        try:
            config, lineage, scores = _read_about(folder)
        except (OSError, ValueError) as error:
            logger.warning("version %d of predictor %s is damaged (%s) and left out", number, name, error)
            continue
        last = next((line for line in reversed(log) if line.version == number), None)
        about = {"config": config, "lineage": lineage, "scores": scores}
        rows.append(
            {"name": name, "version": number, "promotion": last, "best": bool(last and last is log[-1]), **about}
        )
    return rows


def _write(folder: Path, version: Version) -> None:
    contents = {
        _STATE: save({name: array.copy(order="C") for name, array in version.state.items()}),
        _PAST: table_bytes(version.past.cast(PAST)),
        _LINEAGE: _json(version.lineage),
        _SCORES: _json(version.scores),
    }
    for file, data in contents.items():
        (folder / file).write_bytes(data)
    files = {file: file_digest(folder / file) for file in contents}
    (folder / _CONFIG).write_bytes(_json({**version.config, "published_at": _now(), "files": files}))


def _best(layout: Layout, name: str) -> int:
    log = standing_promotions(layout, name)
    if not log:
        why = "all that were promoted are gone" if promotions(layout, name) else "no version was promoted"
        numbers = ", ".join(map(str, versions(layout, name)))
        raise StoreError(f"predictor {name} has no @best, because {why}; it has: {numbers}")
    return log[-1].version


def _check_exists(layout: Layout, name: str, number: int) -> None:
    known = versions(layout, name)
    if number not in known:
        numbers = ", ".join(map(str, known)) or "none"
        raise StoreError(f"predictor {name} has no version {number} in {layout.root}; it has: {numbers}")


def _read_about(folder: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Config, lineage and scores of a version.

    Raises:
        OSError, ValueError: a file cannot be read, or does not say what it has to.
    """
    config, lineage, scores = (json.loads((folder / file).read_text()) for file in (_CONFIG, _LINEAGE, _SCORES))
    if not _has_objects(config, "predictor", "files") or set(config["files"]) != {_STATE, _PAST, _LINEAGE, _SCORES}:
        raise ValueError(f"{_CONFIG} does not tell the predictor and the digests of the files")
    if not _has_objects(lineage, "runs", "datasets"):
        raise ValueError(f"{_LINEAGE} does not tell runs and datasets")
    if not isinstance(scores, dict):
        raise ValueError(f"{_SCORES} holds no object")
    return config, lineage, scores


def _has_objects(found: Any, *names: str) -> bool:
    return isinstance(found, dict) and all(isinstance(found.get(name), dict) for name in names)


def _json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, indent=2, ensure_ascii=False).encode() + b"\n"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
