"""The value head of PCL."""

from torch import Tensor, nn


class ValueHead(nn.Module):
    """A policy state to a success logit, 0 at first."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        last = nn.Linear(width, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, width), nn.GELU(), last)

    def forward(self, states_NH: Tensor) -> Tensor:
        """Success logits [N]."""
        logits_N: Tensor = self.layers(states_NH).squeeze(-1)
        return logits_N
