"""What each way of choosing prompts spends until the policy has learned.

Trains the shipped Countdown policy on a pool of which most is out of its reach,
once for each way of choosing and each seed, and asks when held-out success
first meets the target. The runs of one seed begin with the same policy, and are
measured on the same held-out prompts with the same random numbers. `foreroll
warm` knows what the cold run of the seed before did on the pool; the run of
seed 0 is made for this alone.

    python bench/online.py [--quick] [--work FOLDER] [--seeds 10] [--report]

Every run is a run in the store of `--work`: one that was broken off goes on, a
finished one is not made again, and all figures are read from there with SQL.
The six tasks run as plain functions, without Prefect, which would add 0.06 s a
step (`overhead.md`).
"""

import argparse
import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import Any

from flows.environment import apply_defaults

apply_defaults()

from bench_pages import PAGES, finish  # noqa: E402
from online_report import (  # noqa: E402
    Key,
    Target,
    diagnostics_table,
    headline,
    headline_table,
    plot,
    read_curves,
    read_diagnostics,
    sweep,
    sweep_table,
)

import flows.train  # noqa: E402
from flows.config import TrainConfig, build_config  # noqa: E402
from flows.stopping import StopRequest  # noqa: E402
from models.problems import BUILTIN  # noqa: E402
from models.problems.countdown import make_problems  # noqa: E402
from models.records import Problem  # noqa: E402
from models.seeding import derive_rng  # noqa: E402
from storage.layout import Layout  # noqa: E402
from storage.runs import read_run  # noqa: E402
from tasks.opening import open_workbench  # noqa: E402

LR = 1e-4
POOL, HELDOUT, SAMPLES = "online-pool", "online-heldout", 4
POOL_NUMBERS = {2: 100, 3: 500, 4: 1400, 5: 3000}
"""Problems of the pool that have so many numbers."""
HELDOUT_NUMBERS = {2: 40, 3: 200, 4: 200, 5: 160}
TARGETS = {
    "3 and 4 numbers": Target({3: 0.5, 4: 0.5}, 0.25, (0.22, 0.235, 0.265, 0.28)),
    "as in the pool": Target({count: size / 5000 for count, size in POOL_NUMBERS.items()}, 0.09, (0.1, 0.11, 0.12)),
}
"""Held-out success as the main job measures it, and on problems mixed as in the pool."""
STAGES = (
    "predict_difficulty",
    "acquire_batch",
    "generate_rollouts",
    "score_rewards",
    "update_policy",
    "update_predictor",
    "evaluate_policy",
    "commit_step",
)


@dataclass(frozen=True)
class Arm:
    """A way of choosing prompts."""

    settings: Mapping[str, Any]
    """What it sets in the config."""
    steps: int = 100
    every: int = 20
    """Steps between two measurements, the first before step 1."""
    past: str = ""
    """Arm whose run of the seed before is learned from, before the first step."""


ARMS = {
    "uniform": Arm({"predictor": {"name": "mean"}, "acquisition": {"name": "uniform"}}),
    "dynamic sampling": Arm(
        {"predictor": {"name": "mean"}, "acquisition": {"name": "uniform"}, "dynamic_sampling": {"enabled": True}},
        steps=40,
        every=5,
    ),
    "mopps": Arm({"predictor": {"name": "mopps"}, "acquisition": {"name": "thompson"}}),
    "depo": Arm({"predictor": {"name": "depo", "warmup_batches": 10}, "acquisition": {"name": "band"}}),
    "gps": Arm({"predictor": {"name": "gps"}, "acquisition": {"name": "gps"}}),
    "foreroll": Arm({"predictor": {"name": "foreroll", "past": "none"}, "acquisition": {"name": "informative"}}),
    "foreroll warm": Arm({"predictor": {"name": "foreroll"}, "acquisition": {"name": "informative"}}, past="foreroll"),
}
"""In the order of training. Dynamic sampling takes up to four rounds a step, so it is given fewer steps, yet more
rollouts, and is measured after as many rollouts as the others."""
QUICK, QUICK_NUMBERS = ("uniform", "foreroll"), {2: 10, 3: 20, 4: 40, 5: 50}

