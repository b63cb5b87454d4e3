"""Ridge regression on a pool's texts that forecasts no prompt from its own target."""

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from models.records import Floats, Ints

Matrix = NDArray[np.float32]

FOLDS = 2
PENALTY = 2.0
CONJUGATE_STEPS = 8
"""Steps of conjugate gradients a fit; fits go on from the one before."""


class CrossFitted:
    """Weights for each fold, fitted to the prompts of the other folds.

    A prompt of the seen is forecast by the weights that did not see it, any
    other one by the mean over folds.
    """

    def __init__(
        self, words: sp.csr_matrix | None, dense: Matrix, seen: Ints, targets: int, rng: np.random.Generator
    ) -> None:
        shape = sp.csr_matrix(dense)
        self._features = shape if words is None else sp.hstack([words, shape], format="csr")
        self._transposed = self._features.T.tocsr()
        fold = np.full(len(dense), -1)
        fold[seen] = rng.permutation(len(seen)) % FOLDS
        self._fold, self._seen = fold, seen
        self._weights = [np.zeros((self._features.shape[1], targets), np.float32) for _ in range(FOLDS)]

    def fit(self, targets: Floats) -> Floats:
        """[pool, targets] forecasts of the targets, of which only the seen rows are read."""
        middle = targets[self._seen].mean(axis=0)
        centred = (targets - middle).astype(np.float32)
        found = np.zeros(targets.shape)
        for fold in range(FOLDS):
            learned = (self._fold >= 0) & (self._fold != fold)
            self._weights[fold] = self._solve(learned[:, None], centred, self._weights[fold])
            forecast = self._features @ self._weights[fold]
            own, unseen = self._fold == fold, self._fold < 0
            found[own] = forecast[own]
            found[unseen] += forecast[unseen] / FOLDS
        found += middle
        return found

    def _solve(self, learned: NDArray[np.bool_], targets: Matrix, weights: Matrix) -> Matrix:
        """Go on minimising |X w - y|^2 over the learned rows + PENALTY |w|^2, each target by itself."""
        left = self._transposed @ (learned * (targets - self._features @ weights)) - PENALTY * weights
        direction, size = left, (left**2).sum(axis=0)
        for _ in range(CONJUGATE_STEPS):
            image = self._transposed @ (learned * (self._features @ direction)) + PENALTY * direction
            length = size / np.maximum((direction * image).sum(axis=0), 1e-30)
            weights = weights + length * direction
            left = left - length * image
            size, before = (left**2).sum(axis=0), size
            direction = left + size / np.maximum(before, 1e-30) * direction
        return weights
