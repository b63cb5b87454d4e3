"""States at the last prompt token, against one unpadded pass of the whole model for each prompt."""

import numpy as np
import pytest
import torch

from models.policy.hidden import prompt_states
from models.policy.loading import Policy, load_policy


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy("countdown-tiny")


def make_prompts(policy: Policy, count: int = 7) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(0)
    vocabulary = policy.model.config.vocab_size
    return [tuple(rng.integers(3, vocabulary, rng.integers(1, 12)).tolist()) for _ in range(count)]


@pytest.mark.parametrize("token_budget", [1, 20, 1000])
def test_states_are_the_last_layers_in_the_order_asked_for(policy: Policy, token_budget: int) -> None:
    prompts = make_prompts(policy)
    found = prompt_states(policy, prompts, token_budget)
    for prompt, state in zip(prompts, found, strict=True):
        with torch.no_grad():
            output = policy.model(torch.tensor([prompt]), output_hidden_states=True)
            head = policy.model.get_output_embeddings()(torch.from_numpy(state))
        assert state == pytest.approx(output.hidden_states[-1][0, -1].numpy(), abs=1e-4)
        assert head.numpy() == pytest.approx(output.logits[0, -1].numpy(), abs=1e-3)


def test_no_pass_is_larger_than_the_budget_unless_one_prompt_is(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = []
    forward = policy.model.base_model.forward

    def watched(**arguments):
        shapes.append(arguments["input_ids"].shape)
        return forward(**arguments)

    monkeypatch.setattr(policy.model.base_model, "forward", watched)
    prompts = [(5,) * length for length in (3, 30, 4, 2, 8, 8)]
    prompt_states(policy, prompts, token_budget=16)
    assert [tuple(shape) for shape in shapes] == [(1, 30), (2, 8), (3, 4)]


def test_a_prompt_longer_than_the_context_is_read_from_its_end(policy: Policy) -> None:
    context = policy.context or 0
    long = tuple(np.random.default_rng(1).integers(3, policy.model.config.vocab_size, context + 9).tolist())
    found = prompt_states(policy, [long, long[9:]], token_budget=context)
    assert context == 128
    assert found[0].tobytes() == found[1].tobytes()


def test_no_prompts_have_no_states_but_a_size(policy: Policy) -> None:
    assert prompt_states(policy, [], 100).shape == (0, policy.model.config.hidden_size)


def test_states_follow_the_weights_and_carry_no_gradient(policy: Policy) -> None:
    prompts = make_prompts(policy)
    before = prompt_states(policy, prompts, 100)
    weight = policy.model.get_input_embeddings().weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight *= 1.5
    assert not np.allclose(prompt_states(policy, prompts, 100), before)
    with torch.no_grad():
        weight.copy_(kept)
    assert prompt_states(policy, prompts, 100).tobytes() == before.tobytes()
    assert weight.grad is None
