"""The policy update: GRPO gradients over micro-batches, then one AdamW step a minibatch.

Samples with an advantage of exactly 0 count in the loss's denominator but take
no forward pass, since their gradient is 0. The figures of `UpdateStats` are
therefore taken over the response tokens of the other samples, each at the time
it was trained on.

Memory is bounded by `token_budget`, not by the number of samples: a micro-batch
is freed before the next is built. With more than one minibatch one float a
response token is held besides, and a copy of weights and optimiser state, so
that a failed update can be taken back.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.policy.grpo import grpo_loss, importance_weights
from models.policy.loading import Policy
from models.policy.logprobs import MicroBatch, pack_micro_batches, token_logprobs
from models.policy.optimizer import NamedAdamW
from models.records import Sample, UpdateStats
from models.settings import UpdateSettings

NOTHING_TO_LEARN = "no informative group"
"""Why an update was not applied when nothing was wrong with it."""


@dataclass
class _Sums:
    """What the micro-batches of one update add up to."""

    loss: float = 0.0
    tokens: int = 0
    kl: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    gap: float = 0.0
    importance: float = 0.0
    capped: float = 0.0
    grad_norm: float = 0.0
    """The largest of the minibatches', before clipping."""


class PolicyTrainer:
    """Trains one policy; owns its optimiser."""

    def __init__(self, policy: Policy, settings: UpdateSettings, *, temperature: float) -> None:
        """Start with a fresh optimiser.

        Args:
            temperature: of the sampler, so that log-probabilities are of the distribution sampled from.
        """
        self._policy = policy
        self._settings = settings
        self._temperature = temperature
        self._optimizer = NamedAdamW(policy.model, lr=settings.lr, weight_decay=settings.weight_decay)

    def update(self, samples: Sequence[Sample], *, seed: int) -> UpdateStats:
        """Take one optimiser step for each minibatch that holds an informative sample.

        A non-finite loss or gradient undoes the whole update: weights and
        optimiser state are then what they were, to the bit.

        Args:
            seed: deals the samples to minibatches.
        """
        assert all(sample.prompt_token_ids and sample.token_ids for sample in samples)
        minibatches = self._deal(samples, seed)
        if not minibatches:
            return skipped_update(NOTHING_TO_LEARN)
        several = len(minibatches) > 1
        olds = self._old_logprobs([sample for part in minibatches for sample in part]) if several else {}
        before = self._optimizer.snapshot() if several else None
        sums = _Sums()
        for minibatch in minibatches:
            failure = self._step(minibatch, olds, sums)
            if failure:
                if before is not None:
                    self._optimizer.restore(before)
                return skipped_update(failure)
        return UpdateStats(
            loss=sums.loss / len(minibatches),
            kl=sums.kl / sums.tokens,
            entropy=sums.entropy / sums.tokens,
            grad_norm=sums.grad_norm,
            clip_fraction=sums.clipped / sums.tokens,
            lr=self._settings.lr,
            tokens=sums.tokens,
            logprob_gap=sums.gap / sums.tokens if self._temperature == 1.0 else math.nan,
            importance_mean=sums.importance / sums.tokens if self._settings.importance_cap else math.nan,
            importance_capped=sums.capped / sums.tokens if self._settings.importance_cap else math.nan,
            skipped="",
        )

    def state_dict(self) -> dict[str, NDArray[np.float32]]:
        """A copy of the optimiser's state, by parameter name."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        """Take over the state of a trainer of the same model."""
        self._optimizer.load_state_dict(state)

    def _deal(self, samples: Sequence[Sample], seed: int) -> list[list[Sample]]:
        """The samples of each minibatch; a minibatch without an informative sample is left out."""
        order = np.arange(len(samples))
        if self._settings.minibatches > 1:
            order = np.random.Generator(np.random.Philox(seed)).permutation(len(samples))
        parts = np.array_split(order, self._settings.minibatches)
        dealt = [[samples[index] for index in part] for part in parts]
        return [part for part in dealt if _informative(part)]

    def _step(self, minibatch: list[Sample], olds: dict[Sample, Tensor], sums: _Sums) -> str:
        """One optimiser step; adds to `sums`. Returns why it was not taken, or the empty string."""
        denominator = sum(len(sample.token_ids) for sample in minibatch)
        self._optimizer.zero_grad()
        for batch in self._pack(_informative(minibatch)):
            self._backward(batch, olds, denominator, sums)
        norm = self._optimizer.clip_gradients(self._settings.max_grad_norm)
        failure = _failure(sums.loss, norm)
        if not failure:
            self._optimizer.step()
            sums.grad_norm = max(sums.grad_norm, norm)
        self._optimizer.zero_grad()
        return failure

    def _backward(self, batch: MicroBatch, olds: dict[Sample, Tensor], denominator: int, sums: _Sums) -> None:
        """Add the gradient of one micro-batch."""
        logprobs_BT, entropies_BT = token_logprobs(self._policy, batch, self._temperature)
        old_BT = logprobs_BT.detach()  # with one minibatch the weights are still those of the start
        if olds:
            stored_R = torch.cat([olds[sample] for sample in batch.samples])
            old_BT = torch.zeros_like(old_BT).masked_scatter(batch.response_BT, stored_R)
        loss, metrics = grpo_loss(
            logprobs_BT,
            old_BT,
            batch.advantages_BT,
            batch.response_BT,
            weights_BT=self._importance(batch, old_BT, sums),
            denominator=denominator,
            clip_low=self._settings.clip_low,
            clip_high=self._settings.clip_high,
        )
        loss.backward()  # type: ignore[no-untyped-call]
        sums.loss += float(loss.detach())
        sums.tokens += int(metrics.tokens)
        sums.kl += float(metrics.kl)
        sums.clipped += float(metrics.clipped)
        sums.entropy += float(entropies_BT.sum())
        sums.gap += float((old_BT - batch.sampler_BT)[batch.response_BT].abs().sum())

    def _importance(self, batch: MicroBatch, old_BT: Tensor, sums: _Sums) -> Tensor | None:
        """Weights of the tokens, None where they are not used; adds to `sums`."""
        if not self._settings.importance_cap:
            return None
        weights_BT, found = importance_weights(
            old_BT, batch.sampler_BT, batch.response_BT, self._settings.importance_cap
        )
        sums.importance += float(found.ratio)
        sums.capped += float(found.capped)
        return weights_BT

    def _old_logprobs(self, samples: Sequence[Sample]) -> dict[Sample, Tensor]:
        """Log-probabilities of the informative samples' responses before the first step."""
        olds: dict[Sample, Tensor] = {}
        with torch.no_grad():
            for batch in self._pack(_informative(samples)):
                logprobs_BT, _ = token_logprobs(self._policy, batch, self._temperature)
                for row, sample in enumerate(batch.samples):
                    olds[sample] = logprobs_BT[row][batch.response_BT[row]]
        return olds

    def _pack(self, samples: Sequence[Sample]) -> Iterator[MicroBatch]:
        return pack_micro_batches(samples, self._settings.token_budget, self._policy.pad_id, self._policy.model.device)


def _informative(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.advantage != 0.0]


def _failure(loss: float, norm: float) -> str:
    if not math.isfinite(loss):
        return f"loss is {loss}"
    if not math.isfinite(norm):
        return f"gradient norm is {norm}"
    return ""


def skipped_update(reason: str) -> UpdateStats:
    """The statistics of an update that was not applied."""
    nan = math.nan
    return UpdateStats(
        loss=nan,
        kl=nan,
        entropy=nan,
        grad_norm=nan,
        clip_fraction=nan,
        lr=nan,
        tokens=0,
        logprob_gap=nan,
        importance_mean=nan,
        importance_capped=nan,
        skipped=reason,
    )
