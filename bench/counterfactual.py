"""Checks counterfactual values against truth: what a selector gets when it is deployed for real.

The world is that of `selection.py`: success rates of real models, between two
of which the policy drifts. A logging selector runs for some steps, and learns
from its batches. Another one replays the log: at each step it has learned from
the logged batches before, forecasts the logged candidates, and has certain
chances to acquire each. From these and the logged propensities its informative
share is estimated. For the truth it is deployed in each logged state: its rule
chooses batches, and fresh outcomes are drawn for them.

    python bench/counterfactual.py [--quick] [--seeds 8]
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from bench_pages import finish
from pydantic import TypeAdapter
from scipy.special import expit, logit

from models.acquisition import select
from models.acquisition.counterfactual import counterfactual_value
from models.acquisition.off_policy import Estimate, StepSums
from models.acquisition.rest import Visits, rested
from models.difficulty import build_predictor
from models.difficulty.base import Predictor
from models.embeddings import WordllamaEncoder
from models.records import Floats, Forecast, Ints, Observation, Pool, Selection
from models.seeding import derive_rng
from models.settings import AcquisitionSettings, PredictorSettings
from tasks.counterfactual import LoggedStep, judge_step

BATCH, GROUP, POOL, MEASURED = 128, 8, 7500, 50
BATCHES, REPEATS = 2, 10
"""Of each deployment: batches chosen in a state, and times that outcomes are drawn for each."""
COVERED, WIDTH, REFUSED = 0.9, 0.1, 0.2
"""What is wanted of logs with 50 % exploration: coverage at least, median width and refusals at most."""
DRIFTS = (
    ("Qwen/Qwen2.5-Math-1.5B", "Qwen/Qwen2.5-Math-1.5B-Instruct"),
    ("Qwen/Qwen2-1.5B", "Qwen/Qwen2-1.5B-Instruct"),
    ("Qwen/Qwen2.5-1.5B", "Qwen/Qwen2.5-Math-1.5B"),
)
RANKING = "kalman+informative"
PAIRS = {
    RANKING: (RANKING, "dps+informative", "mopps+nearest", "foreroll+informative", "greso+greso"),
    "mopps+thompson": (RANKING, "foreroll+informative", "mopps+nearest", "mopps+thompson"),
    "mean+uniform": (RANKING, "mopps+thompson", "dps+band"),
}
"""The selectors that are judged by the log of each, all as predictor+rule; they explore 5 % themselves."""


@dataclass(frozen=True)
class Setting:
    """How logs are made."""

    explore: float
    candidates: int
    """Drawn from the pool for each step; 0 for all of it."""
    steps: int

    def __str__(self) -> str:
        return f"{self.explore:.0%} | {self.candidates or POOL:,} | {self.steps}"


HALF, SLICE = Setting(0.5, 2048, 60), Setting(0.05, 2048, 60)
BETWEEN = (Setting(0.25, 2048, 60), Setting(0.1, 2048, 60))
WHOLE_POOL = (Setting(0.5, 0, 60), Setting(0.5, 0, 240))
QUICK = Setting(0.5, 1024, 20)

Job = tuple[Setting, tuple[str, str], str, int]
"""Setting, drift, logging selector and seed of one log."""


def main() -> None:
    """Make logs, judge them, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller pool, one drift and seed, and no page")
    parser.add_argument("--seeds", type=int, default=8, help="of each drift and logging selector")
    arguments = parser.parse_args()
    data = Path(os.environ.get("FOREROLL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not data.exists():
        print(f"no data in {data}: set FOREROLL_DATA", file=sys.stderr)
        finish("counterfactual", {"skipped": f"no data in {data}"}, write_page=False)
        return
    quick = arguments.quick
    bench = Bench(World(data, 2000 if quick else POOL))
    lines = []
    for job in quick_jobs() if quick else full_jobs(arguments.seeds):
        lines += bench.log(*job)
        print(*(str(part) for part in job), sep=" | ", file=sys.stderr, flush=True)
    told = pl.DataFrame(lines, infer_schema_length=None)
    settings = summarise(told, "setting")
    pairs = summarise(told, "setting", "logged", "judged")
    text = "\n".join(
        [*against_bars(settings[0]), "", *table(settings), "", *table(pairs), "", REFUSALS, *reasons(told)]
    )
    print(text)
    finish("counterfactual", {"settings": settings, "pairs": pairs}, write_page=not quick, text=text)


def quick_jobs() -> Iterator[Job]:
    """One log of each logging selector."""
    for logger in PAIRS:
        yield QUICK, DRIFTS[0], logger, 0


def full_jobs(seeds: int) -> Iterator[Job]:
    """All pairs at 50 and 5 % exploration; the logging selector that ranks also between, and on the whole pool."""
    for setting in (HALF, SLICE):
        for ends in DRIFTS:
            for logger in PAIRS:
                for seed in range(seeds):
                    yield setting, ends, logger, seed
    for setting in (*BETWEEN, *WHOLE_POOL):
        for ends in DRIFTS:
            for seed in range(1 if setting.steps > HALF.steps else 2):
                yield setting, ends, RANKING, seed


class World:
    """Measured success rates of the first train prompts under each model at temperature 1, and their texts."""

    def __init__(self, data: Path, prompts: int) -> None:
        shown = pl.read_parquet(data / "math_prompts.parquet").filter(pl.col("split") == "train").sort("index")
        shown = shown.head(prompts)
        rates = pl.read_parquet(
            data / "math_success_rates.parquet", columns=["split", "index", "model", "temperature", "n_correct"]
        ).filter(
            (pl.col("split") == "train")
            & (pl.col("temperature").round(1) == 1.0)
            & pl.col("index").is_in(shown["index"].implode())
        )
        self.logits = {
            str(model): logit((group.sort("index")["n_correct"].to_numpy() + 0.5) / (MEASURED + 1.0))
            for (model,), group in rates.partition_by("model", as_dict=True).items()
        }
        ids, texts = tuple(f"{row:032x}" for row in range(prompts)), tuple(shown["prompt"].to_list())
        self.pool = Pool(ids, WordllamaEncoder().encode(texts), texts=texts)

    def success(self, ends: tuple[str, str], progress: float) -> Floats:
        """[prompts] success probability of the policy that has drifted so far from one end to the other."""
        first, last = (self.logits[end] for end in ends)
        rates: Floats = expit(first + (last - first) * progress)
        return rates


class Judged:
    """A selector under judgement: what the log says of it, and what it gets when it is deployed."""

    def __init__(self, name: str, predictor: Predictor, pool: Pool, seed: int) -> None:
        self.name, self.predictor, self.seed = name, predictor, seed
        self._common: dict[str, Any] = {
            "pool": pool,
            "settings": acquisition(name, explore=0.05),
            "group_size": GROUP,
        }
        self._sums: list[StepSums] = []
        self._shares: list[Floats] = []

    def meet(self, logged: LoggedStep, p: Floats) -> None:
        """Judge one logged step, and deploy the selector in its state."""
        forecast = self.predictor.forecast(logged.rows, seed=logged.step)
        self._sums.append(judge_step(logged, forecast, seed=self.seed, **self._common))
        rng = derive_rng(self.seed, logged.step, self.name, "deployed")
        self._shares.append(self._deploy(logged, forecast, p, rng))

    def _deploy(self, logged: LoggedStep, forecast: Forecast, p: Floats, rng: np.random.Generator) -> Floats:
        """[BATCHES * REPEATS] informative shares of batches chosen for real, with fresh outcomes."""
        shares = []
        for _ in range(BATCHES):
            batch = select(forecast, logged.rows, previous=logged.previous, rng=rng, **self._common)
            chosen = np.tile(p[batch.rows[batch.chosen]], (REPEATS, 1))
            shares.append(is_informative(rng.binomial(GROUP, chosen)).mean(axis=1))
        return np.concatenate(shares)

    def line(self) -> dict[str, Any]:
        """Estimates beside the truth, which is the mean of all deployments; `once` is of a single one."""
        value = counterfactual_value(self._sums)
        shares = np.mean(self._shares, axis=0)
        truth, once = float(shares.mean()), float(shares[0])
        return {
            "judged": self.name,
            "truth": truth,
            "groups": value.groups,
            "refusal": value.refusal,
            **against(value.doubly_robust, truth, once, "dr"),
            **against(value.snips, truth, once, "snips"),
        }


def against(estimate: Estimate | None, truth: float, once: float, name: str) -> dict[str, Any]:
    """Whether the interval holds the truth, and a single deployment; its width; the error. None when refused."""
    keys = (f"{name}_covers", f"{name}_covers_once", f"{name}_width", f"{name}_error")
    if estimate is None:
        return dict.fromkeys(keys)
    holds = [estimate.low <= share <= estimate.high for share in (truth, once)]
    return dict(zip(keys, (*holds, estimate.width, estimate.value - truth), strict=True))


def acquisition(selector: str, **changes: Any) -> AcquisitionSettings:
    """Settings of the rule of a predictor+rule."""
    return AcquisitionSettings(name=selector.split("+")[1], batch_size=BATCH, **changes)  # type: ignore[arg-type]


def is_informative(successes: Ints) -> np.ndarray:
    """Whether some, and not all, of a group succeeded."""
    return (successes > 0) & (successes < GROUP)


class Bench:
    """The world, and predictors that are built once and copied for each log."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._bare = Pool(world.pool.prompt_ids)  # no rule here reads embeddings, and `select` would copy them
        self._built: dict[str, Predictor] = {}

    def log(self, setting: Setting, ends: tuple[str, str], logger: str, seed: int) -> list[dict[str, Any]]:
        """Make one log; a line for each selector that is judged by it."""
        predictor, pool = self._predictor(logger), self._bare
        judged = [Judged(name, self._predictor(name), pool, seed) for name in PAIRS[logger]]
        settings = acquisition(logger, explore=setting.explore, candidates=setting.candidates)
        visits, previous = Visits.none(len(pool)), np.empty(0, np.int64)
        for step in range(1, setting.steps + 1):
            p = self._world.success(ends, (step - 1) / (setting.steps - 1))
            rng = derive_rng(seed, step, logger, "log")
            rows = candidates(visits, settings, rng)
            forecast = predictor.forecast(rows, seed=step)
            batch = select(forecast, rows, pool=pool, previous=previous, settings=settings, rng=rng, group_size=GROUP)
            acquired, successes = batch.rank >= 0, rng.binomial(GROUP, p[rows])
            outcome = np.where(acquired, is_informative(successes), np.nan)
            logged = LoggedStep(step, rows, forecast, batch.propensity, acquired, outcome, previous)
            for one in judged:
                one.meet(logged, p)
            previous = rows[batch.chosen]
            visits.add(previous)
            observe = learn_from(batch, successes, step)
            for learner in (predictor, *(one.predictor for one in judged)):
                observe(learner)
        about = {"setting": str(setting), "logged": logger}
        return [{**about, **one.line()} for one in judged]

    def _predictor(self, selector: str) -> Predictor:
        """A fresh predictor of a predictor+rule."""
        name = selector.split("+")[0]
        if name not in self._built:
            settings = TypeAdapter(PredictorSettings).validate_python({"name": name})
            self._built[name] = build_predictor(settings, self._world.pool, seed=0)
        return deepcopy(self._built[name])


def candidates(visits: Visits, settings: AcquisitionSettings, rng: np.random.Generator) -> Ints:
    """Pool rows of a step's candidates, as a run draws them."""
    rows = rested(visits, settings.candidates or 2 * BATCH, settings)
    if settings.candidates in range(1, len(rows)):
        rows = np.sort(rng.choice(rows, settings.candidates, replace=False))
    return rows


def learn_from(batch: Selection, successes: Ints, step: int) -> Callable[[Predictor], Any]:
    """What a step tells every predictor; successes are of all candidates."""
    at = batch.chosen
    tried, tokens = np.full(len(at), GROUP), np.full(len(at), 300.0)
    groups = Observation(batch.rows[at], successes[at], tried, tokens, explored=batch.explored)
    return lambda predictor: predictor.observe(groups, seed=step)


def summarise(told: pl.DataFrame, *by: str) -> list[dict[str, Any]]:
    """Coverage, widths, refusals and errors of each kind of judgement."""
    figures = [
        pl.len().alias("logs"),
        pl.col("truth").mean(),
        pl.col("groups").median().alias("effective groups"),
        (pl.col("refusal") != "").mean().alias("refused"),
    ]
    for name in ("dr", "snips"):
        figures += [pl.col(f"{name}_{column}").cast(pl.Float64).mean() for column in ("covers", "covers_once")]
        figures += [pl.col(f"{name}_width").cast(pl.Float64).median(), pl.col(f"{name}_error").cast(pl.Float64).mean()]
    return told.group_by(by, maintain_order=True).agg(figures).to_dicts()


HEADS = {"setting": "explored | candidates | steps", "logged": "logged by", "judged": "judged"}
REFUSALS = "Refusals, each with numbers left out:\n"


def table(lines: list[dict[str, Any]]) -> list[str]:
    """A Markdown table."""
    names = list(lines[0])
    words, numbers = [name for name in names if name in HEADS], [name for name in names if name not in HEADS]
    heads = [*(HEADS[name] for name in words), *(name.replace("_", " ") for name in numbers)]
    rule = "---|" * (2 + len(words)) + "---:|" * len(numbers)
    return [f"| {' | '.join(heads)} |", f"|{rule}", *(row(line, words, numbers) for line in lines)]


def row(line: dict[str, Any], words: list[str], numbers: list[str]) -> str:
    """One line of the table."""
    cells = [figure(line[name]) for name in numbers]
    return f"| {' | '.join([*(line[name] for name in words), *cells])} |"


def figure(value: float | int | None) -> str:
    """A number for readers."""
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    return f"{value:.0f}" if value >= 10.0 else f"{value:.3f}"


def reasons(told: pl.DataFrame) -> list[str]:
    """How often each reason was given."""
    refused = told.filter(pl.col("refusal") != "").with_columns(pl.col("refusal").str.replace_all(r"\d+(\.\d+)?", "#"))
    counts = refused.group_by("setting", "refusal", maintain_order=True).agg(pl.len()).rows()
    return [f"- {setting}: {count} times: {refusal}" for setting, refusal, count in counts] or ["- none"]


def against_bars(half: dict[str, Any]) -> list[str]:
    """The first setting against what is wanted of it."""
    covers, width, refused = half["dr_covers"], half["dr_width"], half["refused"]
    return [
        f"With {half['setting'].split(' ')[0]} exploration, by the doubly robust estimate:",
        "",
        f"- the 95 % interval holds the truth in {covers:.1%} of judgements; wanted {COVERED:.0%} or more",
        f"- its median width is {width:.3f}; wanted {WIDTH:.2f} or less",
        f"- {refused:.1%} are refused; wanted {REFUSED:.0%} or less",
    ]


if __name__ == "__main__":
    main()
