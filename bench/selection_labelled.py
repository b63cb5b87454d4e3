"""How well a new model's success can be ranked by one who is told its true rates on all other prompts.

Ridge regression of the logits of the model that was left out, on the logits that
the other models have on the prompt and a forecast from its text, fitted to all
50 rollouts of every train prompt, and judged on the test prompts.
"""

from typing import Any

import numpy as np
from scipy.stats import spearmanr
from selection_warm import FAMILIES, TEST, left_out
from selection_world import World, others

from models.difficulty.foreroll_ridge import CrossFitted
from models.difficulty.foreroll_text import text_features
from models.settings import ForerollSettings

PENALTY = 5.0
"""Of the squared weights of standardised features, beside 7,500 prompts."""
ROUNDS = 4
"""Fits of the text forecast, each going on from the one before."""
DECIDING = (PENALTY, ROUNDS, ForerollSettings(), FAMILIES)
"""What decides the figures beside the setting and the model."""


def judge_labelled(world: World, setting: str, model: str) -> list[dict[str, Any]]:
    """Spearman with the true rates on test prompts, for each temperature of the model left out."""
    rng = np.random.default_rng(0)
    words, dense = text_features(world.pool(None), ForerollSettings().components, rng)
    train, test = np.flatnonzero(world.split != TEST), np.flatnonzero(world.split == TEST)
    kept = [] if setting == "new" else others(world.models, left_out(setting, model))
    lines = []
    for at in (at for at, one in enumerate(world.models) if one == model):
        target = world.logits(at)
        ridge = CrossFitted(words, dense, train, 1, rng)
        for _ in range(ROUNDS):
            text = ridge.fit(target[:, None])
        found = _regressed(np.column_stack([*(world.logits(one) for one in kept), text]), target, train)
        labelled = float(spearmanr(found[test], world.solved[at, test]).statistic)
        lines.append({"setting": setting, "model": model, "temperature": world.temperatures[at], "labelled": labelled})
    return lines


def _regressed(features: np.ndarray, target: np.ndarray, learned: np.ndarray) -> np.ndarray:
    """[prompts] ridge forecasts of the target, fitted on the learned rows."""
    x = (features - features[learned].mean(axis=0)) / features[learned].std(axis=0)
    shown, middle = x[learned], target[learned].mean()
    weights = np.linalg.solve(shown.T @ shown + PENALTY * np.eye(x.shape[1]), shown.T @ (target[learned] - middle))
    forecast: np.ndarray = x @ weights + middle
    return forecast
