"""Brings the engine up to date, and proves that it is."""

import logging

from models.engines.parity import DEFAULT_LIMITS, Drift, measure_drift
from models.errors import EngineError
from tasks.workbench import Workbench

logger = logging.getLogger(__name__)

PROBE_TOKENS = 64


def sync_engine(bench: Workbench) -> Drift | None:
    """Hand over the live policy's weights, and compare both sides on a fixed sequence."""
    bench.engine.sync(bench.policy_version)
    return measure_drift(bench.engine, bench.policy, probe_sequence(bench))


def ensure_synced(bench: Workbench) -> None:
    """Sync an engine that was just started, suspended, or passed over while a run was replayed."""
    if bench.engine.policy_version != bench.policy_version:
        judge_drift(bench, sync_engine(bench))


def judge_drift(bench: Workbench, drift: Drift | None) -> None:
    """Raise the alarm when engine and trainer disagree.

    Raises:
        EngineError: they do, and the run is to stop then.
    """
    limit = bench.settings.engine.drift_limit or DEFAULT_LIMITS[bench.policy.dtype]
    if drift is None or drift.mean <= limit:
        return
    message = (
        f"engine {bench.engine.name} and trainer disagree by {drift.mean:.2g} in the mean log-probability of a fixed "
        f"sequence (at most {drift.largest:.2g}; engine.drift_limit {limit:g}) at policy version {bench.policy_version}"
    )
    if bench.settings.engine.on_drift == "stop":
        raise EngineError(f"{message}: its weights are not the trainer's. Mend the engine and run again")
    logger.warning("%s", message)


def probe_sequence(bench: Workbench) -> tuple[int, ...]:
    """The beginning of the pool, run together: at most 64 tokens, and no more than the engine takes."""
    size = min(PROBE_TOKENS, bench.train.longest + bench.settings.sampling.max_tokens - 1)
    sequence: list[int] = []
    for token_ids in bench.train.token_ids:
        sequence += token_ids
        if len(sequence) >= size:
            break
    return tuple(sequence[:size])
