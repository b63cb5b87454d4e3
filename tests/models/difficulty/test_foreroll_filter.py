import numpy as np
import pytest
from scipy.special import expit

from models.difficulty.foreroll_filter import Belief
from models.difficulty.foreroll_own import KEEP, SLOPE_VAR, OwnEffects
from models.difficulty.logit_normal import success_moments


def test_a_moved_belief_and_one_group_are_as_the_joint_gaussian_says() -> None:
    """The joint of weights, own effect, and the slopes of both is moved and conditioned by brute force."""
    x, cov, own_var = np.array([1.0, 2.0]), np.array([[0.5, 0.1], [0.1, 0.3]]), 0.8
    slope_var, weight_noise, own_noise, fade = np.array([0.02, 0.05]), np.array([0.01, 0.04]), 0.03, 0.1
    belief = Belief.begin(np.array([0.2, -0.1]), cov, slope_var, OwnEffects.begin(np.full(3, own_var)))
    belief.move(weight_noise, slope_var)
    belief.own.move(own_noise, fade, np.full(3, own_var))
    joint = np.zeros((6, 6))  # two weights, own effect, and the slopes of the three
    joint[:2, :2], joint[2, 2] = cov, own_var
    joint[3:, 3:] = np.diag([*slope_var, SLOPE_VAR])
    onward = np.kron([[1.0, 1.0], [0.0, KEEP]], np.eye(3))
    onward[2, 2] = 1.0 - fade
    noise = np.r_[
        weight_noise, own_noise + (1 - (1 - fade) ** 2) * own_var, (1 - KEEP**2) * np.r_[slope_var, SLOPE_VAR]
    ]
    joint = onward @ joint @ onward.T + np.diag(noise)
    mean, direction = np.array([0.2, -0.1, 0.0, 0.0, 0.0, 0.0]), np.array([*x, 1.0, 0.0, 0.0, 0.0])
    scale = float(np.sqrt(direction @ joint @ direction))
    middle = float(direction @ mean)
    logit = np.linspace(middle - 12 * scale, middle + 12 * scale, 100_001)
    density = np.exp(-0.5 * ((logit - middle) / scale) ** 2) * expit(logit) ** 7 * expit(-logit)
    density /= density.sum()
    first = float(density @ logit)
    second = float(density @ (logit - first) ** 2)
    covary = joint @ direction / scale**2  # all else follows from the logit by regression
    found = mean + covary * (first - middle)
    posterior = joint - np.outer(covary, covary) * (scale**2 - second)
    belief.learn(x[None].astype(np.float32), np.array([1]), np.array([7]), np.array([8]))
    own, shared = belief.own, [0, 1, 3, 4]
    np.testing.assert_allclose(belief.mean, found[shared], atol=1e-8)
    np.testing.assert_allclose(belief.cov, posterior[np.ix_(shared, shared)], atol=1e-8)
    np.testing.assert_allclose([own.level[1], own.slope[1]], found[[2, 5]], atol=1e-8)
    np.testing.assert_allclose([own.var[1], own.cross[1], own.slope_var[1]], posterior[[2, 2, 5], [2, 5, 5]], atol=1e-8)
    np.testing.assert_allclose([own.var[0], own.slope_var[0]], joint[[2, 5], [2, 5]])


def test_a_steady_climb_is_expected_to_go_on() -> None:
    belief = Belief.begin(np.zeros(1), np.eye(1), np.full(1, 0.01), OwnEffects.begin(np.full(1, 0.1)))
    features, row, valid = np.ones((1, 1), np.float32), np.zeros(1, np.int64), np.array([400])
    for step in range(12):
        belief.learn(features, row, np.array([round(400 * expit(-1.5 + 0.2 * step))]), valid)
        before = belief.logits(features, row)[0][0]
        belief.move(np.zeros(1), np.full(1, 0.01))
        belief.own.move(0.0, 0.0, np.zeros(1))
    assert 0.1 < belief.logits(features, row)[0][0] - before < 0.25


def test_levels_change_with_the_fading_as_a_finite_difference_says() -> None:
    rows, fade, move = np.array([0, 2]), 0.03, 1e-6
    moved = []
    for one in (fade - move, fade, fade + move):
        own = OwnEffects.begin(np.ones(3))
        own.learn(rows, np.array([1.5, -2.0]), np.array([0.5, 0.4]))
        for _ in range(4):
            own.move(0.01, one, np.ones(3))
        moved.append(own)
    expected = (moved[2].level - moved[0].level)[rows] / (2.0 * move)
    np.testing.assert_allclose(moved[1].faded(rows, fade), expected, rtol=1e-6)
    assert moved[1].age.tolist() == [4.0, 4.0, 4.0]


def test_logits_have_the_mean_and_variance_of_their_sum() -> None:
    rng = np.random.default_rng(1)
    root = rng.normal(size=(3, 3))
    own = OwnEffects.begin(rng.uniform(0.1, 1.0, 4))
    own.level[:] = rng.normal(size=4)
    belief = Belief.begin(rng.normal(size=3), root @ root.T, np.ones(3), own)
    features, rows = rng.normal(size=(4, 3)), np.array([3, 0])
    mean, variance = belief.logits(features.astype(np.float32), rows)
    shown = features[rows]
    np.testing.assert_allclose(mean, shown @ belief.mean[:3] + own.level[rows], rtol=1e-5)
    np.testing.assert_allclose(variance, [x @ root @ root.T @ x for x in shown] + own.var[rows], rtol=1e-5)


def test_moments_of_a_probability_agree_with_draws() -> None:
    draws = np.random.default_rng(2).standard_normal(200_000)
    mean, variance = np.array([0.0, 2.0, -4.0]), np.array([1.0, 0.0, 4.0])
    p_success, p_sd = success_moments(mean, variance)
    drawn = expit(mean[:, None] + np.sqrt(variance)[:, None] * draws)
    np.testing.assert_allclose(p_success, drawn.mean(axis=1), atol=2e-3)
    np.testing.assert_allclose(p_sd, drawn.std(axis=1), atol=2e-3)


def test_a_recalled_belief_has_its_mean_and_a_doubtful_one_changes_nothing() -> None:
    """Its variance is that of weights and own effect without their correlation, which is dropped."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(3, 2)).astype(np.float32)
    rows, prior, own_var = np.array([1]), np.diag([1.0, 2.0]), 1.5
    for variance, surer in ((0.2, True), (50.0, False)):
        belief = Belief.begin(
            np.array([0.3, -0.2]), prior, np.full(2, 0.01), OwnEffects.begin(np.full(3, own_var))
        )  # fmt: skip
        before = belief.logits(features, rows)
        belief.recall(features, rows, np.array([2.0]), np.array([variance]))
        mean, found = belief.logits(features, rows)
        if not surer:
            assert (mean, found) == before
            continue
        shared = float(features[1] @ prior @ features[1])
        told = (shared + own_var - variance) / (shared + own_var) ** 2
        assert mean == pytest.approx([2.0], abs=1e-4)
        assert found == pytest.approx([shared - shared**2 * told + own_var - own_var**2 * told], rel=1e-4)
