import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from models.engines.sampler import SeededSampler, inverse_cdf, nucleus

VOCAB = 6
CPU = torch.device("cpu")


def make_sampler(seeds, max_tokens=4, temperature=1.0, top_p=1.0, eos_ids=()) -> SeededSampler:
    return SeededSampler(
        seeds, max_tokens=max_tokens, temperature=temperature, top_p=top_p, eos_ids=eos_ids, device=CPU
    )


def draw(sampler: SeededSampler, logits: torch.Tensor, rows: int) -> torch.Tensor:
    scores = sampler(torch.zeros(rows, 1, dtype=torch.long), logits.expand(rows, -1).clone())
    return scores.argmax(-1)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_follow_the_softmax_at_the_temperature(temperature):
    rows = 20_000
    logits = torch.tensor([0.3, -1.0, 2.0, 0.0, 1.1, -0.4])
    sampler = make_sampler(range(rows), temperature=temperature)
    counts = torch.bincount(draw(sampler, logits, rows), minlength=VOCAB).numpy()
    expected = torch.softmax(logits.double() / temperature, -1).numpy() * rows
    assert chisquare(counts, expected).pvalue > 0.01


def test_top_p_draws_from_the_renormalised_nucleus():
    rows = 20_000
    probs = torch.tensor([0.05, 0.4, 0.1, 0.3, 0.15, 0.0])
    sampler = make_sampler(range(rows), top_p=0.8)
    counts = torch.bincount(draw(sampler, probs.log(), rows), minlength=VOCAB).numpy()
    assert counts[[0, 2, 5]].sum() == 0
    kept = np.array([0.4, 0.3, 0.15])
    assert chisquare(counts[[1, 3, 4]], kept / kept.sum() * rows).pvalue > 0.01
    # The recorded log-probability is the raw model's, not the nucleus's.
    recorded = sampler.logprobs_NT[:, 0].exp().unique()
    assert torch.allclose(recorded, torch.tensor([0.15, 0.3, 0.4], dtype=torch.float64), atol=1e-6)


def test_a_tiny_top_p_is_greedy():
    logits = torch.tensor([0.0, 3.0, 1.0, 2.9, 0.0, 0.0])
    assert draw(make_sampler(range(500), top_p=1e-9), logits, 500).unique().tolist() == [1]


def test_the_nucleus_keeps_the_token_that_crosses_the_threshold():
    probs = torch.tensor([[0.5, 0.25, 0.125, 0.125]], dtype=torch.float64)
    assert nucleus(probs, 0.5).tolist() == [[0.5, 0.0, 0.0, 0.0]]
    assert nucleus(probs, 0.51).tolist() == [[0.5, 0.25, 0.0, 0.0]]


def test_the_inverse_cdf_never_takes_a_token_of_weight_zero():
    weights = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]], dtype=torch.float64)
    uniforms = [0.0, 0.25, 0.5, 0.75, np.nextafter(1.0, 0.0), 1.0]
    tokens = inverse_cdf(weights.expand(len(uniforms), -1), torch.tensor(uniforms, dtype=torch.float64))
    assert tokens.tolist() == [1, 1, 3, 3, 3, 3]


def test_a_row_depends_on_its_own_seed_and_position_alone():
    logits = torch.zeros(VOCAB)
    together = make_sampler([11, 12, 13])
    rows = torch.stack([draw(together, logits, 3) for _ in range(4)])
    for column, seed in enumerate([11, 12, 13]):
        alone = make_sampler([seed])
        assert [int(draw(alone, logits, 1)) for _ in range(4)] == rows[:, column].tolist()
    uniforms = np.random.Generator(np.random.Philox(12)).random(4)
    assert rows[:, 1].tolist() == (uniforms * VOCAB).astype(int).tolist()


def test_a_row_that_has_ended_is_left_alone():
    sampler = make_sampler([1, 2], eos_ids=[3])
    certain = torch.full((2, VOCAB), -100.0)
    certain[0, 3], certain[1, 2] = 100.0, 100.0
    ids = torch.zeros(2, 1, dtype=torch.long)
    sampler(ids, certain.clone())
    sampler(ids, torch.full((2, VOCAB), 0.0))
    assert sampler.lengths_N.tolist() == [1, 2]
    assert sampler.logprobs_NT[0, 1:].tolist() == [0.0, 0.0, 0.0]
