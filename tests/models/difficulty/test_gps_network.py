"""The ELBO of GPS against an independent numpy re-implementation, and against sampling.

Legend: B prompts of a batch, E embedding size, L latent size.
"""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.distributions import Normal, kl_divergence

from models.difficulty.gps_network import GpsNetwork, elbo_loss
from models.settings import GpsSettings

Array = NDArray[np.float64]
B, E, WIDTH, L = 5, 6, 8, 3
ENCODERS = ("mlp", "transformer")


def make_network(encoder: str = "mlp", latent: int = L) -> GpsNetwork:
    settings = GpsSettings(encoder=encoder, layers=2, heads=2, width=WIDTH, latent=latent)  # type: ignore[arg-type]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return GpsNetwork(E, settings).double()


def make_batch(seed: int) -> tuple[Array, Array, Array]:
    """Embeddings [B, E], successes [B] and valid rollouts [B]."""
    rng = np.random.default_rng(seed)
    valid = rng.integers(1, 9, B)
    return rng.normal(size=(B, E)), rng.binomial(valid, 0.4).astype(float), valid.astype(float)


def linear(weights: dict[str, Array], name: str, inputs: list[float]) -> list[float]:
    matrix, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
    return [
        sum(float(w) * x for w, x in zip(row, inputs, strict=True)) + (0.0 if bias is None else float(bias[unit]))
        for unit, row in enumerate(matrix)
    ]


def relu(values: list[float]) -> list[float]:
    return [max(value, 0.0) for value in values]


def encode(weights: dict[str, Array], head: str, embeddings: Array, rates: Array) -> tuple[list[float], list[float]]:
    """Mean and sd of the Gaussian that a head makes of a batch, one number at a time."""
    summaries = []
    for embedding, rate in zip(embeddings, rates, strict=True):
        hidden = [*(E**0.5 * embedding).tolist(), float(rate)]
        for layer in ("trunk.0", "trunk.2", "trunk.4"):
            hidden = relu(linear(weights, layer, hidden))
        summaries.append(hidden)
    summary = [sum(column) / len(summaries) for column in zip(*summaries, strict=True)]
    raw = linear(weights, head, summary)
    return raw[:L], [0.1 + 0.9 / (1.0 + np.exp(-value)) for value in raw[L:]]


def decode(weights: dict[str, Array], embedding: Array, z: Array) -> float:
    """Success logit of one prompt: three hidden layers over [z, e], the first split in two."""
    prompt, context = (
        linear(weights, "from_prompt", (E**0.5 * embedding).tolist()),
        linear(weights, "from_context", z.tolist()),
    )
    hidden = relu([p + c for p, c in zip(prompt, context, strict=True)])
    for layer in ("decoder.1", "decoder.3"):
        hidden = relu(linear(weights, layer, hidden))
    return linear(weights, "decoder.5", hidden)[0]


def test_elbo_equals_the_loop_and_the_closed_form_of_torch() -> None:
    network = make_network()
    weights = {name: value.numpy() for name, value in network.state_dict().items()}
    before, now = make_batch(0), make_batch(1)
    noise = np.random.default_rng(2).normal(size=L)
    q_mean, q_sd = encode(weights, "posterior_head", now[0], now[1] / now[2])
    p_mean, p_sd = encode(weights, "prior_head", before[0], before[1] / before[2])
    z = np.array(q_mean) + np.array(q_sd) * noise
    p = [1.0 / (1.0 + np.exp(-decode(weights, embedding, z))) for embedding in now[0]]
    likelihoods = [s * np.log(x) + (n - s) * np.log(1.0 - x) for x, s, n in zip(p, now[1], now[2], strict=True)]
    kl = sum(
        np.log(b / a) + (a**2 + (m - n) ** 2) / (2 * b**2) - 0.5
        for m, a, n, b in zip(q_mean, q_sd, p_mean, p_sd, strict=True)
    )

    embeddings, successes, valid = (torch.from_numpy(array) for array in now)
    posterior = network.posterior(embeddings, successes / valid)
    prior = network.prior(torch.from_numpy(before[0]), torch.from_numpy(before[1] / before[2]))
    logits = network.decode(network.first_layer(embeddings), posterior[0] + posterior[1] * torch.from_numpy(noise))
    found_nll, found_kl = (part.detach() for part in elbo_loss(logits, successes, valid, posterior, prior))
    assert float(found_nll) == pytest.approx(-np.mean(likelihoods), rel=1e-10)
    assert float(found_kl) == pytest.approx(kl / B, rel=1e-10)
    assert float(found_kl) == pytest.approx(float(kl_divergence(Normal(*posterior), Normal(*prior)).sum().detach()) / B)


