"""Judges predictors and acquisition rules by simulation on measured success rates of real models.

The policy drifts from one model to another: the logit of every prompt moves
evenly from its rate under the first, (n + 1/2) / 51 of n successes in 50, to
that under the second. Each step a method forecasts the pool, a rule chooses a
batch with its exploration slice, and k outcomes are drawn for each prompt; a
prompt rests for five steps. No method sees the rates. `warm` runs learn from
the other models' groups: both ends of the drift are left out at every
temperature.

    python bench/selection.py [--quick] [--seeds 2]
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
from bench_pages import finish
from numpy.typing import NDArray
from scipy.special import expit, logit

from models.acquisition import RULES, select
from models.difficulty import build_predictor
from models.difficulty.metrics import forecast_quality, weighted_spearman
from models.embeddings import WordllamaEncoder
from models.records import Observation, PastRuns, Pool
from models.seeding import derive_rng
from models.settings import AcquisitionSettings, PredictorSettings

STEPS, BATCH, GROUP, REST, PROBES, MEASURED = 60, 128, 8, 5, 1000, 50
DRIFTS = (
    ("Qwen/Qwen2.5-Math-1.5B", "Qwen/Qwen2.5-Math-1.5B-Instruct"),
    ("Qwen/Qwen2-1.5B", "Qwen/Qwen2-1.5B-Instruct"),
    ("Qwen/Qwen2.5-1.5B", "Qwen/Qwen2.5-Math-1.5B"),
)
PREFERRED = ("informative", "nearest")
"""The rule of methods that are no rule's own, the first that is there."""


