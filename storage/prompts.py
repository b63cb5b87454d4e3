"""Datasets of prompts, and the identity of a prompt."""

import contextlib
import hashlib
import json
import logging
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import StoreError
from storage.files import file_digest, new_file, set_aside, write_once
from storage.layout import Layout
from storage.parquet import build_table, read_table, table_bytes
from storage.schemas import EMBEDDINGS, PROMPTS

logger = logging.getLogger(__name__)

Message = tuple[str, str]


def prompt_id(messages: Sequence[Message]) -> str:
    """Identity of a prompt: the first 32 hex digits of SHA-256 of its canonical text.

    Canonical is the JSON list of [role, content], contents in Unicode NFC, with
    line feeds only, and stripped. The answer, the reward, the system prompt and
    the instruction are no part of it.
    """
    parts = [[role, canonical(content)] for role, content in messages if role != "system"]
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_held_out(identity: str, share: float) -> bool:
    """Whether a prompt is among the share that is held out, which is the same in every file: its id decides."""
    digits = 13  # as many as a float holds
    return float(int(identity[:digits], 16)) < share * 16.0**digits


def canonical(content: str) -> str:
    """A message's text as identity reads it: Unicode NFC, line feeds only, stripped."""
    return unicodedata.normalize("NFC", content.replace("\r\n", "\n").replace("\r", "\n")).strip()


def write_dataset(layout: Layout, name: str, prompts: Sequence[dict[str, Any]]) -> None:
    """Store a dataset; rows hold the columns of `schemas.PROMPTS` but dataset, position, prompt_id and text.

    Raises:
        StoreError: the dataset exists, or two prompts have the same identity.
    """
    ids = [prompt_id(row["messages"]) for row in prompts]
    first: dict[str, int] = {}
    for index, value in enumerate(ids):
        if first.setdefault(value, index) != index:
            raise StoreError(f"dataset {name}: prompt {index} is the same as prompt {first[value]}: remove one")
    try:
        write_once(layout.dataset(name), table_bytes(_dataset_table(name, 0, ids, prompts)))
    except FileExistsError:
        raise StoreError(f"dataset {name} exists already: choose another name") from None


def stream_dataset(layout: Layout, name: str, batches: Iterable[Sequence[dict[str, Any]]]) -> bool:
    """Store a dataset that need not fit in memory; no two prompts may have the same identity.

    Args:
        batches: rows as `write_dataset` takes them, with their `prompt_id`.

    Returns:
        Whether it was stored; False where the store has it already, with the same prompts.

    Raises:
        StoreError: another dataset has the name.
    """
    path = layout.dataset(name)
    try:
        with new_file(path) as temporary:
            _write_batches(temporary, name, batches)
            digest = file_digest(temporary)
    except FileExistsError:
        if file_digest(path) == digest:
            return False
        raise StoreError(
            f"dataset {name} exists already, with other prompts (--where and --heldout choose): choose another name"
        ) from None
    return True


def _write_batches(path: Path, name: str, batches: Iterable[Sequence[dict[str, Any]]]) -> None:
    position = 0
    with pq.ParquetWriter(path, PROMPTS, compression="zstd", write_page_checksum=True) as file:
        for rows in batches:
            file.write_table(_dataset_table(name, position, [row["prompt_id"] for row in rows], rows))
            position += len(rows)


def _dataset_table(name: str, position: int, ids: Sequence[str], rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows of a dataset, the first of which stands at `position`."""
    columns = {
        "position": range(position, position + len(rows)),
        "prompt_id": ids,
        "messages": [[{"role": role, "content": text} for role, text in row["messages"]] for row in rows],
        "text": ["\n\n".join(text for _, text in row["messages"]) for row in rows],
        **{key: [row[key] for row in rows] for key in ("answer", "reward", "system", "instruction", "tags")},
    }
    return build_table(PROMPTS, columns, dataset=name)


def holds_dataset(layout: Layout, name: str) -> bool:
    """Whether the store has the dataset."""
    return layout.dataset(name).exists()


def read_dataset(layout: Layout, name: str) -> pa.Table:
    """All prompts of a dataset, in its own order.

    Raises:
        StoreError: the store has no such dataset.
    """
    if not holds_dataset(layout, name):
        names = ", ".join(dataset_names(layout)) or "none"
        raise StoreError(f"no dataset {name} in {layout.root}; it has: {names}")
    return read_table(layout.dataset(name), PROMPTS)


def dataset_names(layout: Layout) -> list[str]:
    """Datasets of the store, by name."""
    return sorted(path.parent.name for path in layout.datasets().glob("*/part-0.parquet"))


def dataset_digest(layout: Layout, name: str) -> str:
    """SHA-256 of a dataset's file."""
    return file_digest(layout.dataset(name))


def read_embeddings(layout: Layout, encoder: str, dataset: str) -> pa.Table | None:
    """Cached embeddings of a dataset, in its own order; None when there are none that can be read."""
    path = layout.embeddings(encoder, dataset)
    if not path.exists():
        return None
    try:
        return read_table(path, EMBEDDINGS)
    except StoreError as error:
        logger.warning("%s; set aside as %s and made again", error, set_aside(path).name)
        return None


def write_embeddings(layout: Layout, encoder: str, dataset: str, ids: Sequence[str], embeddings: pa.Array) -> None:
    """Cache the embeddings of a dataset; does nothing when another process was first."""
    table = build_table(EMBEDDINGS, {"prompt_id": ids, "embedding": embeddings})
    with contextlib.suppress(FileExistsError):
        write_once(layout.embeddings(encoder, dataset), table_bytes(table))
