import numpy as np
import pytest
from scipy.special import expit

from models.difficulty.foreroll_ep import match_moments
from models.difficulty.foreroll_scales import Scale

GROUPS = 64


@pytest.mark.parametrize(("level", "variance"), [(0.0, 1.0), (-3.0, 4.0), (2.0, 0.3)])
def test_a_scale_finds_the_variance_that_effects_have(level: float, variance: float) -> None:
    """Where outcomes are skewed, too: the forecast begins with a variance of 1."""
    rng, scale = np.random.default_rng(0), Scale()
    history = []
    for _ in range(300):
        logits = level + rng.normal(0.0, np.sqrt(variance), GROUPS)
        successes = rng.binomial(8, expit(logits))
        assumed = np.full(GROUPS, scale.value)
        gradient, precision = match_moments(np.full(GROUPS, level), np.diag(assumed), successes, np.full(GROUPS, 8))
        scale.learn(assumed, gradient, np.diag(precision))
        history.append(scale.value)
    assert np.exp(np.mean(np.log(history[100:]))) == pytest.approx(variance, rel=0.15)


def test_no_groups_change_nothing_and_the_factor_is_what_the_scale_moved_by() -> None:
    scale = Scale()
    assert scale.learn(*np.empty((3, 0))) == 1.0
    factor = scale.learn(np.ones(4), np.full(4, 2.0), np.full(4, 0.5))
    assert scale.value == factor > 1.0


def test_a_right_scale_stays_where_groups_are_rare() -> None:
    """One group in every tenth step, after a long time without any."""
    ends = []
    for seed in range(20):
        rng, scale = np.random.default_rng(seed), Scale()
        for step in range(400):
            if step < 200 or step % 10:
                scale.learn(*np.empty((3, 0)))
                continue
            successes = rng.binomial(8, expit(rng.normal(-1.0, np.sqrt(2.0), 1)))
            prior = np.array([2.0 * scale.value])
            gradient, precision = match_moments(np.array([-1.0]), np.diag(prior), successes, np.array([8]))
            scale.learn(prior, gradient, np.diag(precision))
        ends.append(np.log(scale.value))
    assert abs(np.mean(ends)) < 0.1 and np.std(ends) < 0.2


def test_the_score_is_the_gradient_of_the_evidence() -> None:
    """v (g^2 - C) / 2 against a finite difference of the log of an integral over a grid."""
    logit = np.linspace(-30.0, 30.0, 200_001)
    spacing = logit[1] - logit[0]

    def evidence(variance: float) -> float:
        prior = np.exp(-0.5 * (logit + 1.0) ** 2 / variance) / np.sqrt(2.0 * np.pi * variance)
        return float(np.log((prior * expit(logit) ** 6 * expit(-logit) ** 2).sum() * spacing))

    variance, move = 1.7, 1e-3
    gradient, precision = match_moments(np.array([-1.0]), np.array([[variance]]), np.array([6]), np.array([8]))
    slope = (evidence(variance * np.exp(move)) - evidence(variance * np.exp(-move))) / (2.0 * move)
    assert 0.5 * variance * (gradient[0] ** 2 - precision[0, 0]) == pytest.approx(slope, rel=1e-3)
