"""What other runs are worth before a run's own rollouts: three settings side by side, on MATH test.

Each model but one is left out in turn at all its temperatures, or with its
family; `new` shows other models on train prompts only. Histories are dense (50
rollouts of every prompt), or such as a cold `foreroll` makes by selection (8
rollouts of each prompt that it acquired, once, 5 % of them at random).
"""

import copy
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from selection_world import GROUP, TOKENS, Groups, World, joined, others, simulate

from models.acquisition import select
from models.difficulty import build_predictor
from models.difficulty.base import Predictor
from models.records import Observation, PastRuns, Pool
from models.seeding import derive_rng
from models.settings import AcquisitionSettings, ForerollSettings

SETTINGS = ("siblings", "strangers", "new")
HISTORIES = {"dense": 0, "selected, 34 %": 17, "selected, 50 %": 25}
"""Steps of `BATCH` groups; 0 is dense."""
BATCH, PILOT, PILOTS, SEEDS = 256, 32, 4, 3
DECIDING = (HISTORIES, BATCH, PILOT, PILOTS, SEEDS, GROUP, TOKENS, ForerollSettings(), AcquisitionSettings())
"""What decides the figures beside the setting, the history and the model."""
FAMILIES = (("Qwen2-1.5B", "Qwen2-1.5B-Instruct"), ("Qwen2.5-Math-1.5B", "Qwen2.5-Math-1.5B-Instruct"))
TEST = 1
"""The split on which ranks are judged."""


def left_out(setting: str, model: str) -> tuple[str, ...]:
    """Models that a run of `model` may not learn from."""
    if setting != "strangers":
        return (model,)
    return next((family for family in FAMILIES if model in family), (model,))


def make_history(world: World, cold: Predictor, configuration: int) -> Groups:
    """Groups that `foreroll` acquires of an unchanging policy, each prompt once."""
    logits, steps = world.logits(configuration), max(HISTORIES.values())
    settings = AcquisitionSettings(name="informative", batch_size=BATCH, cooldown=steps)
    return simulate(copy.deepcopy(cold), world.pool(None), logits, logits, settings, steps=steps, seed=configuration)[1]


def past_of(world: World, setting: str, history: str, model: str, made: list[Groups]) -> PastRuns:
    """What a run of `model` may learn from."""
    kept = others(world.models, left_out(setting, model))
    rows = np.flatnonzero(world.split != TEST) if setting == "new" else np.arange(len(world.texts))
    if HISTORIES[history] == 0:
        return world.dense(kept, rows)
    runs = []
    for at in kept:
        step, row, successes = made[at]
        shown = (step < HISTORIES[history]) & np.isin(row, rows)
        runs.append((step[shown], row[shown], successes[shown]))
    return joined(runs)


def judge(world: World, setting: str, history: str, model: str, made: list[Groups]) -> list[dict[str, Any]]:
    """Spearman with the true rates before any rollout and after the pilot groups, for each temperature."""
    pool = world.pool(past_of(world, setting, history, model, made))
    opened = build_predictor(ForerollSettings(), pool, seed=0)
    test = np.flatnonzero(world.split == TEST)
    lines = []
    for at in (at for at, one in enumerate(world.models) if one == model):
        truth = world.solved[at, test]
        before = opened.forecast(test, seed=0).p_success
        after = [_after_pilot(copy.deepcopy(opened), pool, test, world.solved[at], seed) for seed in range(SEEDS)]
        ranks = [float(spearmanr(p, truth).statistic) for p in (before, *after)]
        about = {"setting": setting, "history": history, "model": model, "temperature": world.temperatures[at]}
        lines.append({**about, "before": ranks[0], "after": float(np.mean(ranks[1:]))})
    return lines


def _after_pilot(predictor: Predictor, pool: Pool, test: np.ndarray, solved: np.ndarray, seed: int) -> np.ndarray:
    settings = AcquisitionSettings(name="informative", batch_size=PILOT)
    free = test
    for step in range(PILOTS):
        forecast = predictor.forecast(free, seed=step)
        rng = derive_rng(seed, step, "pilot")
        selection = select(forecast, free, pool=pool, previous=np.empty(0, np.int64), settings=settings, rng=rng)
        rows = free[selection.chosen]
        successes = rng.hypergeometric(solved[rows], 50 - solved[rows], GROUP)
        tried, lengths = np.full(PILOT, GROUP), np.full(PILOT, TOKENS)
        groups = Observation(rows, successes, tried, lengths, explored=selection.explored)
        predictor.observe(groups, seed=step)
        free = np.setdiff1d(free, rows)
    return predictor.forecast(test, seed=0).p_success
