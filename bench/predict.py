"""What it costs to forecast a pool, to acquire 256 of its prompts and to learn from them, by size of the pool.

    python bench/predict.py [--quick]

Embeddings are random unit vectors, in memory, and texts are drawn words;
outcomes depend on the embeddings. `open` is the making of the predictor, once a
run. Each line is a process of its own, so that its peak memory is its own. Two ratios
tell what the shortcuts save: averaging only the best 2,048 prompts over z
against averaging all, and greedy that looks at reachable candidates against
greedy that looks at every candidate for every pick.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from bench_pages import finish
from numpy.typing import NDArray

from flows.environment import apply_defaults

BATCH, DIM, ROLLOUTS, OBSERVED = 256, 256, 8, 4
RATIO_SIZE, BAR_SIZE = 10_000, 100_000
METHODS = {
    "foreroll+informative": ("foreroll", "informative"),
    "gps+gps": ("gps", "gps"),
    "mopps+thompson": ("mopps", "thompson"),
    "gps+gps, all over z": ("gps", "gps"),
}
"""Predictor and acquisition rule; `all over z` averages every prompt over z, not the best 2,048."""
BARS_S = {"foreroll+informative": 2.0, "gps+gps": 3.0, "mopps+thompson": 1.5}
"""Seconds that a step of `BAR_SIZE` prompts should take at most on two cores."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="pools up to 100,000, once each, and no page")
    parser.add_argument("--only", nargs=3, metavar=("METHOD", "SIZE", "REPEATS"), help="measure one line, print JSON")
    arguments = parser.parse_args()
    if arguments.only:
        method, size, repeats = arguments.only
        print(json.dumps(measure_greedy(int(size)) if method == "greedy" else measure(method, int(size), int(repeats))))
        return
    report(quick=arguments.quick)


def report(*, quick: bool) -> None:
    """Measure everything, print it, and write the page."""
    repeats = 1 if quick else 3
    sizes = (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000)
    lines = [measure_apart(method, size, repeats) for method in BARS_S for size in sizes]
    all_over_z = measure_apart("gps+gps, all over z", RATIO_SIZE, repeats)
    greedy = measure_apart("greedy", BAR_SIZE, repeats)
    averaged = next(line for line in lines if (line["method"], line["prompts"]) == ("gps+gps", RATIO_SIZE))
    ratios = {
        "all_over_z": all_over_z["forecast_s"] / averaged["forecast_s"],
        "greedy_over_all": greedy["every_candidate_s"] / greedy["reachable_s"],
    }
    lines = [*lines, all_over_z]
    text = "\n".join([*table(lines), "", *growth(lines), *against_bars(lines), *in_words(ratios)])
    print(text)
    finish("predict", {"lines": lines, "greedy": greedy, "ratios": ratios}, write_page=not quick, text=text)


def measure_apart(method: str, size: int, repeats: int) -> dict[str, Any]:
    """`measure` in a fresh process, in the environment that `foreroll` sets up."""
    apply_defaults()
    command = [sys.executable, __file__, "--only", method, str(size), str(repeats)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(method: str, size: int, repeats: int) -> dict[str, Any]:
    """Least seconds of each part after a few observed batches and one call, those of opening, and peak memory."""
    from models.acquisition import select
    from models.difficulty import build_predictor
    from models.records import Observation, Pool
    from models.settings import AcquisitionSettings, ForerollSettings, GpsSettings, MoppsSettings

    predictor_name, rule = METHODS[method]
    chosen = {
        "foreroll": ForerollSettings(),
        "gps": GpsSettings(rescored=size) if method == "gps+gps, all over z" else GpsSettings(),
        "mopps": MoppsSettings(),
    }[predictor_name]
    embeddings = None if predictor_name == "mopps" else unit_vectors(size)
    ids, words = tuple(f"{row:032x}" for row in range(size)), texts(size) if predictor_name == "foreroll" else ()
    pool = Pool(ids, embeddings, texts=words)
    open_s, predictor = timed(partial(build_predictor, chosen, pool, seed=0))
    rng, rows = np.random.default_rng(0), np.arange(size)
    logits = rng.standard_normal(size) if pool.embeddings is None else pool.embeddings @ rng.standard_normal(DIM)
    learn_s = []
    for seed in range(OBSERVED):
        last = rng.choice(size, BATCH, replace=False)
        successes = rng.binomial(ROLLOUTS, 1.0 / (1.0 + np.exp(-1.5 * logits[last])))
        groups = Observation(last, successes, np.full(BATCH, ROLLOUTS), rng.uniform(100, 900, BATCH))
        learn_s.append(timed(partial(predictor.observe, groups, seed=seed))[0])
    settings = AcquisitionSettings(name=rule, batch_size=BATCH)  # type: ignore[arg-type]
    forecast_s, acquire_s = [], []
    for seed in range(1 + repeats):
        seconds, forecast = timed(partial(predictor.forecast, rows, seed=seed))
        forecast_s.append(seconds)
        rng = np.random.default_rng(seed)
        seconds, selection = timed(
            partial(select, forecast, rows, pool=pool, previous=last, settings=settings, rng=rng)
        )
        acquire_s.append(seconds)
        assert len(selection.chosen) == BATCH
    figures = {"forecast_s": min(forecast_s[1:]), "acquire_s": min(acquire_s[1:]), "learn_s": min(learn_s[1:])}
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "method": method,
        "prompts": size,
        **figures,
        "total_s": sum(figures.values()),
        "open_s": open_s,
        "peak_gib": peak_gib,
    }


