"""Embeds prompt texts with the static vectors that the wordllama package carries."""

from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from wordllama.inference import WordLlamaInference

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class WordllamaEncoder:
    """Mean of static token vectors, 256 dimensions; the same text gives the same bytes."""

    name = f"wordllama-{version('wordllama')}-256"
    """Names the encoder and its weights; the key of cached embeddings."""

    def __init__(self) -> None:
        package = files("wordllama")
        vectors = load_file(str(package / _WEIGHTS))["embedding.weight"]
        self._model = WordLlamaInference(vectors, Tokenizer.from_file(str(package / _TOKENIZER)))

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """[len(texts), 256] rows of unit length; a text without a token gets the zero vector."""
        embeddings = self._model.embed(list(texts), norm=False).astype(np.float32)
        norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
        unit: NDArray[np.float32] = np.divide(embeddings, norms, out=np.zeros_like(embeddings), where=norms > 0)
        return unit
