"""Walks a history with predictors: forecast a step, judge, and only then learn from it.

A predictor that reads past runs begins anew with each run, and is given all
groups of the runs replayed before it; any other carries on with what it has
learned. A run replayed alone gets what it had itself: its pool, its seeds, the
past runs that it pinned, and what it began with; its own predictor then
forecasts what it stored.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.difficulty import build_predictor
from models.difficulty.base import Predictor, State
from models.difficulty.inputs import reads_logprobs, reads_past
from models.difficulty.prequential import SELECTED, Tally, chance_of
from models.difficulty.trial import Trial
from models.records import Observation, PastRuns, Pool
from models.seeding import derive_seed
from models.settings import PredictorSettings
from storage.errors import StoreError
from storage.layout import Layout
from storage.registry import Version
from storage.replay import RunSteps, StoredStep, read_steps
from storage.runs import Run
from storage.schemas import PAST
from tasks.observed import considered, group_weights, known_groups, observed
from tasks.past import past_runs, read_past, runs_read
from tasks.registry import settings_of
from tasks.selectors import RunLog, SelectorValue
from tasks.start import begin_with, forked_state, join_past, read_start

_DECISIONS = {name: at for at, name in enumerate(SELECTED)}


@dataclass
class Contender:
    """A predictor in the walk, with what is remembered of it."""

    label: str
    settings: PredictorSettings
    trial: Trial | None = None
    tally: Tally = field(default_factory=Tally)
    """p_success and chance of every judged group."""
    reproduced: int = 0
    """Forecasts of candidates that are the stored ones to the bit."""


@dataclass
class Walk:
    """The state of a replay between two steps."""

    layout: Layout
    pool: Pool
    contenders: list[Contender]
    faults: list[str]
    alone: bool
    """One run only."""
    rules: Sequence[str] = ()
    """Acquisition rules that predictors are paired with, beside each run's own."""
    advance: Callable[[str], None] = lambda run: None
    """Told the run of each step that is done."""
    values: list[SelectorValue] = field(default_factory=list)
    """What each pair would have got from the runs walked so far."""
    shared: Tally = field(default_factory=Tally)
    """What is known of every judged group, whoever forecasts it."""
    steps: list[tuple[str, int]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Groups of each of the steps."""
    runs: list[str] = field(default_factory=list)
    """Those begun so far; a group's `run` is its place here."""
    stored_forecasts: int = 0
    """Candidates' forecasts in the history."""

    def __post_init__(self) -> None:
        self.row_of = {prompt_id: row for row, prompt_id in enumerate(self.pool.prompt_ids)}


def walk_run(walk: Walk, record: Run, chosen: RunSteps) -> None:
    """Replay the steps of one run."""
    seed = record.config.get("seed", 0)
    _begin(walk, record, seed)
    walk.runs.append(record.run)
    unknown: dict[str, int] = {}
    log = RunLog(walk.layout, record, walk.pool, walk.row_of, walk.rules)
    logprobs = any(reads_logprobs(one.settings) for one in walk.contenders)
    for stored in read_steps(walk.layout, chosen, walk.faults, logprobs=logprobs):
        groups = known_groups(stored.groups, walk.row_of, unknown)
        observation = observed(groups, stored.tokens, walk.row_of)
        walk.stored_forecasts += len(stored.candidates)
        for contender in walk.contenders:
            _walk_step(walk, contender, log, stored, observation, seed)
        _remember(walk, stored.step, groups, observation)
        walk.advance(record.run)
    walk.values += log.values()
    if unknown:
        walk.faults.append(
            f"run {record.run}: {sum(unknown.values())} groups of {len(unknown)} prompts are left out, because no "
            f"dataset of the run has them (the first is {next(iter(unknown))}): their text changed, or it is gone"
        )


def _begin(walk: Walk, record: Run, seed: int) -> None:
    """Fresh predictors where a run wants them; the others carry on."""
    for contender in walk.contenders:
        if contender.trial is None or reads_past(contender.settings):
            settings, pool = contender.settings, walk.pool
            start = _start(walk, record, settings)
            if reads_past(settings):
                pool = replace(pool, past=_past(walk, record, settings, start))
            predictor = build_predictor(settings, pool, seed=derive_seed(seed, "predictor"))
            inherited = _inherited(walk, record, settings, predictor)
            if inherited is not None:
                predictor.load_state_dict(inherited)
            elif start is not None:
                begin_with(start, record.config["predictor"]["from"], settings, predictor, pool)
            contender.trial = Trial(contender.label, predictor)


def is_own(settings: PredictorSettings, record: Run) -> bool:
    """Whether a run forecast with this predictor; settings younger than the run count as their defaults."""
    own = record.config.get("predictor", {})
    wanted = settings_of(settings)
    stored = settings_of(type(settings)()) | {name: value for name, value in own.items() if name in wanted}
    same_past = not reads_past(settings) or own.get("past", type(settings)().past) == settings.past
    return bool(own.get("name") == settings.name and stored == wanted and same_past)


def _start(walk: Walk, record: Run, settings: PredictorSettings) -> Version | None:
    """The published version that a run's own predictor began with."""
    return read_start(walk.layout, record.run, record.pins) if walk.alone and is_own(settings, record) else None


def _inherited(walk: Walk, record: Run, settings: PredictorSettings, predictor: Predictor) -> State | None:
    """What the own predictor of a fork had learned of its parent, where that can still be told."""
    if not walk.alone or not is_own(settings, record):
        return None
    try:
        return forked_state(walk.layout, record, settings, predictor.state_dict())
    except StoreError as error:
        walk.faults.append(str(error))
        return None


def _past(walk: Walk, record: Run, settings: PredictorSettings, start: Version | None) -> PastRuns:
    """The groups of the runs replayed before, as far as the setting names them; of a run alone those that it pinned."""
    ids = walk.pool.prompt_ids
    groups = read_past(walk.layout, record.run, record.pins, ids) if walk.alone else learned_groups(walk)
    kept = runs_read(settings, pc.unique(groups["run_id"]).to_pylist())
    groups = groups.filter(pc.is_in(groups["run_id"], pa.array(kept, pa.string())))
    return past_runs(join_past(groups, start, record), ids)


def learned_groups(walk: Walk) -> pa.Table:
    """The groups that were walked so far, rows of `schemas.PAST`."""
    names = ("step", "successes", "valid", "mean_tokens")
    columns = {name: pa.array(walk.shared.column(name)).cast(PAST.field(name).type) for name in names}
    columns["run_id"] = pa.array(walk.runs, pa.string()).take(pa.array(walk.shared.column("run").astype(np.int64)))
    rows = pa.array(walk.shared.column("row").astype(np.int64))
    columns["prompt_id"] = pa.array(walk.pool.prompt_ids, pa.string()).take(rows)
    return pa.table([columns[name] for name in PAST.names], schema=PAST)


def _walk_step(
    walk: Walk, contender: Contender, log: RunLog, stored: StoredStep, observation: Observation, seed: int
) -> None:
    """Forecast, freeze, and only then let the predictor see what came of it."""
    assert contender.trial is not None
    rows, p_stored = considered(stored.candidates, observation.rows, walk.row_of)
    forecast = contender.trial.forecast(rows, seed=derive_seed(seed, stored.step, "forecast"))
    contender.trial.observe(observation, seed=derive_seed(seed, stored.step, "observe"))
    log.judge(contender.label, stored.step, rows, forecast)
    contender.reproduced += int(np.sum(forecast.p_success.astype(np.float32) == p_stored)) if len(p_stored) else 0
    judged = forecast.at(np.searchsorted(rows, observation.rows))
    chance = chance_of(judged, observation.valid).astype(np.float32)
    contender.tally.add(p_success=judged.p_success.astype(np.float32), chance=chance)


def _remember(walk: Walk, step: int, groups: pa.Table, observation: Observation) -> None:
    """Keep what every predictor is judged by."""
    size = len(observation.rows)
    walk.shared.add(
        run=np.full(size, len(walk.runs) - 1, np.int32),
        step=np.full(size, step, np.int32),
        row=observation.rows.astype(np.int32),
        successes=observation.successes.astype(np.int32),
        valid=observation.valid.astype(np.int32),
        mean_tokens=observation.mean_tokens,
        weight=group_weights(groups).astype(np.float32),
        decision=np.array([_DECISIONS.get(one, -1) for one in groups["decision"].to_pylist()], np.int8),
    )
    walk.steps.append((walk.runs[-1], step))
    walk.sizes.append(size)
