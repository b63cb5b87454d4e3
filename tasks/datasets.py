"""What predictors read of a stored dataset beside its texts: embeddings, made once, and categories."""

import json
import logging

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from models.embeddings import WordllamaEncoder
from models.errors import ModelError
from storage.errors import StoreError
from storage.files import set_aside
from storage.layout import Layout
from storage.prompts import read_dataset, read_embeddings, write_embeddings

logger = logging.getLogger(__name__)


def dataset_embeddings(layout: Layout, dataset: str, ids: list[str], texts: list[str]) -> NDArray[np.float32]:
    """[prompts, dim] embeddings of a dataset in its own order, cached by the store or made, and kept if possible."""
    encoder = WordllamaEncoder()
    cached = _cached_embeddings(layout, encoder.name, dataset, ids)
    if cached is not None:
        flat = cached.combine_chunks().flatten().to_numpy()
        return np.array(flat, dtype=np.float32).reshape(len(ids), -1)  # Arrow's own memory is read-only
    found = encoder.encode(texts)
    rows = pa.FixedSizeListArray.from_arrays(found.ravel(), found.shape[1])
    try:
        write_embeddings(layout, encoder.name, dataset, ids, rows)
    except StoreError as error:
        logger.warning("the embeddings of %s are not kept: %s", dataset, error)
    return found


def dataset_categories(layout: Layout, dataset: str, tag: str) -> tuple[str, ...]:
    """What a tag says of each prompt of a dataset, in its own order.

    Raises:
        ModelError: a prompt lacks the tag.
    """
    rows = read_dataset(layout, dataset).select(["prompt_id", "tags"]).to_pylist()
    tags = [json.loads(row["tags"]) if row["tags"] else {} for row in rows]
    for row, found in zip(rows, tags, strict=True):
        if tag not in found:
            raise ModelError(
                f"dataset {dataset}: prompt {row['prompt_id']} has no tag {tag!r}, by which predictor sec "
                f"groups prompts; its tags: {', '.join(found) or 'none'}. Name one with --set predictor.category=TAG"
            )
    return tuple(str(found[tag]) for found in tags)


def _cached_embeddings(layout: Layout, encoder: str, dataset: str, ids: list[str]) -> pa.ChunkedArray | None:
    """Embeddings of the prompts `ids`, in their order; a cache that holds those of others is set aside."""
    cached = read_embeddings(layout, encoder, dataset)
    if cached is None:
        return None
    if cached["prompt_id"].to_pylist() != ids:
        path = layout.embeddings(encoder, dataset)
        logger.warning("%s is of other prompts; set aside as %s and made again", path, set_aside(path).name)
        return None
    return cached["embedding"]
