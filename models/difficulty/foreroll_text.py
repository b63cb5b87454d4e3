"""What the predictor `foreroll` reads in a prompt's words: hashed TF-IDF, its principal components, and its shape."""

import re
import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from models.records import Floats, Pool

Matrix = NDArray[np.float32]

BUCKETS = 1 << 15
BASIS_TEXTS = 16_384
"""Texts from which principal components are found; the others are projected on them."""
EMBEDDED = 64
"""Principal components of the embeddings that are kept."""
WAVES = 32
"""Random Fourier features of a text's shape (Rahimi and Recht, 2007)."""
SHARES = {"embedding": 0.55, "shape": 0.3, "waves": 0.55}
"""Length of each part of a text's features beside the words', which have length 1."""
_TOKEN = re.compile(r"\\[a-z]+|[^\W\d_]+|\d+|[^\w\s]|_")
_MARKS = "$\\=+^("


def hashed_words(texts: Sequence[str]) -> sp.csr_matrix:
    """[len(texts), BUCKETS] TF-IDF of words and pairs of words, (1 + ln tf) (1 + ln (1 + n) / (1 + df)), unit rows."""
    columns: list[int] = []
    counts: list[int] = []
    ends = [0]
    for text in texts:
        found = Counter(zlib.crc32(gram.encode()) % BUCKETS for gram in _grams(text))
        columns += found.keys()
        counts += found.values()
        ends.append(len(columns))
    words = sp.csr_matrix((1.0 + np.log(counts), columns, ends), shape=(len(texts), BUCKETS), dtype=np.float32)
    frequency = np.bincount(words.indices, minlength=BUCKETS)
    words.data *= (1.0 + np.log((1 + len(texts)) / (1 + frequency)))[words.indices].astype(np.float32)
    lengths = np.sqrt(np.asarray(words.multiply(words).sum(axis=1)).ravel())
    words.data /= np.repeat(np.maximum(lengths, 1e-12), np.diff(words.indptr)).astype(np.float32)
    return words


def shape_of(texts: Sequence[str]) -> Matrix:
    """[len(texts), 9] log counts of characters, words, marks and digits, standardised over the texts."""
    counts = [
        [len(text), len(text.split()), *(text.count(mark) for mark in _MARKS), sum(map(str.isdigit, text))]
        for text in texts
    ]
    return _standardised(np.log1p(np.array(counts, dtype=np.float64)))


def text_features(pool: Pool, components: int, rng: np.random.Generator) -> tuple[sp.csr_matrix | None, Matrix]:
    """Sparse words of the pool, None without texts, and dense features [pool, dim]; no columns when it has neither.

    Args:
        components: principal components of the words.
        rng: draws the random projections.
    """
    parts: list[Matrix] = [np.empty((len(pool), 0), np.float32)]
    words = None
    if pool.texts:
        words = _shared(hashed_words(pool.texts))
        shape = shape_of(pool.texts)
        parts += [principal(words, components, rng), _of_length(shape, SHARES["shape"])]
        parts.append(SHARES["waves"] * _waves(shape, rng))
    if pool.embeddings is not None:
        centred = pool.embeddings - pool.embeddings.mean(axis=0)
        parts.append(_of_length(principal(centred, EMBEDDED, rng), SHARES["embedding"]))
    return words, np.ascontiguousarray(np.hstack(parts), dtype=np.float32)


def principal(matrix: sp.csr_matrix | Matrix, count: int, rng: np.random.Generator) -> Matrix:
    """[rows, <= count] scores on the leading right singular vectors, by randomised subspace iteration (Halko, 2011)."""
    rows = matrix.shape[0]
    some = matrix if rows <= BASIS_TEXTS else matrix[np.sort(rng.choice(rows, BASIS_TEXTS, replace=False))]
    count = min(count, *some.shape)
    basis = rng.standard_normal((some.shape[1], min(count + 16, *some.shape)), dtype=np.float32)
    for _ in range(2):
        basis = np.linalg.qr(some.T @ (some @ basis))[0]
    _, _, turned = np.linalg.svd(some @ basis, full_matrices=False)
    scores: Matrix = matrix @ (basis @ turned[:count].T)
    return scores


def _shared(words: sp.csr_matrix) -> sp.csr_matrix:
    """Only the buckets that two texts or more fall into: another can tell nothing of any other prompt."""
    return words[:, np.bincount(words.indices, minlength=words.shape[1]) > 1]


def _grams(text: str) -> list[str]:
    words = [f"#{min(len(word), 4)}" if word.isdigit() and len(word) > 2 else word for word in _words(text)]
    return words + [f"{first} {second}" for first, second in pairwise(words)]


def _words(text: str) -> list[str]:
    return _TOKEN.findall(text.lower())


def _waves(shape: Matrix, rng: np.random.Generator) -> Matrix:
    """[rows, WAVES] whose inner products approximate exp(-|x - y|^2 / (2 dim))."""
    frequencies = rng.standard_normal((shape.shape[1], WAVES)) / np.sqrt(shape.shape[1])
    angles = shape @ frequencies + rng.uniform(0.0, 2.0 * np.pi, WAVES)
    waves: Matrix = (np.sqrt(2.0 / WAVES) * np.cos(angles)).astype(np.float32)
    return waves


def _standardised(values: Floats) -> Matrix:
    spread = values.std(axis=0)
    scaled: Matrix = ((values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)).astype(np.float32)
    return scaled


def _of_length(values: Matrix, length: float) -> Matrix:
    """Scaled as a whole, so that rows have this length in the root mean square."""
    mean_square = float(np.mean(np.vecdot(values, values))) if values.size else 0.0
    return values * np.float32(length / np.sqrt(mean_square)) if mean_square > 0 else values
