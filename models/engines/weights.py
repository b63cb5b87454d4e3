"""The weights of a policy, named as its checkpoint names them."""

from torch import Tensor

from models.policy.loading import Policy


def checkpoint_weights(policy: Policy) -> list[tuple[str, Tensor]]:
    """(name, tensor) pairs; a tensor that is tied to another counts once, under its first name, as in a checkpoint."""
    seen: set[int] = set()
    weights = []
    for name, tensor in policy.model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            weights.append((name, tensor))
    return weights
