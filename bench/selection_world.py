"""The simulator of `selection.py`: policies that are measured success rates of real models, and what a run sees."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit

from models.acquisition import select
from models.difficulty.base import Predictor
from models.difficulty.metrics import forecast_quality, weighted_spearman
from models.embeddings import WordllamaEncoder
from models.records import Observation, PastRuns, Pool
from models.seeding import derive_rng
from models.settings import AcquisitionSettings

GROUP, REST, PROBES, MEASURED, TOKENS = 8, 5, 1000, 50, 300.0
Rates = NDArray[np.float64]
Groups = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""(step, row, successes) of each group of a run."""


class World:
    """Measured rates, texts, embeddings and subjects of prompts.

    Args:
        splits: of MATH, in the order of the rows.
        prompts: the first so many of each split.
    """

    def __init__(self, data: Path, splits: Sequence[str], prompts: int) -> None:
        shown = pl.read_parquet(data / "math_prompts.parquet").sort("index")
        parts = [shown.filter(pl.col("split") == split).head(prompts) for split in splits]
        told = pl.concat(parts)
        self.split = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        columns = ["split", "index", "model", "temperature", "n_correct"]
        rates = pl.read_parquet(data / "math_success_rates.parquet", columns=columns)
        key = told.select("split", "index").with_row_index("row")
        rates = key.join(rates, on=["split", "index"]).sort("model", "temperature", "row")
        groups = rates.partition_by("model", "temperature", maintain_order=True)
        self.models = [group["model"][0].split("/")[-1] for group in groups]
        self.temperatures = [round(float(group["temperature"][0]), 1) for group in groups]
        self.solved = np.stack([group["n_correct"].to_numpy().astype(np.int64) for group in groups])
        self.texts, self.categories = tuple(told["prompt"].to_list()), tuple(told["subject"].to_list())
        self.embeddings = WordllamaEncoder().encode(self.texts)

    def pool(self, past: PastRuns | None) -> Pool:
        """All prompts, as a run sees them."""
        ids = tuple(f"{row:032x}" for row in range(len(self.texts)))
        return Pool(ids, self.embeddings, self.categories, self.texts, past=past)

    def dense(self, kept: Sequence[int], rows: NDArray[np.int64] | None = None) -> PastRuns:
        """All 50 rollouts of some configurations on every prompt, or on `rows`."""
        rows = np.arange(len(self.texts)) if rows is None else rows
        size = len(rows)
        return PastRuns(
            run=np.repeat(np.arange(len(kept)), size),
            step=np.zeros(len(kept) * size, np.int64),
            row=np.tile(rows, len(kept)),
            successes=self.solved[np.asarray(kept, int)][:, rows].ravel(),
            valid=np.full(len(kept) * size, MEASURED),
            mean_tokens=np.full(len(kept) * size, np.nan),
        )

    def logits(self, configuration: int) -> Rates:
        """[prompts] (n + 1/2) / 51 as logits."""
        rates: Rates = logit((self.solved[configuration] + 0.5) / (MEASURED + 1.0))
        return rates

    def at_one(self, model: str) -> int:
        """The configuration of a model at temperature 1."""
        return next(at for at, one in enumerate(self.models) if one == model and self.temperatures[at] == 1.0)


def others(models: Sequence[str], left_out: Sequence[str]) -> list[int]:
    """Configurations of other models than those left out, whatever their temperature."""
    return [at for at, model in enumerate(models) if model not in left_out]


def joined(runs: Sequence[Groups]) -> PastRuns:
    """Groups of eight of several runs as the past of another."""
    sizes = [len(run[0]) for run in runs]
    step, row, successes = (np.concatenate(part) for part in zip(*runs, strict=True))
    run = np.repeat(np.arange(len(runs)), sizes)
    return PastRuns(run, step, row, successes, np.full(len(run), GROUP), np.full(len(run), TOKENS))


def simulate(
    predictor: Predictor,
    pool: Pool,
    first: Rates,
    last: Rates,
    settings: AcquisitionSettings,
    *,
    steps: int,
    seed: int,
) -> tuple[list[dict[str, float]], Groups]:
    """Figures of every step of a run whose policy drifts from logits `first` to `last`, and its groups."""
    size = len(pool)
    probes = derive_rng(0, "probes").choice(size, min(PROBES, size // 2), replace=False)
    rested, oracle_rested = np.full(size, -REST - 9), np.full(size, -REST - 9)
    previous = np.empty(0, np.int64)
    judged, groups = [], []
    for step in range(steps):
        p = expit(first + (last - first) * step / max(steps - 1, 1))
        start = time.perf_counter()
        forecast = predictor.forecast(np.arange(size), seed=step)
        free = np.flatnonzero(step - rested > settings.cooldown)
        tokens = forecast.expected_tokens[free]
        considered = replace(
            forecast, p_success=forecast.p_success[free], p_sd=forecast.p_sd[free], expected_tokens=tokens
        )
        rng = derive_rng(seed, step, "acquire")
        selection = select(considered, free, pool=pool, previous=previous, settings=settings, rng=rng)
        previous = free[selection.chosen]
        seconds = time.perf_counter() - start
        outcomes = derive_rng(seed, step, "outcomes").binomial(GROUP, p)[previous]
        chance = 1.0 - p**GROUP - (1.0 - p) ** GROUP
        best = np.argsort(np.where(step - oracle_rested > REST, -chance, 1.0), kind="stable")[: settings.batch_size]
        drawn = derive_rng(step, "probe").binomial(GROUP, p[probes])
        oracle_rested[best], rested[previous] = step, step
        start = time.perf_counter()
        tried, lengths = np.full(len(previous), GROUP), np.full(len(previous), TOKENS)
        predictor.observe(Observation(previous, outcomes, tried, lengths, explored=selection.explored), seed=step)
        judged.append(
            {
                "share": float(((outcomes > 0) & (outcomes < GROUP)).mean()),
                "oracle": float(chance[best].mean()),
                "uniform": float(chance.mean()),
                "rank_of_truth": weighted_spearman(forecast.p_success, p, np.ones(size)),
                **forecast_quality(forecast.p_success[probes], drawn, np.full(len(probes), GROUP)),
                "seconds": seconds + time.perf_counter() - start,
            }
        )
        groups.append((np.full(len(previous), step), previous, outcomes))
    step_of, row, successes = (np.concatenate(part) for part in zip(*groups, strict=True))
    return judged, (step_of, row, successes)


def in_figures(judged: list[dict[str, float]], row: NDArray[np.int64]) -> dict[str, Any]:
    """Means over the steps of a run, and shares by step."""
    mean = {key: float(np.nanmean([one[key] for one in judged])) for key in judged[0]}
    late = judged[10:] or judged
    distinct = len(np.unique(row))
    return {
        **mean,
        "of_oracle": mean["share"] / mean["oracle"],
        "of_oracle_after_10": sum(one["share"] for one in late) / sum(one["oracle"] for one in late),
        "rollouts_per_informative": GROUP / mean["share"],
        "of_dynamic_sampling": mean["uniform"] / mean["share"],
        "regret": mean["oracle"] - mean["share"],
        "distinct": distinct,
        "repeats": len(row) - distinct,
        "ece_by_step": [round(one["ece"], 4) for one in judged],
        "spearman_by_step": [round(one["rank_of_truth"], 4) for one in judged],
        "share_by_step": [round(one["share"], 4) for one in judged],
        "oracle_by_step": [round(one["oracle"], 4) for one in judged],
    }
