"""Shows what a replay found: on a terminal, as Markdown, as a table artifact."""

import math
from typing import Any

from models.difficulty.prequential import METRICS, SLICES, Score
from tasks.leaderboard import SCORE, Line, ReplayReport
from tasks.selectors import value_rows
from tasks.tables import aligned, counted, markdown_table

COLUMNS = (SCORE, *(name for name in METRICS if name != SCORE))

_ABOUT = {
    "candidates": "all candidates: first rounds weighted by 1 / propensity, and groups that nobody selected",
    "explored": "explored: drawn uniformly from what the run's own rule passed over",
    "acquired": "acquired: chosen by the run's own rule, so a biased sample",
}

_OTHERS = "; if no line here tells why, the others were made by another version, machine or thread count"
_ABOUT_VALUES = "counterfactual: informative share that predictor and rule would have had in the logged steps of a run"


def report_lines(report: ReplayReport) -> list[str]:
    """The report for a terminal."""
    if not report.lines:
        return [report.published]
    lines = [_summary(report), *(f"note: {fault}" for fault in report.faults)]
    for name in _slices(report):
        rows = [_cells(line, name) for line in report.lines]
        lines += ["", f"{_ABOUT[name]} ({report.slices[name]:,} groups)", *aligned([_head(name), *rows])]
    lines += ["", _ABOUT_VALUES, *aligned(value_rows(report.values))]
    return [*lines, *_reproduced(report), *([report.published] if report.published else [])]


def report_markdown(report: ReplayReport) -> str:
    """The report as a page."""
    lines = ["# Replay", "", f"{_summary(report)}." if report.lines else "", ""]
    lines += [f"- {fault}" for fault in report.faults]
    for name in _slices(report):
        rows = [_cells(line, name) for line in report.lines]
        lines += ["", f"## {name.capitalize()}", "", f"{_ABOUT[name]} ({report.slices[name]:,} groups).", ""]
        lines += markdown_table([_head(name), *rows])
    if report.values:
        lines += ["", "## Counterfactual", "", f"{_ABOUT_VALUES}.", "", *markdown_table(value_rows(report.values))]
    notes = [*_reproduced(report), *([report.published] if report.published else [])]
    return "\n".join([*lines, *(f"\n{note}." for note in notes), ""])


def leaderboard_rows(report: ReplayReport) -> list[dict[str, Any]]:
    """A row a predictor and slice, as a Prefect table artifact shows them."""
    return [
        dict(zip(["slice", *_head(name)], [name, *_cells(line, name)], strict=True))
        for name in _slices(report)
        for line in report.lines
    ]


def _summary(report: ReplayReport) -> str:
    share = f", {report.informative_share:.0%} of them informative" if report.groups else ": nothing to judge by"
    return (
        f"replayed {counted(len(report.runs), 'run')}, {counted(len(report.steps), 'step')}, "
        f"{counted(report.groups, 'group')} of {counted(report.prompts, 'prompt')}{share}"
    )


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
        "are reproduced to the bit" + ("" if line.reproduced == report.stored_forecasts else _OTHERS)
        for line in report.lines
        if line.reproduced is not None
    ]
