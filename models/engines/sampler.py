"""Draws every row's tokens from the row's own stream of random numbers.

Shapes: N rows of a batch, A rows of it that still run, V vocabulary, T tokens
of the longest response.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor


def nucleus(probs_AV: Tensor, top_p: float) -> Tensor:
    """Zero all but the likeliest tokens that together reach `top_p`, at least one (arXiv 1904.09751)."""
    sorted_AV, order_AV = probs_AV.sort(dim=-1, descending=True, stable=True)
    before_AV = sorted_AV.cumsum(-1) - sorted_AV
    return torch.zeros_like(probs_AV).scatter(-1, order_AV, sorted_AV.where(before_AV < top_p, 0.0))


def inverse_cdf(weights_AV: Tensor, uniforms_A: Tensor) -> Tensor:
    """The token at which the running sum of weights first exceeds u times their total, never one of 0."""
    cdf_AV = weights_AV.cumsum(-1)
    total_A = cdf_AV[:, -1]
    # The product can round up to the total itself: stay below it.
    points_A = torch.minimum(uniforms_A * total_A, torch.nextafter(total_A, torch.zeros_like(total_A)))
    return torch.searchsorted(cdf_AV, points_A[:, None], right=True).squeeze(-1)


class SeededSampler(LogitsProcessor):
    """Samples one token a row and step, and leaves `generate` no other choice.

    A row's token depends on its logits, its seed and its position, not on the
    other rows. Sampling is in float64, so that an ordinary float32 difference
    between batches seldom moves a token.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        *,
        max_tokens: int,
        temperature: float,
        top_p: float,
        eos_ids: Sequence[int],
        device: torch.device,
    ) -> None:
        streams = [np.random.Generator(np.random.Philox(seed)).random(max_tokens) for seed in seeds]
        self._uniforms_NT = torch.from_numpy(np.stack(streams)).to(device)
        self._temperature = temperature
        self._top_p = top_p
        self._eos = torch.tensor(eos_ids, dtype=torch.long, device=device)
        self._running_A = torch.arange(len(seeds), device=device)
        self._step = 0
        self.lengths_N = torch.zeros(len(seeds), dtype=torch.long, device=device)
        self.logprobs_NT = torch.zeros(len(seeds), max_tokens, dtype=torch.float64, device=device)
        """Log-probability of each token under the raw model (T = 1, no nucleus)."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Mask all but the sampled token of every running row; scores are the model's raw logits, [N, V]."""
        rows_A = self._running_A
        if len(rows_A) == 0:
            return scores
        logits_AV = scores[rows_A].double()
        weights_AV = (logits_AV / self._temperature).softmax(-1)
        if self._top_p < 1.0:
            weights_AV = nucleus(weights_AV, self._top_p)
        tokens_A = inverse_cdf(weights_AV, self._uniforms_NT[rows_A, self._step])
        chosen_A = logits_AV.gather(-1, tokens_A[:, None]).squeeze(-1)
        self.logprobs_NT[rows_A, self._step] = chosen_A - logits_AV.logsumexp(-1)
        self._step += 1
        self.lengths_N[rows_A] = self._step
        self._running_A = rows_A[~torch.isin(tokens_A, self._eos)]
        scores.fill_(-torch.inf)
        scores[rows_A, tokens_A] = 0.0
        return scores
