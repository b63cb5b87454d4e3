"""What DEPO's scorer reads of a prompt: a stored embedding, or a language-model encoder trained with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from models.errors import ModelError

MAX_TOKENS = 512


class EmbeddingEncoder(nn.Module):
    """The pool's embeddings, which nothing trains."""

    def __init__(self, embeddings: NDArray[np.float32]) -> None:
        super().__init__()
        self._embeddings = torch.from_numpy(embeddings)
        self.size = embeddings.shape[1]
        self.lengths = np.zeros(len(embeddings), np.int64)

    def forward(self, rows_B: Tensor) -> Tensor:
        """Encodings [B, size]."""
        return self._embeddings[rows_B]


class TextEncoder(nn.Module):
    """First-token state of a Hugging Face encoder over the prompts' texts, on the GPU where there is one."""

    def __init__(self, folder: str, texts: Sequence[str]) -> None:
        """Load the encoder, and tokenise all texts, cut to 512 tokens.

        Raises:
            ModelError: the folder holds no encoder that transformers reads.
        """
        super().__init__()
        if not (Path(folder) / "config.json").is_file():
            raise ModelError(f"predictor.encoder = {folder!r} is neither `static` nor a folder with a config.json")
        disable_progress_bar()  # type: ignore[no-untyped-call]
        options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, **options)
            self.model = AutoModel.from_pretrained(folder, dtype=torch.float32, use_safetensors=True, **options)
        except (OSError, ValueError, ImportError, KeyError, RuntimeError, SafetensorError) as error:
            reason = str(error).strip().split("\n")[0]
            raise ModelError(f"predictor.encoder = {folder!r} could not be loaded: {reason}") from error
        self.model.to("cuda" if torch.cuda.is_available() else "cpu")
        self.size = self.model.config.hidden_size
        limit = min(MAX_TOKENS, getattr(self.model.config, "max_position_embeddings", MAX_TOKENS))
        encoded = tokenizer(list(texts), truncation=True, max_length=limit)["input_ids"]
        self._ids = [torch.tensor(ids) for ids in encoded]
        self.lengths = np.array([len(ids) for ids in encoded])
        """[pool] tokens of each prompt."""

    def forward(self, rows_B: Tensor) -> Tensor:
        """Encodings [B, size]."""
        ids = [self._ids[row] for row in rows_B.tolist()]
        mask = pad_sequence([torch.ones_like(one) for one in ids], batch_first=True)
        device = self.model.device
        output = self.model(input_ids=pad_sequence(ids, batch_first=True).to(device), attention_mask=mask.to(device))
        states: Tensor = output.last_hidden_state[:, 0]
        return states
