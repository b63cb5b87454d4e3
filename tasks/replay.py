"""A replay from beginning to end: find the history, walk it, judge, and publish the best."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np

from models.difficulty.by_step import informative_shares, judge_steps
from models.difficulty.prequential import SLICES, Groups, calibration, judge
from models.records import Floats, is_informative
from models.seeding import derive_rng
from storage.layout import Layout
from storage.replay import find_steps
from storage.runs import Run, read_run
from storage.store import open_store
from tasks.leaderboard import Line, ReplayReport
from tasks.publish import already_published, publish_best
from tasks.registry import settings_of
from tasks.replay_plan import ReplayPlan
from tasks.replay_pool import replay_pool
from tasks.selectors import rules_embed
from tasks.walk import Contender, Walk, is_own, walk_run

Watch = Callable[[int], AbstractContextManager[Callable[[str], None]]]
"""Given the number of steps, opens what is told the run of each step that is done."""


def unwatched(total: int) -> AbstractContextManager[Callable[[str], None]]:
    """Shows nothing."""
    return nullcontext(lambda run: None)


def replay_history(plan: ReplayPlan, watch: Watch = unwatched) -> ReplayReport:
    """Walk the runs of the plan with its predictors, judge them, and publish the best where the plan says so.

    A history that was published already is not walked again.

    Raises:
        StoreError: nothing matches, or the store cannot be read.
        ModelError: a predictor cannot be replayed, or does not keep to the order of things.
    """
    layout = open_store(plan.store)
    chosen = find_steps(layout, plan.runs, plan.where)
    records = [_record(layout, one.run) for one in chosen]
    history = list(zip(records, chosen, strict=True))
    done = already_published(layout, plan, history) if plan.publish else ""
    if done:
        return ReplayReport(store=str(layout.root), published=done)
    pool, faults = replay_pool(layout, records, plan.predictors.values(), embedded=rules_embed(records, plan.rules))
    faults += [fault for one in chosen for fault in one.faults]
    contenders = [Contender(label, settings) for label, settings in plan.predictors.items()]
    walk = Walk(layout, pool, contenders, faults, alone=len(chosen) == 1, rules=plan.rules)
    with watch(sum(len(one.steps) for one in chosen)) as walk.advance:
        for record, steps in history:
            walk_run(walk, record, steps)
    report = _report(walk, records, plan.seed)
    return replace(report, published=publish_best(walk, plan, report, history)) if plan.publish else report


def _report(walk: Walk, records: Sequence[Run], seed: int) -> ReplayReport:
    groups = judged_groups(walk)
    informative = is_informative(groups.successes, groups.valid)
    lines = [_line(walk, one, groups, records, derive_rng(seed, "bootstrap")) for one in walk.contenders]
    return ReplayReport(
        store=str(walk.layout.root),
        runs=dict(Counter(run for run, _ in walk.steps)),
        steps=walk.steps,
        prompts=len(np.unique(groups.row)),
        groups=len(groups.row),
        slices={name: len(groups.of(name)) for name in SLICES},
        informative=informative_shares(groups, walk.sizes),
        informative_share=float(informative.mean()) if len(informative) else float("nan"),
        stored_forecasts=walk.stored_forecasts if walk.alone else 0,
        lines=sorted(lines, key=lambda line: line.score),
        values=walk.values,
        faults=walk.faults,
    )


def judged_groups(walk: Walk) -> Groups:
    """What all predictors are judged by."""
    column = walk.shared.column
    return Groups(
        run=column("run").astype(np.int32),
        row=column("row").astype(np.int32),
        successes=column("successes").astype(np.int32),
        valid=column("valid").astype(np.int32),
        weight=column("weight").astype(np.float32),
        decision=column("decision").astype(np.int8),
    )


def _line(walk: Walk, one: Contender, groups: Groups, records: Sequence[Run], rng: np.random.Generator) -> Line:
    p_success, chance = _column(one, "p_success"), _column(one, "chance")
    steps = judge_steps(p_success, chance, groups, walk.sizes)
    return Line(
        label=one.label,
        settings=settings_of(one.settings),
        scores=judge(p_success, chance, groups, rng),
        calibration=calibration(p_success, groups),
        best_half=steps.best_half,
        spearman=steps.spearman,
        expected=steps.expected,
        reproduced=one.reproduced if walk.alone and is_own(one.settings, records[0]) else None,
    )


def _column(one: Contender, name: str) -> Floats:
    values: Floats = one.tally.column(name).astype(np.float64)
    return values


def _record(layout: Layout, run: str) -> Run:
    record = read_run(layout, run)
    assert record is not None
    return record
