"""The network of GPS (arXiv 2602.01970).

Legend: B prompts of a batch, N candidates, M samples of z, E embedding size,
L latent size.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.difficulty.gps_encoders import MlpEncoder, TransformerEncoder
from models.settings import GpsSettings


class GpsNetwork(nn.Module):
    """Encoder of a batch of outcomes to the difficulty context z, and decoder of (z, prompt) to a success logit.

    Posterior q(z | H_t) and prior p(z | H_{t-1}) read their batch through one
    trunk and have a head each. Embeddings of unit length are read at sqrt(E)
    times their size, so that their entries are as large as the rates beside them.
    """

    def __init__(self, embedding: int, settings: GpsSettings) -> None:
        super().__init__()
        width, latent = settings.width, settings.latent
        self._scale = embedding**0.5
        self.trunk = _encoder(embedding + 1, settings)
        self.posterior_head = nn.Linear(width, 2 * latent)
        self.prior_head = nn.Linear(width, 2 * latent)
        self.from_prompt = nn.Linear(embedding, width)
        self.from_context = nn.Linear(latent, width, bias=False)
        self.decoder = nn.Sequential(
            nn.ReLU(inplace=True),
            nn.Linear(width, width),
            nn.ReLU(inplace=True),
            nn.Linear(width, width),
            nn.ReLU(inplace=True),
            nn.Linear(width, 1),
        )

    def posterior(self, embeddings_BE: Tensor, rates_B: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of q(z | batch), [L] each."""
        return _gaussian(self.posterior_head(self._summary(embeddings_BE, rates_B)))

    def prior(self, embeddings_BE: Tensor, rates_B: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of p(z | batch before), [L] each."""
        return _gaussian(self.prior_head(self._summary(embeddings_BE, rates_B)))

    def first_layer(self, embeddings_NE: Tensor) -> Tensor:
        """The prompts' share of the decoder's first layer, the same for every z: [N, width]."""
        hidden: Tensor = self.from_prompt(self._scale * embeddings_NE)
        return hidden

    def decode(self, hidden_NW: Tensor, z_L: Tensor) -> Tensor:
        """Success logits [N] under one z."""
        logits: Tensor = self.decoder(hidden_NW + self.from_context(z_L)).squeeze(-1)
        return logits

    def _summary(self, embeddings_BE: Tensor, rates_B: Tensor) -> Tensor:
        tokens_BF = torch.cat([self._scale * embeddings_BE, rates_B[:, None]], dim=1)
        summary: Tensor = self.trunk(tokens_BF)
        return summary


def _encoder(features: int, settings: GpsSettings) -> nn.Module:
    match settings.encoder:
        case "mlp":
            return MlpEncoder(features, settings.width)
        case "transformer":
            return TransformerEncoder(features, settings.width, settings.layers, settings.heads)


def _gaussian(raw_2L: Tensor) -> tuple[Tensor, Tensor]:
    mean_L, spread_L = raw_2L.chunk(2)
    return mean_L, 0.1 + 0.9 * torch.sigmoid(spread_L)


def elbo_loss(
    logits_B: Tensor,
    successes_B: Tensor,
    valid_B: Tensor,
    posterior: tuple[Tensor, Tensor],
    prior: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """The two parts of the negative ELBO of one batch, for a z drawn from the posterior.

    Returns:
        The binomial negative log-likelihood, its constant left out, as a mean
        over prompts; and KL(q || p) divided by the number of prompts. Their sum
        is -ELBO / B (Eq. 8).
    """
    nll = F.softplus(logits_B) * valid_B - logits_B * successes_B
    q = torch.distributions.Normal(*posterior)
    p = torch.distributions.Normal(*prior)
    return nll.mean(), torch.distributions.kl_divergence(q, p).sum() / len(logits_B)
