"""What it costs to replay a history with five predictors: seconds, and memory against the number of steps.

    python bench/replay.py [--quick]

The history is made up, 8 rollouts a group: each prompt has a logit that depends
on its words and moves as the run goes on. It is imported, as far as a replay can
tell: outcomes alone, nothing forecast. Each line is a process of its own.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from bench_pages import finish
from scipy.special import expit

from flows.environment import apply_defaults
from storage.history import History
from storage.layout import Layout
from storage.prompts import read_dataset, write_dataset
from storage.runs import Run, write_run
from storage.store import open_store

ROLLOUTS, BAR_S, BAR_GB = 8, 180.0, 2.0
PREDICTORS = ("mean", "kalman", "mopps", "gps", "foreroll")
WORDS = [f"{start}{middle}{end}" for start in "bcdfg" for middle in "aeiou" for end in ("lt", "mp", "nd", "rk")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2,000 groups of 500 prompts, and no page")
    parser.add_argument("--only", nargs=2, metavar=("STORE", "STEPS"), help="measure one line")
    arguments = parser.parse_args()
    if arguments.only:
        store, steps = arguments.only
        print(json.dumps(measure(Path(store), int(steps))))
        return
    report(quick=arguments.quick)


def report(*, quick: bool) -> None:
    """Make the history, replay a quarter, half and all of its steps, print that, and write the page."""
    prompts, steps, groups = (500, 40, 50) if quick else (12_500, 500, 128)
    with tempfile.TemporaryDirectory() as folder:
        make_store(Path(folder) / "store", prompts, steps, groups)
        lines = [measure_apart(Path(folder) / "store", part) for part in (steps // 4, steps // 2, steps)]
    text = "\n".join([*table(lines), "", verdict(lines[-1], prompts)])
    print(text)
    finish("replay", {"prompts": prompts, "lines": lines}, write_page=not quick, text=text)


def measure_apart(store: Path, steps: int) -> dict[str, Any]:
    """One line in a fresh process, in the environment that `foreroll` sets up."""
    apply_defaults()
    command = [sys.executable, __file__, "--only", str(store), str(steps)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(store: Path, steps: int) -> dict[str, Any]:
    """Replay the first steps, as `foreroll replay` does."""
    from flows.replay_config import build_replay_config
    from tasks.replay import replay_history

    named = {name: {} for name in PREDICTORS}
    config = build_replay_config({"store": str(store), "where": f"step <= {steps}", "predictors": named})
    before = peak_mb()
    start, cpu = time.perf_counter(), time.process_time()
    found = replay_history(config.plan())
    return {
        "steps": steps,
        "groups": found.groups,
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "peak_mb": peak_mb(),
        "before_mb": before,
        "nll": {line.label: round(line.score, 4) for line in found.lines},
    }


def peak_mb() -> int:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def make_store(root: Path, prompts: int, steps: int, groups: int) -> Layout:
    """A store whose run `history` has rolled out `groups` prompts in each step."""
    layout = open_store(root, create=True)
    rng = np.random.default_rng(0)
    words = rng.integers(0, len(WORDS), (prompts, 24))
    rows = [
        {
            "messages": [("user", f"{number}: " + " ".join(WORDS[word] for word in line))],
            "answer": "1",
            "reward": "countdown",
            "system": "",
            "instruction": "",
            "tags": "{}",
        }
        for number, line in enumerate(words)
    ]
    write_dataset(layout, "pool", rows)
    ids = np.array(read_dataset(layout, "pool")["prompt_id"].to_pylist())
    worth = rng.normal(0.0, 1.0, len(WORDS))
    logits = worth[words].sum(axis=1) / 4 + rng.normal(0.0, 1.0, prompts)
    history = History(layout, "history")
    for step in range(1, steps + 1):
        chosen = rng.choice(prompts, groups, replace=False)
        write_step(
            history, step, ids[chosen], rng.uniform(size=(groups, ROLLOUTS)) < expit(logits[chosen])[:, None], rng
        )
        logits += 2.0 / steps
    created = datetime.now(UTC).isoformat(timespec="milliseconds")
    write_run(layout, Run("history", {"imported": {}}, {"datasets": {}}, created, steps, 1, "finished"))
    return layout


def write_step(history: History, step: int, ids: np.ndarray, success: np.ndarray, rng: np.random.Generator) -> None:
    """One committed step: one row a rollout, as an import writes it."""
    groups, flat = len(ids), success.ravel()
    keys = {
        "group_id": np.repeat([f"{step:08d}-{one}"[:32] for one in ids], ROLLOUTS),
        "sample": np.tile(np.arange(ROLLOUTS), groups),
    }
    lengths = rng.integers(50, 500, len(flat))
    rollouts = {
        **keys,
        "prompt_id": np.repeat(ids, ROLLOUTS),
        "response_tokens": lengths,
        **{name: [None] * len(flat) for name in ("response", "prompt_tokens", "finish_reason", "sampling")},
    }
    history.write("rollouts", step, rollouts, round=0, attempt=0, policy_version=step - 1, engine="imported")
    rewards = {**keys, "reward": flat.astype(float), "success": flat, "reject_reason": [None] * len(flat)}
    history.write("rewards", step, rewards, round=0, reward_status="ok", reward_parts="{}", admitted=True)
    timed = ("predict", "acquire", "generate", "score", "update_policy", "update_predictor", "evaluate")
    informative = int((success.any(axis=1) & ~success.all(axis=1)).sum())
    counts = {"rounds": 1, "candidates": 0, "groups": groups, "informative_groups": informative, "rollouts": len(flat)}
    totals = {"successes": int(flat.sum()), "prompt_tokens": 0, "response_tokens": int(lengths.sum())}
    about = {"epoch": 1, "committed_at": datetime.now(UTC), "policy_version": step - 1, "versions": "{}"}
    history.commit(step, {**about, **counts, **totals, **{f"{name}_seconds": 0.0 for name in timed}})


def table(lines: list[dict[str, Any]]) -> list[str]:
    """A Markdown table."""
    names = ["steps", "groups", "seconds", "cpu_seconds", "peak_mb", "before_mb"]
    head = ["| " + " | ".join(names) + " |", "|" + "---:|" * len(names)]
    return head + ["| " + " | ".join(f"{line[name]:,}" for name in names) + " |" for line in lines]


def verdict(line: dict[str, Any], prompts: int) -> str:
    """The longest replay beside what it should take at most."""
    threads = os.environ.get("OMP_NUM_THREADS", os.cpu_count())
    return (
        f"{line['groups']:,} groups of {prompts:,} prompts, {len(PREDICTORS)} predictors: {line['seconds']:.0f} s, of "
        f"which this process computed {line['cpu_seconds']:.0f} s, and {line['peak_mb'] / 1000:.2f} GB with {threads} "
        f"threads; at 64,000 groups of 12,500 prompts the bar is {BAR_S:.0f} s and {BAR_GB:g} GB on two cores."
    )


if __name__ == "__main__":
    main()
