"""The end of a step: its commit record, and its checkpoint where one is due."""

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc

from models.policy.loading import save_policy
from storage.checkpoints import Checkpoint, checkpoint_steps, prune_checkpoints, save_arrays, write_checkpoint
from tasks.score import read_outcomes
from tasks.stage import stage
from tasks.versions import library_versions
from tasks.workbench import Workbench, workbench

TIMED = ("predict", "acquire", "generate", "score", "update_policy", "update_predictor", "evaluate")


@stage
def commit_step(run: str, step: int) -> None:
    """Write the commit record of the step; it holds every file of the step with its digest."""
    bench = workbench(run)
    bench.lock.check()
    seconds = {f"{name}_seconds": bench.seconds.get(name, 0.0) for name in TIMED}
    record = {
        "epoch": bench.lock.epoch,
        "committed_at": datetime.now(UTC),
        "policy_version": bench.policy_version,
        "versions": json.dumps(library_versions()),
        **_counts(bench, step),
        **seconds,
    }
    bench.history.commit(step, record)
    bench.seconds.clear()


def read_commit(bench: Workbench, step: int) -> dict[str, Any]:
    """The commit record of a step, files left out."""
    record: dict[str, Any] = bench.history.read("steps", step).drop_columns("files").to_pylist()[0]
    return record


def save_checkpoint(bench: Workbench) -> None:
    """Write policy, optimiser and predictor as they stand, unless that is done; prune older ones."""
    if bench.step not in checkpoint_steps(bench.layout, bench.run):
        about = Checkpoint(
            run=bench.run,
            step=bench.step,
            policy_version=bench.policy_version,
            predictor=bench.settings.predictor.name,
            skipped_in_a_row=bench.skipped_in_a_row,
        )
        with write_checkpoint(bench.layout, about) as folder:
            save_policy(bench.policy, folder / "policy")
            save_arrays(folder / "optimizer", bench.trainer.state_dict())
            save_arrays(folder / "predictor", bench.predictor.state_dict())
    prune_checkpoints(bench.layout, bench.run, keep=bench.settings.checkpoint.keep, best=_best_step(bench))


def save_due_checkpoint(bench: Workbench) -> None:
    """Write a checkpoint where the cadence asks for one."""
    if bench.step % bench.settings.checkpoint.every == 0:
        save_checkpoint(bench)


def _counts(bench: Workbench, step: int) -> dict[str, Any]:
    rounds = len(bench.history.rounds("rollouts", step))
    if rounds == 0:
        names = ("candidates", "groups", "informative_groups", "rollouts", "successes", "prompt_tokens")
        return {"rounds": 0, **dict.fromkeys((*names, "response_tokens"), 0)}
    rollouts = bench.history.read_rounds("rollouts", step)
    rewards = bench.history.read_rounds("rewards", step)
    outcomes = read_outcomes(bench, step)
    return {
        "rounds": rounds,
        "candidates": len(bench.history.read("forecasts", step)),
        "groups": len(outcomes),
        "informative_groups": sum(outcome.informative for outcome in outcomes),
        "rollouts": len(rollouts),
        "successes": pc.sum(rewards["success"]).as_py() or 0,
        "prompt_tokens": pc.sum(rollouts["prompt_tokens"]).as_py() or 0,
        "response_tokens": pc.sum(rollouts["response_tokens"]).as_py() or 0,
    }


def _best_step(bench: Workbench) -> int | None:
    """The checkpointed step of the best held-out success, the earliest of equals; None where none was evaluated."""
    steps = checkpoint_steps(bench.layout, bench.run)
    evaluated = [step for step in steps if bench.history.holds("evaluations", step)]
    return max(evaluated, key=lambda step: _heldout_success(bench, step), default=None)


def _heldout_success(bench: Workbench, step: int) -> float:
    table = bench.history.read("evaluations", step)
    return float(pc.sum(table["successes"]).as_py() / pc.sum(table["samples"]).as_py())
