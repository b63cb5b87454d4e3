"""Policies and requests for the tests of the vLLM engines."""

import copy

import torch
from transformers import LlamaForCausalLM

from models.policy.loading import Policy, load_policy
from models.records import Generation, Request

PROBLEMS = ["3 7 20 -> 41", "4 9 -> 13", "1 2 3 4 -> 10", "19 20 -> 1", "12 5 5 -> 11"]
LONGEST_PROMPT = 32


def tiny_policy(*, tied: bool = True, dtype: torch.dtype = torch.float32) -> Policy:
    """The shipped policy; untied, its head is a copy that is changed a little, so that the two tell apart."""
    policy = load_policy("countdown-tiny")
    if not tied:
        config = copy.deepcopy(policy.model.config)
        config.tie_word_embeddings = False
        model = LlamaForCausalLM(config)
        model.load_state_dict(policy.model.state_dict())
        with torch.no_grad():
            model.lm_head.weight.mul_(1.1)
        policy = Policy(model.eval(), policy.tokenizer, torch.float32)
    return Policy(policy.model, policy.tokenizer, dtype)


def make_requests(policy: Policy, samples: int = 8) -> list[Request]:
    """A group for each problem."""
    return [
        Request(tuple(policy.tokenizer.encode(text + "\n")), seed=1000 * index, samples=samples)
        for index, text in enumerate(PROBLEMS)
    ]


def perturb(policy: Policy, seed: int, size: float = 0.02) -> None:
    """What an update does: every weight moves a little."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(size * parameter.std() * torch.randn(parameter.shape, generator=generator))


def mean_gap(policy: Policy, requests: list[Request], groups: list[list[Generation]]) -> float:
    """Mean |trainer - engine| log-probability of the sampled tokens, by a plain forward pass of each response."""
    gaps = []
    for request, group in zip(requests, groups, strict=True):
        for row in group:
            ids = torch.tensor([request.prompt_token_ids + row.token_ids])
            with torch.no_grad(), policy.autocast():
                logits = policy.model(ids).logits[0, len(request.prompt_token_ids) - 1 : -1].float()
            chosen = logits.log_softmax(-1).gather(-1, torch.tensor(row.token_ids)[:, None])[:, 0]
            gaps += (chosen - torch.tensor(row.logprobs)).abs().tolist()
    return sum(gaps) / len(gaps)
