"""What selectors would have got from the runs of a replay: each predictor with the run's own rule, and with others.

A run's log is read beside the walk, a step at a time; the forecasts are those
that the walk's predictors made before they learned from the step.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import TypeAdapter, ValidationError

from models.acquisition.counterfactual import Counterfactual, counterfactual_value
from models.acquisition.off_policy import StepSums
from models.records import Forecast, Ints, Pool
from models.settings import AcquisitionSettings
from storage.errors import StoreError
from storage.layout import Layout
from storage.runs import Run
from tasks.counterfactual import LoggedStep, judge_step, logged_steps

HEAD = ("run", "predictor", "rule", "informative share", "effective groups", "refused")


@dataclass(frozen=True)
class SelectorValue:
    """One selector on one run."""

    run: str
    predictor: str
    """Its name in the leaderboard; empty, as the rule, where the run supports no selector at all."""
    rule: str
    value: Counterfactual


class RunLog:
    """The log of one run, and what each selector makes of it so far."""

    def __init__(
        self, layout: Layout, record: Run, pool: Pool, row_of: Mapping[str, int], rules: Sequence[str]
    ) -> None:
        self._record, self._pool = record, pool
        self._steps: Iterator[LoggedStep] = logged_steps(layout, record.run, row_of)
        self._sums: dict[tuple[str, str], list[StepSums]] = {}
        self._fault = ""
        self._logged = self._next()
        self._targets = self._selectors(rules) if self._logged else []

    def judge(self, label: str, step: int, rows: Ints, forecast: Forecast) -> None:
        """Weigh a step by what a predictor expects of its candidates; a step that logged nothing weighs nothing.

        Args:
            rows: ascending pool rows of the step's candidates.
            forecast: of these, made without knowledge of the step's outcomes.
        """
        while self._logged is not None and self._logged.step < step:
            self._logged = self._next()
        logged = self._logged
        if logged is None or logged.step != step:
            return
        expected = forecast.at(np.searchsorted(rows, logged.rows))
        for settings in self._targets:
            sums = judge_step(
                logged,
                logged.rows,
                expected,
                pool=self._pool,
                settings=settings,
                seed=self._record.config["seed"],
                group_size=self._record.config["sampling"]["group_size"],
            )
            self._sums.setdefault((label, settings.name), []).append(sums)

    def values(self) -> list[SelectorValue]:
        """An estimate or a refusal for each selector, rule by rule, best first; one refusal where there is none."""
        run = self._record.run
        if self._fault:
            return [SelectorValue(run, "", "", Counterfactual(0, 0.0, None, None, self._fault))]
        if not self._sums:
            return [SelectorValue(run, "", "", counterfactual_value([]))]
        found = [SelectorValue(run, *names, counterfactual_value(steps)) for names, steps in self._sums.items()]
        order: list[str] = [settings.name for settings in self._targets]
        return sorted(found, key=lambda one: (order.index(one.rule), -_share(one.value)))

    def _next(self) -> LoggedStep | None:
        try:
            return next(self._steps, None)
        except StoreError as error:
            self._fault = str(error)
            return None

    def _selectors(self, rules: Sequence[str]) -> list[AcquisitionSettings]:
        """The run's own rule and the others, all with the run's own settings."""
        try:
            own = TypeAdapter(AcquisitionSettings).validate_python(self._record.config["acquisition"])
        except ValidationError:
            self._fault = "this Foreroll does not know the settings of its rule"
            return []
        return [replace(own, name=name) for name in dict.fromkeys((own.name, *rules))]  # type: ignore[arg-type]


def rules_embed(records: Iterable[Run], rules: Sequence[str]) -> bool:
    """Whether one of the rules, or of the runs' own, is `gps`, which needs `Pool.embeddings`."""
    return "gps" in {*rules, *(record.config.get("acquisition", {}).get("name") for record in records)}


def value_rows(values: Sequence[SelectorValue]) -> list[tuple[str, ...]]:
    """The values as cells under `HEAD`; runs that support no selector, for one and the same reason, share a row."""
    rows = [_cells(one) for one in values if one.predictor]
    reasons = [one.value.refusal for one in values if not one.predictor]
    for reason in dict.fromkeys(reasons):
        runs = [one.run for one in values if not one.predictor and one.value.refusal == reason]
        rows.append((runs[0] if len(runs) == 1 else f"{len(runs):,} runs", "-", "-", "-", "-", reason))
    return [HEAD, *rows]


def _cells(one: SelectorValue) -> tuple[str, ...]:
    estimate = one.value.doubly_robust
    share = f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]" if estimate else "-"
    return one.run, one.predictor, one.rule, share, f"{one.value.groups:,.0f}", one.value.refusal or "-"


def _share(value: Counterfactual) -> float:
    return value.doubly_robust.value if value.doubly_robust else -1.0
