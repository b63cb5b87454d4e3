"""Whether engine and trainer agree on the log-probabilities of a fixed sequence: the proof that a sync arrived."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from models.engines.base import Engine
from models.policy.loading import Policy
from models.policy.logprobs import pack_micro_batches, token_logprobs
from models.records import Floats, Sample

DEFAULT_LIMITS = {torch.float32: 1e-4, torch.bfloat16: 0.15}
"""Mean |difference| that rounding alone stays well below (measured: 6e-6, and 0.05 to 0.09)."""


@dataclass(frozen=True)
class Drift:
    """|engine - trainer| log-probability of the tokens of one sequence, of the worst of the engine's copies."""

    mean: float
    largest: float


def measure_drift(engine: Engine, policy: Policy, token_ids: Sequence[int]) -> Drift | None:
    """Compare after a sync; None where engine and trainer are one module."""
    scores = engine.score(token_ids)
    if not scores:
        return None
    gaps = np.abs(np.array(scores) - trainer_scores(policy, token_ids))
    return Drift(mean=float(gaps.mean(axis=1).max()), largest=float(gaps.max()))


def trainer_scores(policy: Policy, token_ids: Sequence[int]) -> Floats:
    """[len - 1] log-probabilities (T = 1) of the tokens after the first, by the trainer's own forward pass."""
    sample = Sample(tuple(token_ids[:1]), tuple(token_ids[1:]), advantage=0.0)
    (batch,) = pack_micro_batches([sample], len(token_ids), policy.pad_id, policy.model.device)
    with torch.no_grad():
        logprobs_BT, _ = token_logprobs(policy, batch, temperature=1.0)
    return logprobs_BT[0].double().cpu().numpy()
