"""What the runs of `online.py` came to: their figures by SQL, a table, and curves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from storage.catalog import query
from storage.layout import Layout

Floats = NDArray[np.float64]
Key = tuple[str, int]
"""Arm and seed."""

COSTS = ("rollouts", "tokens", "seconds")
_RATIOS = {
    f"{what} / {reference}": (what, reference) for reference in ("uniform", "dynamic sampling") for what in COSTS
}

_CURVES = """
with spent as (
    select run_id, step, sum(rollouts) over earlier as rollouts, sum(response_tokens) over earlier as tokens,
           sum(predict_seconds + acquire_seconds + generate_seconds + score_seconds + update_policy_seconds
               + update_predictor_seconds) over earlier as seconds
    from steps window earlier as (partition by run_id order by step)
), measured as (
    select run_id, step, sum(successes) / sum(samples) as success, sum(samples) as evaluated
    from evaluations group by run_id, step
)
select * from spent join measured using (run_id, step) order by run_id, step
"""
_GROUPS = """
select sum(informative_groups) / sum(steps.groups) as informative, avg(spearman) as spearman,
       avg(brier) as brier, avg(ece) as ece
from steps left join predictor_updates using (run_id, step)
"""
_VISITS = """
select json_extract_string(tags, '$.numbers') as numbers, count(*) as visits, count(distinct prompt_id) as prompts
from raw.acquisitions join prompts using (prompt_id)
where dataset = $dataset and decision in ('acquired', 'explored') group by numbers order by numbers
"""
_HELDOUT = """
select json_extract_string(tags, '$.numbers') as numbers, sum(successes) / sum(samples) as success
from evaluations join prompts using (prompt_id)
where dataset = $dataset and step = $step group by numbers order by numbers
"""


@dataclass(frozen=True)
class Curve:
    """Held-out success of one run, and what was spent before each measurement."""

    success: Floats
    """[M] of the measurements, the first before step 1."""
    spent: Mapping[str, Floats]
    """[M] rollouts, response tokens and seconds in tasks so far, without those of the measurements."""
    evaluated: int
    """Rollouts of all measurements together."""
    last: int
    """Step of the last measurement."""

    def cost(self, target: float, what: str) -> float:
        """What was spent when success first met the target, linear between two measurements; inf if it never did."""
        reached = np.flatnonzero(self.success >= target)
        if len(reached) == 0:
            return float("inf")
        after = int(reached[0])
        if after == 0:
            return 0.0
        before, spent = after - 1, self.spent[what]
        share = (target - self.success[before]) / (self.success[after] - self.success[before])
        return float(spent[before] + share * (spent[after] - spent[before]))

    def success_at(self, rollouts: float) -> float:
        """Held-out success after so many rollouts, linear between two measurements."""
        return float(np.interp(rollouts, self.spent["rollouts"], self.success))


def read_curves(layout: Layout, runs: Mapping[str, Key]) -> dict[Key, Curve]:
    """The curves of some runs, which are named by arm and seed."""
    found = pl.DataFrame(query(layout, _CURVES)).partition_by("run_id", as_dict=True)
    curves = {}
    for run, key in runs.items():
        rows = found[(run,)]
        success, *spent = (rows[name].to_numpy().astype(np.float64) for name in ("success", *COSTS))
        evaluated, last = int(rows["evaluated"].sum()), int(rows["step"][-1])
        curves[key] = Curve(success, dict(zip(COSTS, spent, strict=True)), evaluated, last)
    return curves


def costs(curves: Mapping[Key, Curve], arm: str, target: float, what: str) -> dict[int, float]:
    """What each seed of an arm spent until the target."""
    return {seed: curve.cost(target, what) for (name, seed), curve in curves.items() if name == arm}


def paired_ratio(curves: Mapping[Key, Curve], arm: str, reference: str, target: float, what: str) -> float:
    """Median over the seeds that both have of the arm's cost over the reference's.

    A reference that missed the target is taken to have met it with its last
    rollout, which makes the ratio too large; an arm that missed it counts as inf.
    A seed whose reference met it untrained is left out.
    """
    ours, theirs = costs(curves, arm, target, what), costs(curves, reference, target, what)
    ratios = [
        ours[seed] / min(theirs[seed], float(curves[reference, seed].spent[what][-1]))
        for seed in ours.keys() & theirs.keys()
        if theirs[seed] > 0.0
    ]
    return float(np.median(ratios)) if ratios else float("nan")


def paired_difference(curves: Mapping[Key, Curve], arm: str, reference: str, rollouts: float) -> tuple[float, float]:
    """Mean over seeds of the difference in held-out success at equal rollouts, and half its 95 % interval."""
    seeds = [seed for name, seed in curves if name == arm and (reference, seed) in curves]
    found = [curves[arm, seed].success_at(rollouts) - curves[reference, seed].success_at(rollouts) for seed in seeds]
    if len(found) < 2:
        return float(np.mean(found)) if found else float("nan"), float("nan")
    return float(np.mean(found)), float(stats.t.ppf(0.975, len(found) - 1) * stats.sem(found))


def read_diagnostics(layout: Layout, run: str, last: int, pool: str, heldout: str) -> dict[str, Any]:
    """What one run was shown and how good its forecasts were; visits and held-out success by how many numbers."""
    groups = query(layout, _GROUPS, run=run).to_pylist()[0]
    visits = query(layout, _VISITS, {"dataset": pool}, run).to_pylist()
    heldout_by = query(layout, _HELDOUT, {"dataset": heldout, "step": last}, run).to_pylist()
    total, distinct = (sum(one[name] for one in visits) for name in ("visits", "prompts"))
    return {
        **{name: float("nan") if value is None else float(value) for name, value in groups.items()},
        "distinct": distinct,
        "repeats": total - distinct,
        "visits_by": {one["numbers"]: one["visits"] / total for one in visits},
        "heldout_by": {one["numbers"]: one["success"] for one in heldout_by},
    }


def summarise(
    curves: Mapping[Key, Curve], diagnostics: Mapping[Key, dict[str, Any]], target: float
) -> list[dict[str, Any]]:
    """Figures of every arm, in the order of the curves."""
    arms = list(dict.fromkeys(arm for arm, _ in curves))
    common = min(float(curve.spent["rollouts"][-1]) for curve in curves.values())
    return [_summary(curves, diagnostics, arm, target, common) for arm in arms]


def _summary(
    curves: Mapping[Key, Curve], diagnostics: Mapping[Key, dict[str, Any]], arm: str, target: float, common: float
) -> dict[str, Any]:
    ours = [curve for (name, _), curve in curves.items() if name == arm]
    seen = [found for (name, _), found in diagnostics.items() if name == arm]
    difference, half = paired_difference(curves, arm, "uniform", common)
    return {
        "arm": arm,
        "seeds": len(ours),
        "reached": sum(bool(np.isfinite(curve.cost(target, "rollouts"))) for curve in ours),
        **{what: float(np.median([curve.cost(target, what) for curve in ours])) for what in COSTS},
        "by_seed": costs(curves, arm, target, "rollouts"),
        "ratios": {
            name: paired_ratio(curves, arm, reference, target, what) for name, (what, reference) in _RATIOS.items()
        },
        "common": common,
        "success_at_common": float(np.mean([curve.success_at(common) for curve in ours])),
        "difference": difference,
        "difference_half_interval": half,
        "success_first": float(np.mean([curve.success[0] for curve in ours])),
        "success_last": float(np.mean([curve.success[-1] for curve in ours])),
        "spent": {what: float(np.mean([curve.spent[what][-1] for curve in ours])) for what in COSTS},
        "evaluated": float(np.mean([curve.evaluated for curve in ours])),
        **{
            name: float(np.nanmean([one[name] for one in seen]))
            for name in ("informative", "distinct", "repeats", "spearman", "brier", "ece")
        },
        **{name: _means(one[name] for one in seen) for name in ("visits_by", "heldout_by")},
    }


def _means(found: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each entry; one that is missing counts as 0."""
    several = list(found)
    names = sorted({name for one in several for name in one})
    return {name: float(np.mean([one.get(name, 0.0) for one in several])) for name in names}


