"""The live objects of one process: policy, engine, predictor and store, opened and closed by the flow.

Tasks are given the name of a run and reach its workbench here, because models
and connections must not travel through Prefect.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from models.acquisition.rest import Visits
from models.difficulty.base import Predictor
from models.engines.base import Engine
from models.policy.loading import Policy
from models.policy.update import PolicyTrainer
from models.records import Pool, Prompt
from models.seeding import derive_seed
from models.settings import TrainSettings
from storage.history import History
from storage.layout import Layout
from storage.locks import RunLock


@dataclass(frozen=True)
class TokenisedPrompts:
    """The prompts of one dataset, ready to be put to the policy; lists in row order."""

    dataset: str
    prompts: list[Prompt]
    token_ids: list[tuple[int, ...]]
    room: int | None = None
    """Tokens that the model's context leaves for a prompt, None when it has no limit."""

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        """[rows] whether the prompt leaves room for a whole response; one that does not is never rolled out."""
        return np.array([self.room is None or len(ids) <= self.room for ids in self.token_ids])

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt that fits."""
        return max(len(ids) for ids, fits in zip(self.token_ids, self.fits, strict=True) if fits)


@dataclass
class Workbench:
    """One run in this process. The fields with a default change from step to step."""

    run: str
    settings: TrainSettings
    layout: Layout
    history: History
    lock: RunLock
    pool: Pool
    train: TokenisedPrompts
    heldout: TokenisedPrompts
    policy: Policy
    trainer: PolicyTrainer
    engine: Engine
    predictor: Predictor

    step: int = 0
    """Last step that policy and predictor have learned from."""
    policy_version: int = 0
    """Updates applied to the policy."""
    skipped_in_a_row: int = 0
    """Non-finite updates since the last that was applied."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of the open step's stages."""

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Pool row of each `prompt_id`."""
        return {prompt_id: row for row, prompt_id in enumerate(self.pool.prompt_ids)}

    @cached_property
    def visits(self) -> Visits:
        """When and how often each prompt was acquired; read from the history as far as a step asks."""
        return Visits.none(len(self.pool))

    def seed(self, step: int, *purpose: str | int) -> int:
        """The seed of one purpose in one step."""
        return derive_seed(self.settings.seed, step, *purpose)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time that the block takes to a stage of the open step."""
        start = time.perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start


_open: dict[str, Workbench] = {}


@contextmanager
def on_the_bench(bench: Workbench) -> Iterator[Workbench]:
    """Make a workbench reachable by its run's name for the length of the block."""
    assert bench.run not in _open
    _open[bench.run] = bench
    try:
        yield bench
    finally:
        del _open[bench.run]
        bench.engine.close()


def workbench(run: str) -> Workbench:
    """The open workbench of a run."""
    return _open[run]
