"""AdamW (arXiv 1711.05101) with a state that goes by parameter names, and steps that can be taken back."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Snapshot:
    """Copies of all weights and of the optimiser's state."""

    weights: dict[str, Tensor]
    moments: dict[str, Tensor]


class NamedAdamW:
    """Steps the parameters of one model; parameters that are tied count once, under their first name."""

    def __init__(self, model: nn.Module, *, lr: float, weight_decay: float) -> None:
        self._parameters = dict(model.named_parameters())
        self._adamw = torch.optim.AdamW(self._parameters.values(), lr=lr, weight_decay=weight_decay)
        for parameter in self._parameters.values():  # what AdamW itself would do at its first step
            self._adamw.state[parameter] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def clip_gradients(self, max_norm: float) -> float:
        """Scale the gradients down to `max_norm`; the norm that they had."""
        return float(nn.utils.clip_grad_norm_(self._parameters.values(), max_norm))

    def step(self) -> None:
        self._adamw.step()

    def zero_grad(self) -> None:
        self._adamw.zero_grad(set_to_none=True)

    def snapshot(self) -> Snapshot:
        """Copy everything that a step changes."""
        return Snapshot(
            weights={name: weight.detach().clone() for name, weight in self._parameters.items()},
            moments={name: moment.clone() for name, moment in self._moments().items()},
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Put weights and state back, to the bit."""
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(snapshot.weights[name])
        for name, moment in self._moments().items():
            moment.copy_(snapshot.moments[name])

    def state_dict(self) -> dict[str, NDArray[np.float32]]:
        """A copy of the state: `<parameter>.step`, `<parameter>.exp_avg` and `<parameter>.exp_avg_sq`."""
        return {name: moment.cpu().numpy().copy() for name, moment in self._moments().items()}

    def load_state_dict(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        """Take over the state of an optimiser over parameters of the same names and shapes."""
        moments = self._moments()
        assert moments.keys() == state.keys(), "the state is of another model"
        for name, moment in moments.items():
            moment.copy_(torch.from_numpy(state[name]))

    def _moments(self) -> dict[str, Tensor]:
        return {
            f"{name}.{moment}": self._adamw.state[parameter][moment]
            for name, parameter in self._parameters.items()
            for moment in _MOMENTS
        }
