"""A history small enough to count by hand.

A step considers p0, p1 and p2. Its first round rolls out p0, which succeeds
once in two samples, and p1, which never does. A second round, where a step has
one, rolls out p2, which always succeeds.
"""

from datetime import UTC, datetime
from typing import Any

from storage.history import History
from storage.layout import Layout
from storage.prompts import write_dataset
from storage.runs import Run, write_run

CANDIDATES = ["p0", "p1", "p2"]
ROUNDS = [["p0", "p1"], ["p2"]]
DECISIONS = {"p0": "acquired", "p1": "explored", "p2": "acquired"}
SUCCESSES = {"p0": [True, False], "p1": [False, False], "p2": [True, True]}

TABLES = ["forecasts", "acquisitions", "tokens", "rollouts", "rewards", "updates", "predictor_updates"]
ROLLOUTS_OF_A_ROUND = [4, 2]


def make_history(layout: Layout, run: str, steps: int, rounds: int = 1) -> History:
    """A run with committed steps 1, 2, and so on."""
    history = History(layout, run)
    for step in range(1, steps + 1):
        make_step(history, step, rounds)
    return history


def make_step(history: History, step: int, rounds: int = 1) -> None:
    """Write all parts of a step, and commit it."""
    write_parts(history, step, rounds)
    history.commit(step, make_record(step, rounds))


def write_parts(history: History, step: int, rounds: int = 1) -> None:
    """Write all parts of a step but the commit record, as the stages would."""
    write_forecasts(history, step)
    for round_ in range(rounds):
        write_acquisitions(history, step, round_)
        write_rollouts(history, step, round_)
        write_rewards(history, step, round_)
    write_updates(history, step)


def write_forecasts(history: History, step: int, **changes: Any) -> None:
    columns = {
        "prompt_id": CANDIDATES,
        "p_success": [0.5, 0.25, 0.75],
        "p_sd": [0.125, 0.125, 0.125],
        "expected_tokens": [None, 3.0, 3.0],
        **changes,
    }
    history.write("forecasts", step, columns, predictor="mopps")


def write_acquisitions(history: History, step: int, round_: int) -> None:
    considered = CANDIDATES if round_ == 0 else ["p2"]
    chosen = ROUNDS[round_]
    columns = {
        "prompt_id": considered,
        "utility": [0.5] * len(considered),
        "diversity": [None] * len(considered),
        "propensity": [1.0 if prompt in chosen else 0.25 for prompt in considered],
        "decision": [DECISIONS[prompt] if prompt in chosen else "not_chosen" for prompt in considered],
        "rank": [chosen.index(prompt) if prompt in chosen else None for prompt in considered],
    }
    history.write("acquisitions", step, columns, round_, round=round_)


def write_rollouts(history: History, step: int, round_: int) -> None:
    prompts = [prompt for prompt in ROUNDS[round_] for _ in range(2)]
    keys = {
        "group_id": [f"{history.run}-{step}-{prompt}" for prompt in prompts],
        "sample": [0, 1] * (len(prompts) // 2),
    }
    tokens = {
        "prompt_token_ids": [[1, 2]] * len(prompts),
        "token_ids": [[3, 4, 5]] * len(prompts),
        "logprobs": [[-0.5, -0.25, -0.125]] * len(prompts),
        "finish_reason": ["stop"] * len(prompts),
        "policy_version": [step - 1] * len(prompts),
    }
    history.write("tokens", step, {**keys, **tokens}, round_, round=round_)
    rollouts = {
        "prompt_id": prompts,
        "response": [f"answer to {prompt}" for prompt in prompts],
        "prompt_tokens": [2] * len(prompts),
        "response_tokens": [3] * len(prompts),
        "finish_reason": ["stop"] * len(prompts),
        "sampling": ["{}"] * len(prompts),
    }
    constants = {"round": round_, "attempt": 0, "policy_version": step - 1, "engine": "toy"}
    history.write("rollouts", step, {**keys, **rollouts}, round_, **constants)


def write_rewards(history: History, step: int, round_: int) -> None:
    rows = [(prompt, sample, success) for prompt in ROUNDS[round_] for sample, success in enumerate(SUCCESSES[prompt])]
    columns = {
        "group_id": [f"{history.run}-{step}-{prompt}" for prompt, _, _ in rows],
        "sample": [sample for _, sample, _ in rows],
        "reward": [float(success) for _, _, success in rows],
        "success": [success for _, _, success in rows],
        "reward_status": ["ok"] * len(rows),
        "reward_parts": ["{}"] * len(rows),
        "admitted": [True] * len(rows),
        "reject_reason": [None] * len(rows),
    }
    history.write("rewards", step, columns, round_, round=round_)


def write_updates(history: History, step: int, loss: float = 0.5) -> None:
    update = {"policy_version": step, "loss": loss, "kl": 0.0, "entropy": 1.0, "grad_norm": 1.0, "clip_fraction": 0.0}
    counts = {"lr": 0.001, "tokens": 12, "groups": 2, "informative_groups": 1, "skipped": ""}
    engine = {"logprob_gap": 0.0, "engine_drift": 0.0, "engine_drift_max": 0.0}
    importance = {"importance_mean": None, "importance_capped": None}
    history.write(
        "updates", step, {name: [value] for name, value in {**update, **counts, **engine, **importance}.items()}
    )
    quality = {"groups": 2, "spearman": 1.0, "brier": 0.25, "nll": 0.5, "ece": 0.125, "loss_parts": "{}"}
    history.write("predictor_updates", step, {name: [value] for name, value in quality.items()}, predictor="mopps")


def make_record(step: int, rounds: int = 1) -> dict[str, Any]:
    """A commit record, its files left out."""
    stages = ("predict", "acquire", "generate", "score", "update_policy", "update_predictor", "evaluate")
    rollouts = sum(ROLLOUTS_OF_A_ROUND[:rounds])
    return {
        "epoch": 1,
        "committed_at": datetime(2025, 1, 1, tzinfo=UTC),
        "policy_version": step,
        "versions": "{}",
        "rounds": rounds,
        "candidates": 3,
        "groups": rollouts // 2,
        "informative_groups": 1,
        "rollouts": rollouts,
        "successes": 1 if rounds == 1 else 3,
        "prompt_tokens": 2 * rollouts,
        "response_tokens": 3 * rollouts,
        **{f"{stage}_seconds": 1.0 for stage in stages},
    }


def make_run(name: str, **changes: Any) -> Run:
    fields = {
        "config": {"seed": 0},
        "pins": {"threads": 1},
        "created_at": "2025-01-01T00:00:00.000+00:00",
        "target": 3,
        "epoch": 1,
        **changes,
    }
    return Run(run=name, **fields)


def make_prompt(text: str, **changes: Any) -> dict[str, Any]:
    """A row as `write_dataset` takes it."""
    row = {
        "messages": [("user", text)],
        "answer": "2",
        "reward": "countdown",
        "system": "",
        "instruction": "",
        "tags": "{}",
    }
    return {**row, **changes}


def make_small_store(layout: Layout) -> None:
    """Runs `first` and `second` of three steps each, the second step with two rounds, and an open step 4."""
    for run in ("first", "second"):
        write_run(layout, make_run(run))
        history = History(layout, run)
        for step, rounds in ((1, 1), (2, 2), (3, 1)):
            make_step(history, step, rounds)
        write_parts(history, 4)
    write_dataset(layout, "toy", [make_prompt("what is 1 + 1?"), make_prompt("what is 1 * 2?")])
