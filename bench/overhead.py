"""What Prefect costs: the same steps through the flow, and through a bare loop over the same functions.

    python bench/overhead.py [--quick]

Both train the shipped Countdown policy from the same seed, one after the other
in this process, and must end with the same history. The commit records'
times tell start-up, steps and closing apart.
"""

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from flows.environment import apply_defaults

apply_defaults()

from bench_pages import finish  # noqa: E402

import flows.train  # noqa: E402
from flows.config import TrainConfig, build_config  # noqa: E402
from flows.stopping import StopRequest  # noqa: E402
from storage.catalog import query  # noqa: E402
from storage.layout import Layout  # noqa: E402
from tasks.opening import open_workbench  # noqa: E402

STAGES = (
    "predict_difficulty",
    "acquire_batch",
    "generate_rollouts",
    "score_rewards",
    "update_policy",
    "update_predictor",
    "commit_step",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="8 steps instead of 30, and no page")
    quick = parser.parse_args().quick
    steps = 8 if quick else 30
    with TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        flow = measure(lambda: flows.train.train(make_config(store, "flow", steps)), store, "flow")
        bare = measure(lambda: train_bare(make_config(store, "bare", steps)), store, "bare")
        assert rollouts(store, "flow") == rollouts(store, "bare"), "the two did not compute the same"
    added = (flow["steps_s"] - bare["steps_s"]) / steps
    print(f"{'':8}{'start-up s':>12}{'s a step':>12}{'closing s':>12}")
    for name, one in (("flow", flow), ("bare", bare)):
        print(f"{name:8}{one['startup_s']:12.2f}{one['steps_s'] / steps:12.3f}{one['closing_s']:12.2f}")
    print(f"the flow adds {added:.3f} s a step, {flow['steps_s'] / bare['steps_s']:.2f} times the bare loop")
    finish("overhead", {"steps": steps, "flow": flow, "bare": bare, "added_s_per_step": added}, write_page=not quick)


def make_config(store: Path, run: str, steps: int) -> TrainConfig:
    """The main job's preset without evaluations."""
    values = {"preset": "countdown", "store": str(store), "run": run, "steps": steps, "evaluation": {"every": 0}}
    return build_config(values)


def train_bare(config: TrainConfig) -> None:
    """The flow's loop, with the functions behind the tasks in place of the tasks."""
    tasks = {name: getattr(flows.train, name) for name in STAGES}
    try:
        for name, task in tasks.items():
            setattr(flows.train, name, task.fn)
        with open_workbench(config.plan()) as (bench, target):
            for step in range(target + 1):
                flows.train.run_step(bench.run, step, evaluate=False, stop=StopRequest())
    finally:
        for name, task in tasks.items():
            setattr(flows.train, name, task)


def measure(train: object, store: Path, run: str) -> dict[str, float]:
    """Seconds before step 0 is committed, from there to the last commit, and after it."""
    assert callable(train)
    began = datetime.now(UTC)
    start = time.perf_counter()
    train()
    total = time.perf_counter() - start
    times = query(Layout(store), "select committed_at as t from steps where run_id = $run order by step", {"run": run})
    first, *_, last = times["t"].to_pylist()
    startup, steps = (first - began).total_seconds(), (last - first).total_seconds()
    return {"startup_s": startup, "steps_s": steps, "closing_s": total - startup - steps}


def rollouts(store: Path, run: str) -> list[dict[str, object]]:
    """Every response of a run, to compare."""
    sql = "select step, prompt_id, sample, response from rollouts where run_id = $run order by all"
    return query(Layout(store), sql, {"run": run}).to_pylist()


if __name__ == "__main__":
    main()
