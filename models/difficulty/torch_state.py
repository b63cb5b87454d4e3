"""What predictors made of torch networks share: seeded chance, and their state as named arrays."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from models.difficulty.base import State


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's generators, of the CPU and of the GPU in use, start from `seed` in the block and are restored after it.

    `torch.manual_seed` would reach the generators of all GPUs, and they would not be restored.
    """
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = [torch.cuda.current_device()] if in_use else []
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed(seed)
        yield


def network_state(network: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Copies of all weights and of Adam's moments."""
    weights = {f"weight.{name}": value.cpu().numpy().copy() for name, value in network.state_dict().items()}
    moments = {
        f"adam.{name}.{key}": value.cpu().numpy().copy()
        for name, parameter in network.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }
    return {**weights, **moments}


def load_network(state: State, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Take over what `network_state` made of a network and an Adam of the same shape."""
    network.load_state_dict({name: torch.from_numpy(state[f"weight.{name}"]) for name in network.state_dict()})
    for name, parameter in network.named_parameters():
        keys = [key for key in ("step", "exp_avg", "exp_avg_sq") if f"adam.{name}.{key}" in state]
        loaded = {key: torch.from_numpy(state[f"adam.{name}.{key}"].copy()) for key in keys}
        optimizer.state[parameter] = {
            key: value if key == "step" else value.to(parameter.device) for key, value in loaded.items()
        }
