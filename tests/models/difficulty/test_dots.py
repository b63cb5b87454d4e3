"""DOTS: the attention against a loop, which groups are attended to, learning, resuming."""

from pathlib import Path

import numpy as np
import pytest
import torch

from models.difficulty import build_predictor
from models.difficulty.dots import Dots
from models.difficulty.dots_network import DotsNetwork
from models.records import Observation, Pool
from models.settings import DotsSettings
from tests.models.difficulty.small_pool import (
    check_manners,
    check_resuming,
    make_observation,
    make_pool,
    make_truth,
    rank_correlation_on_unseen,
)

ROWS = np.arange(60)


def make_dots(pool: Pool | None = None, seed: int = 0, **settings: float) -> Dots:
    chosen = {"width": 24, "reference": 20, **settings}
    return Dots(DotsSettings(**chosen), pool or make_pool(), seed=seed)  # type: ignore[arg-type]


def test_forecast_is_the_attended_rate_rescaled_by_mean_and_spread_of_the_rates() -> None:
    """Every query and every reference by itself, in float64, with a calibration that is not the first one."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = DotsNetwork(5, 7).double()
        torch.nn.init.normal_(network.calibration[-1].weight)
    rng = np.random.default_rng(0)
    asked, reference, rates = rng.normal(size=(3, 5)), rng.normal(size=(4, 5)), np.array([0.0, 0.25, 1.0, 0.5])
    with torch.no_grad():
        found = network(*(torch.from_numpy(values) for values in (asked, reference, rates)))
        log_scale, bias = network.calibration(torch.tensor([rates.mean(), rates.std()])).tolist()
        for index, embedding in enumerate(asked):
            query = network.projection(torch.from_numpy(5**0.5 * embedding)).numpy()
            keys = [network.projection(torch.from_numpy(5**0.5 * other)).numpy() for other in reference]
            weights = np.exp([query @ key / np.sqrt(7) for key in keys])
            rate = (weights / weights.sum()) @ rates
            assert float(found[index]) == pytest.approx(np.exp(log_scale) * np.log(rate / (1 - rate)) + bias)


def test_the_first_calibration_changes_nothing() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = DotsNetwork(5, 7)
    rates = torch.tensor([0.25, 0.25])
    assert torch.sigmoid(network(torch.randn(3, 5), torch.randn(2, 5), rates)).tolist() == pytest.approx([0.25] * 3)


def test_references_of_one_outcome_alone_give_finite_forecasts_and_gradients() -> None:
    predictor = make_dots()
    for step in range(3):
        one = make_observation(step)
        predictor.observe(Observation(one.rows, one.valid, one.valid, one.mean_tokens), seed=step)
    p = predictor.forecast(ROWS, seed=0).p_success
    assert ((p > 0.9) & (p < 1.0)).all()
    assert all(np.isfinite(value).all() for value in predictor.state_dict().values() if value.dtype == np.float32)


def test_the_most_recent_groups_are_attended_to_and_a_batch_is_forecast_from_those_before_it() -> None:
    pool = make_pool()
    assert pool.embeddings is not None
    predictor = make_dots(pool, reference=20)
    assert (predictor.forecast(ROWS, seed=0).p_success == 0.5).all()
    batches = [make_observation(step) for step in range(3)]
    assert predictor.observe(batches[0], seed=0) == {}  # nothing to attend to, so nothing to learn from
    assert set(predictor.observe(batches[1], seed=1)) == {"success"}
    predictor.observe(batches[2], seed=2)
    state = predictor.state_dict()
    rows = np.concatenate([batch.rows for batch in batches])[-20:]
    rates = np.concatenate([batch.successes / batch.valid for batch in batches])[-20:]
    assert np.array_equal(state["reference.embeddings"], pool.embeddings[rows])
    assert state["reference.rates"] == pytest.approx(rates)


def test_dots_ranks_prompts_it_never_saw() -> None:
    pool = make_pool(500)
    predictor = make_dots(pool, width=64, reference=256)
    assert rank_correlation_on_unseen(predictor, make_truth(pool), steps=40) > 0.6


@pytest.mark.parametrize("observed", [0, 1, 4])
def test_resuming_is_exact(observed: int, tmp_path: Path) -> None:
    check_resuming(lambda seed: make_dots(seed=seed), observed, tmp_path)


def test_manners() -> None:
    check_manners(make_dots())


def test_references_go_over_to_another_pool() -> None:
    first, second = make_dots(), make_dots(make_pool(prefix="q"), seed=9)
    for step in range(2):
        first.observe(make_observation(step), seed=step)
    second.load_state_dict(first.state_dict())
    theirs, ours = (predictor.forecast(ROWS, seed=0) for predictor in (first, second))
    assert ours.p_success.tobytes() == theirs.p_success.tobytes()


def test_pool_without_embeddings_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^predictor dots needs embeddings of the pool's prompts$"):
        build_predictor(DotsSettings(), Pool(("a", "b")), seed=0)