def main() -> None:
    """Run the methods on the drifts, and replay the real history."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    data = Path(os.environ.get("FOREROLL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not data.exists():
        print(f"no data in {data}: set FOREROLL_DATA", file=sys.stderr)
        finish("selection", {"skipped": f"no data in {data}"}, write_page=False)
        return
    quick = arguments.quick
    prompts, batch, steps = (600, 16, 12) if quick else (7500, BATCH, STEPS)
    world = World(data, prompts)
    lines = []
    for ends in DRIFTS[:1] if quick else DRIFTS:
        for warm, name, rule in methods():
            for seed in range(1 if quick else arguments.seeds):
                lines.append(world.simulate(ends, warm, name, rule, steps=steps, batch=batch, seed=seed))
                print(row(lines[-1]), flush=True)
    history = replay(data, visits=6 if quick else 44)
    text = "\n".join([HEAD, *map(row, lines), "", REPLAY_HEAD, *map(replay_row, history)])
    finish("selection", {"methods": lines, "replay": history}, write_page=not quick, text=text)


def methods() -> list[tuple[bool, str, str]]:
    """(warm, predictor, rule): every predictor with the preferred rule, and `foreroll` with every rule."""
    preferred = next(rule for rule in PREFERRED if rule in RULES)
    cold = [(False, name, preferred) for name in predictors()]
    others = [(False, "foreroll", rule) for rule in sorted(RULES) if rule != preferred]
    return [(True, "foreroll", preferred), *cold, *others]


def predictors() -> dict[str, Any]:
    """Default settings of every predictor, by name."""
    return {kind().name: kind() for kind in get_args(PredictorSettings)}


def warm_rows(models: list[str], ends: tuple[str, str]) -> list[int]:
    """Configurations that a warm run may learn from: those of neither end, at any temperature."""
    return [index for index, model in enumerate(models) if model not in ends]


class World:
    """Measured rates, texts and embeddings of the first train prompts."""

    def __init__(self, data: Path, prompts: int) -> None:
        shown = pl.read_parquet(data / "math_prompts.parquet").filter(pl.col("split") == "train").sort("index")
        shown = shown.head(prompts)
        rates = (
            pl.read_parquet(
                data / "math_success_rates.parquet", columns=["split", "index", "model", "temperature", "n_correct"]
            )
            .filter((pl.col("split") == "train") & pl.col("index").is_in(shown["index"].implode()))
            .sort("model", "temperature", "index")
        )
        groups = rates.partition_by("model", "temperature", maintain_order=True)
        self.models = [group["model"][0] for group in groups]
        self.temperatures = [round(float(group["temperature"][0]), 1) for group in groups]
        self.solved = np.stack([group["n_correct"].to_numpy().astype(np.int64) for group in groups])
        self.texts = tuple(shown["prompt"].to_list())
        self.embeddings = WordllamaEncoder().encode(self.texts)

    def pool(self, ends: tuple[str, str], warm: bool) -> Pool:
        """The pool as a run sees it."""
        kept = warm_rows(self.models, ends) if warm else []
        size = len(self.texts)
        count = len(kept) * size
        past = PastRuns(
            run=np.repeat(np.arange(len(kept)), size),
            step=np.zeros(count, np.int64),
            row=np.tile(np.arange(size), len(kept)),
            successes=self.solved[kept].ravel(),
            valid=np.full(count, MEASURED),
            mean_tokens=np.full(count, np.nan),
        )
        ids = tuple(f"{row:032x}" for row in range(size))
        return Pool(ids, self.embeddings, texts=self.texts, past=past if warm else None)

    def simulate(
        self, ends: tuple[str, str], warm: bool, name: str, rule: str, *, steps: int, batch: int, seed: int
    ) -> dict[str, Any]:
        """Figures of one method on one drift; only `skipped` where the method wants what the pool has not."""
        about = {"drift": " to ".join(end.split("/")[1] for end in ends), "warm": warm, "predictor": name, "rule": rule}
        pool, start = self.pool(ends, warm), time.perf_counter()
        try:
            predictor = build_predictor(predictors()[name], pool, seed=seed)
        except ValueError as error:
            return {**about, "skipped": str(error)}
        opening = time.perf_counter() - start
        first, last = (self._logits(end) for end in ends)
        settings = AcquisitionSettings(name=rule, batch_size=batch)  # type: ignore[arg-type]
        probes = derive_rng(0, "probes").choice(len(pool), min(PROBES, len(pool) // 2), replace=False)
        rested, oracle_rested = np.full(len(pool), -REST - 1), np.full(len(pool), -REST - 1)
        visits, previous = np.zeros(len(pool)), np.empty(0, np.int64)
        judged: list[dict[str, float]] = []
        start = time.perf_counter()
        for step in range(steps):
            p = expit(first + (last - first) * step / max(steps - 1, 1))
            forecast = predictor.forecast(np.arange(len(pool)), seed=step)
            free = np.flatnonzero(step - rested > REST)
            considered = type(forecast)(forecast.p_success[free], forecast.p_sd[free], forecast.expected_tokens[free])
            rng = derive_rng(seed, step, "acquire")
            chosen = select(considered, free, pool=pool, previous=previous, settings=settings, rng=rng)
            previous = free[chosen.rank >= 0]
            outcomes = derive_rng(seed, step, "outcomes").binomial(GROUP, p)[previous]
            informative = 1.0 - p**GROUP - (1.0 - p) ** GROUP
            best = np.argsort(np.where(step - oracle_rested > REST, -informative, 1.0), kind="stable")[:batch]
            drawn = derive_rng(step, "probe").binomial(GROUP, p[probes])
            quality = forecast_quality(forecast.p_success[probes], drawn, np.full(len(probes), GROUP))
            judged.append(
                {
                    "share": float(((outcomes > 0) & (outcomes < GROUP)).mean()),
                    "oracle": float(informative[best].mean()),
                    "uniform": float(informative.mean()),
                    "rank_of_truth": weighted_spearman(forecast.p_success, p, np.ones(len(p))),
                    **quality,
                }
            )
            rested[previous], oracle_rested[best] = step, step
            visits[previous] += 1
            lengths = np.full(len(previous), 300.0)
            predictor.observe(Observation(previous, outcomes, np.full(len(previous), GROUP), lengths), seed=step)
        mean = {key: float(np.nanmean([one[key] for one in judged])) for key in judged[0]}
        return {
            **about,
            "seed": seed,
            **mean,
            "of_oracle": mean["share"] / mean["oracle"],
            "of_oracle_after_10": _mean(judged[10:], "share") / _mean(judged[10:], "oracle"),
            "rollouts_per_informative": GROUP / mean["share"],
            "of_dynamic_sampling": mean["uniform"] / mean["share"],
            "regret": mean["oracle"] - mean["share"],
            "distinct": int((visits > 0).sum()),
            "repeats": int(visits.sum() - (visits > 0).sum()),
            "opening_seconds": opening,
            "seconds_a_step": (time.perf_counter() - start) / steps,
            "share_by_step": [round(one["share"], 3) for one in judged],
        }

    def _logits(self, model: str) -> NDArray[np.float64]:
        """[prompts] at temperature 1."""
        found = [at for at, one in enumerate(self.models) if one == model and self.temperatures[at] == 1.0]
        rates: NDArray[np.float64] = logit((self.solved[found[0]] + 0.5) / (MEASURED + 1.0))
        return rates


def replay(data: Path, visits: int) -> list[dict[str, Any]]:
    """Forecasts of the next visit on a real run, in thirds; every prompt is seen at every visit."""
    history = pl.read_parquet(data / "rl_history_1p5b.parquet").filter(pl.col("visit") < visits).sort("visit", "index")
    told = pl.read_parquet(data / "rl_history_1p5b_prompts_verl.parquet").rows(named=True)
    text_of = {one["extra_info"]["index"]: one["prompt"][0]["content"] for one in told}
    indices = history["index"].unique().sort().to_list()
    texts = tuple(text_of[index] for index in indices)
    pool = Pool(tuple(f"{index:032x}" for index in indices), WordllamaEncoder().encode(texts), texts=texts)
    lines = []
    for name, settings in predictors().items():
        try:
            predictor = build_predictor(settings, pool, seed=0)
        except ValueError as error:
            lines.append({"predictor": name, "skipped": str(error)})
            continue
        judged = []
        for visit, groups in enumerate(history.partition_by("visit", maintain_order=True)):
            rows = np.searchsorted(indices, groups["index"].to_numpy())
            solved, tried = (groups[column].to_numpy().astype(np.int64) for column in ("n_correct", "n"))
            if visit:
                judged.append(forecast_quality(predictor.forecast(rows, seed=visit).p_success, solved, tried))
            predictor.observe(Observation(rows, solved, tried, np.full(len(rows), 300.0)), seed=visit)
        thirds = [judged[part[0] : part[-1] + 1] for part in np.array_split(np.arange(len(judged)), 3)]
        figures = {key: [_mean(third, key) for third in thirds] for key in judged[0]}
        lines.append({"predictor": name, **figures})
    return lines


HEAD = (
    "| drift | warm | predictor | rule | share / oracle | after step 10 | / dynamic sampling | regret | Spearman "
    "| Brier | NLL | ECE | distinct | repeats | s a step |\n|---|---|---|---|" + "---:|" * 11
)
REPLAY_HEAD = "Real history, early / mid / late:\n\n| predictor | Spearman | Brier | NLL | ECE |\n|---|---|---|---|---|"


def row(line: dict[str, Any]) -> str:
    """One line of the table."""
    about = f"| {line['drift']} | {'yes' if line['warm'] else ''} | {line['predictor']} | {line['rule']} |"
    if "skipped" in line:
        return f"{about} {line['skipped']} |"
    keys = ("of_oracle", "of_oracle_after_10", "of_dynamic_sampling", "regret", "rank_of_truth", "brier", "nll", "ece")
    figures = " | ".join(f"{line[key]:.3f}" for key in keys)
    return f"{about} {figures} | {line['distinct']} | {line['repeats']} | {line['seconds_a_step']:.2f} |"


def replay_row(line: dict[str, Any]) -> str:
    """One line of the replay's table."""
    if "skipped" in line:
        return f"| {line['predictor']} | {line['skipped']} |"
    figures = " | ".join(" / ".join(f"{x:.3f}" for x in line[key]) for key in ("spearman", "brier", "nll", "ece"))
    return f"| {line['predictor']} | {figures} |"


def _mean(judged: list[dict[str, float]], key: str) -> float:
    return float(np.nanmean([one[key] for one in judged])) if judged else float("nan")


if __name__ == "__main__":
    main()
