"""The GPS predictor: what it forecasts, that it learns, and that its state is all there is."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from models.difficulty import build_predictor
from models.difficulty.base import Predictor
from models.difficulty.gps import Gps
from models.records import Floats, Forecast, Ints, Observation, Pool
from models.settings import GpsSettings, MoppsSettings
from storage.checkpoints import load_arrays, save_arrays

DIM = 16


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_pool(size: int = 60, prefix: str = "p") -> Pool:
    embeddings = np.random.default_rng(1).standard_normal((size, DIM)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return Pool(tuple(f"{prefix}{row}" for row in range(size)), embeddings)


def make_gps(pool: Pool | None = None, seed: int = 0, **settings: float) -> Gps:
    chosen = {"width": 24, "latent": 4, "z_samples": 8, **settings}
    return Gps(GpsSettings(**chosen), pool or make_pool(), seed=seed)  # type: ignore[arg-type]


def make_observation(seed: int, pool_size: int = 60, groups: int = 8) -> Observation:
    rng = np.random.default_rng(seed)
    rows, valid = rng.choice(pool_size, groups, replace=False), rng.integers(1, 9, groups)
    return Observation(rows, rng.binomial(valid, 0.5), valid, rng.uniform(5, 20, groups))


def bits(forecast: Forecast) -> tuple[bytes, ...]:
    return tuple(values.tobytes() for values in (forecast.p_success, forecast.p_sd, forecast.expected_tokens))


def test_forecast_averages_the_decoder_over_samples_of_the_prior() -> None:
    """Re-computed from the state: the prior of the last batch under the new weights, then every z by itself."""
    pool = make_pool()
    predictor = make_gps(pool)
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


@pytest.mark.parametrize("observed", [0, 1, 3])
def test_saved_loaded_and_continued_equals_uninterrupted_bit_for_bit(observed: int, tmp_path: Path) -> None:
    whole = make_gps()
    for step in range(observed):
        whole.observe(make_observation(step), seed=step)
    restored = make_gps(seed=9)
    restored.observe(make_observation(77), seed=77)  # what it knew before is gone
    save_arrays(tmp_path / "predictor", whole.state_dict())
    restored.load_state_dict(load_arrays(tmp_path / "predictor"))
    for step in range(observed, observed + 2):
        parts = [predictor.observe(make_observation(step), seed=step) for predictor in (whole, restored)]
        assert parts[0] == parts[1]
    assert bits(restored.forecast(np.arange(60), seed=1)) == bits(whole.forecast(np.arange(60), seed=1))
    expected, found = whole.state_dict(), restored.state_dict()
    assert expected.keys() == found.keys()
    assert all(found[name].tobytes() == expected[name].tobytes() for name in expected)


def test_state_is_a_copy() -> None:
    predictor = make_gps()
    predictor.observe(make_observation(0), seed=0)
    state = predictor.state_dict()
    before = {name: value.copy() for name, value in state.items()}
    predictor.observe(make_observation(1), seed=1)
    assert all(np.array_equal(state[name], before[name]) for name in before)


def test_weights_and_context_go_over_to_another_pool() -> None:
    first = make_gps()
    first.observe(make_observation(0), seed=0)
    second = make_gps(make_pool(prefix="q"), seed=9)
    second.load_state_dict(first.state_dict())
    ours, theirs = (predictor.forecast(np.arange(60), seed=1) for predictor in (second, first))
    assert ours.p_success.tobytes() == theirs.p_success.tobytes()
    assert np.isnan(ours.expected_tokens).all()  # lengths belong to prompts, and none of them is here


def test_loss_has_named_parts_and_no_groups_teach_nothing() -> None:
    predictor = make_gps()
    parts = predictor.observe(make_observation(0), seed=0)
    assert set(parts) == {"nll", "kl"} and all(np.isfinite(value) for value in parts.values())
    state = predictor.state_dict()
    none = np.empty(0, np.int64)
    assert predictor.observe(Observation(none, none, none, np.empty(0)), seed=1) == {}
    assert all(np.array_equal(predictor.state_dict()[name], state[name]) for name in state)


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


def train(predictor: Predictor, truth: Floats, seen: Ints, steps: int) -> None:
    rng = np.random.default_rng(0)
    for step in range(steps):
        rows = rng.choice(seen, 16, replace=False)
        predictor.observe(Observation(rows, rng.binomial(8, truth[rows]), np.full(16, 8), np.full(16, 9.0)), seed=step)


def test_gps_learns_of_prompts_it_never_saw_and_mopps_does_not() -> None:
    pool = make_pool(500)
    assert pool.embeddings is not None
    truth = 1.0 / (1.0 + np.exp(-6.0 * pool.embeddings @ np.random.default_rng(2).standard_normal(DIM)))
    seen, unseen = np.arange(300), np.arange(300, 500)
    gps = make_gps(pool, width=64)
    before = spearmanr(gps.forecast(unseen, seed=0).p_success, truth[unseen]).statistic
    train(gps, truth, seen, steps=40)
    after = spearmanr(gps.forecast(unseen, seed=0).p_success, truth[unseen]).statistic
    assert abs(before) < 0.4 and after > 0.6
    mopps = build_predictor(MoppsSettings(), pool, seed=0)
    train(mopps, truth, seen, steps=40)
    assert np.ptp(mopps.forecast(unseen, seed=0).p_success) == 0.0


def test_forecasts_follow_a_policy_that_improves() -> None:
    """The context z carries the general level: after easy batches every prompt is forecast easier."""
    pool = make_pool(200)
    predictor = make_gps(pool, width=64)
    levels = []
    for level in (0.2, 0.8):
        train(predictor, np.full(200, level), np.arange(200), steps=30)
        levels.append(float(predictor.forecast(np.arange(200), seed=0).p_success.mean()))
    assert levels[0] < 0.35 and levels[1] > 0.65
