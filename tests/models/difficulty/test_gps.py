"""The GPS predictor: what it forecasts, that it learns, and that its state is all there is."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from models.difficulty import build_predictor
from models.difficulty.gps import Gps
from models.errors import ModelError
from models.records import Pool
from models.settings import GpsSettings, MoppsSettings
from tests.models.difficulty.small_pool import (
    bits,
    check_manners,
    check_resuming,
    make_observation,
    make_pool,
    make_truth,
    rank_correlation_on_unseen,
    train,
)

ENCODERS = ("mlp", "transformer")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_gps(pool: Pool | None = None, seed: int = 0, **settings: float | str) -> Gps:
    chosen = {"width": 24, "latent": 4, "z_samples": 8, "layers": 1, "heads": 2, **settings}
    return Gps(GpsSettings(**chosen), pool or make_pool(), seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("encoder", ENCODERS)
def test_forecast_averages_the_decoder_over_samples_of_the_prior(encoder: str) -> None:
    """Re-computed from the state: the prior of the last batch under the new weights, then every z by itself."""
    pool = make_pool()
    predictor = make_gps(pool, encoder=encoder)
    last = make_observation(0)
    predictor.observe(last, seed=1)
    network = predictor._network
    with torch.no_grad():
        rates = torch.from_numpy(last.successes / last.valid).float()
        mean, sd = network.prior(torch.from_numpy(pool.embeddings[last.rows]), rates)
        noise = torch.randn(8, 4, generator=torch.Generator().manual_seed(5))
        hidden = network.first_layer(torch.from_numpy(pool.embeddings))
        p = np.stack([torch.sigmoid(network.decode(hidden, mean + sd * row)).numpy() for row in noise])
    forecast = predictor.forecast(np.arange(60), seed=5)
    assert forecast.p_success == pytest.approx(p.mean(axis=0), rel=1e-5)
    assert forecast.p_sd == pytest.approx(p.std(axis=0), rel=1e-3)


def test_only_the_prompts_nearest_to_even_odds_are_averaged_over_z() -> None:
    full, coarse = make_gps(), make_gps(rescored=20)
    for predictor in (full, coarse):
        for step in range(5):
            predictor.observe(make_observation(step), seed=step)
    everything, some = (predictor.forecast(np.arange(60), seed=1) for predictor in (full, coarse))
    averaged = np.isclose(some.p_sd, everything.p_sd, rtol=1e-5)
    assert averaged.sum() == 20
    assert some.p_success[averaged] == pytest.approx(everything.p_success[averaged], rel=1e-5)
    assert some.p_sd[~averaged] == pytest.approx(some.p_sd[averaged].mean())
    assert np.abs(some.p_success[averaged] - 0.5).max() < np.median(np.abs(some.p_success[~averaged] - 0.5))


def test_forecast_is_finite_before_anything_was_observed_and_for_no_rows() -> None:
    predictor = make_gps()
    forecast = predictor.forecast(np.arange(60), seed=1)
    assert ((forecast.p_success > 0) & (forecast.p_success < 1) & (forecast.p_sd >= 0)).all()
    assert np.isnan(forecast.expected_tokens).all()
    assert len(predictor.forecast(np.empty(0, np.int64), seed=1).p_success) == 0


def test_forecast_changes_nothing_and_chance_comes_from_the_seed_alone() -> None:
    predictor = make_gps()
    predictor.observe(make_observation(0), seed=0)
    first = predictor.forecast(np.arange(60), seed=1)
    torch.rand(3)
    assert bits(predictor.forecast(np.arange(60), seed=1)) == bits(first)
    assert bits(predictor.forecast(np.arange(60), seed=2)) != bits(first)
    assert bits(make_gps(seed=0).forecast(np.arange(60), seed=1)) != bits(
        make_gps(seed=1).forecast(np.arange(60), seed=1)
    )


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    predictor = make_gps()
    predictor.observe(make_observation(0), seed=0)
    predictor.forecast(np.arange(60), seed=1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("encoder", "observed"), [("mlp", 0), ("mlp", 3), ("transformer", 1)])
def test_resuming_is_exact(encoder: str, observed: int, tmp_path: Path) -> None:
    check_resuming(lambda seed: make_gps(seed=seed, encoder=encoder), observed, tmp_path)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_manners(encoder: str) -> None:
    check_manners(make_gps(encoder=encoder))


def test_weights_and_context_go_over_to_another_pool() -> None:
    first = make_gps()
    first.observe(make_observation(0), seed=0)
    second = make_gps(make_pool(prefix="q"), seed=9)
    second.load_state_dict(first.state_dict())
    ours, theirs = (predictor.forecast(np.arange(60), seed=1) for predictor in (second, first))
    assert ours.p_success.tobytes() == theirs.p_success.tobytes()
    assert np.isnan(ours.expected_tokens).all()  # lengths belong to prompts, and none of them is here


def test_the_divergence_is_reported_so_that_a_collapsed_posterior_shows() -> None:
    """With an overwhelming weight on it the posterior ends at the prior: no batch says anything, and kl says so."""
    free, collapsed = make_gps(kl_weight=0.0), make_gps(kl_weight=1e4)
    parts = [train(predictor, np.repeat([0.1, 0.9], 30), np.arange(60), steps=30) for predictor in (free, collapsed)]
    assert parts[0].keys() == parts[1].keys() == {"nll", "kl"}
    assert parts[1]["kl"] < 1e-4 < 1e-2 < parts[0]["kl"]


@pytest.mark.parametrize("kl_weight", [0.0, 1.0])
def test_kl_weight_decides_whether_the_prior_learns(kl_weight: float) -> None:
    predictor = make_gps(kl_weight=kl_weight)
    predictor.observe(make_observation(0), seed=0)  # the first prior is the standard normal, not the head's
    head = predictor.state_dict()["weight.prior_head.weight"]
    predictor.observe(make_observation(1), seed=1)
    assert np.array_equal(predictor.state_dict()["weight.prior_head.weight"], head) == (kl_weight == 0.0)


def test_pool_without_embeddings_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^predictor gps needs embeddings of the pool's prompts$"):
        build_predictor(GpsSettings(), Pool(("a", "b")), seed=0)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_gps_ranks_prompts_it_never_saw(encoder: str) -> None:
    pool = make_pool(500)
    assert rank_correlation_on_unseen(make_gps(pool, width=64, encoder=encoder), make_truth(pool), steps=40) > 0.6


def test_mopps_says_nothing_of_prompts_it_never_saw() -> None:
    pool = make_pool(500)
    mopps = build_predictor(MoppsSettings(), pool, seed=0)
    train(mopps, make_truth(pool), np.arange(300), steps=10)
    assert np.ptp(mopps.forecast(np.arange(300, 500), seed=0).p_success) == 0.0


def test_heads_that_cannot_share_the_width_are_refused_in_one_line() -> None:
    with pytest.raises(ModelError, match=r"^predictor.width = 24 cannot be shared by predictor.heads = 5: "):
        make_gps(encoder="transformer", heads=5)


def test_forecasts_follow_a_policy_that_improves() -> None:
    """The context z carries the general level: after easy batches every prompt is forecast easier."""
    pool = make_pool(200)
    predictor = make_gps(pool, width=64)
    levels = []
    for level in (0.2, 0.8):
        train(predictor, np.full(200, level), np.arange(200), steps=30)
        levels.append(float(predictor.forecast(np.arange(200), seed=0).p_success.mean()))
    assert levels[0] < 0.35 and levels[1] > 0.65
