"""Runs and published predictors as tables: what queries see of them."""

import json

import pyarrow as pa

from storage.layout import Layout
from storage.registry import list_versions
from storage.runs import list_runs

_RUNS = pa.schema(
    {
        "run_id": pa.string(),
        "state": pa.string(),
        "created_at": pa.string(),
        "target": pa.int64(),
        "message": pa.string(),
        "config": pa.string(),
        "pins": pa.string(),
        "forked_from": pa.string(),
    }
)

_PREDICTORS = pa.schema(
    {
        "name": pa.string(),
        "version": pa.int64(),
        "predictor": pa.string(),
        "published_at": pa.string(),
        "best": pa.bool_(),
        "promoted_at": pa.string(),
        "promotion_reason": pa.string(),
        "scores": pa.string(),
        "lineage": pa.string(),
        "config": pa.string(),
    }
)


def runs_table(layout: Layout) -> pa.Table:
    """A row a run, oldest first."""
    rows = [
        {
            "run_id": run.run,
            "state": run.state,
            "created_at": run.created_at,
            "target": run.target,
            "message": run.message,
            "config": json.dumps(run.config),
            "pins": json.dumps(run.pins),
            "forked_from": json.dumps(run.forked_from),
        }
        for run in list_runs(layout)
    ]
    return pa.Table.from_pylist(rows, schema=_RUNS)


def predictors_table(layout: Layout) -> pa.Table:
    """A row a version, by name and number."""
    rows = [
        {
            "name": row["name"],
            "version": row["version"],
            "predictor": row["config"].get("predictor", {}).get("name"),
            "published_at": row["config"].get("published_at"),
            "best": row["best"],
            "promoted_at": row["promotion"] and row["promotion"].promoted_at,
            "promotion_reason": row["promotion"] and row["promotion"].reason,
            **{name: json.dumps(row[name]) for name in ("scores", "lineage", "config")},
        }
        for row in list_versions(layout)
    ]
    return pa.Table.from_pylist(rows, schema=_PREDICTORS)
