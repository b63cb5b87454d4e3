"""What another selector would have got from a run's logged steps: its chances to acquire, against what was logged.

`logged_steps` reads a run, `judge_step` weighs a step by a selector's forecast,
made before it learned from the step, and `counterfactual_value` sums up.

Only first rounds are read. Whether a step had another round depends on what
came out of the first, so that given a later round the earlier outcomes are no
fair sample, and without them its propensities cover a part of the candidates.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from models.acquisition import select
from models.acquisition.informative import chance_informative
from models.acquisition.off_policy import StepSums, weigh_step
from models.records import Floats, Forecast, Ints, Pool, is_informative
from models.seeding import derive_rng
from models.settings import AcquisitionSettings
from storage.errors import StoreError
from storage.layout import Layout
from storage.logged import candidate_counts, read_acquired, read_candidates

BLOCK = 500_000
"""Candidates read at a time, or those of one step where it has more."""
DRAWS = 4
"""Draws over which the inclusion probabilities of a rule that draws are averaged."""


@dataclass(frozen=True)
class LoggedStep:
    """The first round of a step; arrays over its N candidates that fit the context, in order of row."""

    step: int
    rows: Ints
    """[N] pool rows."""
    forecast: Forecast
    """[N] the run's own, as stored."""
    propensity: Floats
    """[N] NaN where none was logged."""
    acquired: NDArray[np.bool_]
    """[N]"""
    informative: Floats
    """[N] 1 where some valid rollouts succeeded and some failed, else 0; NaN where not acquired."""
    previous: Ints
    """Pool rows of the batch before."""


def logged_steps(layout: Layout, run: str, row_of: Mapping[str, int]) -> Iterator[LoggedStep]:
    """The committed steps of a run whose selections were logged, in order; a block of them in memory at a time.

    Args:
        row_of: pool row of each `prompt_id`; the pool may hold more prompts than the run ever considered.

    Raises:
        StoreError: the run considered a prompt that is not in the pool.
    """
    previous = np.empty(0, np.int64)
    for first, last in blocks(candidate_counts(layout, run)):
        acquired = _by_step(read_acquired(layout, run, first, last))
        for step, table in _by_step(read_candidates(layout, run, first, last)).items():
            yield _logged_step(run, step, table, row_of, previous)
            previous = _rows(run, acquired[step], row_of) if step in acquired else np.empty(0, np.int64)


def judge_step(
    logged: LoggedStep,
    forecast: Forecast,
    *,
    pool: Pool,
    settings: AcquisitionSettings,
    seed: int,
    group_size: int,
) -> StepSums:
    """What a selector's forecast and rule make of a logged step, as sums for `counterfactual_value`.

    The outcome expected of a candidate is the forecast's own chance of an informative group.

    Args:
        forecast: of the step's candidates, made without knowledge of their outcomes.
        settings: of the selector, which chooses among the candidates that the run considered, rested as the run rests.
        group_size: rollouts that each prompt gets (k).
    """
    inclusion = target_inclusion(
        forecast,
        logged.rows,
        pool=pool,
        previous=logged.previous,
        settings=settings,
        rng=derive_rng(seed, logged.step, "counterfactual"),
        group_size=group_size,
    )
    return weigh_step(
        inclusion, logged.propensity, logged.acquired, logged.informative, chance_informative(forecast, group_size)
    )


def target_inclusion(
    forecast: Forecast,
    rows: Ints,
    *,
    pool: Pool,
    previous: Ints,
    settings: AcquisitionSettings,
    rng: np.random.Generator,
    group_size: int,
) -> Floats:
    """[N] probability that a selector acquires each candidate, its exploration and retention test included.

    It is what `acquire_batch` would log as propensity: exact for rules that rank,
    and for rules whose probabilities do not depend on what they draw. For the
    others it is the mean of `DRAWS` draws, which is unbiased.
    """

    def draw() -> Floats:
        selection = select(
            forecast, rows, pool=pool, previous=previous, settings=settings, rng=rng, group_size=group_size
        )
        return selection.propensity

    first, second = draw(), draw()
    if np.array_equal(first, second):
        return first
    inclusion: Floats = np.mean([first, second, *(draw() for _ in range(DRAWS - 2))], axis=0)
    return inclusion


def blocks(counts: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """First and last step of each block of at most `BLOCK` candidates, or of one step.

    Args:
        counts: steps in order, each with its candidates.
    """
    first, held = 0, 0
    for at, (step, candidates) in enumerate(counts):
        if held and held + candidates > BLOCK:
            yield first, counts[at - 1][0]
            held = 0
        if not held:
            first = step
        held += candidates
    if held:
        yield first, counts[-1][0]


def _by_step(table: pa.Table) -> dict[int, pa.Table]:
    """Parts of a table that is in order of step."""
    steps, starts = np.unique(table["step"].to_numpy(), return_index=True)
    ends = np.append(starts, len(table))[1:]
    return {int(step): table.slice(start, end - start) for step, start, end in zip(steps, starts, ends, strict=True)}


def _logged_step(run: str, step: int, table: pa.Table, row_of: Mapping[str, int], previous: Ints) -> LoggedStep:
    table = table.filter(pc.not_equal(table["decision"], "too_long"))
    rows = _rows(run, table, row_of)
    order = np.argsort(rows)

    def column(name: str) -> Floats:
        values: Floats = table[name].to_numpy(zero_copy_only=False).astype(np.float64)[order]
        return values

    successes, valid = column("successes"), column("valid")
    acquired = pc.is_in(table["decision"], pa.array(["acquired", "explored"])).to_numpy(zero_copy_only=False)[order]
    mixed = is_informative(successes, valid)
    return LoggedStep(
        step=step,
        rows=rows[order],
        forecast=Forecast(column("p_success"), column("p_sd"), column("expected_tokens")),
        propensity=column("propensity"),
        acquired=acquired,
        informative=np.where(acquired, mixed.astype(np.float64), np.nan),
        previous=previous,
    )


def _rows(run: str, table: pa.Table, row_of: Mapping[str, int]) -> Ints:
    try:
        return np.array([row_of[prompt_id] for prompt_id in table["prompt_id"].to_pylist()], np.int64)
    except KeyError as error:
        raise StoreError(
            f"run {run} considered prompt {error.args[0]}, which is not in the pool: name the dataset it trained on"
        ) from None
