import numpy as np

from models.difficulty.foreroll_text import hashed_words, principal, shape_of, text_features
from models.records import Pool

TEXTS = ("Solve $x^2 = 4$ for x", "Find the sum of 123 and 4567", "", "Find the sum of 321 and 7654")


def test_rows_have_unit_length_and_an_empty_text_none() -> None:
    words = hashed_words(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(words.toarray(), axis=1), [1, 1, 0, 1], rtol=1e-5)


def test_numbers_of_equal_length_are_one_word() -> None:
    words = hashed_words(TEXTS).toarray()
    assert words[1] @ words[3] > 0.99
    assert words[0] @ words[1] < 0.2


def test_principal_components_keep_what_the_best_low_rank_keeps() -> None:
    rng = np.random.default_rng(0)
    matrix = (rng.normal(size=(60, 5)) @ rng.normal(size=(5, 30)) + 0.01 * rng.normal(size=(60, 30))).astype(np.float32)
    scores = principal(matrix, 5, np.random.default_rng(1))
    kept = np.linalg.svd(matrix, compute_uv=False)[:5]
    np.testing.assert_allclose(np.linalg.svd(scores, compute_uv=False), kept, rtol=1e-3)


def test_shape_is_standardised_and_constant_where_texts_agree() -> None:
    shape = shape_of(("a b", "a b", "a b"))
    np.testing.assert_array_equal(shape, 0.0)


def test_features_are_those_that_the_pool_can_give() -> None:
    ids = tuple(map(str, range(4)))
    embeddings = np.eye(4, dtype=np.float32)
    rng = np.random.default_rng
    assert text_features(Pool(ids), 8, rng(0))[1].shape == (4, 0)
    assert text_features(Pool(ids, embeddings), 8, rng(0))[0] is None
    words, dense = text_features(Pool(ids, embeddings, texts=TEXTS), 8, rng(0))
    assert words is not None and np.isfinite(dense).all()
    np.testing.assert_array_equal(dense, text_features(Pool(ids, embeddings, texts=TEXTS), 8, rng(0))[1])
