"""A training run small enough for tests: the shipped policy, four prompts a batch, six steps."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from models.problems.countdown import make_problems
from storage.prompts import write_dataset
from storage.store import open_store

STEPS = 6


POOL, HELDOUT = "small-pool", "small-heldout"


def make_store(store: Path) -> Path:
    """A store with a pool of 200 problems and 20 held-out ones: quicker to make than the built-in datasets."""
    layout = open_store(store, create=True)
    for name, size, split in ((POOL, 200, "pool"), (HELDOUT, 20, "heldout")):
        write_dataset(layout, name, _rows(size, split))
    return store


@cache
def _rows(size: int, split: str) -> list[dict[str, Any]]:
    problems = make_problems(size, split=split, min_numbers=3, max_numbers=4, seed=7)
    constants = {"system": "", "instruction": "", "tags": "{}"}
    return [
        {"messages": [("user", problem.text)], "answer": problem.answer, "reward": problem.reward, **constants}
        for problem in problems
    ]


def small_config(store: Path, run: str = "small", **changes: Any) -> dict[str, Any]:
    """Config values with every part of the pipeline at work: dynamic sampling, evaluations, checkpoints."""
    return {
        "store": str(store),
        "run": run,
        "steps": STEPS,
        "threads": 1,
        "prompts": {"train": POOL, "heldout": HELDOUT},
        "sampling": {"group_size": 4, "max_tokens": 16},
        "update": {"lr": 1e-4, "minibatches": 2, "token_budget": 256},
        "predictor": {"name": "gps", "width": 16, "latent": 4, "z_samples": 4, "gradient_steps": 2},
        "acquisition": {"name": "gps", "batch_size": 4, "candidates": 64},
        "dynamic_sampling": {"enabled": True, "max_rounds": 2},
        "evaluation": {"every": 3, "samples": 2, "prompts": 8},
        "checkpoint": {"every": 2},
        **changes,
    }


def train_small(config: dict[str, Any]) -> None:
    """Run the real flow in this process."""
    from flows.config import build_config
    from flows.train import train

    train(build_config(config))


def with_server(target: Callable[..., None], api_url: str, *arguments: Any) -> None:
    """What a process of its own does: `target`, its flows known to a server that is there already."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: api_url}):
        target(*arguments)


@dataclass(frozen=True)
class KillPoint:
    """Where a process kills itself with SIGKILL."""

    when: str
    """`before` or `after`."""
    call: str
    """What it does there: `publish` a file or folder under its real name, an optimiser `step`, or `save` arrays."""
    what: str
    """Part of the path, or the count of the call."""

    def __str__(self) -> str:
        return f"{self.when} {self.call} {self.what}"


def train_until_killed(config: dict[str, Any], point: KillPoint) -> None:
    """Run the flow in this process, which does not survive reaching `point`."""
    _arm(point)
    train_small(config)


def _arm(point: KillPoint) -> None:
    import safetensors.numpy
    import torch

    import storage.checkpoints

    match point.call:
        case "publish":
            os.link = _deadly(os.link, point, lambda arguments, count: str(arguments[1]))
            os.rename = _deadly(os.rename, point, lambda arguments, count: str(arguments[1]))
        case "step":
            torch.optim.AdamW.step = _deadly(torch.optim.AdamW.step, point, _number)  # type: ignore[method-assign]
        case "save":
            storage.checkpoints.save_file = _deadly(safetensors.numpy.save_file, point, lambda a, count: str(a[1]))


def _number(arguments: Any, count: int) -> str:
    return f"#{count}#"


def _deadly(original: Callable[..., Any], point: KillPoint, name: Callable[[Any, int], str]) -> Callable[..., Any]:
    count = 0

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        hit = point.what in name(arguments, count)
        if hit and point.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        if hit and point.when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return call
