"""The files that a replay leaves: its leaderboard as Markdown, and plots as PNG."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import StoreError
from storage.files import make_folder, write_over
from tasks.leaderboard import ReplayReport
from tasks.leaderboard_text import report_markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMOOTHED = 50
"""Points that a curve over steps has at most: each is the mean of the steps that it stands for."""


def write_files(report: ReplayReport, *, markdown: Path | None, plots: Path | None) -> None:
    """Write what was asked for; a history that was not replayed again leaves the files of last time.

    Raises:
        StoreError: a file cannot be written.
    """
    if not report.lines:
        return
    if markdown is not None:
        write_over(markdown.absolute(), report_markdown(report).encode())
    if plots is not None:
        try:
            make_folder(plots.absolute())
            _write_plots(report, plots)
        except OSError as error:
            raise StoreError(f"cannot write plots to {plots}: {error.strerror or error}") from error


def _write_plots(report: ReplayReport, folder: Path) -> None:
    """`calibration.png`, `spearman.png` and `informative.png`."""
    from matplotlib.figure import Figure

    for name, draw in (("calibration", _calibration), ("spearman", _spearman), ("informative", _informative)):
        figure = Figure(figsize=(7.0, 4.5), layout="constrained")
        axes = figure.add_subplot()
        draw(axes, report)
        axes.legend()
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=120)
        write_over((folder / f"{name}.png").absolute(), picture.getvalue())


def _calibration(axes: "Axes", report: ReplayReport) -> None:
    axes.plot([0, 1], [0, 1], color="grey", linestyle=":", label="calibrated")
    for line in report.lines:
        axes.plot([one[0] for one in line.calibration], [one[1] for one in line.calibration], "o-", label=line.label)
    axes.set(xlabel="forecast success", ylabel="observed success", title="Calibration, all candidates")


def _spearman(axes: "Axes", report: ReplayReport) -> None:
    for line in report.lines:
        axes.plot(*_curve(line.spearman), label=line.label)
    axes.set(xlabel="step of the replay", ylabel="Spearman", title="Rank correlation in each step, all candidates")


def _informative(axes: "Axes", report: ReplayReport) -> None:
    axes.plot(*_curve(report.informative), color="black", label="observed")
    for line in report.lines:
        axes.plot(*_curve(line.expected), label=f"{line.label}, forecast")
    axes.set(
        xlabel="step of the replay", ylabel="informative share", title="Informative groups in each step, all candidates"
    )


def _curve(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Means over consecutive steps, so few that a curve can be told from noise; steps without a value are left out."""
    width = math.ceil(len(values) / SMOOTHED) or 1
    steps, means = [], []
    for start in range(0, len(values), width):
        known = [value for value in values[start : start + width] if not math.isnan(value)]
        if known:
            steps.append(start + (1 + min(width, len(values) - start)) / 2)
            means.append(sum(known) / len(known))
    return steps, means
