"""What the runs of `online.py` came to: their figures by SQL, a table, and curves."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
REFERENCES = ("uniform", "dynamic sampling")

_NUMBERED = """
with numbered as (
    select prompt_id, json_extract(tags, '$.numbers')::int as numbers from prompts where dataset = $dataset
)
"""
_CURVES = f"""
{_NUMBERED}, spent as (
    select run_id, step, sum(rollouts) over earlier as rollouts, sum(response_tokens) over earlier as tokens,
           sum(predict_seconds + acquire_seconds + generate_seconds + score_seconds + update_policy_seconds
               + update_predictor_seconds) over earlier as seconds
    from steps window earlier as (partition by run_id order by step)
)
select run_id, step, rollouts, spent.tokens, seconds, numbers, sum(successes) / sum(samples) as success
from spent join evaluations using (run_id, step) join numbered using (prompt_id)
group by all order by run_id, step, numbers
"""
_GROUPS = """
select sum(informative_groups) / sum(steps.groups) as informative,
       avg(spearman) filter (not isnan(spearman)) as spearman, avg(brier) as brier, avg(ece) as ece
from steps left join predictor_updates using (run_id, step)
"""
_VISITS = f"""
{_NUMBERED} select numbers, count(*) as visits, count(distinct prompt_id) as prompts
from raw.acquisitions join numbered using (prompt_id)
where decision in ('acquired', 'explored') group by numbers order by numbers
"""


@dataclass(frozen=True)
class Target:
    """A held-out success to be met."""

    weights: Mapping[int, float]
    """Weight of the mean success on problems that have so many numbers; they add up to 1."""
    success: float
    others: tuple[float, ...] = ()
    """Further values to be met."""


@dataclass(frozen=True)
class Curve:
    """Held-out success of one run, and what was spent before each of its M measurements, the first before step 1."""

    success: Mapping[int, Floats]
    """[M] by how many numbers the problems have."""
    spent: Mapping[str, Floats]
    """[M] rollouts, response tokens and seconds in tasks so far, without those of the measurements."""

    def mean(self, target: Target) -> Floats:
        """[M] success as the target weighs it."""
        return sum((weight * self.success[count] for count, weight in target.weights.items()), np.zeros(1))

    def cost(self, target: Target, what: str) -> float:
        """What was spent when the target was first met, linear between two measurements; inf if it never was."""
        success, spent = self.mean(target), self.spent[what]
        met = np.flatnonzero(success >= target.success)
        if len(met) == 0:
            return float("inf")
        after, before = int(met[0]), max(int(met[0]) - 1, 0)
        if after == before:
            return 0.0
        share = (target.success - success[before]) / (success[after] - success[before])
        return float(spent[before] + share * (spent[after] - spent[before]))

    def success_at(self, target: Target, rollouts: float) -> float:
        """Success after so many rollouts, linear between two measurements."""
        return float(np.interp(rollouts, self.spent["rollouts"], self.mean(target)))


Curves = Mapping[Key, Curve]


def read_curves(layout: Layout, runs: Mapping[str, Key], heldout: str) -> dict[Key, Curve]:
    """The curves of some runs, which are named by arm and seed."""
    found = pl.DataFrame(query(layout, _CURVES, {"dataset": heldout})).partition_by("run_id", as_dict=True)
    return {key: _curve(found[(run,)]) for run, key in runs.items()}


def _curve(rows: pl.DataFrame) -> Curve:
    parts = rows.partition_by("numbers", as_dict=True)
    first = next(iter(parts.values()))
    return Curve(
        {numbers: part["success"].to_numpy() for (numbers,), part in parts.items()},
        {what: first[what].to_numpy().astype(np.float64) for what in COSTS},
    )


def costs(curves: Curves, arm: str, target: Target, what: str) -> dict[int, float]:
    """What each seed of an arm spent until the target."""
    return {seed: curve.cost(target, what) for (name, seed), curve in curves.items() if name == arm}


def paired_ratio(curves: Curves, arm: str, reference: str, target: Target, what: str) -> float:
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


def paired_difference(curves: Curves, arm: str, reference: str, target: Target, rollouts: float) -> tuple[float, float]:
    """Mean over seeds of the difference in success at equal rollouts, and half its 95 % interval."""
    pairs = [
        (curve, curves[reference, seed])
        for (name, seed), curve in curves.items()
        if name == arm and (reference, seed) in curves
    ]
    found = [ours.success_at(target, rollouts) - theirs.success_at(target, rollouts) for ours, theirs in pairs]
    if len(found) < 2:
        return float(np.mean(found)) if found else float("nan"), float("nan")
    return float(np.mean(found)), float(stats.t.ppf(0.975, len(found) - 1) * stats.sem(found))


def headline(curves: Curves, target: Target) -> list[dict[str, Any]]:
    """What every arm spent until the target, alone and against the references, and its success at equal rollouts."""
    common = min(float(curve.spent["rollouts"][-1]) for curve in curves.values())
    return [_headline(curves, arm, target, common) for arm in arms_of(curves)]


def _headline(curves: Curves, arm: str, target: Target, common: float) -> dict[str, Any]:
    ours = [curve for (name, _), curve in curves.items() if name == arm]
    difference, half = paired_difference(curves, arm, "uniform", target, common)
    return {
        "arm": arm,
        "seeds": len(ours),
        "met": sum(bool(np.isfinite(curve.cost(target, "rollouts"))) for curve in ours),
        **{what: float(np.median([curve.cost(target, what) for curve in ours])) for what in COSTS},
        "ratios": {
            f"{what} / {reference}": paired_ratio(curves, arm, reference, target, what)
            for reference in REFERENCES
            for what in COSTS
        },
        "rollouts_by_seed": costs(curves, arm, target, "rollouts"),
        "common": common,
        "success": [float(np.mean([curve.mean(target)[at] for curve in ours])) for at in (0, -1)],
        "success_at_common": float(np.mean([curve.success_at(target, common) for curve in ours])),
        "less_uniform": [difference, half],
    }


def sweep(curves: Curves, target: Target) -> list[dict[str, Any]]:
    """Median rollouts of every arm until each of the target's values, by value."""
    return [
        {
            "arm": arm,
            "rollouts": {
                value: float(np.median(list(costs(curves, arm, replace(target, success=value), "rollouts").values())))
                for value in sorted((target.success, *target.others))
            },
        }
        for arm in arms_of(curves)
    ]


