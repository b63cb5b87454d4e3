"""PCL: a value model that reads the prompt as the policy does (arXiv 2510.01135).

Published, V is a language model of the policy's size, trained in full by
squared error to the group mean. Here V is a head on the policy's own state at
the last prompt token, so that no second model is held; the state is computed
when it is asked for and gets no gradient. `loss = "binomial"` replaces the
squared error by the likelihood of the group's successes.

Forecasts of a step read the policy that will roll out. Learning comes after the
policy's update, so it pairs the outcomes with the updated policy's states; the
same happens when a resumed run replays its history.

Every forecast costs one pass of the policy over the prompt: in a large pool
`acquisition.candidates` bounds how many are read in a step.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from models.difficulty.base import State, encode_ids, match_ids
from models.difficulty.pcl_network import ValueHead
from models.difficulty.spread import Spread
from models.difficulty.tokens import TokenForecaster
from models.difficulty.torch_state import load_network, network_state, seeded
from models.records import Floats, Forecast, Ints, Observation, Pool
from models.settings import PclSettings


class Pcl:
    """Forecasts a pool by what the policy makes of its prompts."""

    def __init__(self, settings: PclSettings, pool: Pool, *, seed: int) -> None:
        """Start with a head drawn from `seed`.

        Raises:
            ValueError: the pool has no access to the policy's states.
        """
        if pool.hidden is None:
            raise ValueError("predictor pcl needs the policy's states at the pool's prompts")
        self._settings = settings
        self._pool = pool
        self._hidden = pool.hidden
        size = self._hidden(np.empty(0, np.int64)).shape[1]
        with seeded(seed):
            self._network = ValueHead(size, settings.width)
        self._optimizer = torch.optim.Adam(self._network.parameters(), lr=settings.lr)
        self._spread = Spread()
        self._tokens = TokenForecaster(pool)

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """V of the policy as it is, with the spread of earlier errors. Draws nothing."""
        p_success = self._value(torch.from_numpy(self._hidden(rows)))
        return Forecast(p_success, self._spread.p_sd(p_success), self._tokens.forecast(rows))

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """A few Adam steps on the group means."""
        rows = observation.rows
        if len(rows) == 0:
            return {}
        states = torch.from_numpy(self._hidden(rows))
        self._spread.observe(self._value(states), observation.successes, observation.valid)
        successes = torch.from_numpy(observation.successes).float()
        valid = torch.from_numpy(observation.valid).float()
        for _ in range(self._settings.gradient_steps):
            loss = self._loss(self._network(states), successes, valid)
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
        self._tokens.observe(rows, observation.mean_tokens)
        return {self._settings.loss: float(loss.detach())}

    def state_dict(self) -> State:
        """Weights, Adam's moments, the spread of errors, and the lengths of responses."""
        return {
            "prompt_ids": encode_ids(self._pool),
            **network_state(self._network, self._optimizer),
            **self._spread.state(),
            **self._tokens.state(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on where the state was taken."""
        load_network(state, self._network, self._optimizer)
        self._spread.load(state)
        self._tokens.load(state, *match_ids(self._pool, state["prompt_ids"]))

    @torch.no_grad()
    def _value(self, states_NH: Tensor) -> Floats:
        values: Floats = torch.sigmoid(self._network(states_NH).double()).numpy()
        return values

    def _loss(self, logits_B: Tensor, successes_B: Tensor, valid_B: Tensor) -> Tensor:
        """Mean over prompts of (sigmoid - s/n)², or of -[s log p + (n - s) log(1 - p)]."""
        if self._settings.loss == "mse":
            return F.mse_loss(torch.sigmoid(logits_B), successes_B / valid_B)
        return (F.softplus(logits_B) * valid_B - logits_B * successes_B).mean()
