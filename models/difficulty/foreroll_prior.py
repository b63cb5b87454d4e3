"""Where a new run begins: its features of every prompt, and what past runs say of their weights."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.difficulty.foreroll_past import Latents, fit_latents
from models.difficulty.foreroll_text import text_features
from models.records import Floats, Pool
from models.settings import ForerollSettings

ABILITY_SD = 1.5
LOADING_VAR = 0.1
TEXT_MEAN = 0.3
"""Weight of the text forecast beyond its part in the prompt effects: a new run agrees less with past ones than they
with each other."""
TEXT_VAR = 0.1
WARM_TEXT = 0.6
"""Share of `text_sd` left to the texts once past runs have said what texts are worth."""
BETWEEN_RUNS = 0.5
"""Share of the covariance between past runs that is expected of a new one."""


@dataclass(frozen=True)
class Prior:
    """Features [pool, D] and the Gaussian of their weights; own effects' variance [pool]."""

    features: NDArray[np.float32]
    mean: Floats
    cov: Floats
    own_var: Floats
    moving: Floats
    """[D] variance that a weight gains in one step, relative to the ability's."""


def make_prior(settings: ForerollSettings, pool: Pool, rng: np.random.Generator) -> Prior:
    """Fit past runs where there are any, and set the weights out by them."""
    words, dense = text_features(pool, settings.components, rng)
    if pool.past is None or len(pool.past) == 0:
        return _cold(settings, dense)
    return _warm(settings, dense, fit_latents(pool.past, words, dense, settings.latent, rng))


def _cold(settings: ForerollSettings, dense: NDArray[np.float32]) -> Prior:
    features = np.hstack([np.ones((len(dense), 1), np.float32), dense])
    variance = np.r_[ABILITY_SD**2, np.full(dense.shape[1], settings.text_sd**2)]
    moving = np.r_[1.0, np.full(dense.shape[1], 0.1)]
    own = np.full(len(dense), settings.own_sd**2)
    return Prior(features, np.zeros(len(variance)), np.diag(variance), own, moving)


def _warm(settings: ForerollSettings, dense: NDArray[np.float32], latents: Latents) -> Prior:
    """Features are 1, prompt effects, their first text forecast and the dense ones."""
    runs, dimensions = latents.loadings.shape
    text = latents.text[:, :1] - latents.text[:, :1].mean(axis=0)
    features = np.hstack([np.ones((len(dense), 1)), latents.effect, text, dense]).astype(np.float32)
    known = np.hstack([latents.ability[:, None], latents.loadings, np.full((runs, 1), TEXT_MEAN)])
    mean = np.r_[known.mean(axis=0), np.zeros(dense.shape[1])]
    warm_text = np.full(dense.shape[1], (WARM_TEXT * settings.text_sd) ** 2)
    cov = np.diag(np.r_[ABILITY_SD**2, np.full(dimensions, LOADING_VAR), TEXT_VAR, warm_text])
    if runs > 1:
        cov[: dimensions + 2, : dimensions + 2] += BETWEEN_RUNS * np.cov(known.T)
    loading = latents.loadings.mean(axis=0)
    own = np.einsum("i,nij,j->n", loading, latents.effect_cov, loading) + latents.noise.mean()
    moving = np.r_[1.0, np.full(dimensions + 1, 0.3), np.full(dense.shape[1], 0.1)]
    return Prior(features, mean, cov, own, moving)
