"""Samples as padded micro-batches, and the policy's log-probabilities of their response tokens.

Shapes: B rows, L padded length, T the last positions of the rows, from the
first response token of the shortest prompt on; V vocabulary; R response tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.policy.loading import Policy
from models.records import Sample


@dataclass(frozen=True)
class MicroBatch:
    """Samples that go through the model together, padded on the right."""

    samples: tuple[Sample, ...]
    """The B samples, in row order."""
    ids_BL: Tensor
    attention_BL: Tensor
    sampler_BT: Tensor
    """Log-probabilities as the engine reported them; 0 off the response."""
    response_BT: Tensor
    """True where the token is part of the response, its end-of-sequence token included."""
    advantages_BT: Tensor


def pack_micro_batches(
    samples: Sequence[Sample], token_budget: int, pad_id: int, device: torch.device
) -> Iterator[MicroBatch]:
    """Deal samples of like length to micro-batches of at most `token_budget` tokens, padding included.

    Long ones come first, so that a model which does not fit fails at once. A
    sample longer than the budget goes alone.
    """
    left = sorted(samples, key=lambda sample: -_length(sample))
    while left:
        rows = max(1, token_budget // _length(left[0]))
        yield _pad(left[:rows], pad_id, device)
        left = left[rows:]


def token_logprobs(policy: Policy, batch: MicroBatch, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the response tokens under the distribution they were sampled from.

    That is softmax(logits / temperature); a nucleus (top_p) is no part of it.
    The vocabulary is spread out at the last T positions only, and normalised by
    its log-sum-exp, which keeps one such array for the backward pass.

    Returns:
        [B, T] log-probabilities, with gradient where it is enabled, and [B, T]
        entropies in nats, without; 0 off the response.
    """
    width = batch.response_BT.shape[1]
    with policy.autocast():
        output = policy.model(
            input_ids=batch.ids_BL,
            attention_mask=batch.attention_BL,
            logits_to_keep=width + 1,
            use_cache=False,
        )
    logits_RV = output.logits[:, :-1][batch.response_BT].float() / temperature
    targets_R = batch.ids_BL[:, -width:][batch.response_BT]
    normaliser_R = logits_RV.logsumexp(-1)
    chosen_R = logits_RV.gather(-1, targets_R[:, None]).squeeze(-1)
    with torch.no_grad():
        expected_R = (logits_RV.softmax(-1) * logits_RV).sum(-1)
    blank_BT = torch.zeros(batch.response_BT.shape, device=logits_RV.device)
    logprobs_BT = blank_BT.masked_scatter(batch.response_BT, chosen_R - normaliser_R)
    entropies_BT = blank_BT.masked_scatter(batch.response_BT, normaliser_R.detach() - expected_R)
    return logprobs_BT, entropies_BT


def _length(sample: Sample) -> int:
    return len(sample.prompt_token_ids) + len(sample.token_ids)


def _pad(samples: Sequence[Sample], pad_id: int, device: torch.device) -> MicroBatch:
    length = max(map(_length, samples))
    start = min(len(sample.prompt_token_ids) for sample in samples)
    ids = torch.full((len(samples), length), pad_id)
    attention = torch.zeros((len(samples), length), dtype=torch.long)
    response = torch.zeros((len(samples), length), dtype=torch.bool)
    sampler = torch.zeros((len(samples), length))
    for row, sample in enumerate(samples):
        end = _length(sample)
        ids[row, :end] = torch.tensor(sample.prompt_token_ids + sample.token_ids)
        attention[row, :end] = 1
        response[row, len(sample.prompt_token_ids) : end] = True
        if sample.logprobs:
            sampler[row, len(sample.prompt_token_ids) : end] = torch.tensor(sample.logprobs)
    advantages = torch.tensor([sample.advantage for sample in samples])
    return MicroBatch(
        samples=tuple(samples),
        ids_BL=ids.to(device),
        attention_BL=attention.to(device),
        sampler_BT=sampler[:, start:].to(device),
        response_BT=response[:, start:].to(device),
        advantages_BT=advantages[:, None].expand(-1, length - start).to(device),
    )
