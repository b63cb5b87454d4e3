"""GPS: one latent-variable model shared by all prompts (arXiv 2602.01970).

The latest batch is encoded to a Gaussian over the difficulty context z; a
forecast averages the decoder over samples of z (Eq. 10). Older history lives in
the weights.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.difficulty.base import State, encode_ids, match_ids
from models.difficulty.gps_network import GpsNetwork, elbo_loss
from models.difficulty.tokens import TokenForecaster
from models.difficulty.torch_state import load_network, network_state, seeded
from models.errors import ModelError
from models.records import Floats, Forecast, Ints, Observation, Pool
from models.settings import GpsSettings

CHUNK = 2048
"""Prompts decoded at once: few enough that a layer's activations stay in the cache."""


class Gps:
    """Forecasts a pool by its embeddings."""

    def __init__(self, settings: GpsSettings, pool: Pool, *, seed: int) -> None:
        """Start with weights drawn from `seed`.

        Raises:
            ValueError: the pool has no embeddings.
            ModelError: the heads of the Transformer cannot share its width.
        """
        if pool.embeddings is None:
            raise ValueError("predictor gps needs embeddings of the pool's prompts")
        self._settings = settings
        self._pool = pool
        self._embeddings = torch.from_numpy(pool.embeddings)
        if settings.encoder == "transformer" and settings.width % settings.heads:
            raise ModelError(
                f"predictor.width = {settings.width} cannot be shared by predictor.heads = {settings.heads}: "
                "make width a multiple of heads"
            )
        with seeded(seed):
            self._network = GpsNetwork(self._embeddings.shape[1], settings)
        self._optimizer = torch.optim.Adam(self._network.parameters(), lr=settings.lr)
        self._tokens = TokenForecaster(pool)
        self._last_embeddings = torch.zeros(0, self._embeddings.shape[1])
        self._last_rates = torch.zeros(0)

    @torch.no_grad()
    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """Mean and spread of the decoder over z ~ p(z | last batch).

        Of more than `rescored` prompts, only those nearest to 0.5 at the prior
        mean are averaged over z; the others keep that one forecast, and the mean
        spread of the averaged ones.
        """
        mean, std = self._prior()
        generator = torch.Generator().manual_seed(seed)
        contexts_ML = mean + std * torch.randn(self._settings.z_samples, len(mean), generator=generator)
        tokens = self._tokens.forecast(rows)
        if len(rows) <= self._settings.rescored:
            return Forecast(*_moments(self._decode(rows, contexts_ML)), tokens)
        p_success = self._decode(rows, mean[None])[0]
        near = np.argsort(np.abs(p_success - 0.5), kind="stable")[: self._settings.rescored]
        p_success[near], spread = _moments(self._decode(rows[near], contexts_ML))
        p_sd = np.full(len(rows), spread.mean())
        p_sd[near] = spread
        return Forecast(p_success, p_sd, tokens)

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """A few Adam steps on the negative ELBO of the new batch; the batch is then the one that forecasts read."""
        if len(observation.rows) == 0:
            return {}
        embeddings = self._embeddings[torch.from_numpy(observation.rows)]
        successes = torch.from_numpy(observation.successes).float()
        valid = torch.from_numpy(observation.valid).float()
        generator = torch.Generator().manual_seed(seed)
        for _ in range(self._settings.gradient_steps):
            posterior = self._network.posterior(embeddings, successes / valid)
            z = posterior[0] + posterior[1] * torch.randn(self._settings.latent, generator=generator)
            logits = self._network.decode(self._network.first_layer(embeddings), z)
            nll, kl = elbo_loss(logits, successes, valid, posterior, self._prior())
            self._optimizer.zero_grad()
            (nll + self._settings.kl_weight * kl).backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
        self._last_embeddings, self._last_rates = embeddings, successes / valid
        self._tokens.observe(observation.rows, observation.mean_tokens)
        return {"nll": float(nll.detach()), "kl": float(kl.detach())}

    def state_dict(self) -> State:
        """Weights, Adam's moments, the last batch, and the lengths of responses."""
        last = {"last.embeddings": self._last_embeddings.numpy().copy(), "last.rates": self._last_rates.numpy().copy()}
        network = network_state(self._network, self._optimizer)
        return {"prompt_ids": encode_ids(self._pool), **network, **last, **self._tokens.state()}

    def load_state_dict(self, state: State) -> None:
        """Go on where the state was taken."""
        load_network(state, self._network, self._optimizer)
        self._last_embeddings = torch.from_numpy(state["last.embeddings"].copy())
        self._last_rates = torch.from_numpy(state["last.rates"].copy())
        self._tokens.load(state, *match_ids(self._pool, state["prompt_ids"]))

    def _prior(self) -> tuple[Tensor, Tensor]:
        """p(z | last batch); before the first batch the standard normal."""
        if len(self._last_rates) == 0:
            return torch.zeros(self._settings.latent), torch.ones(self._settings.latent)
        return self._network.prior(self._last_embeddings, self._last_rates)

    def _decode(self, rows: Ints, contexts_ML: Tensor) -> NDArray[np.float64]:
        """Success probabilities [M, N]."""
        found = np.empty((len(contexts_ML), len(rows)))
        for start in range(0, len(rows), CHUNK):
            chunk = slice(start, start + CHUNK)
            hidden = self._network.first_layer(self._embeddings[torch.from_numpy(rows[chunk])])
            for index, z in enumerate(contexts_ML):
                found[index, chunk] = torch.sigmoid(self._network.decode(hidden, z)).numpy()
        return found


def _moments(sampled_MN: NDArray[np.float64]) -> tuple[Floats, Floats]:
    """Mean and standard deviation over z, [N] each."""
    return sampled_MN.mean(axis=0), sampled_MN.std(axis=0)
