"""What a replay found: one line a predictor, for a terminal, for Markdown, as JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from models.difficulty.prequential import METRICS, SLICES, Score
from tasks.selectors import SelectorValue, value_rows

SCORE = "nll"
"""What decides: the negative log-likelihood of a rollout, over all candidates. Smaller is better."""
COLUMNS = (SCORE, *(name for name in METRICS if name != SCORE))

_ABOUT = {
    "candidates": "all candidates: first rounds weighted by 1 / propensity, and groups that nobody selected",
    "explored": "explored: drawn uniformly from what the run's own rule passed over",
    "acquired": "acquired: chosen by the run's own rule, so a biased sample",
}

_ABOUT_VALUES = "counterfactual: informative share that predictor and rule would have had in the logged steps of a run"


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


def report_lines(report: ReplayReport) -> list[str]:
    """The report for a terminal."""
    if not report.lines:
        return [report.published]
    lines = [_summary(report), *(f"note: {fault}" for fault in report.faults)]
    for name in _slices(report):
        rows = [_cells(line, name) for line in report.lines]
        lines += ["", f"{_ABOUT[name]} ({report.slices[name]:,} groups)", *_aligned([_head(name), *rows])]
    lines += ["", _ABOUT_VALUES, *_aligned(value_rows(report.values))]
    return [*lines, *_reproduced(report), *([report.published] if report.published else [])]


def report_markdown(report: ReplayReport) -> str:
    """The report as a page."""
    lines = ["# Replay", "", f"{_summary(report)}." if report.lines else "", ""]
    lines += [f"- {fault}" for fault in report.faults]
    for name in _slices(report):
        rows = [_cells(line, name) for line in report.lines]
        lines += ["", f"## {name.capitalize()}", "", f"{_ABOUT[name]} ({report.slices[name]:,} groups).", ""]
        lines += _table([_head(name), *rows])
    if report.values:
        lines += ["", "## Counterfactual", "", f"{_ABOUT_VALUES}.", "", *_table(value_rows(report.values))]
    notes = [*_reproduced(report), *([report.published] if report.published else [])]
    return "\n".join([*lines, *(f"\n{note}." for note in notes), ""])


def leaderboard_rows(report: ReplayReport) -> list[dict[str, Any]]:
    """A row a predictor and slice, as a Prefect table artifact shows them."""
    return [
        dict(zip(["slice", *_head(name)], [name, *_cells(line, name)], strict=True))
        for name in _slices(report)
        for line in report.lines
    ]


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


def _summary(report: ReplayReport) -> str:
    share = f", {report.informative_share:.0%} of them informative" if report.groups else ": nothing to judge by"
    return (
        f"replayed {_count(len(report.runs), 'run')}, {_count(len(report.steps), 'step')}, "
        f"{_count(report.groups, 'group')} of {_count(report.prompts, 'prompt')}{share}"
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _slices(report: ReplayReport) -> list[str]:
    return [name for name in SLICES if report.slices.get(name)]


def _head(name: str) -> list[str]:
    return ["predictor", *COLUMNS, *(["best half"] if name == "candidates" else [])]


def _cells(line: Line, name: str) -> list[str]:
    scores = [_format(line.scores[name][column]) for column in COLUMNS]
    return [line.label, *scores, *([_share(line.best_half)] if name == "candidates" else [])]


def _format(score: Score) -> str:
    if math.isnan(score.value):
        return "-"
    return f"{score.value:.3f} [{score.low:.3f}, {score.high:.3f}]"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.0%}"


def _reproduced(report: ReplayReport) -> list[str]:
    return [
        f"{line.label} is the run's own predictor: {line.reproduced:,} of {report.stored_forecasts:,} stored forecasts "
        "are reproduced to the bit"
        for line in report.lines
        if line.reproduced is not None
    ]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows under their head, as Markdown."""
    head, *below = rows
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *below)]


def no_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: no_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [no_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