BUILTIN[POOL] = lambda: problems("pool", POOL_NUMBERS, seed=10)
BUILTIN[HELDOUT] = lambda: problems("heldout", HELDOUT_NUMBERS, seed=20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two ways, one seed, four steps, and no page")
    parser.add_argument("--work", type=Path, default=Path("online-work"), help="folder of the store")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--report", action="store_true", help="train nothing: write the page of the runs there are")
    arguments = parser.parse_args()
    if arguments.quick:
        BUILTIN[POOL] = lambda: problems("pool", QUICK_NUMBERS, seed=10)
        with TemporaryDirectory() as folder:
            quick = {name: replace(ARMS[name], steps=4, every=2) for name in QUICK}
            train_all(Path(folder), quick, seeds=1, heldout=40)
            figures, _ = report(Layout(Path(folder)), quick, seeds=1)
        finish("online", figures, write_page=False)
        return
    if not arguments.report:
        train_all(arguments.work, ARMS, seeds=arguments.seeds, heldout=0)
    figures, text = report(Layout(arguments.work.absolute()), ARMS, seeds=arguments.seeds, picture=PAGES / "online.png")
    finish("online", figures, write_page=True, text=text)


def train_all(store: Path, arms: Mapping[str, Arm], *, seeds: int, heldout: int) -> None:
    """Every arm of one seed before the next seed, so that what is there is paired whenever it ends."""
    for seed in range(1, seeds + 1):
        for name, arm in arms.items():
            if arm.past:
                train_once(make_config(store, arm.past, arms[arm.past], seed - 1, heldout))
            train_once(make_config(store, name, arm, seed, heldout))


def train_once(config: TrainConfig) -> None:
    """Train a run to its end, unless it is there; its checkpoints are then removed."""
    layout = Layout(config.store.absolute())
    if is_finished(layout, config.run):
        return
    print(config.run, flush=True)
    with plain_tasks(), open_workbench(config.plan()) as (bench, target):
        committed = bench.history.last_committed()
        for step in range(bench.step + 1, committed + 1):
            flows.train.replay_step(bench.run, step)
        bench.seconds.clear()
        for step in range(committed + 1, target + 1):
            measured = step % config.evaluation.every == 0
            flows.train.run_step(bench.run, step, evaluate=measured, stop=StopRequest())
    shutil.rmtree(layout.checkpoints(config.run))


def is_finished(layout: Layout, run: str) -> bool:
    """Whether a run has been trained to its end."""
    known = read_run(layout, run)
    return known is not None and known.state == "finished"


@contextmanager
def plain_tasks() -> Iterator[None]:
    """The functions behind the tasks in place of the tasks, in the flow's steps."""
    tasks = {name: getattr(flows.train, name) for name in STAGES}
    try:
        for name, task in tasks.items():
            setattr(flows.train, name, task.fn)
        yield
    finally:
        for name, task in tasks.items():
            setattr(flows.train, name, task)


def make_config(store: Path, name: str, arm: Arm, seed: int, heldout: int) -> TrainConfig:
    """The main job's preset on the harder pool, with one way of choosing among the whole pool."""
    past = {"past": run_name(arm.past, seed - 1)} if arm.past else {}
    return build_config(
        {
            "preset": "countdown",
            "store": str(store),
            "run": run_name(name, seed),
            "steps": arm.steps,
            "seed": seed,
            "threads": 1,
            "prompts": {"train": POOL, "heldout": HELDOUT},
            "update": {"lr": LR},
            "evaluation": {"every": arm.every, "samples": SAMPLES, "prompts": heldout},
            "checkpoint": {"every": arm.steps, "keep": 1},
            **arm.settings,
            "predictor": {**arm.settings["predictor"], **past},
            "acquisition": {"candidates": 0, **arm.settings["acquisition"]},
        }
    )


def run_name(arm: str, seed: int) -> str:
    """Name of the run of an arm and a seed."""
    return f"{arm.replace(' ', '-')}.{seed}"


def problems(split: str, numbers: Mapping[int, int], seed: int) -> list[Problem]:
    """So many problems of each count of numbers, in a random order."""
    made = [
        problem
        for count, size in numbers.items()
        for problem in make_problems(size, split=split, min_numbers=count, max_numbers=count, seed=seed + count)
    ]
    return [made[index] for index in derive_rng("online", split).permutation(len(made))]


def report(
    layout: Layout, arms: Mapping[str, Arm], *, seeds: int, picture: Path | None = None
) -> tuple[dict[str, Any], str]:
    """Figures of all finished runs, and the page's text; draws the curves where a picture is wanted."""
    named: dict[str, Key] = {run_name(arm, seed): (arm, seed) for arm in arms for seed in range(1, seeds + 1)}
    runs = {run: key for run, key in named.items() if is_finished(layout, run)}
    curves = read_curves(layout, runs, HELDOUT)
    lines = {title: headline(curves, target) for title, target in TARGETS.items()}
    sweeps = {title: sweep(curves, target) for title, target in TARGETS.items()}
    diagnostics = read_diagnostics(layout, runs, curves, POOL)
    parts = [about()]
    for title, target in TARGETS.items():
        parts += [f"## Held-out problems: {title}", f"Target {target.success}:"]
        parts += ["\n".join(headline_table(lines[title])), "\n".join(sweep_table(sweeps[title]))]
    parts += ["## What was chosen, and what was learned", "\n".join(diagnostics_table(diagnostics))]
    if picture is not None:
        picture.parent.mkdir(parents=True, exist_ok=True)
        plot(curves, TARGETS, picture)
        parts.append(f"![Held-out success]({picture.name})\n")
    text = "\n\n".join(parts)
    print(text)
    return finite({"targets": lines, "sweeps": sweeps, "diagnostics": diagnostics}), text


def about() -> str:
    """What the page says before its tables."""
    pool = ", ".join(f"{size:,} of {count} numbers" for count, size in POOL_NUMBERS.items())
    heldout = sum(HELDOUT_NUMBERS.values())
    return fill(
        f"`countdown-tiny` is trained on {pool}, in batches of 16 prompts x 8 rollouts at a learning rate of {LR:g}. A "
        f"measurement is of {heldout} other problems x {SAMPLES} rollouts, which do not count as spent; all rounds of "
        "dynamic sampling do. Tokens are those of responses; seconds are those of the six tasks, on one thread of a "
        "machine that had other work. `rollouts`, `tokens` and `seconds` are medians over the seeds of what was spent "
        "when the target was first met, linear between two measurements; a ratio is the median of the seeds' ratios, "
        "and a reference that missed the target counts as if its last rollout had met it. `foreroll` begins with "
        "nothing, `foreroll warm` with what the cold run of another seed did on the pool.",
        120,
    )


def finite(found: Any) -> Any:
    """The same, with None in place of numbers that JSON does not have."""
    if isinstance(found, dict):
        return {key: finite(value) for key, value in found.items()}
    if isinstance(found, list):
        return [finite(value) for value in found]
    return None if isinstance(found, float) and not math.isfinite(found) else found


if __name__ == "__main__":
    main()
