"""How well what a version knows forecasts runs and prompts that it has not seen.

The comparison behind a promotion. A share of the prompts is held out by a hash
of their ids. Each run that is judged begins as it would with the version: with
the version's groups of other runs. Of these, and of the run itself, it learns
the groups of the prompts that are not held out; judged are its forecasts of the
others, each step before it is learned from.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from models.difficulty.base import Predictor
from models.difficulty.inputs import reads_logprobs
from models.difficulty.metrics import cross_entropy
from models.difficulty.prequential import Tally
from models.records import Floats, Pool
from models.seeding import derive_seed
from models.settings import PredictorSettings
from storage.layout import Layout
from storage.replay import RunSteps, read_steps
from storage.runs import Run
from tasks.observed import group_weights, observed
from tasks.offline import train_on
from tasks.replay_pool import replay_pool
from tasks.start import known_to

JUDGED = 5
"""Runs that are judged, the newest: each is begun anew, and the newest are the most like the next."""

Replayed = Sequence[tuple[Run, RunSteps]]
"""Runs, oldest first, each with its steps."""


@dataclass(frozen=True)
class Side:
    """What is known: a predictor's settings, the groups that it learns from, and the datasets of their prompts."""

    settings: PredictorSettings
    groups: pa.Table
    """Rows of `schemas.PAST`."""
    datasets: Sequence[str]


@dataclass(frozen=True)
class UnseenScore:
    """How well a side forecast."""

    losses: Floats
    """[prompts] negative log-likelihood of the weighted rollouts of each prompt held out."""
    weights: Floats
    """[prompts] weighted rollouts of each."""
    groups: int

    @property
    def score(self) -> float:
        """The leaderboard's; NaN where no held-out prompt was rolled out."""
        return float(self.losses.sum() / self.weights.sum()) if len(self.weights) else float("nan")


def judge_unseen(layout: Layout, side: Side, runs: Replayed, seed: int, share: float) -> UnseenScore:
    """The score of all runs that are judged together, groups weighted as all candidates are."""
    pool, _ = replay_pool(layout, [run for run, _ in runs], [side.settings], besides=side.datasets)
    judged = forecast_unseen(layout, pool, side, runs, held_out(pool, seed, share))
    names = ("p_success", "successes", "valid", "weight", "row")
    p_success, successes, valid, weight, row = (judged.column(name).astype(np.float64) for name in names)
    rollouts = weight * valid
    loss = rollouts * cross_entropy(p_success, successes / valid)
    prompts, place = np.unique(row, return_inverse=True)
    losses, weights = (np.bincount(place, one, len(prompts)).astype(np.float64) for one in (loss, rollouts))
    return UnseenScore(losses, weights, len(row))


def held_out(pool: Pool, seed: int, share: float) -> NDArray[np.bool_]:
    """[pool] whether a prompt is held out: the same ones whatever else the pool holds."""
    draws = np.array([derive_seed(seed, "heldout", one) for one in pool.prompt_ids], np.float64)
    return draws / 2.0**63 < share


def forecast_unseen(layout: Layout, pool: Pool, side: Side, runs: Replayed, hidden: NDArray[np.bool_]) -> Tally:
    """p_success, successes, valid, weight and row of each group of a held-out prompt that has a weight.

    Args:
        hidden: [pool] which prompts are held out.
    """
    ids = np.array(pool.prompt_ids, dtype=object)
    out, kept = (pa.array(ids[which], pa.string()) for which in (hidden, ~hidden))
    row_of = {prompt_id: row for row, prompt_id in enumerate(pool.prompt_ids)}
    judged = Tally()
    for record, steps in runs[-JUDGED:]:
        predictor = train_on(side.settings, pool, _of(known_to(record, side.groups), kept))
        seed = record.config.get("seed", 0)
        for stored in read_steps(layout, steps, [], logprobs=reads_logprobs(side.settings)):
            _judge(predictor, _of(stored.groups, out), row_of, derive_seed(seed, stored.step, "forecast"), judged)
            seen = observed(_of(stored.groups, kept), stored.tokens, row_of)
            predictor.observe(seen, seed=derive_seed(seed, stored.step, "observe"))
    return judged


def _of(groups: pa.Table, prompts: pa.Array) -> pa.Table:
    return groups.filter(pc.is_in(groups["prompt_id"], prompts))


def _judge(predictor: Predictor, groups: pa.Table, row_of: dict[str, int], seed: int, judged: Tally) -> None:
    weights = group_weights(groups)
    groups, weights = groups.filter(pa.array(weights > 0)), weights[weights > 0]
    if not len(groups):
        return
    rows, place = np.unique([row_of[one] for one in groups["prompt_id"].to_pylist()], return_inverse=True)
    judged.add(
        p_success=predictor.forecast(rows, seed=seed).p_success[place],
        successes=groups["successes"].to_numpy(),
        valid=groups["valid"].to_numpy(),
        weight=weights,
        row=rows[place],
    )
