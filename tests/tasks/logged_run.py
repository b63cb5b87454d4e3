"""Runs whose selections are logged as the stages log them; nothing is generated, outcomes follow a rule."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from models.acquisition import select
from models.acquisition.rest import Visits, candidates_wanted, rested
from models.records import Decision, Forecast, Ints, Pool, Selection
from models.settings import AcquisitionSettings
from storage.history import History
from storage.layout import Layout
from storage.store import open_store
from tests.storage.small_history import make_record, write_updates

POOL, OVERLONG, STEPS, GROUP = 60, 3, 14, 4
IDS = tuple(f"{row:032x}" for row in range(POOL))
ROW_OF = {prompt_id: row for row, prompt_id in enumerate(IDS)}
BARE = Pool(IDS)


def settings(name: str = "nearest", **changes: Any) -> AcquisitionSettings:
    return AcquisitionSettings(name=name, **{"batch_size": 8, "explore": 0.5, "cooldown": 2, **changes})  # type: ignore[arg-type]


def forecast_of(rows: Ints, step: int) -> Forecast:
    """Some forecast of each prompt in each step, as it is after being stored in single precision."""
    p = np.random.default_rng(step).uniform(0.05, 0.95, POOL)[rows].astype(np.float32).astype(np.float64)
    return Forecast(p, np.full(len(rows), 0.125), np.full(len(rows), np.nan))


def is_informative(row: int, step: int) -> bool:
    return (row * 7 + step) % 3 > 0


class Logger:
    """Writes a run as the stages do: prompts below OVERLONG do not fit; step 5 has a second round."""

    def __init__(self, layout: Layout, logging: AcquisitionSettings, ids: Sequence[str] = IDS) -> None:
        self.history, self.settings, self.ids = History(layout, "logged"), logging, ids
        self.visits, self.batches = Visits.none(POOL), [np.empty(0, np.int64)]
        self.selections: list[Selection] = []

    def write(self) -> None:
        for step in range(1, STEPS + 1):
            wanted = candidates_wanted(self.settings, 1) + OVERLONG
            rows = rested(self.visits, wanted, self.settings)
            self._write_forecasts(step, rows)
            batch = self._write_round(step, 0, rows[rows >= OVERLONG], rows[rows < OVERLONG])
            if step == 5:
                left = np.setdiff1d(rows[rows >= OVERLONG], batch)
                batch = np.concatenate([batch, self._write_round(step, 1, left, rows[:0])])
            write_updates(self.history, step)
            self.history.commit(step, {**make_record(step), "candidates": len(rows)})
            self.batches.append(batch)
            self.visits.add(batch)

    def _write_forecasts(self, step: int, rows: Ints) -> None:
        forecast = forecast_of(rows, step)
        columns = {"prompt_id": [self.ids[row] for row in rows], "p_success": forecast.p_success, "p_sd": forecast.p_sd}
        self.history.write("forecasts", step, {**columns, "expected_tokens": [None] * len(rows)}, predictor="mopps")

    def _write_round(self, step: int, round_: int, rows: Ints, overlong: Ints) -> Ints:
        selection = select(
            forecast_of(rows, step), rows, pool=BARE, previous=self.batches[-1], settings=self.settings,
            rng=np.random.default_rng(100 * step + round_), group_size=GROUP,
        )  # fmt: skip
        if round_ == 0:
            self.selections.append(selection)
        too_long: list[Decision] = ["too_long"] * len(overlong)
        count = len(rows) + len(overlong)
        columns = {
            "prompt_id": [self.ids[row] for row in (*rows, *overlong)],
            "utility": [0.0] * count,
            "diversity": [None] * count,
            "propensity": [*selection.propensity, *[0.0] * len(overlong)],
            "decision": [*selection.decision, *too_long],
            "rank": [*[None if rank < 0 else rank for rank in selection.rank], *[None] * len(overlong)],
        }
        self.history.write("acquisitions", step, columns, round_, round=round_)
        batch: Ints = rows[np.argsort(selection.rank)[-int((selection.rank >= 0).sum()) :]]
        self._write_outcomes(step, round_, batch)
        return batch

    def _write_outcomes(self, step: int, round_: int, batch: Ints) -> None:
        prompts = [int(row) for row in batch for _ in range(GROUP)]
        samples = list(range(GROUP)) * len(batch)
        keys = {"group_id": [f"{step}-{row}" for row in prompts], "sample": samples}
        empty = {"response": "", "finish_reason": "stop", "sampling": "{}", "prompt_tokens": 2, "response_tokens": 3}
        constants = {"round": round_, "attempt": 0, "policy_version": 0, "engine": "toy"}
        rollouts = {name: [value] * len(prompts) for name, value in empty.items()}
        self.history.write(
            "rollouts", step, {**keys, "prompt_id": [self.ids[row] for row in prompts], **rollouts}, round_, **constants
        )
        success = [sample > 0 or not is_informative(row, step) for row, sample in zip(prompts, samples, strict=True)]
        words = {"reward_status": "ok", "reward_parts": "{}", "admitted": True, "reject_reason": None}
        rewards = {name: [value] * len(prompts) for name, value in words.items()}
        self.history.write(
            "rewards",
            step,
            {**keys, "reward": [1.0] * len(prompts), "success": success, **rewards},
            round_,
            round=round_,
        )


def write_log(path: Path, logging: AcquisitionSettings) -> tuple[Layout, Logger]:
    layout = open_store(path, create=True)
    logger = Logger(layout, logging)
    logger.write()
    return layout, logger
