"""DOTS: a prompt's success from those of reference prompts that it attends to (arXiv 2506.05316).

Published, 256 random prompts are rolled out every other step to be the
reference set, and the network is trained beforehand on the outcomes of several
language models. Here no rollout is spent on references: they are the most
recent groups of the run itself, so they were selected and are of differing age;
and the network starts from nothing, learning online to forecast each batch from
the references before it.
"""

import numpy as np
import torch
from torch.nn import functional as F

from models.difficulty.base import State, encode_ids, match_ids
from models.difficulty.dots_network import DotsNetwork
from models.difficulty.spread import Spread
from models.difficulty.tokens import TokenForecaster
from models.difficulty.torch_state import load_network, network_state, seeded
from models.records import Floats, Forecast, Ints, Observation, Pool
from models.settings import DotsSettings

CHUNK = 4096
"""Prompts forecast at once."""


class Dots:
    """Forecasts a pool by its embeddings."""

    def __init__(self, settings: DotsSettings, pool: Pool, *, seed: int) -> None:
        """Start with weights drawn from `seed` and without references.

        Raises:
            ValueError: the pool has no embeddings.
        """
        if pool.embeddings is None:
            raise ValueError("predictor dots needs embeddings of the pool's prompts")
        self._settings = settings
        self._pool = pool
        self._embeddings = torch.from_numpy(pool.embeddings)
        with seeded(seed):
            self._network = DotsNetwork(self._embeddings.shape[1], settings.width)
        self._optimizer = torch.optim.Adam(self._network.parameters(), lr=settings.lr)
        self._spread = Spread()
        self._tokens = TokenForecaster(pool)
        self._reference = torch.zeros(0, self._embeddings.shape[1])
        self._rates = torch.zeros(0)

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """The attended success rate, with the spread of earlier errors; 0.5 without references. Draws nothing."""
        p_success = self._attend(rows)
        return Forecast(p_success, self._spread.p_sd(p_success), self._tokens.forecast(rows))

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """A few Adam steps on forecasting the batch from the references; then it joins them."""
        rows = observation.rows
        if len(rows) == 0:
            return {}
        self._spread.observe(self._attend(rows), observation.successes, observation.valid)
        embeddings = self._embeddings[torch.from_numpy(rows)]
        rates = torch.from_numpy(observation.successes / observation.valid).float()
        parts = {}
        for _ in range(self._settings.gradient_steps if len(self._rates) else 0):
            logits = self._network(embeddings, self._reference, self._rates)
            loss = F.binary_cross_entropy_with_logits(logits, rates)
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            parts = {"success": float(loss.detach())}
        size = self._settings.reference
        self._reference = torch.cat([self._reference, embeddings])[-size:].clone()
        self._rates = torch.cat([self._rates, rates])[-size:].clone()
        self._tokens.observe(rows, observation.mean_tokens)
        return parts

    def state_dict(self) -> State:
        """Weights, Adam's moments, the references, the spread of errors, and the lengths of responses."""
        return {
            "prompt_ids": encode_ids(self._pool),
            "reference.embeddings": self._reference.numpy().copy(),
            "reference.rates": self._rates.numpy().copy(),
            **network_state(self._network, self._optimizer),
            **self._spread.state(),
            **self._tokens.state(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on where the state was taken."""
        load_network(state, self._network, self._optimizer)
        self._reference = torch.from_numpy(state["reference.embeddings"].copy())
        self._rates = torch.from_numpy(state["reference.rates"].copy())
        self._spread.load(state)
        self._tokens.load(state, *match_ids(self._pool, state["prompt_ids"]))

    @torch.no_grad()
    def _attend(self, rows: Ints) -> Floats:
        """[N] success probabilities."""
        found = np.full(len(rows), 0.5)
        for start in range(0, len(rows) if len(self._rates) else 0, CHUNK):
            chunk = slice(start, start + CHUNK)
            embeddings = self._embeddings[torch.from_numpy(rows[chunk])]
            logits = self._network(embeddings, self._reference, self._rates)
            found[chunk] = torch.sigmoid(logits.double()).numpy()
        return found
