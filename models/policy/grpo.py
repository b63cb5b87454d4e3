"""DAPO's token-level policy gradient loss with Clip-Higher (arXiv 2503.14476, equations 8 to 12).

    J = 1/N sum_t min(r_t A_t, clip(r_t, 1 - low, 1 + high) A_t),  r_t = exp(new_t - old_t)

N is the number of response tokens of the whole batch, an argument, so that the
losses of micro-batches add up to the loss of the batch.

Where the engine that sampled is not the trainer to the last digit, truncated
importance sampling weights each token's term by

    w_t = min(exp(old_t - sampler_t), cap)

(Yao et al., 2025, "Your efficient RL framework secretly brings you off-policy RL training").

Shapes: B rows, T positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GrpoSums:
    """Sums over the masked tokens, to be divided by their number once all micro-batches are added."""

    tokens: Tensor
    kl: Tensor
    """k3 estimate of KL(old ‖ new): r - 1 - log r (Schulman, "Approximating KL divergence")."""
    clipped: Tensor
    """Tokens whose gradient the clip removed."""


@dataclass(frozen=True)
class ImportanceSums:
    """Sums over the masked tokens of exp(old - sampler), and of how many were capped."""

    ratio: Tensor
    capped: Tensor


def importance_weights(
    old_logprobs_BT: Tensor, sampler_logprobs_BT: Tensor, mask_BT: Tensor, cap: float
) -> tuple[Tensor, ImportanceSums]:
    """[B, T] weights min(exp(old - sampler), cap), 1 off the mask."""
    ratio_BT = torch.where(mask_BT, old_logprobs_BT - sampler_logprobs_BT, 0.0).exp()
    sums = ImportanceSums(ratio=ratio_BT[mask_BT].sum(), capped=(ratio_BT > cap).sum())
    return ratio_BT.clamp(max=cap), sums


def grpo_loss(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_BT: Tensor,
    mask_BT: Tensor,
    *,
    weights_BT: Tensor | None = None,
    denominator: float,
    clip_low: float,
    clip_high: float,
) -> tuple[Tensor, GrpoSums]:
    """The share of this micro-batch in the loss of the batch.

    Args:
        logprobs_BT: log-probabilities of the response tokens under the weights being trained.
        old_logprobs_BT: the same under the weights that the update started from, without gradient.
        advantages_BT: advantage of each token's rollout.
        mask_BT: True on response tokens; whatever stands elsewhere is ignored, NaN included.
        weights_BT: importance weight of each token, without gradient; None weighs all alike.
        denominator: response tokens in the whole batch.
    """
    log_ratio = torch.where(mask_BT, logprobs_BT - old_logprobs_BT, 0.0)
    advantages = torch.where(mask_BT, advantages_BT, 0.0)
    ratio = log_ratio.exp()
    free = ratio * advantages
    bounded = ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages
    terms = torch.minimum(free, bounded)
    loss = -(terms if weights_BT is None else terms * weights_BT).sum() / denominator
    with torch.no_grad():
        sums = GrpoSums(
            tokens=mask_BT.sum(),
            kl=(ratio - 1.0 - log_ratio).sum(),
            clipped=(bounded < free).sum(),
        )
    return loss, sums
