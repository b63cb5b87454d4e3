"""Opens a run: takes its lock, and brings policy, engine and predictor to where the history stands."""

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from models.difficulty import build_predictor
from models.engines import build_engine
from models.engines.base import Engine
from models.errors import EngineError
from models.policy.loading import Policy
from models.policy.update import PolicyTrainer
from models.seeding import derive_seed
from models.settings import TrainSettings
from storage.checkpoints import (
    remove_checkpoint_leftovers,
)
from storage.history import History
from storage.layout import Layout
from storage.locks import RunLock, hold_run
from storage.runs import Run, RunState, read_run, write_run
from storage.store import open_store
from tasks.commit import save_checkpoint
from tasks.past import read_past
from tasks.plan import RunPlan
from tasks.prompts import ensure_datasets, make_pool, tokenise, warn_of_overlap
from tasks.restore import begin_policy, newest_checkpoint, restore
from tasks.runs import check_plan, continue_run, create_run
from tasks.start import begin_with, join_past, read_start
from tasks.versions import library_versions
from tasks.workbench import Workbench, on_the_bench

logger = logging.getLogger(__name__)


class RunStopped(Exception):
    """The run gave up by its own rule; its message says why and how to mend it."""


class RunInterrupted(Exception):
    """The process was asked to end by a signal; the run is whole and can go on."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended early by {signal.Signals(number).name}")
        self.number = number


def stop_if_hopeless(bench: Workbench) -> None:
    """End the run after too many updates in a row that were not finite.

    Raises:
        RunStopped: names the reason and the fork that mends it.
    """
    if bench.skipped_in_a_row < bench.settings.update.max_skipped:
        return
    reason = bench.history.read("updates", bench.step)["skipped"][0].as_py()
    raise RunStopped(
        f"run {bench.run} stopped after step {bench.step}: {bench.skipped_in_a_row} policy updates in a row were "
        f"skipped ({reason}); mend it with: foreroll train --run NEW --from {bench.run} "
        f"--set update.lr={bench.settings.update.lr / 10:g}"
    )


@contextmanager
def open_workbench(plan: RunPlan) -> Iterator[tuple[Workbench, int]]:
    """A run's workbench at its last checkpoint, and the step that the run is to reach.

    The run file says how the block ended. However it ended, but for an error,
    a last checkpoint is written.

    Raises:
        StoreError, ModelError: as `check_plan`, or the run is held by another process.
    """
    check_plan(plan)
    layout = open_store(plan.store, create=True)
    with hold_run(layout, plan.run) as lock:
        check_plan(plan)
        ensure_datasets(layout, plan.settings)
        record = _open_record(layout, plan, lock)
        torch.set_num_threads(record.pins["threads"])
        bench = _build(layout, plan, record, lock)
        record = _pin_engine(record, bench)
        with on_the_bench(bench), _state_kept(layout, record, lock), _checkpointed(bench):
            yield bench, record.target


def _open_record(layout: Layout, plan: RunPlan, lock: RunLock) -> Run:
    known = read_run(layout, plan.run)
    if known is None:
        return create_run(layout, plan, lock.epoch)
    for library, installed in library_versions().items():
        pinned = known.pins["libraries"][library]
        if installed != pinned:
            logger.warning(
                "run %s began with %s %s and goes on with %s: results may differ in the last digits",
                plan.run, library, pinned, installed,
            )  # fmt: skip
    return continue_run(layout, plan, known, lock.epoch)


@contextmanager
def _state_kept(layout: Layout, record: Run, lock: RunLock) -> Iterator[None]:
    """Say in the run file how the block ended, unless the run is another process's by then."""
    write_run(layout, record)
    state: RunState = "finished"
    message = ""
    try:
        yield
    except RunStopped as error:
        state, message = "stopped", str(error)
        raise
    except (RunInterrupted, KeyboardInterrupt):
        state = "interrupted"
        raise
    except BaseException as error:
        state, message = "failed", f"{type(error).__name__}: {error}".splitlines()[0]
        raise
    finally:
        if lock.is_ours():
            write_run(layout, replace(record, state=state, message=message))


@contextmanager
def _checkpointed(bench: Workbench) -> Iterator[None]:
    """A checkpoint before, and one after a block that ended between two steps."""
    save_checkpoint(bench)
    try:
        yield
    except (RunStopped, RunInterrupted):
        save_checkpoint(bench)
        raise
    save_checkpoint(bench)


def _pin_engine(record: Run, bench: Workbench) -> Run:
    """The run with the engine that it was built with."""
    return replace(record, pins={**record.pins, "engine": bench.engine.name})


def _build_engine(settings: TrainSettings, record: Run, policy: Policy, longest_prompt: int) -> Engine:
    """The engine of the settings; where they leave it open, the one that the run began with."""
    wanted = settings.engine
    if wanted.name == "auto" and "engine" in record.pins:
        wanted = replace(wanted, name=record.pins["engine"])
    try:
        engine, reason = build_engine(policy, wanted, settings.sampling, longest_prompt=longest_prompt)
    except EngineError as error:
        if "engine" not in record.pins:
            raise
        raise EngineError(
            f"{error}. Run {record.run} keeps the engine that it began with; with another it goes on as a fork: "
            f"foreroll train --run NEW --from {record.run} --set engine=NAME"
        ) from error
    if reason:
        logger.info("engine %s: %s", engine.name, reason)
    return engine


def _build(layout: Layout, plan: RunPlan, record: Run, lock: RunLock) -> Workbench:
    settings = plan.settings
    history = History(layout, plan.run)
    history.remove_leftovers()
    remove_checkpoint_leftovers(layout, plan.run)
    checkpoint = newest_checkpoint(layout, record)
    policy = begin_policy(layout, settings, checkpoint)
    train = tokenise(layout, settings, settings.prompts.train, policy)
    heldout = tokenise(layout, settings, settings.prompts.heldout, policy)
    warn_of_overlap(train, heldout)
    start = read_start(layout, plan.run, record.pins)
    past = read_past(layout, plan.run, record.pins, [prompt.prompt_id for prompt in train.prompts])
    pool = make_pool(layout, settings, train, policy, join_past(past, start, record))
    trainer = PolicyTrainer(policy, settings.update, temperature=settings.sampling.temperature)
    predictor = build_predictor(settings.predictor, pool, seed=derive_seed(settings.seed, "predictor"))
    about, known = restore(trainer, predictor, settings, checkpoint, record) if checkpoint else (None, False)
    if start is not None and not known:
        reference = "{name}@{version}".format(**record.pins["predictor"])
        begin_with(start, reference, settings.predictor, predictor, pool)
    return Workbench(
        run=plan.run,
        settings=settings,
        layout=layout,
        history=history,
        lock=lock,
        pool=pool,
        train=train,
        heldout=heldout,
        policy=policy,
        trainer=trainer,
        predictor=predictor,
        engine=_build_engine(settings, record, policy, max(train.longest, heldout.longest)),
        step=about.step if about else 0,
        policy_version=about.policy_version if about else 0,
        skipped_in_a_row=about.skipped_in_a_row if about else 0,
    )
