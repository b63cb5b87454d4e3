"""Dense replay: predictors and rules choose anew from runs whose prompts were rolled out again and again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from models.acquisition.dense import DenseHistory, DenseResult, simulate
from models.difficulty import build_predictor
from models.difficulty.inputs import reads_past
from models.records import PastRuns, Pool
from models.seeding import derive_seed
from models.settings import AcquisitionSettings
from storage.errors import StoreError
from storage.layout import Layout
from storage.past import read_groups
from storage.replay import find_steps
from storage.runs import read_run
from storage.schemas import PAST
from storage.store import open_store
from tasks.past import past_runs
from tasks.replay_plan import ReplayPlan
from tasks.replay_pool import replay_pool

LEAST_VISITS = 2.0
"""Mean visits of a prompt below which a history says too little of what others would have seen."""


@dataclass(frozen=True)
class DenseLine:
    """One selector on one run."""

    run: str
    predictor: str
    rule: str
    result: DenseResult


def dense_replay(plan: ReplayPlan, rules: Sequence[AcquisitionSettings]) -> list[DenseLine]:
    """Every predictor with every rule on every run of the plan, best hit rate of a run first.

    Raises:
        StoreError: nothing matches, or a run visited its prompts too rarely.
    """
    layout = open_store(plan.store)
    chosen = find_steps(layout, plan.runs, plan.where)
    records = [record for record in (read_run(layout, one.run) for one in chosen) if record is not None]
    pool, _ = replay_pool(layout, records, plan.predictors.values(), embedded=any(rule.name == "gps" for rule in rules))
    lines: list[DenseLine] = []
    for one in chosen:
        history = DenseHistory(_groups(layout, one.run, one.steps, pool), len(pool))
        found = [
            DenseLine(one.run, label, rule.name, _simulate(history, pool, plan, label, rule))
            for label in plan.predictors
            for rule in rules
        ]
        lines += sorted(found, key=lambda line: -line.result.hit_rate)
    return lines


def dense_rows(lines: Sequence[DenseLine]) -> list[tuple[str, ...]]:
    """The lines as cells, under a head."""
    head = ("run", "predictor", "rule", "hit rate", "oracle", "regret", "groups", "distinct", "tokens")
    return [
        head,
        *(
            (
                line.run,
                line.predictor,
                line.rule,
                f"{line.result.hit_rate:.3f}",
                f"{line.result.oracle:.3f}",
                f"{line.result.regret:.3f}",
                f"{line.result.groups:,}",
                f"{line.result.distinct:,}",
                "-" if np.isnan(line.result.tokens) else f"{line.result.tokens:,.0f}",
            )
            for line in lines
        ),
    ]


def dense_json(lines: Sequence[DenseLine]) -> list[Mapping[str, object]]:
    """The lines as JSON values."""
    return [
        {
            "run": line.run,
            "predictor": line.predictor,
            "rule": line.rule,
            "hit_rate": line.result.hit_rate,
            "oracle": line.result.oracle,
            "regret": line.result.regret,
            "groups": line.result.groups,
            "distinct": line.result.distinct,
            "tokens": None if np.isnan(line.result.tokens) else line.result.tokens,
        }
        for line in lines
    ]


def _groups(layout: Layout, run: str, steps: Sequence[int], pool: Pool) -> PastRuns:
    table = read_groups(layout, {run: steps[-1]})
    wanted = pa.array(np.isin(table["step"].to_numpy(), steps))
    groups = past_runs(table.filter(wanted), pool.prompt_ids)
    visits = len(groups) / max(len(np.unique(groups.row)), 1)
    if visits < LEAST_VISITS:
        raise StoreError(
            f"run {run} rolled each of its prompts out {visits:.1f} times on average: a dense replay wants at least "
            f"{LEAST_VISITS:g}; name other runs with --runs"
        )
    return groups


def _simulate(
    history: DenseHistory, pool: Pool, plan: ReplayPlan, label: str, rule: AcquisitionSettings
) -> DenseResult:
    settings = plan.predictors[label]
    if reads_past(settings):
        pool = replace(pool, past=past_runs(PAST.empty_table(), pool.prompt_ids))
    predictor = build_predictor(settings, pool, seed=derive_seed(plan.seed, "predictor"))
    return simulate(history, predictor, pool, rule, seed=plan.seed)
