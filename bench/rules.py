"""What it costs to forecast a pool with each predictor, and to acquire 256 of its prompts with each rule.

    python bench/rules.py [--quick]

Embeddings are random unit vectors, categories 50 names, outcomes random; all in
memory. Forecasts are those of a Beta posterior for each prompt after a few
batches. What `gps` costs is in `predict.py`. Each line is a process of its own, so that its peak memory is its own.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from bench_pages import finish
from numpy.typing import NDArray

from flows.environment import apply_defaults

BATCH, DIM, ROLLOUTS, OBSERVED, CATEGORIES = 256, 256, 8, 4, 50
PREDICTORS = ("last", "mean", "mopps", "kalman", "dps", "greso", "sec", "gp")
RULES = ("uniform", "nearest", "thompson", "band", "informative", "per_token", "greso", "boltzmann")
BAR_SIZE, BAR_S = 100_000, 0.5
"""Seconds that a predictor and a rule together should take at most."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="pools of 10,000, once each, and no page")
    parser.add_argument("--only", nargs=4, metavar=("KIND", "NAME", "SIZE", "REPEATS"), help="measure one line")
    arguments = parser.parse_args()
    if arguments.only:
        kind, name, size, repeats = arguments.only
        measure = measure_predictor if kind == "predictor" else measure_rule
        print(json.dumps(measure(name, int(size), int(repeats))))
        return
    report(quick=arguments.quick)


def report(*, quick: bool) -> None:
    """Measure everything, print it, and write the page."""
    repeats = 1 if quick else 3
    sizes = (10_000,) if quick else (100_000, 1_000_000)
    predictors = [measure_apart("predictor", name, size, repeats) for name in PREDICTORS for size in sizes]
    rules = [measure_apart("rule", name, size, repeats) for name in RULES for size in sizes]
    text = "\n".join([*table(predictors), "", *table(rules), "", *against_bar(predictors, rules)])
    print(text)
    finish("rules", {"predictors": predictors, "rules": rules}, write_page=not quick, text=text)


def measure_apart(kind: str, name: str, size: int, repeats: int) -> dict[str, Any]:
    """One line in a fresh process, in the environment that `foreroll` sets up."""
    apply_defaults()
    command = [sys.executable, __file__, "--only", kind, name, str(size), str(repeats)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure_predictor(name: str, size: int, repeats: int) -> dict[str, Any]:
    """Least seconds of a forecast of the whole pool, and of learning from a batch."""
    from models.difficulty import build_predictor
    from models.records import Pool

    categories = tuple(f"category {row % CATEGORIES}" for row in range(size)) if name == "sec" else ()
    pool = Pool(tuple(f"{row:032x}" for row in range(size)), unit_vectors(size) if name == "gp" else None, categories)
    predictor = build_predictor(settings_of(name), pool, seed=0)
    observe_s = [timed(partial(predictor.observe, observation(size, seed), seed=seed)) for seed in range(OBSERVED)]
    forecast_s = [timed(partial(predictor.forecast, np.arange(size), seed=seed)) for seed in range(1 + repeats)]
    return line("predictor", name, size, {"forecast_s": min(forecast_s[1:]), "observe_s": min(observe_s[1:])})


def measure_rule(name: str, size: int, repeats: int) -> dict[str, Any]:
    """Least seconds of a selection from the whole pool, with a retention test and without."""
    from models.acquisition import select
    from models.difficulty import build_predictor
    from models.records import Pool
    from models.settings import AcquisitionSettings

    pool = Pool(tuple(f"{row:032x}" for row in range(size)))
    predictor = build_predictor(settings_of("mopps"), pool, seed=0)
    for seed in range(OBSERVED):
        predictor.observe(observation(size, seed), seed=seed)
    rows = np.arange(size)
    forecast, seconds = predictor.forecast(rows, seed=0), {}
    for column, retain in (("acquire_s", 0.0), ("with_test_s", 0.05)):
        settings = AcquisitionSettings(name=name, batch_size=BATCH, retain=retain)  # type: ignore[arg-type]
        seconds[column] = min(
            timed(
                partial(
                    select,
                    forecast,
                    rows,
                    pool=pool,
                    previous=rows[:BATCH],
                    settings=settings,
                    rng=np.random.default_rng(seed),
                )
            )
            for seed in range(1 + repeats)
        )
    return line("rule", name, size, seconds)


def settings_of(predictor: str) -> Any:
    """The default settings of a predictor."""
    from pydantic import TypeAdapter

    from models.settings import PredictorSettings

    return TypeAdapter(PredictorSettings).validate_python({"name": predictor})


def observation(size: int, seed: int) -> Any:
    """A batch of random groups."""
    from models.records import Observation

    rng = np.random.default_rng(seed)
    rows = rng.choice(size, BATCH, replace=False)
    successes = rng.binomial(ROLLOUTS, rng.uniform(size=BATCH))
    return Observation(rows, successes, np.full(BATCH, ROLLOUTS), rng.uniform(100, 900, BATCH))


def line(kind: str, name: str, size: int, seconds: dict[str, float]) -> dict[str, Any]:
    """One line of figures, with the process's peak memory."""
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {kind: name, "prompts": size, **seconds, "peak_gib": peak_gib}


def timed(call: Callable[[], Any]) -> float:
    """Seconds that a call took."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def unit_vectors(size: int) -> NDArray[np.float32]:
    """[size, DIM] uniform on the sphere."""
    vectors = np.random.default_rng(0).standard_normal((size, DIM), dtype=np.float32)
    vectors /= np.sqrt(np.vecdot(vectors, vectors))[:, None]
    return vectors


def table(lines: list[dict[str, Any]]) -> list[str]:
    """A Markdown table."""
    names = list(lines[0])
    head = ["| " + " | ".join(names) + " |", "|---|" + "---:|" * (len(names) - 1)]
    return head + [
        f"| {one[names[0]]} | {one['prompts']:,} | " + " | ".join(f"{one[name]:.3f}" for name in names[2:]) + " |"
        for one in lines
    ]


def against_bar(predictors: list[dict[str, Any]], rules: list[dict[str, Any]]) -> list[str]:
    """The dearest predictor with the dearest rule, at the size that has a bar."""
    forecasts = {one["predictor"]: one["forecast_s"] for one in predictors if one["prompts"] == BAR_SIZE}
    selections = {one["rule"]: one["acquire_s"] for one in rules if one["prompts"] == BAR_SIZE}
    if not forecasts:
        return []
    predictor, rule = max(forecasts, key=forecasts.__getitem__), max(selections, key=selections.__getitem__)
    total = forecasts[predictor] + selections[rule]
    return [f"- The dearest pair at {BAR_SIZE:,} prompts, {predictor}+{rule}: {total:.2f} s; the bar is {BAR_S} s."]


if __name__ == "__main__":
    main()
