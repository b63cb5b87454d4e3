"""PCL: its two losses against loops, that it reads the policy's live states, learning, resuming."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from models.difficulty import build_predictor
from models.difficulty.pcl import Pcl
from models.records import Pool
from models.settings import PclSettings
from tests.models.difficulty.small_pool import (
    check_manners,
    check_resuming,
    make_observation,
    make_pool,
    make_truth,
    rank_correlation_on_unseen,
)

ROWS = np.arange(60)


def make_pcl(pool: Pool | None = None, seed: int = 0, **settings: float | str) -> Pcl:
    return Pcl(PclSettings(**{"width": 24, **settings}), pool or make_pool(), seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", ["mse", "binomial"])
def test_loss_is_the_mean_over_prompts(loss: str) -> None:
    """The part that is reported first is that of the fresh head, whose p is 0.5 for every prompt."""
    predictor, one = make_pcl(loss=loss, gradient_steps=1), make_observation(0)
    assert (predictor.forecast(ROWS, seed=0).p_success == 0.5).all()
    rates = one.successes / one.valid
    expected = np.mean([(0.5 - rate) ** 2 for rate in rates])
    if loss == "binomial":
        expected = np.mean([-n * np.log(0.5) for n in one.valid])
    assert predictor.observe(one, seed=0) == {loss: pytest.approx(expected, rel=1e-6)}


@pytest.mark.parametrize("loss", ["mse", "binomial"])
def test_gradient_is_that_of_the_formula(loss: str) -> None:
    """Adam's first moment is a tenth of the gradient; that of the last bias is a sum over prompts."""
    predictor, one = make_pcl(loss=loss, gradient_steps=1), make_observation(0)
    predictor.observe(one, seed=0)
    rates = one.successes / one.valid
    gradient = np.mean(2.0 * (0.5 - rates) * 0.25) if loss == "mse" else np.mean(one.valid * 0.5 - one.successes)
    assert 10.0 * predictor.state_dict()["adam.layers.3.bias.exp_avg"] == pytest.approx([gradient], rel=1e-5)


def test_a_forecast_reads_the_states_of_the_policy_as_it_is() -> None:
    pool, shift = make_pool(), np.zeros(1, np.float32)
    assert pool.embeddings is not None
    states = pool.embeddings
    predictor = make_pcl(
        replace(pool, hidden=lambda rows: states[rows] * np.where(np.arange(16) == 0, 1 + shift, 1).astype(np.float32))
    )
    predictor.observe(make_observation(0), seed=0)
    before = predictor.forecast(ROWS, seed=0).p_success
    shift += 1.0  # the policy was updated
    assert not np.array_equal(predictor.forecast(ROWS, seed=0).p_success, before)


def test_scale_of_the_states_does_not_matter() -> None:
    """States of language models are of any size; the head normalises them."""
    pool = make_pool()
    states = pool.embeddings
    assert states is not None
    large = replace(pool, hidden=lambda rows: 1e3 * states[rows])
    found = []
    for one in (replace(pool, hidden=lambda rows: 10.0 * states[rows]), large):
        predictor = make_pcl(one)
        predictor.observe(make_observation(0), seed=0)
        found.append(predictor.forecast(ROWS, seed=0).p_success)
    assert found[0] == pytest.approx(found[1], abs=1e-3)


@pytest.mark.parametrize("loss", ["mse", "binomial"])
def test_pcl_ranks_prompts_it_never_saw(loss: str) -> None:
    pool = make_pool(500)
    predictor = make_pcl(pool, width=64, loss=loss)
    assert rank_correlation_on_unseen(predictor, make_truth(pool), steps=40) > 0.6


@pytest.mark.parametrize("observed", [0, 2])
def test_resuming_is_exact(observed: int, tmp_path: Path) -> None:
    check_resuming(lambda seed: make_pcl(seed=seed), observed, tmp_path)


def test_manners() -> None:
    check_manners(make_pcl())


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    make_pcl().observe(make_observation(0), seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_pool_without_a_policy_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^predictor pcl needs the policy's states at the pool's prompts$"):
        build_predictor(PclSettings(), Pool(("a", "b")), seed=0)
