"""The text encoder: offline, the same bytes in any company, and silent."""

import subprocess
import sys

import numpy as np
import pytest

from models.embeddings import WordllamaEncoder
from models.errors import ModelError


@pytest.fixture(scope="module")
def encoder() -> WordllamaEncoder:
    return WordllamaEncoder()


TEXTS = [
    "3 7 20 -> 41",
    "Find the derivative of x squared.",
    "求 1 到 100 的和",
    "a much longer text " * 50,
    "\x00\u200b",
    "3 7 20 -> 41",
]


def test_rows_are_of_unit_length_and_equal_texts_have_equal_rows(encoder: WordllamaEncoder) -> None:
    embeddings = encoder.encode(TEXTS)
    assert embeddings.shape == (6, 256) and embeddings.dtype == np.float32
    assert np.linalg.norm(embeddings, axis=1) == pytest.approx(np.ones(6), abs=1e-6)
    assert embeddings[0].tobytes() == embeddings[5].tobytes()


def test_a_text_has_the_same_bytes_alone_and_in_any_batch(encoder: WordllamaEncoder) -> None:
    many = encoder.encode(TEXTS * 30)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    assert all(many[start : start + 6].tobytes() == alone.tobytes() for start in range(0, 180, 6))


def test_empty_text_is_the_zero_vector(encoder: WordllamaEncoder) -> None:
    embeddings = encoder.encode(["", "words", ""])
    assert not embeddings[0].any() and not embeddings[2].any() and np.isfinite(embeddings).all()
    assert encoder.encode([]).shape == (0, 256)


def test_a_row_is_the_mean_of_its_tokens(encoder: WordllamaEncoder) -> None:
    """Against the vectors of the single tokens, read from the library's tables."""
    model = encoder._model
    ids = model.tokenizer.encode("Add two numbers", add_special_tokens=False).ids
    mean = model.embedding[ids].mean(axis=0)
    assert encoder.encode(["Add two numbers"])[0] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-6)


def test_similar_texts_are_nearer_than_others(encoder: WordllamaEncoder) -> None:
    a, b, c = encoder.encode(["What is the area of a circle?", "Compute a circle's area.", "Who wrote this poem?"])
    assert a @ b > a @ c


def test_name_holds_the_version_of_the_vectors(encoder: WordllamaEncoder) -> None:
    assert encoder.name.startswith("wordllama-") and encoder.name.endswith("-256")


def test_a_missing_package_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama.inference", None)
    with pytest.raises(ModelError, match=r"^prompts are embedded with the package wordllama: pip install wordllama$"):
        WordllamaEncoder()


def test_the_process_keeps_its_own_logging() -> None:
    """Importing the library configures the root logger; a fresh process shows whether that leaks."""
    code = (
        "import logging; from models.embeddings import WordllamaEncoder; WordllamaEncoder(); "
        "print(logging.getLogger().handlers, logging.getLogger().level)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "30"] and done.stderr == ""