def measure_greedy(size: int) -> dict[str, float]:
    """Seconds of the two greedy searches, which must choose the same batch."""
    from models.acquisition.gps import diversity_weight, greedy

    embeddings = unit_vectors(size)
    utility = -((np.random.default_rng(1).uniform(size=size) - 0.5) ** 2)
    anchored = 1.0 - embeddings @ embeddings[:BATCH].mean(axis=0)
    lam = diversity_weight(utility, anchored, embeddings, BATCH, 0.2)
    reachable_s, (chosen, _) = timed(lambda: greedy(utility, anchored, embeddings, lam, BATCH))
    every_candidate_s, expected = timed(lambda: greedy_over_all(utility + lam * anchored, embeddings, lam, BATCH))
    assert chosen.tolist() == expected
    return {"prompts": size, "reachable_s": reachable_s, "every_candidate_s": every_candidate_s}


def greedy_over_all(alone: NDArray[np.float64], embeddings: NDArray[np.float32], lam: float, slots: int) -> list[int]:
    """The same greedy with a pass over all candidates for every pick."""
    chosen: list[int] = []
    gain = alone.copy()
    for _ in range(slots):
        best = int(np.argmax(gain))
        chosen.append(best)
        gain[best] = -np.inf
        gain += lam * 2.0 / (slots - 1) * (1.0 - np.vecdot(embeddings, embeddings[best]).astype(np.float64))
    return chosen


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that a call took, and what it returned."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def unit_vectors(size: int) -> NDArray[np.float32]:
    """[size, DIM] uniform on the sphere."""
    vectors = np.random.default_rng(0).standard_normal((size, DIM), dtype=np.float32)
    vectors /= np.sqrt(np.vecdot(vectors, vectors))[:, None]
    return vectors


def texts(size: int) -> tuple[str, ...]:
    """Forty words each, of a vocabulary in which few are common (Zipf)."""
    drawn = np.minimum(np.random.default_rng(2).zipf(1.3, (size, 40)), 20_000)
    return tuple(" ".join(f"w{word}" for word in row) for row in drawn)


def table(lines: list[dict[str, Any]]) -> list[str]:
    """A Markdown table."""
    head = [
        "| method | prompts | forecast s | acquire s | learn s | total s | open s | peak GiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    return head + [
        f"| {one['method']} | {one['prompts']:,} | {one['forecast_s']:.3f} | {one['acquire_s']:.3f} "
        f"| {one['learn_s']:.3f} | {one['total_s']:.3f} | {one['open_s']:.1f} | {one['peak_gib']:.2f} |"
        for one in lines
    ]


def growth(lines: list[dict[str, Any]]) -> list[str]:
    """How time grows from each size to the next of the same method."""
    return [
        f"- {after['method']}: {after['prompts'] / before['prompts']:.0f} times the prompts take "
        f"{after['total_s'] / before['total_s']:.1f} times as long ({after['prompts']:,})."
        for before, after in pairwise(lines)
        if before["method"] == after["method"]
    ]


def against_bars(lines: list[dict[str, Any]]) -> list[str]:
    """Time and bar of the size that has one."""
    return [
        f"- {one['method']} at {BAR_SIZE:,} prompts: {one['total_s']:.2f} s; the bar on two cores is "
        f"{BARS_S[one['method']]:.1f} s."
        for one in lines
        if one["prompts"] == BAR_SIZE and one["method"] in BARS_S
    ]


def in_words(ratios: dict[str, float]) -> list[str]:
    """What the two shortcuts save."""
    return [
        f"- Averaging all of {RATIO_SIZE:,} prompts over z takes {ratios['all_over_z']:.1f} times as long as the "
        f"best 2,048.",
        f"- Greedy that reads all of {BAR_SIZE:,} candidates for every pick takes "
        f"{ratios['greedy_over_all']:.1f} times as long, and picks the same batch.",
    ]


if __name__ == "__main__":
    main()
