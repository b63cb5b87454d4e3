"""A version of a predictor, small enough to compare whole."""

import os

import numpy as np
import pyarrow as pa

from storage.registry import Version
from storage.schemas import PAST


def make_version(rate: float = 0.5, size: int = 3) -> Version:
    """Three groups of a run, and a state of `size` numbers that are all `rate`."""
    groups = [
        {"run_id": "first", "step": step, "prompt_id": "p0", "successes": 1, "valid": 4, "mean_tokens": 2.5}
        for step in range(1, 4)
    ]
    return Version(
        config={"predictor": {"name": "mopps", "decay": 0.5}, "schema_version": 1, "encoder": ""},
        lineage={"runs": {"first": {"step": 3, "sha256": "0" * 64}}, "datasets": {}, "groups": 3, "pid": os.getpid()},
        scores={"brier": rate},
        state={"alpha": np.full(size, rate), "counts": np.arange(6).reshape(2, 3).T},
        past=pa.Table.from_pylist(groups, PAST),
    )
