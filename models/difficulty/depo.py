"""DEPO: a scorer of prompt texts, trained by the policy's own outcomes (arXiv 2602.06375).

    L = BCE(score, mean@k) + 0.5 BCE(distill, exp(mean log-probability)) + 3 ranking

over the whole batch, whatever the micro-batches. The published code divides the
ranking term by their number, feeds a mean log-probability of 0 where there is
none, and trains in bfloat16; here every term is a mean, the distillation term
is left out where there is nothing to distil, and weights are float32. The
scorer learns from every valid group, not only from those that its filter kept.
During the warm-up all prompts are forecast alike, so that a band accepts all.
"""

import numpy as np
import torch
from torch import Tensor, nn

from models.difficulty.base import State, encode_ids, match_ids
from models.difficulty.depo_encoders import EmbeddingEncoder, TextEncoder
from models.difficulty.depo_network import DepoHead, DepoNetwork, depo_losses
from models.difficulty.inputs import STATIC
from models.difficulty.spread import Spread
from models.difficulty.tokens import TokenForecaster
from models.difficulty.torch_state import load_network, network_state, seeded
from models.records import Floats, Forecast, Ints, Observation, Pool
from models.seeding import derive_seed
from models.settings import DepoSettings

CHUNK = 256
"""Prompts scored at once."""
WEIGHTS = {"success": 1.0, "distill": 0.5, "ranking": 3.0}
MAX_GRAD_NORM = 1.0
UNIFORM_SD = 12.0**-0.5
"""Standard deviation of the uniform distribution on [0, 1]: the forecast of the warm-up."""


class Depo:
    """Forecasts a pool by its texts or embeddings."""

    def __init__(self, settings: DepoSettings, pool: Pool, *, seed: int) -> None:
        """Start with a head drawn from `seed`.

        Raises:
            ValueError: the pool lacks the embeddings or texts that the encoder reads.
            ModelError: the encoder cannot be loaded.
        """
        self._settings = settings
        self._pool = pool
        with seeded(seed):
            self._encoder = _encoder(settings, pool)
            head = DepoHead(self._encoder.size, settings.width, settings.dropout)
        if isinstance(self._encoder, TextEncoder):
            head.to(self._encoder.model.device)
        self._network = DepoNetwork(self._encoder, head).eval()
        groups = [
            {"params": list(self._encoder.parameters()), "lr": settings.encoder_lr},
            {"params": list(head.parameters()), "lr": settings.lr},
        ]
        self._optimizer = torch.optim.AdamW([group for group in groups if group["params"]])
        self._batches = 0
        self._spread = Spread()
        self._tokens = TokenForecaster(pool)

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """Sigmoid of the score, with the spread of earlier errors; uniform during the warm-up. Draws nothing."""
        tokens = self._tokens.forecast(rows)
        if self._batches < self._settings.warmup_batches:
            return Forecast(np.full(len(rows), 0.5), np.full(len(rows), UNIFORM_SD), tokens)
        p_success = self._score(rows)
        return Forecast(p_success, self._spread.p_sd(p_success), tokens)

    def observe(self, observation: Observation, *, seed: int) -> dict[str, float]:
        """AdamW steps on the whole batch; the loss parts are those of the last step."""
        rows, count = observation.rows, len(observation.rows)
        if count == 0:
            return {}
        self._spread.observe(self._score(rows), observation.successes, observation.valid)
        rates = torch.from_numpy(observation.successes / observation.valid).float()
        known = observation.mean_logprobs
        logprobs = torch.from_numpy(np.full(count, np.nan) if known is None else known).float()
        for step in range(self._settings.gradient_steps):
            parts = self._step(torch.from_numpy(rows), rates, logprobs, derive_seed(seed, step))
        self._batches += 1
        self._tokens.observe(rows, observation.mean_tokens)
        return {name: float(part.detach()) for name, part in parts.items()}

    def state_dict(self) -> State:
        """Weights, AdamW's moments, batches seen, the spread of errors, and the lengths of responses."""
        return {
            "prompt_ids": encode_ids(self._pool),
            "batches": np.array(self._batches),
            **network_state(self._network, self._optimizer),
            **self._spread.state(),
            **self._tokens.state(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on where the state was taken."""
        load_network(state, self._network, self._optimizer)
        self._batches = int(state["batches"])
        self._spread.load(state)
        self._tokens.load(state, *match_ids(self._pool, state["prompt_ids"]))

    @torch.no_grad()
    def _score(self, rows: Ints) -> Floats:
        """[N] success probabilities; texts of like length go together."""
        found = np.empty(len(rows))
        order = np.argsort(self._encoder.lengths[rows], kind="stable")
        for start in range(0, len(rows), CHUNK):
            chunk = order[start : start + CHUNK]
            logits_B2 = self._network(torch.from_numpy(rows[chunk]))
            found[chunk] = torch.sigmoid(logits_B2[:, 0].double()).numpy()
        return found

    def _step(self, rows_B: Tensor, rates_B: Tensor, logprobs_B: Tensor, seed: int) -> dict[str, Tensor]:
        """One step on the loss of the whole batch.

        The loss is differentiated by the logits of all prompts; each
        micro-batch, run again with the same dropout, takes its part of that
        gradient down to the weights. So memory is that of one micro-batch, and
        the pairs are those of the batch.
        """
        size = self._settings.micro_batch
        chunks = torch.split(rows_B, size)
        with torch.no_grad():
            logits_B2 = torch.cat([self._run(chunk, derive_seed(seed, part)) for part, chunk in enumerate(chunks)])
        logits_B2.requires_grad_()
        losses = depo_losses(logits_B2, rates_B, logprobs_B)
        total = torch.stack([WEIGHTS[name] * loss for name, loss in losses.items()]).sum()
        (gradient_B2,) = torch.autograd.grad(total, logits_B2)
        self._optimizer.zero_grad()
        for part, (chunk, share_B2) in enumerate(zip(chunks, torch.split(gradient_B2, size), strict=True)):
            self._run(chunk, derive_seed(seed, part)).backward(share_B2)  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._network.parameters(), MAX_GRAD_NORM)
        self._optimizer.step()
        return losses

    def _run(self, rows_B: Tensor, seed: int) -> Tensor:
        """Logits [B, 2] with dropout drawn from `seed`."""
        self._network.train()
        with seeded(seed):
            logits_B2: Tensor = self._network(rows_B)
        self._network.eval()
        return logits_B2


def _encoder(settings: DepoSettings, pool: Pool) -> EmbeddingEncoder | TextEncoder:
    if settings.encoder != STATIC:
        if len(pool.texts) != len(pool):
            raise ValueError("predictor depo needs the texts of the pool's prompts")
        return TextEncoder(settings.encoder, pool.texts)
    if pool.embeddings is None:
        raise ValueError("predictor depo needs embeddings of the pool's prompts")
    return EmbeddingEncoder(pool.embeddings)
