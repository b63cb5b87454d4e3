"""How well a predictor that begins a run forecasts prompts that it never saw.

The comparison behind a promotion. A share of the prompts is held out by a hash
of their ids. Each side begins as a run that starts from it would: with its own
groups of all other prompts. Then every run of the history is walked from that
same beginning, forecast, judge, learn: what is judged are the groups of the
prompts held out, and what is learned are those of the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from models.difficulty import build_predictor
from models.difficulty.base import Predictor
from models.difficulty.inputs import reads_logprobs, reads_past
from models.difficulty.metrics import forecast_quality
from models.difficulty.prequential import Tally
from models.records import Observation, Pool
from models.seeding import derive_seed
from models.settings import PredictorSettings
from storage.layout import Layout
from storage.replay import RunSteps, read_steps
from storage.runs import Run
from tasks.leaderboard import SCORE
from tasks.observed import group_weights, observed
from tasks.past import past_runs

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Side:
    """A predictor's settings, and the groups that it begins with: rows of `schemas.PAST`."""

    settings: PredictorSettings
    groups: pa.Table


@dataclass(frozen=True)
class HeldOutScore:
    """How well a side forecast."""

    nll: float
    """NaN without any group."""
    groups: int
    prompts: int


def held_out(pool: Pool, seed: int, share: float) -> Bools:
    """[pool] whether a prompt is held out: the same ones whatever else the pool holds."""
    draws = np.array([derive_seed(seed, "heldout", one) for one in pool.prompt_ids], np.float64)
    return draws / 2.0**63 < share


def judge_heldout(
    layout: Layout, pool: Pool, side: Side, history: Sequence[tuple[Run, RunSteps]], hidden: Bools
) -> HeldOutScore:
    """NLL of the held-out prompts' rollouts, groups weighted as all candidates are.

    Args:
        hidden: [pool] which prompts are held out.
    """
    judged = forecast_heldout(layout, pool, side, history, hidden)
    p_success, weight = (judged.column(name).astype(np.float64) for name in ("p_success", "weight"))
    successes, valid = (judged.column(name).astype(np.int64) for name in ("successes", "valid"))
    quality = forecast_quality(p_success, successes, valid, weight)
    return HeldOutScore(quality[SCORE], len(p_success), len(np.unique(judged.column("row"))))


def forecast_heldout(
    layout: Layout, pool: Pool, side: Side, history: Sequence[tuple[Run, RunSteps]], hidden: Bools
) -> Tally:
    """p_success, successes, valid, weight and row of each group of a held-out prompt that has a weight."""
    row_of = {prompt_id: row for row, prompt_id in enumerate(pool.prompt_ids)}
    predictor = train_on(side.settings, pool, _of_prompts(side.groups, pool, ~hidden))
    beginning = {name: array.copy() for name, array in predictor.state_dict().items()}
    judged = Tally()
    for record, steps in history:
        predictor.load_state_dict({name: array.copy() for name, array in beginning.items()})
        seed = record.config.get("seed", 0)
        for stored in read_steps(layout, steps, [], logprobs=reads_logprobs(side.settings)):
            _judge_groups(predictor, _of_prompts(stored.groups, pool, hidden), row_of, stored.step, seed, judged)
            seen = observed(_of_prompts(stored.groups, pool, ~hidden), stored.tokens, row_of)
            predictor.observe(seen, seed=derive_seed(seed, stored.step, "observe"))
    return judged


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


def _of_prompts(groups: pa.Table, pool: Pool, which: Bools) -> pa.Table:
    ids = pa.array([one for one, kept in zip(pool.prompt_ids, which, strict=True) if kept], pa.string())
    return groups.filter(pc.is_in(groups["prompt_id"], ids))


def _judge_groups(
    predictor: Predictor, groups: pa.Table, row_of: Mapping[str, int], step: int, seed: int, judged: Tally
) -> None:
    groups = groups.filter(pa.array(group_weights(groups) > 0))
    if not len(groups):
        return
    rows, place = np.unique([row_of[one] for one in groups["prompt_id"].to_pylist()], return_inverse=True)
    forecast = predictor.forecast(rows, seed=derive_seed(seed, step, "forecast"))
    judged.add(
        p_success=forecast.p_success[place],
        successes=groups["successes"].to_numpy(),
        valid=groups["valid"].to_numpy(),
        weight=group_weights(groups),
        row=rows[place],
    )
