"""Publishes the best predictor of a replay, and promotes it where it beats the version that was the best so far.

One publisher of a name at a time compares, publishes and promotes, and sees what
another did while it walked the history. A version that was published and not
promoted is considered again: its publisher was killed, or the margin is another.
"""

from dataclasses import asdict
from typing import Any

from models.difficulty.inputs import reads_past
from storage.errors import StoreError
from storage.layout import Layout
from storage.promotions import promotions
from storage.registry import list_versions, promote, publish, publishing, read_version, standing_promotions
from tasks.leaderboard import ReplayReport, score_json
from tasks.offline import train_on
from tasks.promotion import Comparison, compare, decide, find_best, stored_comparison, version_side
from tasks.registry import lineage_of, make_version
from tasks.replay_plan import ReplayPlan
from tasks.replay_pool import stored_datasets
from tasks.unseen import Replayed, Side
from tasks.walk import Walk, learned_groups


def already_published(layout: Layout, plan: ReplayPlan, runs: Replayed) -> str:
    """What to say when a version was trained on this very history by this very replay; else nothing.

    Raises:
        StoreError: the promotions log is damaged, or nothing can be written.
    """
    promotions(layout, plan.publish)  # a damaged log is found before the history is walked
    number = _published(layout, plan, runs)
    if not number or _is_best(layout, plan.publish, number):
        return f"{_nothing_new(plan, number)}: nothing done" if number else ""
    with publishing(layout, plan.publish):
        return _settle(layout, plan, runs, number)


def publish_best(walk: Walk, plan: ReplayPlan, report: ReplayReport, runs: Replayed) -> str:
    """Publish the first of the leaderboard, trained on all groups; says under which number, and whether it is promoted.

    Raises:
        StoreError: no group was judged, the promotions log is damaged, or nothing can be written.
    """
    if not report.groups:
        raise StoreError("nothing is published: the history has no group to learn from")
    winner = next(one for one in walk.contenders if one.label == report.lines[0].label)
    side = Side(winner.settings, learned_groups(walk), _datasets(walk.layout, runs))
    with publishing(walk.layout, plan.publish):
        if number := _published(walk.layout, plan, runs):
            return _settle(walk.layout, plan, runs, number)
        best = find_best(walk.layout, plan.publish)
        comparison = compare(walk.layout, plan, runs, side, best)
        promoted, reason = decide(comparison, plan.margin, best)
        number = _publish(walk, plan, report, runs, side, comparison)
        if promoted:
            promote(walk.layout, plan.publish, number, reason)
    what = "promoted to @best" if promoted else "not promoted"
    return f"{winner.label} is version {number} of {plan.publish}, {what}: {reason}"


def _published(layout: Layout, plan: ReplayPlan, runs: Replayed) -> int:
    """The newest version that can be used and was trained on this very history by this very replay; 0 without any."""
    lineage, asked = _lineage(layout, runs), _asked(plan, runs)
    for row in reversed([one for one in list_versions(layout) if one["name"] == plan.publish]):
        if row["lineage"].items() >= lineage.items() and row["scores"].get("asked") == asked:
            try:
                version_side(read_version(layout, plan.publish, row["version"]), plan.publish)
            except StoreError:
                continue
            number: int = row["version"]
            return number
    return 0


def _settle(layout: Layout, plan: ReplayPlan, runs: Replayed, number: int) -> str:
    """Promote a version that was published before, if it is not the best already and is better by now."""
    nothing = _nothing_new(plan, number)
    if _is_best(layout, plan.publish, number):
        return f"{nothing}: nothing done"
    version = read_version(layout, plan.publish, number)
    best, comparison = find_best(layout, plan.publish), stored_comparison(version)
    if comparison is None or comparison.best != best.number:
        comparison = compare(layout, plan, runs, version_side(version, f"{plan.publish}@{number}"), best)
    promoted, reason = decide(comparison, plan.margin, best)
    if not promoted:
        return f"{nothing}, which is not promoted: {reason}"
    promote(layout, plan.publish, number, reason)
    return f"{nothing}, which is promoted to @best now: {reason}"


def _is_best(layout: Layout, name: str, number: int) -> bool:
    return [line.version for line in standing_promotions(layout, name)[-1:]] == [number]


def _nothing_new(plan: ReplayPlan, number: int) -> str:
    return f"nothing new since version {number} of {plan.publish}"


def _publish(
    walk: Walk, plan: ReplayPlan, report: ReplayReport, runs: Replayed, side: Side, comparison: Comparison
) -> int:
    version = make_version(
        side.settings,
        {} if reads_past(side.settings) else train_on(side.settings, walk.pool, side.groups).state_dict(),
        past=side.groups,
        lineage=_lineage(walk.layout, runs),
        scores={
            "asked": _asked(plan, runs),
            "replay": score_json(report.lines[0]),
            "leaderboard": {line.label: line.score for line in report.lines},
            "heldout": comparison.stored(),
        },
    )
    return publish(walk.layout, plan.publish, version)


def _lineage(layout: Layout, runs: Replayed) -> dict[str, Any]:
    return lineage_of(layout, {run.run: steps.steps[-1] for run, steps in runs}, _datasets(layout, runs))


def _datasets(layout: Layout, runs: Replayed) -> list[str]:
    return stored_datasets(layout, [run for run, _ in runs])


def _asked(plan: ReplayPlan, runs: Replayed) -> dict[str, Any]:
    """What, beside the history, decides what is published."""
    return {
        "predictors": {label: asdict(settings) for label, settings in plan.predictors.items()},
        "steps": {run.run: len(steps.steps) for run, steps in runs},
        "where": plan.where,
        "seed": plan.seed,
        "heldout": plan.heldout,
    }
