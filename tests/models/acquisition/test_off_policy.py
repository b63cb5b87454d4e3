"""Off-policy estimates against all logs that could have been, against plain loops, and in simulation."""

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
import pytest

from models.acquisition import select
from models.acquisition.off_policy import (
    StepSums,
    doubly_robust,
    effective_groups,
    snips,
    stack,
    variance_of_total,
    weigh_step,
)
from models.records import Floats, Forecast, Pool
from models.settings import AcquisitionSettings

SHARES = np.array([0.9, 0.2, 0.5, 0.7, 0.4])
"""E[Y] of five candidates; candidate 0 is acquired for certain, two of the other four are drawn."""
PROPENSITY = np.array([1.0, 0.5, 0.5, 0.5, 0.5])
INCLUSION = np.array([0.2, 1.0, 1.0, 0.5, 0.3])
EXPECTED = np.array([0.5, 0.6, 0.3, 0.9, 0.1])
T_OF_20 = 2.162195
"""The 97.5 % quantile of Student's t with 2 * 19^2 / 56 degrees of freedom, those of the differences of 20 steps."""
VALUE = float(INCLUSION @ SHARES / INCLUSION.sum())


def every_log() -> Iterator[tuple[float, StepSums]]:
    """Probability and sums of each batch and each outcome that one step can have."""
    for drawn in combinations(range(1, 5), 2):
        acquired = np.isin(np.arange(5), (0, *drawn))
        for outcome in product((0.0, 1.0), repeat=5):
            y = np.array(outcome)
            chance = float(np.prod(np.where(y == 1.0, SHARES, 1.0 - SHARES)))
            yield chance / 6.0, weigh_step(INCLUSION, PROPENSITY, acquired, np.where(acquired, y, np.nan), EXPECTED)


def test_weighting_and_the_doubly_robust_estimate_are_unbiased_over_every_log() -> None:
    logs = list(every_log())
    assert sum(chance for chance, _ in logs) == pytest.approx(1.0)
    size = INCLUSION.sum()
    assert sum(chance * sums.weight for chance, sums in logs) == pytest.approx(size)
    assert sum(chance * sums.gained for chance, sums in logs) / size == pytest.approx(VALUE)
    robust = (chance * doubly_robust(stack([sums, sums])).value for chance, sums in logs)
    assert sum(robust) == pytest.approx(VALUE)


def test_the_variance_is_that_over_every_log_although_the_draws_of_a_step_depend_on_each_other() -> None:
    logs = list(every_log())
    chances, corrected = np.array([chance for chance, _ in logs]), np.array([sums.corrected for _, sums in logs])
    mean = float(chances @ corrected)
    exact = 3.0 * float(chances @ (corrected - mean) ** 2)
    pairs = chances[:, None] * chances[None, :] * (corrected[:, None] - corrected[None, :]) ** 2
    expected = 3.0 / 4.0 * 2.0 * float(pairs.sum())  # n / (2 (n - 1)), and n - 1 differences alike, of three steps
    assert expected == pytest.approx(exact)
    draws = np.random.default_rng(0).choice(corrected, (20_000, 3), p=chances / chances.sum())
    estimates = [variance_of_total(three) for three in draws]
    assert np.mean(estimates) == pytest.approx(exact, abs=4.0 * float(np.std(estimates)) / 20_000**0.5)


def make_steps(steps: int, seed: int = 0, size: int = 12) -> list[tuple[Floats, Floats, np.ndarray, Floats, Floats]]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(steps):
        propensity = rng.uniform(0.3, 1.0, size)
        acquired = rng.uniform(size=size) < propensity
        outcome = np.where(acquired, rng.uniform(size=size) < rng.choice([0.1, 0.9]), np.nan)  # so that no floor is met
        made.append((rng.uniform(size=size), propensity, acquired, outcome, rng.uniform(size=size)))
    return made


def test_both_estimates_are_what_plain_loops_give() -> None:
    steps = make_steps(5)
    gained = weight = size = robust = 0.0
    for inclusion, propensity, acquired, outcome, expected in steps:
        for i in range(12):
            size += inclusion[i]
            robust += inclusion[i] * expected[i]
            if acquired[i]:
                w = inclusion[i] / propensity[i]
                gained += w * outcome[i]
                weight += w
                robust += w * (outcome[i] - expected[i])
    sums = stack([weigh_step(*step) for step in steps])
    assert snips(sums).value == pytest.approx(gained / weight)
    assert doubly_robust(sums).value == pytest.approx(robust / size)


def test_the_intervals_are_what_plain_loops_give() -> None:
    steps = make_steps(20)
    sums = stack([weigh_step(*step) for step in steps])
    value, residuals, corrections = snips(sums).value, [], []
    for inclusion, propensity, acquired, outcome, expected in steps:
        w = [inclusion[i] / propensity[i] if acquired[i] else 0.0 for i in range(12)]
        y = [outcome[i] if acquired[i] else 0.0 for i in range(12)]
        residuals.append(sum(w[i] * (y[i] - value) for i in range(12)))
        corrections.append(sum(w[i] * (y[i] - expected[i]) for i in range(12)))
    for total, estimate, scale in (
        (residuals, snips(sums), sums["weight"].sum()),
        (corrections, doubly_robust(sums), sums["size"].sum()),
    ):
        squares = sum((total[t + 1] - total[t]) ** 2 for t in range(19))
        sd = (20.0 / 38.0 * squares) ** 0.5 / scale
        assert estimate.high - estimate.value == pytest.approx(T_OF_20 * sd, rel=1e-4)
        assert estimate.value - estimate.low == pytest.approx(T_OF_20 * sd, rel=1e-3)


