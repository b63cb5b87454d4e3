"""Whether a predictor is better than the published version that is the best so far."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from storage.errors import StoreError
from storage.layout import Layout
from storage.registry import read_version, standing_promotions
from storage.replay import RunSteps
from storage.runs import Run
from tasks.heldout import Side, held_out, judge_heldout
from tasks.leaderboard import SCORE
from tasks.registry import usable_settings
from tasks.replay_plan import ReplayPlan
from tasks.replay_pool import replay_pool

History = Sequence[tuple[Run, RunSteps]]
"""The runs of a replay, each with its steps."""


@dataclass(frozen=True)
class Verdict:
    """What came of a comparison."""

    promoted: bool
    reason: str
    nll: float
    """On the prompts held out; NaN where none was rolled out."""
    best: int
    """The version it was compared with, 0 where there is none."""
    best_nll: float
    prompts: int
    """Held out and rolled out."""


def compare(layout: Layout, plan: ReplayPlan, history: History, ours: Side) -> Verdict:
    """A predictor against the last promoted version of the plan's name, on prompts that neither has learned from."""
    best, theirs, notes = _best(layout, plan.publish)
    sides = [ours] if theirs is None else [ours, theirs]
    pool, _ = replay_pool(layout, [run for run, _ in history], [side.settings for side in sides])
    hidden = held_out(pool, plan.seed, plan.heldout)
    judged = [judge_heldout(layout, pool, side, history, hidden) for side in sides]
    nll, best_nll = judged[0].nll, judged[1].nll if theirs else float("nan")
    promoted, reason = _decide(nll, best_nll, plan.margin, best)
    on = f" ({judged[0].groups} groups of {judged[0].prompts} prompts held out)" if best else ""
    return Verdict(promoted, "; ".join([reason + on, *notes]), nll, best, best_nll, judged[0].prompts)


def _best(layout: Layout, name: str) -> tuple[int, Side | None, list[str]]:
    """Number and side of the last promoted version that can be used, 0 and None without any; why others cannot."""
    notes: list[str] = []
    for number in dict.fromkeys(line.version for line in reversed(standing_promotions(layout, name))):
        try:
            version = read_version(layout, name, number)
            return number, Side(usable_settings(version, f"{name}@{number}"), version.past), notes
        except StoreError as error:
            notes.append(str(error))
    return 0, None, notes


def _decide(ours: float, theirs: float, margin: float, best: int) -> tuple[bool, str]:
    """Whether ours is promoted, and why."""
    if not best:
        return True, "it is the first"
    compared = f"held-out {SCORE} {ours:.4f} against {theirs:.4f} of version {best}"
    if not np.isfinite(ours) or not np.isfinite(theirs):
        return False, f"{compared}: no held-out prompt was rolled out"
    if theirs - ours > margin:
        return True, f"{compared}, better by more than the margin {margin:g}"
    return False, f"{compared}, not better by more than the margin {margin:g}"
