"""What Foreroll adds to a vLLM worker: taking over a policy's weights in place.

A server loads it with `--worker-extension-cls models.engines.vllm_worker.PolicyWorker`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding


class PolicyWorker:
    """Mixed into vLLM's own worker, which brings `reload_weights` and `get_model`."""

    reload_weights: Any
    get_model: Any

    def update_policy(self, weights: str | Iterable[tuple[str, Tensor]]) -> None:
        """Replace all weights.

        vLLM's own reload is right but for tied models on a CPU: there the head
        multiplies with a packed copy of the embedding, and no weight of the
        checkpoint tells it to pack anew.

        Args:
            weights: a folder of safetensors, or (name, tensor) pairs as in a checkpoint.
        """
        with torch.inference_mode():
            if isinstance(weights, str):
                self.reload_weights(weights_path=weights)
            else:
                self.reload_weights(weights_iterator=iter(weights))
            model = self.get_model()
            if getattr(model.config, "tie_word_embeddings", False):
                for head in _heads(model):
                    head.weight = _embedding(model).weight
                    head.quant_method.process_weights_after_loading(head)


def _heads(model: torch.nn.Module) -> Iterator[Any]:
    return (module for module in model.modules() if isinstance(module, ParallelLMHead))


def _embedding(model: torch.nn.Module) -> Any:
    """The input embedding: the one vocabulary layer that is no head."""
    layers = [
        module
        for module in model.modules()
        if isinstance(module, VocabParallelEmbedding) and not isinstance(module, ParallelLMHead)
    ]
    if len(layers) != 1:
        raise NotImplementedError(f"{type(model).__name__} ties its head to one of {len(layers)} embeddings")
    return layers[0]
