"""The summary of a run, read from its history."""

import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from models.difficulty.metrics import forecast_quality
from models.records import Floats
from storage.layout import Layout
from storage.queries import heldout_ends, judged_groups, run_totals
from tasks.observed import group_weights


@dataclass(frozen=True)
class HeldOut:
    """Held-out success of the first and the last evaluation."""

    prompts: int
    samples: int
    before: float
    after: float
    half_width: float
    """Half the 95 % interval of the paired difference, over prompts."""
    last_step: int


@dataclass(frozen=True)
class RunReport:
    """What a run did."""

    run: str
    store: str
    totals: dict[str, Any]
    """Sums over the committed steps; all None before step 0."""
    quality: dict[str, float]
    """Forecast quality over the groups that were rolled out, each judged before it was learned from."""
    unbiased: dict[str, float]
    """The same weighted by 1 / propensity over first rounds, which estimates it over all candidates."""
    heldout: HeldOut | None


def build_report(layout: Layout, run: str) -> RunReport:
    """Read the history of a run."""
    groups = judged_groups(layout, run)
    return RunReport(
        run=run,
        store=str(layout.root),
        totals=run_totals(layout, run),
        quality=_quality(groups),
        unbiased=_quality(groups, group_weights(groups)),
        heldout=_heldout(heldout_ends(layout, run)),
    )


def report_lines(report: RunReport) -> list[str]:
    """The report for a terminal."""
    totals = report.totals
    lines = [f"run {report.run}: {totals['steps'] or 0} steps"]
    if report.heldout:
        one = report.heldout
        lines.append(
            f"held-out success  {one.before:.3f} -> {one.after:.3f}  ({one.after - one.before:+.3f} ± "
            f"{one.half_width:.3f}, {one.prompts} prompts x {one.samples}, at step {one.last_step})"
        )
    if totals["groups"]:
        lines += [
            f"informative       {totals['informative_groups']} of {totals['groups']} groups "
            f"({totals['informative_groups'] / totals['groups']:.0%})",
            f"rollouts          {totals['rollouts']:,} ({totals['successes']:,} successes), "
            f"{totals['response_tokens']:,} response tokens, {totals['prompt_tokens']:,} prompt tokens",
            f"forecasts         {_format_quality(report.quality)}",
            f"  all candidates  {_format_quality(report.unbiased)}  (weighted by 1 / propensity)",
            f"time in tasks     {totals['seconds']:.0f} s",
        ]
    return [*lines, f"history           {report.store}/history"]


def example_commands(report: RunReport, program: str = "foreroll") -> list[str]:
    """Three SQL lines that show what the history holds, ready to paste.

    Args:
        program: how the command is called.
    """
    run = report.run
    queries = [
        f"select step, avg(success::int) as success from rollouts where run_id = '{run}' group by step order by step",
        "select text, count(*) as visits, avg(success_rate) as success "
        "from groups join (select distinct prompt_id, text from prompts) using (prompt_id) "
        f"where run_id = '{run}' group by text order by visits desc limit 10",
        "select round(p_success, 1) as forecast, count(*) as groups, avg(success_rate) as observed "
        f"from groups where run_id = '{run}' group by 1 order by 1",
    ]
    return [f'{program} sql --store {shlex.quote(report.store)} "{text}"' for text in queries]


def report_markdown(report: RunReport) -> str:
    """The report as a Prefect artifact shows it."""
    return "\n".join(["```", *report_lines(report), "", *example_commands(report), "```", ""])


def _quality(groups: pa.Table, weights: Floats | None = None) -> dict[str, float]:
    return forecast_quality(
        groups["p_success"].to_numpy().astype(np.float64),
        groups["successes"].to_numpy(),
        groups["valid"].to_numpy(),
        weights,
    )


def _format_quality(quality: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" if value == value else f"{name} -" for name, value in quality.items())


def _heldout(rows: list[dict[str, Any]]) -> HeldOut | None:
    if not rows:
        return None
    before = np.array([row["successes_before"] / row["samples_before"] for row in rows])
    after = np.array([row["successes_after"] / row["samples_after"] for row in rows])
    spread = float(np.std(after - before, ddof=1)) if len(rows) > 1 else 0.0
    return HeldOut(
        prompts=len(rows),
        samples=rows[0]["samples_after"],
        before=float(before.mean()),
        after=float(after.mean()),
        half_width=1.96 * spread / len(rows) ** 0.5,
        last_step=rows[0]["last_step"],
    )
