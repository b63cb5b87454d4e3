"""Publishes the best predictor of a replay, and promotes it where it beats the version that was the best so far.

The comparison is on prompts that neither has learned from: a share of them is
held out by a hash of their ids, both predictors are trained anew on their own
groups of all other prompts, and both forecast the groups of those held out.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError

from models.difficulty import build_predictor
from models.difficulty.base import Predictor
from models.difficulty.inputs import reads_past
from models.difficulty.metrics import forecast_quality
from models.records import Observation, Pool
from models.seeding import derive_seed
from models.settings import PredictorSettings
from storage.errors import StoreError
from storage.layout import Layout
from storage.past import commits_digest
from storage.prompts import dataset_digest
from storage.registry import list_versions, promote, promotions, publish, read_version
from storage.replay import RunSteps
from storage.runs import Run
from tasks.leaderboard import SCORE, ReplayReport, score_json
from tasks.past import past_runs
from tasks.registry import make_version
from tasks.replay_plan import ReplayPlan
from tasks.replay_pool import stored_datasets
from tasks.walk import Walk, learned_groups


def already_published(layout: Layout, plan: ReplayPlan, records: Sequence[Run], chosen: Sequence[RunSteps]) -> str:
    """What to say when the newest version was trained on this very history by this very replay; else nothing."""
    known = [one for one in list_versions(layout) if one["name"] == plan.publish]
    if not known:
        return ""
    newest = known[-1]
    runs = {run: {"step": step, "sha256": commits_digest(layout, run, step)} for run, step in _snapshot(chosen).items()}
    datasets = {name: dataset_digest(layout, name) for name in stored_datasets(layout, records)}
    lineage = newest["lineage"]
    same = (lineage["runs"], lineage["datasets"], newest["scores"]["asked"]) == (runs, datasets, _asked(plan, chosen))
    return f"nothing new since version {newest['version']} of {plan.publish}: nothing done" if same else ""


def publish_best(
    walk: Walk, plan: ReplayPlan, report: ReplayReport, records: Sequence[Run], chosen: Sequence[RunSteps]
) -> str:
    """Publish the first of the leaderboard, trained on all groups; says under which number, and whether it is promoted.

    Raises:
        StoreError: no group was judged, or a version is damaged.
    """
    if not report.groups:
        raise StoreError("nothing is published: the history has no group to learn from")
    winner = next(one for one in walk.contenders if one.label == report.lines[0].label)
    assert winner.trial is not None
    best = promotions(walk.layout, plan.publish)[-1:]
    groups = learned_groups(walk)
    heldout = _heldout_rows(walk.pool, plan)
    ours = heldout_nll(walk, winner.settings, groups, heldout)
    theirs = _published_nll(walk, plan.publish, best[0].version, heldout) if best else float("nan")
    promoted, reason = _judge(ours, theirs, plan.margin, best[0].version if best else 0)
    version = make_version(
        walk.layout,
        winner.settings,
        {} if reads_past(winner.settings) else winner.trial.predictor.state_dict(),
        past=groups,
        snapshot=_snapshot(chosen),
        datasets=stored_datasets(walk.layout, records),
        scores={
            "asked": _asked(plan, chosen),
            "replay": score_json(report.lines[0]),
            "leaderboard": {line.label: line.score for line in report.lines},
            "heldout": {SCORE: _or_none(ours), "published": _or_none(theirs), "prompts": int(heldout.sum())},
        },
    )
    number = publish(walk.layout, plan.publish, version)
    if promoted:
        promote(walk.layout, plan.publish, number, reason)
    what = "promoted to @best" if promoted else "not promoted"
    return f"{winner.label} is version {number} of {plan.publish}, {what}: {reason}"


def heldout_nll(walk: Walk, settings: PredictorSettings, groups: pa.Table, heldout: np.ndarray) -> float:
    """NLL on the replayed groups of prompts that are held out, after learning from `groups` of all others.

    Args:
        groups: rows of `schemas.PAST`.
        heldout: [pool] which prompts.
    """
    ids = pa.array([one for one, out in zip(walk.pool.prompt_ids, heldout, strict=True) if not out], pa.string())
    predictor = train_on(settings, walk.pool, groups.filter(pc.is_in(groups["prompt_id"], ids)))
    row, successes, valid = (walk.shared.column(name).astype(np.int64) for name in ("row", "successes", "valid"))
    weight = walk.shared.column("weight").astype(np.float64)
    kept = np.flatnonzero(heldout[row] & (weight > 0))
    rows, place = np.unique(row[kept], return_inverse=True)
    forecast = predictor.forecast(rows, seed=derive_seed(0, "heldout"))
    return forecast_quality(forecast.p_success[place], successes[kept], valid[kept], weight[kept])[SCORE]


def train_on(settings: PredictorSettings, pool: Pool, groups: pa.Table) -> Predictor:
    """A predictor that has learned from groups, in their order.

    Args:
        groups: rows of `schemas.PAST`; those of prompts that are not in the pool are passed over.
    """
    past = past_runs(groups, pool.prompt_ids)
    if reads_past(settings):
        return build_predictor(settings, replace(pool, past=past), seed=derive_seed(0, "predictor"))
    predictor = build_predictor(settings, pool, seed=derive_seed(0, "predictor"))
    for (_, step), places in groupby(range(len(past)), key=lambda at: (past.run[at], past.step[at])):
        part = np.array(list(places))
        observation = Observation(past.row[part], past.successes[part], past.valid[part], past.mean_tokens[part])
        predictor.observe(observation, seed=derive_seed(0, int(step), "observe"))
    return predictor


def _heldout_rows(pool: Pool, plan: ReplayPlan) -> np.ndarray:
    """[pool] whether a prompt is held out: the same ones whatever else the pool holds."""
    seeds = np.array([derive_seed(plan.seed, "heldout", one) for one in pool.prompt_ids], np.float64)
    return seeds / 2.0**63 < plan.heldout


def _published_nll(walk: Walk, name: str, number: int, heldout: np.ndarray) -> float:
    """The same of a published version, trained anew without the prompts that are held out."""
    version = read_version(walk.layout, name, number)
    try:
        settings: PredictorSettings = TypeAdapter(PredictorSettings).validate_python(version.config["predictor"])
    except ValidationError as error:
        raise StoreError(f"version {number} of predictor {name} has settings that are unknown here: {error}") from None
    return heldout_nll(walk, settings, version.past, heldout)


def _judge(ours: float, theirs: float, margin: float, best: int) -> tuple[bool, str]:
    """Whether the new version is promoted, and why."""
    if not best:
        return True, "it is the first"
    compared = f"held-out {SCORE} {ours:.4f} against {theirs:.4f} of version {best}"
    if not np.isfinite(ours) or not np.isfinite(theirs):
        return False, f"{compared}: no held-out prompt was rolled out"
    if theirs - ours > margin:
        return True, f"{compared}, better by more than the margin {margin:g}"
    return False, f"{compared}, not better by more than the margin {margin:g}"


def _asked(plan: ReplayPlan, chosen: Sequence[RunSteps]) -> dict[str, Any]:
    """What, beside the history, decides what is published."""
    return {
        "predictors": {label: asdict(settings) for label, settings in plan.predictors.items()},
        "steps": {one.run: len(one.steps) for one in chosen},
        "where": plan.where,
        "seed": plan.seed,
        "heldout": plan.heldout,
    }


def _snapshot(chosen: Sequence[RunSteps]) -> dict[str, int]:
    return {one.run: one.steps[-1] for one in chosen}


def _or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None