def test_kl_agrees_with_the_mean_log_ratio_of_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    posterior = (torch.tensor([0.5, -1.0, 0.0]), torch.tensor([0.3, 0.9, 0.5]))
    prior = (torch.tensor([0.0, 0.0, 0.2]), torch.tensor([1.0, 0.8, 0.4]))
    z = posterior[0] + posterior[1] * torch.randn(200_000, L, generator=generator)
    ratios = (Normal(*posterior).log_prob(z) - Normal(*prior).log_prob(z)).sum(dim=1)
    one = torch.ones(1)
    _, kl = elbo_loss(one, one, one, posterior, prior)
    standard_error = float(ratios.std()) / len(ratios) ** 0.5
    assert float(kl) == pytest.approx(float(ratios.mean()), abs=4 * standard_error)


def test_loss_averages_to_the_elbo_that_sampling_estimates() -> None:
    """-ELBO / B = E_q[log q(z) - log p(z) - sum_i log p(s_i | z)] / B, every density taken at the samples."""
    network = make_network()
    before, now = make_batch(0), make_batch(1)
    embeddings, successes, valid = (torch.from_numpy(array) for array in now)
    with torch.no_grad():
        posterior = network.posterior(embeddings, successes / valid)
        prior = network.prior(torch.from_numpy(before[0]), torch.from_numpy(before[1] / before[2]))
        hidden = network.first_layer(embeddings)
        generator = torch.Generator().manual_seed(0)
        losses, sampled = [], []
        for noise in torch.randn(1000, L, generator=generator, dtype=torch.float64):
            z = posterior[0] + posterior[1] * noise
            logits = network.decode(hidden, z)
            losses.append(float(sum(elbo_loss(logits, successes, valid, posterior, prior))))
            likelihood = torch.distributions.Binomial(valid, logits=logits, validate_args=False).log_prob(successes)
            constant = torch.lgamma(valid + 1) - torch.lgamma(successes + 1) - torch.lgamma(valid - successes + 1)
            ratio = (Normal(*posterior).log_prob(z) - Normal(*prior).log_prob(z)).sum()
            sampled.append(float(ratio - (likelihood - constant).sum()) / B)
    gaps = np.array(losses) - np.array(sampled)
    assert gaps.mean() == pytest.approx(0.0, abs=4 * gaps.std() / len(gaps) ** 0.5)
    assert np.mean(losses) == pytest.approx(np.mean(sampled), rel=0.02)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_order_of_a_batch_does_not_matter_to_the_encoder(encoder: str) -> None:
    network = make_network(encoder)
    embeddings, successes, valid = (torch.from_numpy(array) for array in make_batch(0))
    order = torch.tensor([3, 0, 4, 1, 2])
    mean, sd = network.posterior(embeddings, successes / valid)
    other_mean, other_sd = network.posterior(embeddings[order], (successes / valid)[order])
    assert torch.allclose(mean, other_mean) and torch.allclose(sd, other_sd)
    assert ((sd > 0.1) & (sd < 1.0)).all()
    assert not torch.allclose(mean, network.posterior(embeddings, (successes / valid)[order])[0])


def test_prompts_of_the_transformer_attend_to_each_other_and_those_of_the_mlp_do_not() -> None:
    """A mean over prompts of their own summaries adds up; one over prompts that attend to each other does not."""
    embeddings, successes, valid = (torch.from_numpy(array) for array in make_batch(0))
    tokens = torch.cat([embeddings, (successes / valid)[:, None]], dim=1)
    for encoder, adds_up in (("mlp", True), ("transformer", False)):
        trunk = make_network(encoder).trunk
        apart = torch.stack([trunk(token[None]) for token in tokens]).mean(dim=0)
        assert torch.allclose(trunk(tokens), apart) == adds_up


