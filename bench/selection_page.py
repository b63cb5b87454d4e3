"""Tables and plots of `selection.py`."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

Lines = list[dict[str, Any]]
ABOUT = ("drift", "start", "predictor", "rule")
COLUMNS = {
    "of_oracle": "share / oracle",
    "of_oracle_after_10": "after step 10",
    "rollouts_per_informative": "rollouts an informative group",
    "of_dynamic_sampling": "/ dynamic sampling",
    "regret": "regret",
    "rank_of_truth": "Spearman",
    "brier": "Brier",
    "nll": "NLL",
    "ece": "ECE",
    "distinct": "distinct",
    "repeats": "repeats",
    "seconds": "s a step",
    "opening_seconds": "opening s",
    "array_mib": "MiB",
}
PLOTTED = (
    ("warm", "foreroll", "informative"),
    ("selected", "foreroll", "informative"),
    ("cold", "foreroll", "informative"),
    ("cold", "kalman", "informative, no lookahead"),
    ("cold", "mopps", "thompson"),
    ("cold", "gps", "gps"),
    ("cold", "mean", "uniform"),
)
INTRO = """Everything here but the last two tables comes from the simulator, whose policies are an interpolation between
two models and no training run. Means over {seeds} seeds (fewer where `seeds` says so), after ± their standard
deviation. Informative share counts before any filter; the oracle knows the true rates and rests prompts as long;
`/ dynamic sampling` divides rollouts for an informative group by those of dynamic sampling, which draws uniformly
until enough are informative. Spearman is with all true rates; Brier, NLL and ECE are of 1,000 fixed prompts that are
drawn anew each step, whatever is selected. `told` is a filter that is told how both ends of the drift relate to
`foreroll`'s features: what neither those nor the outcomes say, no method of this kind can know. `cold` runs begin with
nothing, `warm` ones with all rollouts of the models that are neither end of the drift, `selected` ones with the groups
that a cold `foreroll` would have acquired of each. `repeats` are visits to prompts visited before, `opening s` what it
takes to begin, `MiB` the size of what is learned.

Left out: `pcl`, which wants a policy's hidden states; `per_token`, which is `informative` where all lengths are one;
`gps`, `depo` and `dots` with rules that are not their own, for their time. Pairs that nobody proposed run on the first
drift alone. A predictor of `foreroll` is opened once for all seeds of a setting."""
REPLAY = "## A real GRPO run, visit by visit (early / mid / late)"
WARM = """## Warm on MATH test: Spearman before any rollout, and after 128 pilot groups of 8

Means over eight configurations (`Qwen2.5-1.5B` is only learned from). `siblings`: the model itself is left out at all
temperatures; `strangers`: its whole family is; `new`: no run has seen the prompts that are judged. `labelled` is a
ridge regression that is told all 50 rollouts of the model left out on all 7,500 train prompts. Histories are dense, 50
rollouts of every prompt, or groups of 8 that a cold `foreroll` would have acquired, of 34 or 50 % of the prompts."""


def means(lines: Lines) -> Lines:
    """One line for all seeds of a method, best share of each drift and start first."""
    found = []
    for about, ones in _grouped(lines, ABOUT).items():
        mean: dict[str, Any] = dict(zip(ABOUT, about, strict=True))
        mean |= {key: float(np.mean([one[key] for one in ones])) for key in COLUMNS}
        mean |= {"seeds": len(ones), "sd": float(np.std([one["of_oracle"] for one in ones]))}
        found.append(mean)
    order = list(dict.fromkeys(line["drift"] for line in lines))
    return sorted(found, key=lambda one: (order.index(one["drift"]), -one["of_oracle"]))


def warm_means(lines: Lines, labelled: Lines) -> Lines:
    """Means over configurations; `labelled` is of `selection_labelled`, which reads dense histories."""
    by_setting = _grouped(labelled, ("setting",))
    best = {setting: float(np.mean([one["labelled"] for one in ones])) for (setting,), ones in by_setting.items()}
    found = []
    for (setting, history), ones in _grouped(lines, ("setting", "history")).items():
        ranks = {key: float(np.mean([one[key] for one in ones])) for key in ("before", "after")}
        about = {"setting": setting, "history": history, "configurations": len(ones)}
        found.append({**about, **ranks, "labelled": best.get(setting) if history == "dense" else None})
    return found


def text(figures: dict[str, Lines], seeds: int) -> str:
    """The page between head and figures."""
    parts = [INTRO.format(seeds=seeds)]
    for (drift,), lines in _grouped(figures["runs"], ("drift",)).items():
        parts += [f"## {drift}", _runs(lines)]
    parts += ["![Informative share by step](selection-share.png)", "![Forecasts by step](selection-forecasts.png)"]
    return "\n\n".join([*parts, WARM, _warm(figures["warm"]), REPLAY, _replays(figures["replay"])])


def plot(lines: Lines, folder: Path) -> None:
    """Share of the oracle's by step for each drift, and Spearman and ECE on the first."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drifts = _grouped(lines, ("drift",))
    figure, axes = pyplot.subplots(1, max(len(drifts), 1), figsize=(13, 4), sharey=True, squeeze=False)
    for axis, ((drift,), ones) in zip(axes[0], drifts.items(), strict=False):
        _curves(axis, ones, "share_by_step", drift)
        axis.plot(np.mean([one["oracle_by_step"] for one in ones], axis=0), "k:", label="oracle")
    axes[0, 0].set_ylabel("informative share")
    axes[0, 0].legend(fontsize=7)
    _save(figure, folder / "selection-share.png")
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    first = next(iter(drifts.values()), [])
    _curves(axes[0], first, "spearman_by_step", "Spearman with the true rates")
    _curves(axes[1], first, "ece_by_step", "ECE on the probe prompts")
    axes[0].legend(fontsize=7)
    _save(figure, folder / "selection-forecasts.png")
    pyplot.close("all")


