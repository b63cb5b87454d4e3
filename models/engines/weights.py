"""The weights of a policy, named as its checkpoint names them."""

from torch import Tensor

from models.errors import EngineError
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


def check_finite(policy: Policy) -> None:
    """Refuse weights that no engine can sample with.

    Raises:
        EngineError: one is NaN or infinite.
    """
    for name, tensor in policy.model.named_parameters():
        if not bool(tensor.isfinite().all()):
            raise EngineError(f"the policy's weights are not finite ({name}): fork the run with a lower update.lr")
