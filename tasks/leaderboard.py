"""What a replay found: one line a predictor, and all of it as JSON. `tasks.leaderboard_text` shows it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from models.difficulty.prequential import Score
from tasks.selectors import SelectorValue

SCORE = "nll"
"""What decides: the negative log-likelihood of a rollout, over all candidates. Smaller is better."""


@dataclass(frozen=True)
class Line:
    """One predictor."""

    label: str
    settings: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, Score]]
    """By slice and metric; a slice without groups is absent."""
    calibration: Sequence[tuple[float, float, float]]
    """Mean forecast, observed success and share of the weight of each bin."""
    best_half: float
    """Informative share of the candidates that it ranked into the better half of their step."""
    spearman: Sequence[float]
    """Of each step's candidates."""
    expected: Sequence[float]
    """Informative share that it forecast of each step's candidates."""
    reproduced: int | None = None
    """Forecasts equal to the stored ones to the bit; None where they are not its own."""

    @property
    def score(self) -> float:
        """What the leaderboard is sorted by; infinite where nothing was judged."""
        value = self.scores["candidates"][SCORE].value if "candidates" in self.scores else math.nan
        return math.inf if math.isnan(value) else value


@dataclass(frozen=True)
class ReplayReport:
    """Everything that a replay found."""

    store: str
    runs: Mapping[str, int] = field(default_factory=dict)
    """Steps replayed of each run."""
    steps: Sequence[tuple[str, int]] = ()
    prompts: int = 0
    """That have a group."""
    groups: int = 0
    slices: Mapping[str, int] = field(default_factory=dict)
    """Groups of each slice."""
    informative: Sequence[float] = ()
    """Informative share of each step's candidates."""
    informative_share: float = math.nan
    """Of all groups, as they are."""
    stored_forecasts: int = 0
    """Of the run that was replayed alone; 0 where there were several."""
    values: Sequence[SelectorValue] = ()
    """What each predictor, with a rule, would have got from each run."""
    lines: Sequence[Line] = ()
    """Best first; empty where the history was published before, and not replayed again."""
    faults: Sequence[str] = ()
    """What was left out, and why."""
    published: str = ""
    """What became of publishing, where that was asked for."""


def report_json(report: ReplayReport) -> dict[str, Any]:
    """The report as JSON values; what is undefined is null."""
    found: dict[str, Any] = no_nan(asdict(report))
    return found


def score_json(line: Line) -> dict[str, Any]:
    """The figures of a line as JSON values, a metric as [value, low, high]."""
    return {
        name: {metric: no_nan([one.value, one.low, one.high]) for metric, one in scores.items()}
        for name, scores in line.scores.items()
    }


def no_nan(value: Any) -> Any:
    """A JSON value with null for every number that is not finite."""
    if isinstance(value, Mapping):
        return {key: no_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [no_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