def _curves(axis: Any, lines: Lines, key: str, title: str) -> None:
    groups = _grouped(lines, ABOUT[1:])
    for about in PLOTTED:
        if about in groups:
            curve = np.mean([one[key] for one in groups[about]], axis=0)
            smooth = np.convolve(np.pad(curve, 2, mode="edge"), np.full(5, 0.2), mode="valid")
            axis.plot(smooth, label=" ".join(about).replace("cold ", ""), linewidth=1.2)
    axis.set_title(title, fontsize=9)
    axis.set_xlabel("step (mean of 5)")


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def _runs(lines: Lines) -> str:
    head = ["start", "predictor", "rule", "seeds", *COLUMNS.values()]
    rows = [f"| {' | '.join(head)} |", "|---|---|---|" + "---:|" * (len(head) - 3)]
    for line in lines:
        figures = [_number(line, key) for key in COLUMNS]
        about = f"| {line['start']} | {line['predictor']} | {line['rule']} | {line['seeds']} |"
        rows.append(f"{about} {' | '.join(figures)} |")
    return "\n".join(rows)


def _number(line: dict[str, Any], key: str) -> str:
    if key == "of_oracle":
        return f"{line[key]:.3f} ± {line['sd']:.3f}"
    digits = {"distinct": 0, "repeats": 0, "rollouts_per_informative": 2, "opening_seconds": 1, "array_mib": 1}
    return f"{line[key]:.{digits.get(key, 3)}f}"


def _warm(lines: Lines) -> str:
    rows = ["| history | setting | before | after | labelled | configurations |", "|---|---|---:|---:|---:|---:|"]
    for one in lines:
        labelled = "" if one["labelled"] is None else f"{one['labelled']:.3f}"
        ranks = f"{one['before']:.3f} | {one['after']:.3f} | {labelled}"
        rows.append(f"| {one['history']} | {one['setting']} | {ranks} | {one['configurations']} |")
    return "\n".join(rows)


def _replays(lines: Lines) -> str:
    keys = ("spearman", "spearman_untied", "brier", "nll", "ece")
    rows = ["| predictor | Spearman | ties broken at random | Brier | NLL | ECE |", "|---|---|---|---|---|---|"]
    for line in lines:
        figures = " | ".join(" / ".join(f"{value:.4f}"[:6] for value in line[key]) for key in keys)
        rows.append(f"| {line['predictor']} | {figures} |")
    return "\n".join(rows)


def _grouped(lines: Lines, keys: tuple[str, ...]) -> dict[tuple[Any, ...], Lines]:
    found: dict[tuple[Any, ...], Lines] = defaultdict(list)
    for line in lines:
        found[tuple(line[key] for key in keys)].append(line)
    return dict(found)
