"""The network of DOTS (arXiv 2506.05316).

Legend: N prompts asked about, R reference prompts, E embedding size, D size of
queries and keys.
"""

import torch
from torch import Tensor, nn

CALIBRATION_WIDTH = 16
_EDGE = 1e-3


class DotsNetwork(nn.Module):
    """Success logits of prompts from the success rates of reference prompts.

    a_i = sum_j softmax_j(q(e_i) . k(e_j) / sqrt(D)) r_j
    logit p_i = scale * logit a_i + bias,   (log scale, bias) = MLP(mean r, sd r)
    """

    def __init__(self, embedding: int, width: int) -> None:
        super().__init__()
        self._scale = embedding**0.5
        self.projection = _projection(embedding, width)
        last = nn.Linear(CALIBRATION_WIDTH, 2)
        nn.init.zeros_(last.weight)  # scale 1 and bias 0 at first
        nn.init.zeros_(last.bias)
        self.calibration = nn.Sequential(nn.Linear(2, CALIBRATION_WIDTH), nn.ReLU(), last)

    def forward(self, embeddings_NE: Tensor, reference_RE: Tensor, rates_R: Tensor) -> Tensor:
        """Success logits [N]; an attended rate within 1e-3 of 0 or 1 is moved there."""
        query_ND = self.projection(self._scale * embeddings_NE)
        key_RD = self.projection(self._scale * reference_RE)
        attention_NR = torch.softmax(query_ND @ key_RD.T / key_RD.shape[1] ** 0.5, dim=1)
        attended_N = (attention_NR @ rates_R).clamp(_EDGE, 1.0 - _EDGE)
        log_scale, bias = self.calibration(torch.stack([rates_R.mean(), rates_R.std(correction=0)]))
        logits_N: Tensor = log_scale.exp() * torch.logit(attended_N) + bias
        return logits_N


def _projection(embedding: int, width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(embedding, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
    )
