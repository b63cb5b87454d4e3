"""What a policy holds of a prompt just before it answers: its last layer's state at the last prompt token."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from models.policy.loading import Policy


@torch.no_grad()
def prompt_states(policy: Policy, prompts: Sequence[tuple[int, ...]], token_budget: int) -> NDArray[np.float32]:
    """[len(prompts), hidden size] states after the final norm, as the language-model head would read them.

    Args:
        prompts: token ids of each; at least one a prompt. One longer than the context is read from its end.
        token_budget: most tokens, padding included, in one forward pass; a longer prompt goes alone.
    """
    prompts = [prompt[-policy.context :] if policy.context else prompt for prompt in prompts]
    found = np.empty((len(prompts), policy.model.config.get_text_config().hidden_size), np.float32)
    left = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]))
    while left:
        rows = max(1, token_budget // len(prompts[left[0]]))
        batch, left = left[:rows], left[rows:]
        found[batch] = _states(policy, [prompts[index] for index in batch])
    return found


def _states(policy: Policy, prompts: Sequence[tuple[int, ...]]) -> NDArray[np.float32]:
    """States of prompts that go through the model together, padded on the right; the longest is first."""
    ids = torch.full((len(prompts), len(prompts[0])), policy.pad_id)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
        mask[row, : len(prompt)] = 1
    device = policy.model.device
    with policy.autocast():
        output = policy.model.base_model(input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False)
    last = mask.sum(dim=1).to(device) - 1
    states: NDArray[np.float32] = output.last_hidden_state[torch.arange(len(prompts)), last].float().cpu().numpy()
    return states
