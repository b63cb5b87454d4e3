"""The greedy of GPS against a loop that recomputes the whole objective for every candidate at every pick."""

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from models.acquisition.base import Candidates
from models.acquisition.gps import diversity_weight, gps, greedy, reachable
from models.records import Floats, Forecast, Ranking
from models.settings import AcquisitionSettings

Embeddings = NDArray[np.float32]


def unit(array: NDArray[np.floating]) -> Embeddings:
    return (array / np.linalg.norm(array, axis=1, keepdims=True)).astype(np.float32)


def make_candidates(size: int, seed: int, *, previous: int = 5, shared: float = 0.0, dim: int = 8) -> Candidates:
    """Random unit embeddings with a common part of weight `shared`, as texts of one family have."""
    rng = np.random.default_rng(seed)
    embeddings = unit(rng.standard_normal((size + previous, dim)) + shared)
    forecast = Forecast(rng.uniform(size=size), np.full(size, 0.1), np.full(size, 1.0))
    return Candidates(forecast, embeddings[:size], embeddings[size:])


def run(candidates: Candidates, slots: int, diversity: float = 0.2) -> Ranking:
    return gps(candidates, slots, AcquisitionSettings(diversity=diversity), np.random.default_rng(0))


def distances(left: Embeddings, right: Embeddings) -> Floats:
    return 1.0 - left.astype(np.float64) @ right.astype(np.float64).T


def diversity_of(batch: list[int], slots: int, candidates: Candidates) -> float:
    """slots * (mean distance over the pairs of a full batch + mean distance to the batch before), from scratch."""
    assert candidates.embeddings is not None and candidates.previous is not None
    inside = distances(candidates.embeddings[batch], candidates.embeddings[batch])
    pairs = sum(inside[i, j] for i in range(len(batch)) for j in range(i))
    across = distances(candidates.embeddings[batch], candidates.previous)
    outside = across.mean(axis=1).sum() if len(candidates.previous) else 0.0
    return (2 / (slots - 1) if slots > 1 else 0.0) * pairs + float(outside)


def brute_force(candidates: Candidates, slots: int, lam: float) -> list[int]:
    """Greedy by the whole objective: the first position of the largest value, again and again."""
    utility = -((candidates.forecast.p_success - 0.5) ** 2)
    batch: list[int] = []
    for _ in range(slots):
        values = [
            -np.inf if i in batch else utility[[*batch, i]].sum() + lam * diversity_of([*batch, i], slots, candidates)
            for i in range(len(candidates))
        ]
        batch.append(int(np.argmax(values)))
    return batch


def weight_of(candidates: Candidates, slots: int, relative: float) -> float:
    """The documented lam, from distances between single candidates."""
    assert candidates.embeddings is not None and candidates.previous is not None
    utility = -((candidates.forecast.p_success - 0.5) ** 2)
    best = sorted(range(len(candidates)), key=lambda i: -utility[i])[: 2 * slots]
    inside = distances(candidates.embeddings[best], candidates.embeddings[best[:slots]])
    gains = 2 / (slots - 1) * inside.sum(axis=1)
    if len(candidates.previous):
        gains = gains + distances(candidates.embeddings[best], candidates.previous).mean(axis=1)
    return relative * float(np.std(utility[best])) / float(np.std(gains))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("previous", [0, 5])
@pytest.mark.parametrize("shared", [0.0, 1.0])
@pytest.mark.parametrize("relative", [0.2, 3.0])
def test_greedy_picks_what_the_whole_objective_says(seed: int, previous: int, shared: float, relative: float) -> None:
    candidates = make_candidates(40, seed, previous=previous, shared=shared)
    lam = weight_of(candidates, 6, relative)
    ranking = run(candidates, 6, relative)
    assert ranking.chosen.tolist() == brute_force(candidates, 6, lam)


