"""Small files of others, as tests write them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.layout import Layout
from storage.prompts import read_dataset, write_dataset
from tests.storage.small_history import make_prompt

TEXTS = ("what is 1 + 1?", "what is 1 * 2?", "what is 3 - 1?")


def write_lines(path: Path, rows: Sequence[Any]) -> Path:
    """A file of JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """A Parquet file."""
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def make_dataset(layout: Layout, name: str = "toy") -> list[str]:
    """A dataset of `TEXTS` with a tag `index` of 10, 11 and 12; returns their ids."""
    rows = [make_prompt(text, tags=json.dumps({"index": 10 + number})) for number, text in enumerate(TEXTS)]
    write_dataset(layout, name, rows)
    ids: list[str] = read_dataset(layout, name)["prompt_id"].to_pylist()
    return ids
