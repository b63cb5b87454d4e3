"""The two encoders of GPS: a batch of outcomes to one summary, whatever the batch's order.

Legend: B prompts of a batch, F features of a token (embedding and success
rate), W width.
"""

from torch import Tensor, nn
from torch.nn import functional as F


class MlpEncoder(nn.Sequential):
    """Mean over prompts of a multi-layer perceptron of each token."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__(
            nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
        )

    def forward(self, tokens_BF: Tensor) -> Tensor:
        """Summary [W]."""
        hidden_BW: Tensor = super().forward(tokens_BF)  # type: ignore[no-untyped-call]
        return F.relu(hidden_BW).mean(dim=0)


class TransformerEncoder(nn.Module):
    """Mean over prompts of a Transformer of the tokens, which attend to each other and have no positions.

    Layers normalise their input (pre-norm), so that a fresh one learns without a
    warm-up of the learning rate; there is no dropout.
    """

    def __init__(self, features: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.token = nn.Linear(features, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="relu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)

    def forward(self, tokens_BF: Tensor) -> Tensor:
        """Summary [W]."""
        hidden: Tensor = self.layers(self.token(tokens_BF)[None])[0]
        return hidden.mean(dim=0)
