import math

import pytest
import torch

from models.policy.grpo import grpo_loss, importance_weights

LOW, HIGH = 0.2, 0.28


def loss_of(new, old, advantages, mask, denominator):
    return grpo_loss(new, old, advantages, mask, denominator=denominator, clip_low=LOW, clip_high=HIGH)


def make_case(rows=5, width=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(rows, width, generator=generator, dtype=torch.float64) * 3
    new = old + torch.randn(rows, width, generator=generator, dtype=torch.float64) * 0.4
    advantages = torch.randn(rows, 1, generator=generator, dtype=torch.float64).expand(rows, width)
    mask = torch.rand(rows, width, generator=generator) < 0.7
    return new, old, advantages, mask


def test_loss_and_metrics_equal_a_loop_over_tokens():
    new, old, advantages, mask = make_case()
    total = kl = clipped = tokens = 0
    for row in range(new.shape[0]):
        for column in range(new.shape[1]):
            if not mask[row, column]:
                continue
            ratio = math.exp(float(new[row, column]) - float(old[row, column]))
            advantage = float(advantages[row, column])
            total += min(ratio * advantage, min(max(ratio, 1 - LOW), 1 + HIGH) * advantage)
            kl += ratio - 1 - math.log(ratio)
            clipped += (advantage > 0 and ratio > 1 + HIGH) or (advantage < 0 and ratio < 1 - LOW)
            tokens += 1
    loss, sums = loss_of(new, old, advantages, mask, denominator=tokens)
    assert float(loss) == pytest.approx(-total / tokens, rel=1e-12)
    assert float(sums.kl) == pytest.approx(kl, rel=1e-12)
    assert (int(sums.clipped), int(sums.tokens)) == (clipped, tokens)
    assert 0 < clipped < tokens


def test_gradient_is_the_closed_form_and_zero_where_clipped():
    new, old, advantages, mask = make_case(seed=1)
    new.requires_grad_()
    loss, _ = loss_of(new, old, advantages, mask, denominator=20)
    loss.backward()
    ratio = (new.detach() - old).exp()
    outside = ((advantages > 0) & (ratio > 1 + HIGH)) | ((advantages < 0) & (ratio < 1 - LOW))
    expected = torch.where(mask & ~outside, -advantages * ratio / 20, 0.0)
    torch.testing.assert_close(new.grad, expected)


def test_gradient_passes_the_numerical_check():
    new, old, advantages, mask = make_case(seed=2)
    new.requires_grad_()
    assert torch.autograd.gradcheck(lambda logprobs: loss_of(logprobs, old, advantages, mask, 11)[0], (new,))


def test_shares_of_micro_batches_add_up_to_the_loss_of_the_batch():
    new, old, advantages, mask = make_case(rows=6, seed=3)
    whole, _ = loss_of(new, old, advantages, mask, denominator=int(mask.sum()))
    parts = [
        loss_of(new[rows], old[rows], advantages[rows], mask[rows], denominator=int(mask.sum()))[0]
        for rows in (slice(0, 1), slice(1, 4), slice(4, 6))
    ]
    assert float(sum(parts)) == pytest.approx(float(whole), rel=1e-12)


def test_on_policy_the_ratio_is_exactly_one():
    new, _, advantages, mask = make_case(seed=4)
    loss, sums = loss_of(new, new.detach(), advantages, mask, denominator=1)
    assert float(loss) == pytest.approx(-float(advantages[mask].sum()), rel=1e-12)
    assert (float(sums.kl), int(sums.clipped)) == (0.0, 0)


def test_what_stands_off_the_mask_is_ignored_even_if_it_is_nan():
    new, old, advantages, mask = make_case(seed=5)
    clean, _ = loss_of(new, old, advantages, mask, denominator=3)
    spoilt = torch.where(mask, new, math.nan).requires_grad_()
    loss, sums = loss_of(spoilt, torch.where(mask, old, math.inf), advantages, mask, denominator=3)
    loss.backward()
    assert loss.item() == clean.item()
    assert math.isfinite(float(sums.kl))
    assert bool((spoilt.grad[~mask] == 0).all()) and bool(spoilt.grad.isfinite().all())


def test_importance_weights_are_the_capped_ratio_token_by_token():
    old, sampler = torch.tensor([[-1.0, -2.0, -0.5]]), torch.tensor([[-1.5, -2.5, -0.1]])
    mask = torch.tensor([[True, True, False]])
    weights, sums = importance_weights(old, sampler, mask, cap=1.5)
    assert weights.tolist() == [[1.5, 1.5, 1.0]]
    assert float(sums.ratio) == pytest.approx(2 * math.exp(0.5))
    assert int(sums.capped) == 2


def test_the_weighted_loss_is_the_plain_sum_over_tokens():
    generator = torch.Generator().manual_seed(0)
    new, old = torch.randn(2, 3, 5, generator=generator)
    weights = torch.rand(3, 5, generator=generator)
    advantages = torch.randn(3, 1, generator=generator).expand(3, 5)
    mask = torch.rand(3, 5, generator=generator) < 0.7
    loss, _ = grpo_loss(
        new, old, advantages, mask, weights_BT=weights, denominator=int(mask.sum()), clip_low=0.2, clip_high=0.28
    )
    total = 0.0
    for row, column in mask.nonzero().tolist():
        ratio, advantage = math.exp(new[row, column] - old[row, column]), float(advantages[row, column])
        term = min(ratio * advantage, min(max(ratio, 0.8), 1.28) * advantage)
        total += float(weights[row, column]) * term
    assert float(loss) == pytest.approx(-total / int(mask.sum()), rel=1e-5)
