"""The summary of a run, read from its history."""

import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.difficulty.metrics import forecast_quality
from storage.catalog import query
from storage.layout import Layout

_TOTALS = """
select max(step) as steps, sum(groups)::bigint as groups, sum(informative_groups)::bigint as informative_groups,
       sum(rollouts)::bigint as rollouts, sum(successes)::bigint as successes,
       sum(prompt_tokens)::bigint as prompt_tokens, sum(response_tokens)::bigint as response_tokens,
       sum(predict_seconds + acquire_seconds + generate_seconds + score_seconds + update_policy_seconds
           + update_predictor_seconds + evaluate_seconds) as seconds
from steps where run_id = $run
"""
_GROUPS = """
select p_success, successes, valid, decision from groups
where run_id = $run and valid > 0 order by step, round, group_id
"""
_EVALUATIONS = """
select prompt_id, any_value(samples) as samples, max(step) as last,
       min_by(successes, step) as before, max_by(successes, step) as after
from evaluations where run_id = $run group by prompt_id order by prompt_id
"""


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
    """Sums over the committed steps; all None before step 1."""
    quality: dict[str, float]
    """Forecast quality over all groups, each judged before it was learned from."""
    explored: dict[str, float]
    """The same over the uniform exploration slice alone, which no selection biases."""
    heldout: HeldOut | None


def build_report(layout: Layout, run: str) -> RunReport:
    """Read the history of a run."""
    groups = query(layout, _GROUPS, {"run": run})
    explored = groups.filter(np.array(groups["decision"].to_pylist()) == "explored")
    return RunReport(
        run=run,
        store=str(layout.root),
        totals=query(layout, _TOTALS, {"run": run}).to_pylist()[0],
        quality=_quality(groups),
        explored=_quality(explored),
        heldout=_heldout(query(layout, _EVALUATIONS, {"run": run}).to_pylist()),
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
            f"  explored only   {_format_quality(report.explored)}",
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
        "select text, count(*) as visits, avg(success_rate) as success from groups join prompts using (prompt_id) "
        f"where run_id = '{run}' group by text order by visits desc limit 10",
        "select round(p_success, 1) as forecast, count(*) as groups, avg(success_rate) as observed "
        f"from groups where run_id = '{run}' group by 1 order by 1",
    ]
    return [f'{program} sql --store {shlex.quote(report.store)} "{text}"' for text in queries]


def report_markdown(report: RunReport) -> str:
    """The report as a Prefect artifact shows it."""
    return "\n".join(["```", *report_lines(report), "", *example_commands(report), "```", ""])


def _quality(groups: Any) -> dict[str, float]:
    return forecast_quality(
        groups["p_success"].to_numpy().astype(np.float64),
        groups["successes"].to_numpy(),
        groups["valid"].to_numpy(),
    )


def _format_quality(quality: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" if value == value else f"{name} -" for name, value in quality.items())


def _heldout(rows: list[dict[str, Any]]) -> HeldOut | None:
    if not rows:
        return None
    samples = rows[0]["samples"]
    before = np.array([row["before"] for row in rows]) / samples
    after = np.array([row["after"] for row in rows]) / samples
    spread = float(np.std(after - before, ddof=1)) if len(rows) > 1 else 0.0
    return HeldOut(
        prompts=len(rows),
        samples=samples,
        before=float(before.mean()),
        after=float(after.mean()),
        half_width=1.96 * spread / len(rows) ** 0.5,
        last_step=max(row["last"] for row in rows),
    )
