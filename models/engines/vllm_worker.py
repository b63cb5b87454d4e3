"""What Foreroll adds to a vLLM worker: taking over a policy's weights in place.

A server loads it with `--worker-extension-cls models.engines.vllm_worker.PolicyWorker`.

Several trainers may reach one server. Each load has a label of its own: who is
about to load claims the server with it, and only the last claim may load. So a
label that is both claimed and held stands for the weights that are there.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

from models.engines.shape import model_shape


class PolicyWorker:
    """Mixed into vLLM's own worker, which brings `reload_weights` and `get_model`."""

    reload_weights: Any
    get_model: Any
    model_config: Any

    _claimed = ""
    _held = ""

    def claim_policy(self, label: str, shape: Mapping[str, Any]) -> dict[str, Any]:
        """Announce weights; says what of `shape` differs here, as [here, there], and if anything does claims nothing.

        Args:
            shape: settings of the model's config that weights must agree on, as `shape.model_shape` gives.
        """
        here = model_shape(self.model_config.hf_text_config)
        differing = {name: [value, shape[name]] for name, value in here.items() if value != shape.get(name, value)}
        if not differing:
            self._claimed = label
        return differing

    def load_policy(self, folder: str, label: str) -> None:
        """Replace all weights, unless another trainer has claimed the server meanwhile."""
        if label == self._claimed:
            self._held = ""
            self.update_policy(folder)
            self._held = label

    def policy_labels(self) -> dict[str, str]:
        """The label that was claimed last, and the one of the weights."""
        return {"claimed": self._claimed, "held": self._held}

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