def test_a_log_of_its_own_is_worth_its_own_groups_and_a_uniform_one_its_overlap() -> None:
    own = np.array([1.0, 1.0, 0.5, 0.5])
    acquired = np.array([True, True, True, False])
    outcome = np.array([1.0, 0.0, 1.0, np.nan])
    sums = stack([weigh_step(own, own, acquired, outcome, own)] * 7)
    assert effective_groups(sums) == pytest.approx(7 * 3.0)
    ranked = np.array([1.0, 1.0, 0.0, 0.0])
    sums = stack([weigh_step(ranked, np.full(4, 0.1), acquired, outcome, own)] * 7)
    assert effective_groups(sums) == pytest.approx(7 * 2 * 0.1)


def test_what_could_not_be_acquired_is_counted_apart() -> None:
    inclusion, expected = np.array([0.5, 0.25, 1.0]), np.full(3, 0.5)
    for none in (0.0, np.nan):
        sums = weigh_step(
            inclusion,
            np.array([none, none, 0.5]),
            np.array([False, False, True]),
            np.array([np.nan] * 2 + [1.0]),
            expected,
        )
        assert (sums.unsupported, sums.size, sums.weight, sums.gained) == (0.75, 1.75, 2.0, 2.0)
        assert (sums.spread, sums.squares) == (2.0, 1.0)


def test_drift_of_the_value_is_no_error() -> None:
    noise = np.random.default_rng(1).standard_normal(400)
    trend = np.linspace(-20.0, 20.0, 400)
    assert variance_of_total(noise + trend) == pytest.approx(variance_of_total(noise), rel=0.05)
    assert np.var(noise + trend) > 100.0


def test_outcomes_that_are_all_alike_leave_doubt() -> None:
    """60 successes of 60: a share of 62 of 64 by Agresti and Coull, whose t interval is 2 sd to either side."""
    ones = np.ones(3)
    sums = stack([weigh_step(ones, ones, ones > 0, ones, np.full(3, 0.9))] * 20)
    assert effective_groups(sums) == pytest.approx(60.0)
    sd = (62 / 64 * 2 / 64 / 64) ** 0.5
    assert snips(sums).value == 1.0 and snips(sums).high == 1.0
    assert 1.0 - snips(sums).low == pytest.approx(T_OF_20 * sd, rel=1e-3)
    anticipated = (60 * 0.9 * 0.1) ** 0.5 / 60
    assert doubly_robust(sums).value == pytest.approx(1.0)
    assert 1.0 - doubly_robust(sums).low == pytest.approx(T_OF_20 * anticipated, rel=1e-3)


@pytest.mark.parametrize(
    ("logging", "target"), [("nearest", "informative"), ("thompson", "nearest"), ("band", "thompson")]
)
def test_intervals_cover_the_truth_as_often_as_they_say(logging: str, target: str) -> None:
    """Fresh logs of a fixed world: 95 % of intervals hold the value, and their width is the spread of estimates."""
    size, steps, logs = 80, 15, 100
    rng = np.random.default_rng(3)
    shares = rng.uniform(0.1, 0.95, (steps, size))
    noisy = [Forecast(rng.uniform(size=size), np.full(size, 0.15), np.full(size, np.nan)) for _ in range(2 * steps)]
    expected = [np.clip(shares[step] + rng.normal(0.0, 0.2, size), 0.0, 1.0) for step in range(steps)]
    pool, rows = Pool(tuple(f"{row:032x}" for row in range(size))), np.arange(size)

    def choose(name: str, forecast: Forecast, explore: float):  # type: ignore[no-untyped-def]
        settings = AcquisitionSettings(name=name, batch_size=12, explore=explore)  # type: ignore[arg-type]
        return select(forecast, rows, pool=pool, previous=rows[:0], settings=settings, rng=rng)

    inclusion = [
        np.mean([choose(target, noisy[steps + step], 0.1).propensity for _ in range(8)], axis=0)
        for step in range(steps)
    ]
    truth = np.sum(np.array(inclusion) * shares) / np.sum(inclusion)
    found = []
    for _ in range(logs):
        sums = []
        for step in range(steps):
            batch = choose(logging, noisy[step], 0.5)
            outcome = (rng.uniform(size=size) < shares[step]).astype(np.float64)
            sums.append(weigh_step(inclusion[step], batch.propensity, batch.rank >= 0, outcome, expected[step]))
        found.append((snips(stack(sums)), doubly_robust(stack(sums))))
    for estimates in zip(*found, strict=True):
        values = np.array([one.value for one in estimates])
        covered = np.mean([one.low <= truth <= one.high for one in estimates])
        assert covered >= 0.95 - 3 * (0.95 * 0.05 / logs) ** 0.5
        assert values.mean() == pytest.approx(truth, abs=4 * values.std() / logs**0.5 + 0.003)
        assert 3.0 < np.mean([one.width for one in estimates]) / values.std() < 6.0


def test_the_doubly_robust_estimate_is_the_narrower_where_expectations_are_good() -> None:
    rng = np.random.default_rng(5)
    good, blind = [], []
    for _ in range(40):
        share = rng.choice([0.02, 0.98], 100)
        propensity = np.full(100, 0.2)
        acquired = rng.uniform(size=100) < 0.2
        outcome = (rng.uniform(size=100) < share).astype(np.float64)
        inclusion = np.where(np.arange(100) < 20, 1.0, 0.0)
        good.append(weigh_step(inclusion, propensity, acquired, outcome, share))
        blind.append(weigh_step(inclusion, propensity, acquired, outcome, np.full(100, 0.5)))
    assert doubly_robust(stack(good)).width < 0.5 * snips(stack(good)).width
    assert doubly_robust(stack(blind)).width > doubly_robust(stack(good)).width
