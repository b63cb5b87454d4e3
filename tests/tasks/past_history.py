"""Histories of outcomes alone, as an import leaves them: made by hand, a step at a time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from storage.history import History
from storage.layout import Layout
from storage.prompts import read_dataset, write_dataset
from storage.runs import write_run
from tests.storage.small_history import make_prompt, make_record, make_run

Groups = Sequence[tuple[str, Sequence[bool | None]]]
"""prompt_id and the outcome of each rollout, None without a verdict."""


def write_pool(layout: Layout, name: str, texts: Sequence[str]) -> list[str]:
    """A dataset; returns its ids in order."""
    write_dataset(layout, name, [make_prompt(text, tags='{"topic": "sums"}') for text in texts])
    ids: list[str] = read_dataset(layout, name)["prompt_id"].to_pylist()
    return ids


def write_past(layout: Layout, run: str, steps: Mapping[int, Groups], dataset: str = "toy", **changes: Any) -> None:
    """A finished run with these steps."""
    history = History(layout, run)
    for step, groups in steps.items():
        write_outcomes(history, step, groups)
    about = {"config": {"seed": 7, "prompts": {"train": dataset}}, "pins": {}, **changes}
    write_run(layout, make_run(run, **about))


def write_outcomes(history: History, step: int, groups: Groups) -> None:
    """One committed step."""
    flat = [(prompt, sample, won) for prompt, wins in groups for sample, won in enumerate(wins)]
    keys = {
        "group_id": [f"{history.run}-{step}-{prompt}"[:32] for prompt, _, _ in flat],
        "sample": [sample for _, sample, _ in flat],
    }
    nothing = [None] * len(flat)
    rollouts = {
        "prompt_id": [prompt for prompt, _, _ in flat],
        "response_tokens": [10 + sample for _, sample, _ in flat],
        **dict.fromkeys(("response", "prompt_tokens", "finish_reason", "sampling"), nothing),
    }
    history.write("rollouts", step, {**keys, **rollouts}, round=0, attempt=0, policy_version=step - 1, engine="toy")
    rewards = {
        "success": [won for _, _, won in flat],
        "reward": [None if won is None else float(won) for _, _, won in flat],
        "reward_status": ["unparsable" if won is None else "ok" for _, _, won in flat],
        "reject_reason": nothing,
    }
    history.write("rewards", step, {**keys, **rewards}, round=0, reward_parts="{}", admitted=True)
    history.commit(step, make_record(step))


def random_steps(ids: Sequence[str], steps: int, groups: int, seed: int = 0, ability: float = 0.0) -> dict[int, Groups]:
    """Groups of four rollouts of random prompts; the first prompts are easy, the last hard."""
    rng = np.random.default_rng(seed)
    logits = np.linspace(2.0, -2.0, len(ids)) + ability
    found: dict[int, Groups] = {}
    for step in range(1, steps + 1):
        chosen = rng.choice(len(ids), groups, replace=False)
        won = rng.uniform(size=(groups, 4)) < 1 / (1 + np.exp(-logits[chosen]))[:, None]
        found[step] = [(ids[row], [bool(one) for one in line]) for row, line in zip(chosen, won, strict=True)]
    return found