def table(summary: list[dict[str, Any]]) -> list[str]:
    """The headline, and below it what explains it, as Markdown."""
    common = summary[0]["common"]
    numbers = sorted(summary[0]["heldout_by"])
    head = _head("way", "seeds", "met", *COSTS, *_RATIOS, f"success at {common:,.0f}", "less that of uniform")
    second = _head(
        "way", "informative", "distinct", "repeats", "Spearman", "Brier", "ECE",
        *(f"visits, {count}" for count in numbers), *(f"success, {count}" for count in numbers),
    )  # fmt: skip
    return [*head, *map(_headline, summary), "", *second, *(_explanation(one, numbers) for one in summary)]


def _headline(one: dict[str, Any]) -> str:
    return _row(
        one["arm"],
        str(one["seeds"]),
        str(one["reached"]),
        *(_count(one[what]) for what in COSTS),
        *(_ratio(one["ratios"][name]) for name in _RATIOS),
        f"{one['success_at_common']:.3f}",
        f"{one['difference']:+.3f} ± {one['difference_half_interval']:.3f}",
    )


def _explanation(one: dict[str, Any], numbers: list[str]) -> str:
    return _row(
        one["arm"],
        f"{one['informative']:.2f}",
        f"{one['distinct']:.0f}",
        f"{one['repeats']:.0f}",
        *(f"{one[name]:.3f}" for name in ("spearman", "brier", "ece")),
        *(f"{one['visits_by'].get(count, 0.0):.2f}" for count in numbers),
        *(f"{one['heldout_by'][count]:.3f}" for count in numbers),
    )


def _head(first: str, *others: str) -> list[str]:
    return [_row(first, *others), "|---|" + "---:|" * len(others)]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _count(value: float) -> str:
    return f"{value:,.0f}" if np.isfinite(value) else "not met"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "—"


def plot(curves: Mapping[Key, Curve], target: float, path: Path) -> None:
    """Mean held-out success of each arm against what was spent, with its standard error over the seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(COSTS), figsize=(15, 4.5), sharey=True)
    for panel, what in zip(panels, COSTS, strict=True):
        for arm in dict.fromkeys(arm for arm, _ in curves):
            spent, mean, error = _mean_curve([curve for (name, _), curve in curves.items() if name == arm], what)
            (line,) = panel.plot(spent, mean, label=arm)
            panel.fill_between(spent, mean - error, mean + error, color=line.get_color(), alpha=0.15)
        panel.axhline(target, color="grey", linestyle=":")
        panel.set_xlabel(f"{what} spent")
    panels[0].set_ylabel("held-out success")
    panels[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _mean_curve(curves: list[Curve], what: str) -> tuple[Floats, Floats, Floats]:
    """Spent, mean success and its standard error, as far as every seed went."""
    grid = np.linspace(0.0, min(curve.spent[what][-1] for curve in curves), 60)
    success = np.array([np.interp(grid, curve.spent[what], curve.success) for curve in curves])
    return grid, success.mean(axis=0), success.std(axis=0) / np.sqrt(len(curves))
