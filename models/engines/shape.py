"""What of a model's config decides whether another model's weights fit it. Servers import it too."""

from typing import Any

_SETTINGS = (
    "model_type",
    "vocab_size",
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "tie_word_embeddings",
)


def model_shape(config: Any) -> dict[str, Any]:
    """The settings by name, but for those that a config lacks.

    Args:
        config: of the text model, as `transformers` has it.
    """
    found = {name: getattr(config, name, None) for name in _SETTINGS}
    return {name: value for name, value in found.items() if value is not None}
