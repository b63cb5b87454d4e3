"""A predictor on trial: what it forecast is frozen before it is told what came of it."""

from dataclasses import fields

import numpy as np

from models.difficulty.base import Predictor, State
from models.errors import ModelError
from models.records import Forecast, Ints, Observation


class Trial:
    """Hands a predictor the steps of a history: forecast, then outcomes, in turns.

    A forecast is copied when it is made, and the copy is what counts. The
    predictor itself is watched: it may neither learn while it forecasts, nor
    alter forecasts that it has handed out.
    """

    def __init__(self, label: str, predictor: Predictor) -> None:
        self.label = label
        self.predictor = predictor
        self._state = predictor.state_dict()
        self._given: Forecast | None = None
        self._frozen: Forecast | None = None

    def forecast(self, rows: Ints, *, seed: int) -> Forecast:
        """What it expects of `rows`, copied; outcomes must follow.

        Raises:
            ModelError: its state is another than before.
        """
        assert self._given is None, "outcomes of the step before are still to come"
        self._given = self.predictor.forecast(rows.copy(), seed=seed)
        self._frozen = Forecast(*(getattr(self._given, one.name).copy() for one in fields(Forecast)))
        if not _same(self._state, self.predictor.state_dict()):
            raise ModelError(f"predictor {self.label} changed while it forecast: it may learn from outcomes alone")
        return self._frozen

    def observe(self, observation: Observation, *, seed: int) -> None:
        """The outcomes of the step.

        Raises:
            ModelError: forecasts that it made before are other ones now.
        """
        assert self._given is not None and self._frozen is not None, "a step is forecast before it is learned from"
        given, frozen = self._given, self._frozen
        self.predictor.observe(observation, seed=seed)
        for one in fields(Forecast):
            if not np.array_equal(getattr(given, one.name), getattr(frozen, one.name), equal_nan=True):
                raise ModelError(f"predictor {self.label} changed its {one.name} after it had seen the outcomes")
        self._given = self._frozen = None
        self._state = self.predictor.state_dict()


def _same(before: State, after: State) -> bool:
    return before.keys() == after.keys() and all(_equal(before[name], after[name]) for name in before)


def _equal(before: np.ndarray, after: np.ndarray) -> bool:
    return before.shape == after.shape and before.tobytes() == after.tobytes()