@pytest.mark.parametrize("seed", range(6))
def test_greedy_takes_the_earlier_of_duplicates_and_the_other_by_what_it_still_adds(seed: int) -> None:
    """Every embedding twice; half of the pairs share the forecast too, and tie."""
    whole = make_candidates(40, seed)
    assert whole.embeddings is not None
    embeddings, p_success = np.repeat(whole.embeddings[:20], 2, axis=0), whole.forecast.p_success.copy()
    p_success[1::4] = p_success[0::4]
    order = np.random.default_rng(seed).permutation(40)
    forecast = Forecast(p_success[order], whole.forecast.p_sd, whole.forecast.expected_tokens)
    candidates = Candidates(forecast, embeddings[order], whole.previous)
    lam = weight_of(candidates, 8, 1.0)
    assert run(candidates, 8, 1.0).chosen.tolist() == brute_force(candidates, 8, lam)


def test_diversity_reported_is_the_gain_at_its_turn() -> None:
    candidates = make_candidates(30, 1)
    ranking = run(candidates, 5, 1.0)
    lam, batch = weight_of(candidates, 5, 1.0), ranking.chosen.tolist()
    for turn, position in enumerate(batch):
        gain = diversity_of(batch[: turn + 1], 5, candidates) - diversity_of(batch[:turn], 5, candidates)
        assert ranking.diversity[position] == pytest.approx(lam * gain, rel=1e-4)
    other = next(i for i in range(30) if i not in batch)
    gain = diversity_of([*batch, other], 5, candidates) - diversity_of(batch, 5, candidates)
    assert ranking.diversity[other] == pytest.approx(lam * gain, rel=1e-4)


def every_candidate_at_every_turn(
    utility: Floats, anchored: Floats, embeddings: Embeddings, lam: float, slots: int
) -> tuple[list[int], list[float]]:
    """Greedy without blocks and without leaving anyone out, in float64."""
    chosen: list[int] = []
    gains = []
    apart = np.zeros(len(utility))
    for _ in range(slots):
        diversity = lam * (2 / (slots - 1) * apart + anchored)
        best = int(np.argmax(np.where(np.isin(np.arange(len(utility)), chosen), -np.inf, utility + diversity)))
        chosen.append(best)
        gains.append(float(diversity[best]))
        apart += distances(embeddings, embeddings[best : best + 1])[:, 0]
    return chosen, gains


def make_greedy(seed: int, shared: float, relative: float, slots: int) -> tuple[Floats, Floats, Embeddings, float, int]:
    """Arguments of `greedy` for 3000 candidates."""
    candidates = make_candidates(3000, seed, shared=shared)
    assert candidates.embeddings is not None
    utility = -((candidates.forecast.p_success - 0.5) ** 2)
    anchored = np.random.default_rng(seed).uniform(0.5, 1.5, 3000)
    lam = diversity_weight(utility, anchored, candidates.embeddings, slots, relative)
    return utility, anchored, candidates.embeddings, lam, slots


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("slots", [2, 20, 37])
@pytest.mark.parametrize(("shared", "relative"), [(0.0, 0.02), (0.5, 0.2), (0.5, 3.0)])
def test_blocks_and_pruning_change_no_choice(seed: int, slots: int, shared: float, relative: float) -> None:
    arguments = make_greedy(seed, shared, relative, slots)
    chosen, gains = greedy(*arguments)
    plain, plain_gains = every_candidate_at_every_turn(*arguments)
    assert chosen.tolist() == plain
    assert gains == pytest.approx(plain_gains, rel=1e-4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("shared", "relative"), [(0.0, 0.02), (0.5, 0.2), (0.5, 3.0)])