def test_transformer_equals_its_layers_one_number_at_a_time() -> None:
    """Pre-norm layers: x + attention(norm(x)), then x + feed-forward(norm(x)); a last norm, and the mean."""
    network = make_network("transformer")
    w = {name.removeprefix("trunk."): value.numpy() for name, value in network.trunk.state_dict().items()}
    embeddings, successes, valid = make_batch(0)
    x = np.c_[embeddings, successes / valid] @ w["token.weight"].T + w["token.bias"]
    for layer in ("layers.layers.0", "layers.layers.1"):
        normed = layer_norm(x, w[f"{layer}.norm1.weight"], w[f"{layer}.norm1.bias"])
        q, k, v = np.split(
            normed @ w[f"{layer}.self_attn.in_proj_weight"].T + w[f"{layer}.self_attn.in_proj_bias"], 3, 1
        )
        mixed = np.empty_like(x)
        for head in (slice(0, WIDTH // 2), slice(WIDTH // 2, WIDTH)):
            scores = np.exp(q[:, head] @ k[:, head].T / np.sqrt(WIDTH // 2))
            mixed[:, head] = scores / scores.sum(axis=1, keepdims=True) @ v[:, head]
        x = x + mixed @ w[f"{layer}.self_attn.out_proj.weight"].T + w[f"{layer}.self_attn.out_proj.bias"]
        normed = layer_norm(x, w[f"{layer}.norm2.weight"], w[f"{layer}.norm2.bias"])
        hidden = np.maximum(normed @ w[f"{layer}.linear1.weight"].T + w[f"{layer}.linear1.bias"], 0.0)
        x = x + hidden @ w[f"{layer}.linear2.weight"].T + w[f"{layer}.linear2.bias"]
    expected = layer_norm(x, w["layers.norm.weight"], w["layers.norm.bias"]).mean(axis=0)
    tokens = torch.cat([torch.from_numpy(embeddings), torch.from_numpy(successes / valid)[:, None]], dim=1)
    assert network.trunk(tokens).detach().numpy() == pytest.approx(expected, rel=1e-6)


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    centred: Array = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * weight + bias


@pytest.mark.parametrize("encoder", ENCODERS)
def test_elbo_and_the_gap_to_the_evidence_by_numerical_integration(encoder: str) -> None:
    """With one latent dimension: log p(s) = ELBO + KL(q || true posterior), every integral a sum over a grid of z."""
    network = make_network(encoder, latent=1)
    embeddings, successes, valid = (torch.from_numpy(array) for array in make_batch(1))
    before = make_batch(0)
    grid = torch.linspace(-8.0, 8.0, 4001, dtype=torch.float64)
    width = float(grid[1] - grid[0])
    with torch.no_grad():
        posterior = network.posterior(embeddings, successes / valid)
        prior = network.prior(torch.from_numpy(before[0]), torch.from_numpy(before[1] / before[2]))
        hidden = network.first_layer(embeddings)
        parts = [elbo_loss(network.decode(hidden, z[None]), successes, valid, posterior, prior) for z in grid]
        log_q, log_p = Normal(*posterior).log_prob(grid), Normal(*prior).log_prob(grid)
        p = torch.stack([torch.sigmoid(network.decode(hidden, z[None])) for z in grid])
    log_likelihood = (successes * p.log() + (valid - successes) * (1.0 - p).log()).sum(dim=1)
    q = log_q.exp()
    nll = float((torch.stack([nll for nll, _ in parts]) * q).sum()) * width
    kl = float(parts[0][1])
    assert nll == pytest.approx(-float((q * log_likelihood).sum()) * width / B, rel=1e-6)
    assert kl == pytest.approx(float((q * (log_q - log_p)).sum()) * width / B, rel=1e-6)
    evidence = float(torch.logsumexp(log_p + log_likelihood, dim=0)) + np.log(width)
    log_true = log_p + log_likelihood - evidence
    gap = float((q * (log_q - log_true)).sum()) * width
    assert gap > 0.0 and -B * (nll + kl) + gap == pytest.approx(evidence, rel=1e-6)


def test_posterior_and_prior_have_heads_of_their_own() -> None:
    network = make_network()
    embeddings, successes, valid = (torch.from_numpy(array) for array in make_batch(0))
    assert not torch.allclose(
        network.posterior(embeddings, successes / valid)[0], network.prior(embeddings, successes / valid)[0]
    )


def test_gradients_reach_the_prior_through_the_kl_alone() -> None:
    network = make_network()
    embeddings, successes, valid = (torch.from_numpy(array) for array in make_batch(0))
    rates = successes / valid
    posterior, prior = network.posterior(embeddings, rates), network.prior(embeddings, rates)
    nll, kl = elbo_loss(
        network.decode(network.first_layer(embeddings), posterior[0]), successes, valid, posterior, prior
    )
    nll.backward(retain_graph=True)
    assert network.prior_head.weight.grad is None
    kl.backward()
    assert network.prior_head.weight.grad.abs().sum() > 0
