"""Stages 5 and 6: learn from the step's groups. Neither is ever skipped: a resumed run replays both."""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from models.difficulty.metrics import forecast_quality
from models.policy.advantages import group_advantages
from models.policy.update import NOTHING_TO_LEARN
from models.records import Floats, Observation, Sample, UpdateStats
from tasks.observed import explored, group_weights
from tasks.predict import read_forecasts
from tasks.score import read_outcomes
from tasks.stage import stage
from tasks.sync import judge_drift, sync_engine
from tasks.visits import CHOSEN
from tasks.workbench import Workbench, workbench

logger = logging.getLogger(__name__)

MEASURED = ("engine_drift", "engine_drift_max")
"""Columns of `updates` that are measured at the engine, and not computed again when a run is replayed."""


@stage
def update_policy(run: str, step: int) -> None:
    """Apply the step's update to the live policy, and write `updates`, or compare with the row that is there."""
    bench = workbench(run)
    with bench.timed("update_policy"):
        bench.engine.suspend()
        stats = bench.trainer.update(read_samples(bench, step), seed=bench.seed(step, "update"))
        _count(bench, step, stats)
        outcomes = read_outcomes(bench, step)
        columns = {
            "policy_version": [bench.policy_version],
            "groups": [len(outcomes)],
            "informative_groups": [sum(outcome.informative for outcome in outcomes)],
            **{name: [_null_if_nan(value)] for name, value in asdict(stats).items()},
        }
        if bench.history.holds("updates", step):
            stored = bench.history.read("updates", step)
            bench.history.write("updates", step, {**columns, **{name: stored[name] for name in MEASURED}})
            return
        drift = sync_engine(bench)
        measured = [None, None] if drift is None else [drift.mean, drift.largest]
        columns |= {name: [_null_if_nan(value)] for name, value in zip(MEASURED, measured, strict=True)}
        bench.history.write("updates", step, columns)
        judge_drift(bench, drift)


@stage
def update_predictor(run: str, step: int) -> None:
    """Judge the forecasts by the step's groups, then learn from them, and write or compare `predictor_updates`."""
    bench = workbench(run)
    with bench.timed("update_predictor"):
        observation, weights = read_observation(bench, step)
        quality = _judge(bench, step, observation, weights)
        parts = bench.predictor.observe(observation, seed=bench.seed(step, "observe"))
        columns = {
            "groups": [len(observation.rows)],
            "loss_parts": [json.dumps(parts)],
            **{name: [_null_if_nan(value)] for name, value in quality.items()},
        }
        bench.history.write("predictor_updates", step, columns, predictor=bench.settings.predictor.name)
        bench.step = step


def read_samples(bench: Workbench, step: int) -> list[Sample]:
    """The rollouts that are trained on, with their advantages, in order of round, rank and sample."""
    rewards = bench.history.read_rounds("rewards", step)
    tokens = bench.history.read_rounds("tokens", step)
    assert rewards["group_id"].equals(tokens["group_id"]) and rewards["sample"].equals(tokens["sample"])
    advantages = _advantages(rewards, normalise_std=bench.settings.update.normalise_std)
    masked = bench.settings.overlong.responses == "mask"
    return [
        Sample(tuple(row["prompt_token_ids"]), tuple(row["token_ids"]), advantage, tuple(row["logprobs"]))
        for row, advantage in zip(tokens.to_pylist(), advantages, strict=True)
        if advantage is not None and not (masked and row["finish_reason"] == "length")
    ]


def read_observation(bench: Workbench, step: int) -> tuple[Observation, Floats]:
    """Outcomes of all the step's groups with a valid rollout, trained on or not, in order of round and rank.

    With them what each group counts for when all candidates are meant, by the round that acquired it.
    """
    rollouts = bench.history.read_rounds("rollouts", step).select(
        ["group_id", "sample", "prompt_id", "response_tokens"]
    )
    rewards = bench.history.read_rounds("rewards", step).select(["group_id", "sample", "success"])
    tokens = bench.history.read_rounds("tokens", step).select(["group_id", "sample", "logprobs"])
    groups = (
        pl.DataFrame(rollouts)
        .join(pl.DataFrame(rewards), on=["group_id", "sample"], validate="1:1", maintain_order="left")
        .join(pl.DataFrame(tokens), on=["group_id", "sample"], validate="1:1", maintain_order="left")
        .group_by("prompt_id", maintain_order=True)
        .agg(
            successes=pl.col("success").sum().cast(pl.Int64),
            valid=pl.col("success").count().cast(pl.Int64),
            mean_tokens=pl.col("response_tokens").cast(pl.Float64).mean(),
            mean_logprobs=pl.col("logprobs").list.mean().cast(pl.Float64).mean(),
        )
        .filter(pl.col("valid") > 0)
    )
    acquired = _acquired(bench, step, groups["prompt_id"].to_list())
    observation = Observation(
        rows=np.array([bench.row_of[prompt_id] for prompt_id in groups["prompt_id"]], np.int64),
        successes=groups["successes"].to_numpy(writable=True),
        valid=groups["valid"].to_numpy(writable=True),
        mean_tokens=groups["mean_tokens"].to_numpy(writable=True),
        mean_logprobs=groups["mean_logprobs"].fill_null(np.nan).to_numpy(writable=True),
        explored=explored(acquired),
    )
    return observation, group_weights(acquired)


def _advantages(rewards: pa.Table, *, normalise_std: bool) -> list[float | None]:
    """Advantage of each rollout; None for those that are not trained on."""
    groups: dict[str, list[int]] = {}
    for index, group in enumerate(rewards["group_id"].to_pylist()):
        groups.setdefault(group, []).append(index)
    values, admitted = rewards["reward"].to_pylist(), rewards["admitted"].to_pylist()
    advantages: list[float | None] = [None] * len(values)
    for indices in groups.values():
        if admitted[indices[0]]:
            found = group_advantages([values[index] for index in indices], normalise_std=normalise_std)
            for index, advantage in zip(indices, found, strict=True):
                advantages[index] = advantage
    return advantages


def _count(bench: Workbench, step: int, stats: UpdateStats) -> None:
    if not stats.skipped:
        bench.policy_version += 1
        bench.skipped_in_a_row = 0
    elif stats.skipped != NOTHING_TO_LEARN:
        bench.skipped_in_a_row += 1
        logger.warning("step %d: policy update skipped: %s", step, stats.skipped)


def _judge(bench: Workbench, step: int, observation: Observation, weights: Floats) -> dict[str, float]:
    """How good the step's forecasts were, estimated over all its candidates."""
    rows, forecast = read_forecasts(bench, step)
    positions = np.searchsorted(rows, observation.rows)
    return forecast_quality(forecast.p_success[positions], observation.successes, observation.valid, weights)


def _acquired(bench: Workbench, step: int, prompt_ids: Sequence[str]) -> pa.Table:
    """How each of these prompts was acquired, in the round that did."""
    acquired = bench.history.read_rounds("acquisitions", step)
    acquired = acquired.filter(pc.is_in(acquired["decision"], pa.array(CHOSEN)))
    return acquired.take(pc.index_in(pa.array(prompt_ids, pa.string()), acquired["prompt_id"]))


def _null_if_nan(value: float | int | str | None) -> float | int | str | None:
    return None if isinstance(value, float) and math.isnan(value) else value
