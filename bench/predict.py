"""What it costs to forecast a pool and to acquire 256 of its prompts, by size of the pool.

    python bench/predict.py [--quick]

Embeddings are random unit vectors, in memory. Each line is a process of its
own, so that its peak memory is its own. A last pair tells what averaging only
the best 2,048 prompts over z saves `gps` against averaging all.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import numpy as np
from bench_pages import finish
from numpy.typing import NDArray

from flows.environment import apply_defaults

BATCH, DIM, RATIO_SIZE = 256, 256, 10_000
METHODS = {"gps+gps": ("gps", "gps"), "mopps+thompson": ("mopps", "thompson"), "gps+gps, all over z": ("gps", "gps")}
"""Predictor and acquisition rule; `all over z` averages every prompt over z, not the best 2,048."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="pools up to 100,000, once each, and no page")
    parser.add_argument("--only", nargs=3, metavar=("METHOD", "SIZE", "REPEATS"), help="measure one line, print JSON")
    arguments = parser.parse_args()
    if arguments.only:
        method, size, repeats = arguments.only
        print(json.dumps(measure(method, int(size), int(repeats))))
        return
    sizes = (10_000, 100_000) if arguments.quick else (10_000, 100_000, 1_000_000)
    lines = [
        measure_apart(method, size, 1 if arguments.quick or size > 100_000 else 3)
        for method in ("gps+gps", "mopps+thompson")
        for size in sizes
    ]
    all_over_z = measure_apart("gps+gps, all over z", RATIO_SIZE, 1 if arguments.quick else 3)
    ratio = all_over_z["forecast_s"] / lines[0]["forecast_s"]
    text = "\n".join([*table([*lines, all_over_z]), "", *growth(lines), verdict(ratio)])
    print(text)
    finish(
        "predict", {"lines": [*lines, all_over_z], "all_over_z_ratio": ratio}, write_page=not arguments.quick, text=text
    )


def measure_apart(method: str, size: int, repeats: int) -> dict[str, Any]:
    """`measure` in a fresh process, in the environment that `foreroll` sets up."""
    apply_defaults()
    command = [sys.executable, __file__, "--only", method, str(size), str(repeats)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(method: str, size: int, repeats: int) -> dict[str, Any]:
    """Median seconds of forecasting and of acquiring, after one observed batch, and peak memory."""
    from models.acquisition import select
    from models.difficulty import build_predictor
    from models.records import Observation, Pool
    from models.settings import AcquisitionSettings, GpsSettings, MoppsSettings

    predictor_name, rule = METHODS[method]
    reads_embeddings = predictor_name == "gps"
    pool = Pool(tuple(f"{row:032x}" for row in range(size)), unit_vectors(size) if reads_embeddings else None)
    gps = GpsSettings(rescored=size) if method == "gps+gps, all over z" else GpsSettings()
    predictor = build_predictor(gps if reads_embeddings else MoppsSettings(), pool, seed=0)
    rng, rows = np.random.default_rng(0), np.arange(size)
    last = rng.choice(size, BATCH, replace=False)
    groups = Observation(last, rng.integers(0, 9, BATCH), np.full(BATCH, 8), rng.uniform(100, 900, BATCH))
    predictor.observe(groups, seed=0)
    settings = AcquisitionSettings(name=rule, batch_size=BATCH)  # type: ignore[arg-type]
    predictor.forecast(rows[:BATCH], seed=0)  # the first call of a library pays for its start
    forecast_s, acquire_s = [], []
    for seed in range(repeats):
        start = time.perf_counter()
        forecast = predictor.forecast(rows, seed=seed)
        middle = time.perf_counter()
        selection = select(forecast, rows, pool=pool, previous=last, settings=settings, rng=np.random.default_rng(seed))
        forecast_s.append(middle - start)
        acquire_s.append(time.perf_counter() - middle)
        assert (selection.rank >= 0).sum() == BATCH
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    seconds = {"forecast_s": statistics.median(forecast_s), "acquire_s": statistics.median(acquire_s)}
    return {"method": method, "prompts": size, **seconds, "total_s": sum(seconds.values()), "peak_gb": peak_gb}


def unit_vectors(size: int) -> NDArray[np.float32]:
    """[size, DIM] uniform on the sphere."""
    vectors = np.random.default_rng(0).standard_normal((size, DIM), dtype=np.float32)
    vectors /= np.sqrt(np.vecdot(vectors, vectors))[:, None]
    return vectors


def table(lines: list[dict[str, Any]]) -> list[str]:
    """A Markdown table."""
    head = ["| method | prompts | forecast s | acquire s | total s | peak GB |", "|---|---:|---:|---:|---:|---:|"]
    return head + [
        f"| {one['method']} | {one['prompts']:,} | {one['forecast_s']:.3f} | {one['acquire_s']:.3f} "
        f"| {one['total_s']:.3f} | {one['peak_gb']:.2f} |"
        for one in lines
    ]


def growth(lines: list[dict[str, Any]]) -> list[str]:
    """How time grows from each size to the next of the same method."""
    return [
        f"{after['method']}: {after['prompts'] / before['prompts']:.0f} times the prompts take "
        f"{after['total_s'] / before['total_s']:.1f} times as long ({after['prompts']:,})."
        for before, after in pairwise(lines)
        if before["method"] == after["method"]
    ]


def verdict(ratio: float) -> str:
    return f"At {RATIO_SIZE:,} prompts, averaging all of them over z takes {ratio:.1f} times as long as the best 2,048."


if __name__ == "__main__":
    main()
