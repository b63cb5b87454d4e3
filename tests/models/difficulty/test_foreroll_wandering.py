import numpy as np
import pytest

from models.difficulty.foreroll_wandering import KEEP, Wandering


def test_what_is_learned_is_the_posterior_of_the_joint_gaussian() -> None:
    """Two measurements with a move between them, against the conditional of the joint of both times."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(3, 2)), rng.normal(size=(4, 2))
    noise, rest = 0.3, np.diag([0.5**2, 0.2**2])
    measured = rng.normal(size=3), rng.normal(size=4)
    found = Wandering("some", 0.5, 0.2)
    for at, (along, values) in enumerate(zip((first, second), measured, strict=True)):
        if at:
            found.move()
        found.take_in(along.T @ (values - along @ found.mean) / noise, along.T @ along / noise)
    joint = np.block([[rest, KEEP * rest], [KEEP * rest, rest]])  # before and after the move
    seen = np.block([[first, np.zeros((3, 2))], [np.zeros((4, 2)), second]])
    gain = joint @ seen.T @ np.linalg.inv(seen @ joint @ seen.T + noise * np.eye(7))
    np.testing.assert_allclose(found.mean, (gain @ np.concatenate(measured))[2:], atol=1e-12)
    np.testing.assert_allclose(found.cov, (joint - gain @ seen @ joint)[2:, 2:], atol=1e-12)


def test_what_was_learned_is_forgotten_and_rest_is_kept() -> None:
    wandering = Wandering("some", 0.5)
    wandering.move()
    assert wandering.cov == pytest.approx(np.array([[0.25]]))
    wandering.take_in(np.array([80.0]), np.array([[100.0]]))
    learned = float(wandering.mean[0])
    for _ in range(100):
        wandering.move()
    assert wandering.mean[0] == pytest.approx(KEEP**100 * learned) and 0.2 < wandering.cov[0, 0] < 0.25
