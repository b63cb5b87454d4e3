"""Embeds prompt texts with the static vectors that the wordllama package carries."""

import logging
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from models.errors import ModelError

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_MISSING = "prompts are embedded with the package wordllama: pip install wordllama"


def encoder_name() -> str:
    """Names the encoder and its weights; the key of cached embeddings.

    Raises:
        ModelError: the package is not installed.
    """
    try:
        return f"wordllama-{version('wordllama')}-256"
    except PackageNotFoundError as error:
        raise ModelError(_MISSING) from error


class WordllamaEncoder:
    """Mean of static token vectors, 256 dimensions; the same text gives the same bytes, alone or among others."""

    def __init__(self) -> None:
        """Read the vectors from the installed package; nothing is downloaded.

        Raises:
            ModelError: the package is not installed.
        """
        inference = _import_inference()
        package = files("wordllama")
        vectors = load_file(str(package / _WEIGHTS))["embedding.weight"]
        self._model = inference(vectors, Tokenizer.from_file(str(package / _TOKENIZER)))
        self.name = encoder_name()

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """[len(texts), 256] rows of unit length; a text without a token gets the zero vector."""
        embeddings = self._model.embed(list(texts), norm=False).astype(np.float32)
        norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
        unit: NDArray[np.float32] = np.divide(embeddings, norms, out=np.zeros_like(embeddings), where=norms > 0)
        return unit


def _import_inference() -> Any:
    """The library's model class, without the logging set-up that importing the library imposes on the process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        from wordllama.inference import WordLlamaInference
    except ImportError as error:
        raise ModelError(_MISSING) from error
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    return WordLlamaInference
