import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import spearmanr

from models.difficulty.foreroll_past import fit_latents, walked
from models.difficulty.foreroll_ridge import PENALTY, CrossFitted
from models.records import PastRuns


def small_past(*, selected: bool, prompts: int = 600, runs: int = 4) -> tuple[PastRuns, np.ndarray, np.ndarray]:
    """Histories of known difficulty, the difficulty, and dense features that tell half of it."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(prompts, 4)).astype(np.float32)
    difficulty = dense[:, 0] + rng.normal(size=prompts)
    parts = []
    for run in range(runs):
        ability = 2.0 * run - 3.0
        p = expit(ability + 1.5 * difficulty)
        rows = np.arange(prompts)
        if selected:
            rows = np.argsort(np.abs(p + 0.1 * rng.normal(size=prompts) - 0.5))[: prompts // 3]
        parts.append((np.full(len(rows), run), rows, rng.binomial(8, p[rows])))
    run, row, successes = (np.concatenate(column) for column in zip(*parts, strict=True))
    zeros = np.zeros(len(run), np.int64)
    return PastRuns(run, zeros, row, successes, zeros + 8, np.ones(len(run))), difficulty, dense


@pytest.mark.parametrize(("selected", "gain"), [(False, 0.2), (True, 0.05)])
def test_effects_rank_prompts_better_than_their_text(selected: bool, gain: float) -> None:
    past, difficulty, dense = small_past(selected=selected)
    latents = fit_latents(past, None, dense, 1, np.random.default_rng(0))
    effect = latents.effect[:, 0] * latents.loadings[:, 0].mean()
    assert spearmanr(effect, difficulty).statistic > spearmanr(dense[:, 0], difficulty).statistic + gain
    assert np.all(np.diff(latents.ability) > 0)


def test_a_mean_over_selected_runs_ranks_worse_than_the_likelihood() -> None:
    past, difficulty, dense = small_past(selected=True)
    latents = fit_latents(past, None, dense, 1, np.random.default_rng(0))
    effect = latents.effect[:, 0] * latents.loadings[:, 0].mean()
    rates = np.bincount(past.row, past.successes / 8, minlength=600) / np.maximum(np.bincount(past.row), 1)
    assert spearmanr(rates, difficulty).statistic < spearmanr(effect, difficulty).statistic - 0.1


def test_a_batch_of_easy_prompts_does_not_look_like_an_able_policy() -> None:
    """One policy that stays as it is, and takes the easier half of the prompts and the harder half in turn."""
    rng = np.random.default_rng(1)
    difficulty = rng.normal(size=600)
    step = 2 * rng.integers(0, 15, 600) + (difficulty > 0)
    zeros, successes = np.zeros(600, np.int64), rng.binomial(8, expit(1.5 * difficulty))
    alone = PastRuns(zeros, step, np.arange(600), successes, zeros + 8, np.ones(600))
    effect = fit_latents(alone, None, np.empty((600, 0), np.float32), 1, np.random.default_rng(0)).effect[:, 0]
    assert spearmanr(effect, difficulty).statistic > 0.85


def test_walked_levels_are_the_minimum_of_a_dense_solve() -> None:
    rng = np.random.default_rng(0)
    pull, weight, ties = rng.normal(size=6), rng.uniform(0.5, 2.0, 6), rng.uniform(0.0, 5.0, 5)
    ties[2] = 0.0
    moves = np.diff(np.eye(6), axis=0)
    expected = np.linalg.solve(np.diag(weight) + moves.T @ np.diag(ties) @ moves, pull)
    np.testing.assert_allclose(walked(pull, weight, ties), expected, atol=1e-12)
    assert walked(pull[:1], weight[:1], ties[:0]) == pytest.approx(pull[:1] / weight[:1])


def test_effects_around_their_text_have_unit_covariance() -> None:
    past, _, dense = small_past(selected=False)
    latents = fit_latents(past, None, dense, 2, np.random.default_rng(0))
    around = latents.effect - latents.text
    np.testing.assert_allclose(around.T @ around / 600 + latents.effect_cov.mean(axis=0), np.eye(2), atol=0.15)


def test_cross_fitted_ridge_is_ridge_on_the_other_folds() -> None:
    rng = np.random.default_rng(1)
    dense, targets = rng.normal(size=(40, 3)).astype(np.float32), rng.normal(size=(40, 2))
    seen = np.arange(30)
    ridge = CrossFitted(None, dense, seen, 2, np.random.default_rng(2))
    found = ridge.fit(targets)
    middle = targets[seen].mean(axis=0)
    fitted = []
    for fold in range(2):
        learned = (ridge._fold >= 0) & (ridge._fold != fold)
        x, y = dense[learned].astype(np.float64), (targets - middle)[learned]
        fitted.append(middle + dense @ np.linalg.solve(x.T @ x + PENALTY * np.eye(3), x.T @ y))
        np.testing.assert_allclose(found[ridge._fold == fold], fitted[fold][ridge._fold == fold], atol=1e-4)
    np.testing.assert_allclose(found[30:], (fitted[0] + fitted[1])[30:] / 2, atol=1e-4)