def arms_of(curves: Curves) -> list[str]:
    """The arms, in the order of their first run."""
    return list(dict.fromkeys(arm for arm, _ in curves))


def read_diagnostics(layout: Layout, runs: Mapping[str, Key], curves: Curves, pool: str) -> list[dict[str, Any]]:
    """Of every arm, means over its runs: what it was shown, how good its forecasts were, and where it ended."""
    shown = {key: _shown(layout, run, pool) for run, key in runs.items()}
    return [
        {
            "arm": arm,
            **_means([one for (name, _), one in shown.items() if name == arm]),
            **_means([_end(curve) for (name, _), curve in curves.items() if name == arm]),
        }
        for arm in arms_of(curves)
    ]


def _shown(layout: Layout, run: str, pool: str) -> dict[str, float]:
    groups = query(layout, _GROUPS, run=run).to_pylist()[0]
    visits = query(layout, _VISITS, {"dataset": pool}, run).to_pylist()
    total, distinct = (sum(one[name] for one in visits) for name in ("visits", "prompts"))
    return {
        **{name: np.nan if value is None else value for name, value in groups.items()},
        "distinct": distinct,
        "repeats": total - distinct,
        **{f"visits, {one['numbers']}": one["visits"] / total for one in visits},
    }


def _end(curve: Curve) -> dict[str, float]:
    spent = {f"all {what}": curve.spent[what][-1] for what in COSTS}
    return {**{f"success, {count}": success[-1] for count, success in curve.success.items()}, **spent}


def _means(found: list[dict[str, float]]) -> dict[str, float]:
    """Mean of each entry that is a number; one that is missing counts as 0."""
    names = dict.fromkeys(name for one in found for name in one)
    kept = {name: [one.get(name, 0.0) for one in found if not np.isnan(one.get(name, 0.0))] for name in names}
    return {name: float(np.mean(values)) if values else float("nan") for name, values in kept.items()}


def headline_table(lines: list[dict[str, Any]]) -> list[str]:
    """Markdown."""
    common = f"success at {lines[0]['common']:,.0f} rollouts"
    head = _head("way", "seeds", "met", *COSTS, *lines[0]["ratios"], common, "less that of uniform")
    rows = [
        _row(
            one["arm"],
            str(one["seeds"]),
            str(one["met"]),
            *(_count(one[what]) for what in COSTS),
            *(f"{ratio:.2f}" if np.isfinite(ratio) else "—" for ratio in one["ratios"].values()),
            f"{one['success_at_common']:.3f}",
            "{:+.3f} ± {:.3f}".format(*one["less_uniform"]),
        )
        for one in lines
    ]
    return [*head, *rows]


def sweep_table(lines: list[dict[str, Any]]) -> list[str]:
    """Markdown."""
    head = _head("rollouts until", *(f"{value:g}" for value in lines[0]["rollouts"]))
    return [*head, *(_row(one["arm"], *map(_count, one["rollouts"].values())) for one in lines)]


def diagnostics_table(lines: list[dict[str, Any]]) -> list[str]:
    """Markdown."""
    names = [name for name in lines[0] if name != "arm"]
    counts = ("distinct", "repeats", *(f"all {what}" for what in COSTS))
    return [
        *_head("way", *names),
        *(
            _row(one["arm"], *(f"{one[name]:,.0f}" if name in counts else f"{one[name]:.3f}" for name in names))
            for one in lines
        ),
    ]


def _head(*cells: str) -> list[str]:
    return [_row(*cells), "|---|" + "---:|" * (len(cells) - 1)]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _count(value: float) -> str:
    return f"{value:,.0f}" if np.isfinite(value) else "not met"


def plot(curves: Curves, targets: Mapping[str, Target], path: Path) -> None:
    """Mean success of each arm against what was spent, a row a target, with the standard error over the seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(len(targets), len(COSTS), figsize=(15, 4.5 * len(targets)), sharey="row")
    for row, (title, target) in zip(panels, targets.items(), strict=True):
        row[0].set_ylabel(f"held-out success, {title}")
        for panel, what in zip(row, COSTS, strict=True):
            _panel(panel, curves, target, what)
    panels[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def _panel(panel: Any, curves: Curves, target: Target, what: str) -> None:
    for arm in arms_of(curves):
        ours = [curve for (name, _), curve in curves.items() if name == arm]
        spent = np.linspace(0.0, min(curve.spent[what][-1] for curve in ours), 60)
        success = np.array([np.interp(spent, curve.spent[what], curve.mean(target)) for curve in ours])
        mean, error = success.mean(axis=0), success.std(axis=0, ddof=min(1, len(ours) - 1)) / np.sqrt(len(ours))
        (line,) = panel.plot(spent, mean, label=arm)
        panel.fill_between(spent, mean - error, mean + error, color=line.get_color(), alpha=0.15)
    panel.axhline(target.success, color="grey", linestyle=":")
    panel.set_xlabel(f"{what} spent")
