"""Every rule with every predictor: whole steps of a small pool, with dynamic sampling, cool-down and retention test."""

from dataclasses import dataclass

import numpy as np
import pytest

from models.acquisition import RULES, select
from models.acquisition.dynamic_sampling import Outcome, reject_reasons, wants_another_round
from models.acquisition.rest import Visits, candidates_wanted, rested
from models.difficulty import build_predictor
from models.records import Forecast, Ints, Observation, Pool
from models.seeding import derive_rng, derive_seed
from models.settings import (
    AcquisitionSettings,
    DepoSettings,
    DotsSettings,
    DpsSettings,
    DynamicSamplingSettings,
    ForerollSettings,
    GpSettings,
    GpsSettings,
    GresoSettings,
    KalmanSettings,
    LastSettings,
    MeanSettings,
    MoppsSettings,
    PclSettings,
    PredictorSettings,
    SecSettings,
)

SIZE, BATCH, GROUP, STEPS = 60, 4, 4, 8
DYNAMIC = DynamicSamplingSettings(enabled=True, max_rounds=3)
PREDICTORS: list[PredictorSettings] = [
    GpsSettings(width=8, latent=2, z_samples=2, gradient_steps=1),
    DepoSettings(width=8, warmup_batches=2),
    DotsSettings(width=8, gradient_steps=1),
    PclSettings(width=8, gradient_steps=1),
    GpSettings(references=8),
    ForerollSettings(),
    MoppsSettings(),
    LastSettings(),
    MeanSettings(),
    KalmanSettings(),
    DpsSettings(),
    GresoSettings(),
    SecSettings(),
]


@dataclass(frozen=True)
class Step:
    """What one step did; arrays of pool rows."""

    rounds: list[Ints]
    outcomes: list[Outcome]
    trained_on: int
    propensities: list[float]


def make_pool() -> Pool:
    embeddings = np.random.default_rng(0).standard_normal((SIZE, 8)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    ids, categories = tuple(map(str, range(SIZE))), tuple("abc"[row % 3] for row in range(SIZE))
    texts = tuple(f"add {row} and {7 * row}" for row in range(SIZE))
    return Pool(ids, embeddings, categories, texts=texts, hidden=lambda rows: embeddings[rows])


def run(
    rule: str, predictor_settings: PredictorSettings, *, cooldown: int = 2, retain: float = 0.25, steps: int = STEPS
) -> list[Step]:
    """Steps as the pipeline does them. A third of the pool always fails, a third always succeeds."""
    pool = make_pool()
    truth = np.repeat([0.0, 0.5, 1.0], SIZE // 3)
    settings = AcquisitionSettings(
        name=rule,  # type: ignore[arg-type]
        batch_size=BATCH,
        explore=0.25,
        cooldown=cooldown,
        retain=retain,
    )
    predictor = build_predictor(predictor_settings, pool, seed=0)
    visits, previous, done = Visits.none(SIZE), np.empty(0, np.int64), []
    for step in range(1, steps + 1):
        rows = rested(visits, candidates_wanted(settings, DYNAMIC.max_rounds), settings)
        forecast = predictor.forecast(rows, seed=derive_seed(step))
        rounds: list[Ints] = []
        propensities: list[float] = []
        outcomes: list[Outcome] = []
        trained_on, again = 0, True
        while again:
            free = ~np.isin(rows, np.concatenate([*rounds, []]))
            selection = select(
                Forecast(forecast.p_success[free], forecast.p_sd[free], forecast.expected_tokens[free]),
                rows[free],
                pool=pool,
                previous=previous,
                settings=settings,
                rng=derive_rng(step, len(rounds)),
                group_size=GROUP,
            )
            order = np.argsort(selection.rank, kind="stable")
            chosen = selection.rows[order[selection.rank[order] >= 0]]
            successes = derive_rng(step, len(rounds), "outcomes").binomial(GROUP, truth[chosen])
            found = [Outcome(int(count), GROUP) for count in successes]
            trained_on += reject_reasons(found, filtering=True, room=BATCH - trained_on).count(None)
            rounds.append(chosen)
            outcomes += found
            propensities += selection.propensity.tolist()
            again = wants_another_round(
                DYNAMIC,
                informative=sum(outcome.informative for outcome in outcomes),
                batch_size=BATCH,
                rounds=len(rounds),
                remaining=len(rows) - sum(map(len, rounds)),
            )
        previous = np.concatenate(rounds)
        counts = np.array([outcome.successes for outcome in outcomes])
        tokens = np.linspace(5.0, 15.0, len(previous))
        groups = Observation(previous, counts, np.full(len(previous), GROUP), tokens)
        predictor.observe(groups, seed=derive_seed(step, "observe"))
        visits.add(previous)
        done.append(Step(rounds, outcomes, trained_on, propensities))
    return done


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("predictor", PREDICTORS, ids=lambda settings: settings.name)
def test_every_rule_works_with_every_predictor(rule: str, predictor: PredictorSettings) -> None:
    steps = run(rule, predictor)
    rested_since: list[set[int]] = []
    for step in steps:
        acquired = np.concatenate(step.rounds).tolist()
        assert all(len(chosen) == BATCH for chosen in step.rounds)  # no round starves
        assert len(set(acquired)) == len(acquired)  # and none repeats a prompt
        assert not set(acquired) & set().union(*rested_since[-2:])
        assert all(0.0 < propensity <= 1.0 for propensity in step.propensities)
        informative = sum(outcome.informative for outcome in step.outcomes)
        assert step.trained_on == min(informative, BATCH)
        assert len(step.rounds) == DYNAMIC.max_rounds or informative >= BATCH
        rested_since.append(set(acquired))


@pytest.mark.parametrize("rule", ["band", "greso", "gps"])
def test_a_pool_that_cannot_afford_its_cooldown_still_fills_every_round(rule: str) -> None:
    for step in run(rule, MoppsSettings(), cooldown=50):
        assert all(len(chosen) == BATCH for chosen in step.rounds)


def test_steps_are_the_same_when_run_again() -> None:
    first, second = (run("greso", GresoSettings()) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert np.concatenate(one.rounds).tolist() == np.concatenate(other.rounds).tolist()
        assert one.propensities == other.propensities


@pytest.mark.parametrize(
    ("rule", "predictor"),
    [
        ("informative", KalmanSettings()),
        ("nearest", MeanSettings()),
        ("greso", GresoSettings()),
        ("band", MeanSettings()),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_rules_find_more_informative_groups_than_a_uniform_draw(rule: str, predictor: PredictorSettings) -> None:
    def share(name: str) -> float:
        done = run(name, predictor, cooldown=0, retain=0.0, steps=40)
        found = [outcome.informative for step in done[10:] for outcome in step.outcomes]
        return sum(found) / len(found)

    assert share(rule) > share("uniform") + 0.15