def test_pruning_changes_no_bit(seed: int, shared: float, relative: float, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = make_greedy(seed, shared, relative, 20)
    pruned, pruned_gains = greedy(*arguments)
    monkeypatch.setattr(sys.modules[greedy.__module__], "reachable", lambda gain, most, turns: np.arange(len(gain)))
    whole, whole_gains = greedy(*arguments)
    assert pruned.tolist() == whole.tolist()
    assert pruned_gains.tobytes() == whole_gains.tobytes()


@pytest.mark.parametrize("seed", range(20))
def test_whoever_is_not_reachable_loses_against_any_rise(seed: int) -> None:
    """The worst case: the reachable rise by nothing, and all others by all that they may before the last turn."""
    rng = np.random.default_rng(seed)
    gain, turns, most = rng.uniform(size=200), int(rng.integers(1, 12)), float(rng.uniform(0.0, 0.3))
    gain[rng.choice(200, 50, replace=False)] = -np.inf
    kept = reachable(gain, most, turns)
    raised = gain + most
    raised[kept] = gain[kept]
    for _ in range(turns):
        best = int(np.argmax(raised))
        assert best in kept
        raised[best] = -np.inf


def test_few_of_many_are_reachable() -> None:
    candidates = make_candidates(20_000, 0, dim=64)
    assert candidates.embeddings is not None
    utility = -((candidates.forecast.p_success - 0.5) ** 2)
    lam = diversity_weight(utility, np.zeros(20_000), candidates.embeddings, 64, 0.2)
    assert 8 <= len(reachable(utility, lam * 2 / 63 * 2 * 7, 8)) < 400


def test_without_diversity_the_nearest_are_taken() -> None:
    candidates = make_candidates(50, 2)
    order = np.argsort(np.abs(candidates.forecast.p_success - 0.5), kind="stable")
    ranking = run(candidates, 7, 0.0)
    assert ranking.chosen.tolist() == order[:7].tolist() and not ranking.diversity.any()


def test_the_batch_before_is_kept_away_from() -> None:
    """Two candidates of equal forecast; the one that looks like the batch before comes second."""
    embeddings = unit(np.array([[1.0, 0.1], [0.1, 1.0], [-1.0, 0.2], [0.5, 0.5]]))
    forecast = Forecast(np.array([0.5, 0.5, 0.1, 0.2]), np.full(4, 0.1), np.full(4, 1.0))
    for previous, first in (([[1.0, 0.0]], 1), ([[0.0, 1.0]], 0)):
        candidates = Candidates(forecast, embeddings, np.array(previous, dtype=np.float32))
        assert run(candidates, 2).chosen[0] == first


def test_where_forecasts_are_all_alike_diversity_decides_and_does_not_overrule() -> None:
    """Four candidates tie at 0.5: the batch takes two that differ, and none of the worse ones that differ more."""
    embeddings = unit(np.array([[1.0, 0.0]] * 3 + [[0.6, 0.8]] + [[-1.0, 0.0], [0.0, -1.0]]))
    p_success = np.array([0.5] * 4 + [0.499, 0.499])
    candidates = Candidates(Forecast(p_success, p_success * 0.1, p_success), embeddings, embeddings[:0])
    assert run(candidates, 2).chosen.tolist() == [0, 3]


def test_candidates_that_all_look_alike_are_taken_by_forecast() -> None:
    p_success = np.array([0.9, 0.45, 0.6, 0.52, 0.1])
    embeddings = unit(np.ones((5, 3)))
    candidates = Candidates(Forecast(p_success, p_success * 0.1, p_success), embeddings, embeddings[:2])
    assert run(candidates, 3).chosen.tolist() == [3, 1, 2]


@pytest.mark.parametrize("slots", [0, 1])
def test_no_slots_and_one_slot(slots: int) -> None:
    candidates = make_candidates(10, 0)
    ranking = run(candidates, slots)
    assert len(ranking.chosen) == slots and np.isfinite(ranking.diversity).all()


def test_candidates_without_embeddings_are_refused_in_one_line() -> None:
    forecast = make_candidates(3, 0).forecast
    with pytest.raises(ValueError, match=r"^acquisition gps needs embeddings of the pool's prompts$"):
        run(Candidates(forecast, None, None), 2)
