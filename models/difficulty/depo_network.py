"""The scorer of DEPO and its losses (arXiv 2602.06375).

Legend: B prompts of a batch, E size of a prompt's encoding, W width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HEAD_SD = 1e-3
"""Spread of the heads' first weights, so that p starts at 0.5."""
MARGIN = 0.5
"""Logits of two prompts should be this far apart."""
LEAST_GAP = 0.05
"""Smaller differences of success rates make no pair."""
_CLIP = 1e-4


class DepoNetwork(nn.Module):
    """Encoder and head: pool rows to logits [B, 2], on the CPU wherever the weights are."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, rows_B: Tensor) -> Tensor:
        """Score and distillation logits, [B, 2]."""
        logits_B2: Tensor = self.head(self.encoder(rows_B)).cpu()
        return logits_B2


class DepoHead(nn.Module):
    """Encoding of a prompt to two logits: of success, and of the rollouts' own probability."""

    def __init__(self, encoding: int, width: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(encoding, width),
            nn.LayerNorm(width),
            nn.GELU(),
            _Residual(width, dropout),
            _Residual(width, dropout),
            nn.Linear(width, width // 2),
            nn.LayerNorm(width // 2),
            nn.GELU(),
            nn.Dropout(dropout),
        )
        self.heads = nn.Linear(width // 2, 2)
        nn.init.normal_(self.heads.weight, std=HEAD_SD)
        nn.init.zeros_(self.heads.bias)

    def forward(self, encoding_BE: Tensor) -> Tensor:
        """Score and distillation logits, [B, 2]."""
        logits_B2: Tensor = self.heads(self.layers(encoding_BE))
        return logits_B2


class _Residual(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.LayerNorm(width),
        )

    def forward(self, hidden_BW: Tensor) -> Tensor:
        return F.gelu(hidden_BW + self.block(hidden_BW))


def depo_losses(logits_B2: Tensor, rates_B: Tensor, mean_logprobs_B: Tensor) -> dict[str, Tensor]:
    """The parts of the loss by name, each a mean of its own.

    success: cross-entropy of the score with mean@k. distill: cross-entropy of
    the other head with exp(mean log-probability), clipped to [1e-4, 1 - 1e-4],
    over the prompts whose log-probability is no NaN; left out where there are
    none. ranking: see `ranking_loss`.
    """
    score_B, distill_B = logits_B2.unbind(dim=1)
    losses = {
        "success": F.binary_cross_entropy_with_logits(score_B, rates_B),
        "ranking": ranking_loss(score_B, rates_B),
    }
    known_B = ~mean_logprobs_B.isnan()
    if known_B.any():
        target = mean_logprobs_B[known_B].exp().clamp(_CLIP, 1.0 - _CLIP)
        losses["distill"] = F.binary_cross_entropy_with_logits(distill_B[known_B], target)
    return losses


def ranking_loss(score_B: Tensor, rates_B: Tensor) -> Tensor:
    """Mean over all pairs i, j of the batch with rate_i > rate_j + 0.05 of max(0, 0.5 - (score_i - score_j))."""
    pairs_BB = rates_B[:, None] > rates_B[None, :] + LEAST_GAP
    shortfall_BB = F.relu(MARGIN - (score_B[:, None] - score_B[None, :]))
    return (shortfall_BB * pairs_BB).sum() / torch.clamp(pairs_BB.sum(), min=1)
