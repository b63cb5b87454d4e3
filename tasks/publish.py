"""Publishes the best predictor of a replay, and promotes it where it beats the version that was the best so far.

One publisher of a name at a time compares, publishes and promotes, and sees what
another did while it walked the history. A version that was published and not
promoted is compared again: its publisher was killed, or the margin is another.
"""

from dataclasses import asdict
from typing import Any

from models.difficulty.inputs import reads_past
from storage.errors import StoreError
from storage.layout import Layout
from storage.past import commits_digest
from storage.prompts import dataset_digest
from storage.registry import (
    promote,
    promotions,
    publish,
    publishing,
    read_version,
    standing_promotions,
    versions,
)
from tasks.heldout import Side
from tasks.leaderboard import SCORE, ReplayReport, no_nan, score_json
from tasks.promotion import History, Verdict, compare
from tasks.registry import make_version, usable_settings
from tasks.replay_plan import ReplayPlan
from tasks.replay_pool import stored_datasets
from tasks.walk import Contender, Walk, learned_groups


def already_published(layout: Layout, plan: ReplayPlan, history: History) -> str:
    """What to say when the newest version was trained on this very history by this very replay; else nothing.

    Raises:
        StoreError: the promotions log is damaged, or nothing can be written.
    """
    promotions(layout, plan.publish)  # a damaged log is found before the history is walked
    number = _published(layout, plan, history)
    if not number or _is_best(layout, plan.publish, number):
        return f"{_nothing_new(plan, number)}: nothing done" if number else ""
    with publishing(layout, plan.publish):
        return _settle(layout, plan, history, number)


def publish_best(walk: Walk, plan: ReplayPlan, report: ReplayReport, history: History) -> str:
    """Publish the first of the leaderboard, trained on all groups; says under which number, and whether it is promoted.

    Raises:
        StoreError: no group was judged, the promotions log is damaged, or nothing can be written.
    """
    if not report.groups:
        raise StoreError("nothing is published: the history has no group to learn from")
    winner = next(one for one in walk.contenders if one.label == report.lines[0].label)
    with publishing(walk.layout, plan.publish):
        if number := _published(walk.layout, plan, history):
            return _settle(walk.layout, plan, history, number)
        verdict = compare(walk.layout, plan, history, Side(winner.settings, learned_groups(walk)))
        number = _publish(walk, plan, report, history, winner, verdict)
        if verdict.promoted:
            promote(walk.layout, plan.publish, number, verdict.reason)
    what = "promoted to @best" if verdict.promoted else "not promoted"
    return f"{winner.label} is version {number} of {plan.publish}, {what}: {verdict.reason}"


def _published(layout: Layout, plan: ReplayPlan, history: History) -> int:
    """The newest version, if it can be used and was trained on this very history by this very replay; else 0."""
    number = max(versions(layout, plan.publish), default=0)
    try:
        version = read_version(layout, plan.publish, number)
        usable_settings(version, f"{plan.publish}@{number}")
    except StoreError:
        return 0
    same = (
        version.lineage["runs"] == {run.run: _lineage(layout, run.run, steps.steps[-1]) for run, steps in history}
        and version.lineage["datasets"] == {name: dataset_digest(layout, name) for name in _datasets(layout, history)}
        and version.scores.get("asked") == _asked(plan, history)
    )
    return number if same else 0


def _settle(layout: Layout, plan: ReplayPlan, history: History, number: int) -> str:
    """Promote a version that was published before, if it is not the best already and is better by now."""
    nothing = _nothing_new(plan, number)
    if _is_best(layout, plan.publish, number):
        return f"{nothing}: nothing done"
    version = read_version(layout, plan.publish, number)
    settings = usable_settings(version, f"{plan.publish}@{number}")
    verdict = compare(layout, plan, history, Side(settings, version.past))
    if not verdict.promoted:
        return f"{nothing}, which is not promoted: {verdict.reason}"
    promote(layout, plan.publish, number, verdict.reason)
    return f"{nothing}, which is promoted to @best now: {verdict.reason}"


def _is_best(layout: Layout, name: str, number: int) -> bool:
    return [line.version for line in standing_promotions(layout, name)[-1:]] == [number]


def _nothing_new(plan: ReplayPlan, number: int) -> str:
    return f"nothing new since version {number} of {plan.publish}"


def _publish(
    walk: Walk, plan: ReplayPlan, report: ReplayReport, history: History, winner: Contender, verdict: Verdict
) -> int:
    assert winner.trial is not None
    heldout = {SCORE: verdict.nll, "best": verdict.best, "published": verdict.best_nll, "prompts": verdict.prompts}
    version = make_version(
        walk.layout,
        winner.settings,
        {} if reads_past(winner.settings) else winner.trial.predictor.state_dict(),
        past=learned_groups(walk),
        snapshot={run.run: steps.steps[-1] for run, steps in history},
        datasets=_datasets(walk.layout, history),
        scores={
            "asked": _asked(plan, history),
            "replay": score_json(report.lines[0]),
            "leaderboard": {line.label: line.score for line in report.lines},
            "heldout": no_nan(heldout),
        },
    )
    return publish(walk.layout, plan.publish, version)


def _lineage(layout: Layout, run: str, step: int) -> dict[str, Any]:
    return {"step": step, "sha256": commits_digest(layout, run, step)}


def _datasets(layout: Layout, history: History) -> list[str]:
    return stored_datasets(layout, [run for run, _ in history])


def _asked(plan: ReplayPlan, history: History) -> dict[str, Any]:
    """What, beside the history, decides what is published."""
    return {
        "predictors": {label: asdict(settings) for label, settings in plan.predictors.items()},
        "steps": {run.run: len(steps.steps) for run, steps in history},
        "where": plan.where,
        "seed": plan.seed,
        "heldout": plan.heldout,
    }
