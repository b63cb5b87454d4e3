"""Whether a predictor is better than the published version that is the best so far."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from models.difficulty.metrics import ratio_error
from storage.errors import StoreError
from storage.layout import Layout
from storage.registry import Version, read_version, standing_promotions
from tasks.leaderboard import SCORE, no_nan
from tasks.registry import usable_settings
from tasks.replay_plan import ReplayPlan
from tasks.tables import counted
from tasks.unseen import Replayed, Side, judge_unseen

ERRORS = 2.0
"""Standard errors by which the difference must exceed 0 too."""


@dataclass(frozen=True)
class Best:
    """The version that was promoted last, of those that can be used."""

    number: int = 0
    """0 where there is none."""
    side: Side | None = None
    faults: tuple[str, ...] = ()
    """Why those promoted after it cannot be used."""


@dataclass(frozen=True)
class Comparison:
    """A predictor and the best version, on runs and prompts that neither has learned from."""

    score: float
    """NaN where no held-out prompt was rolled out."""
    groups: int
    """Judged ones."""
    prompts: int
    learned: int
    """Groups that the predictor learns from."""
    best: int = 0
    """The version it was compared with, 0 where there was none."""
    best_score: float = math.nan
    best_learned: int = 0
    error: float = math.nan
    """Standard error of the difference of the scores, over prompts."""

    def stored(self) -> dict[str, Any]:
        """As JSON holds it, NaN as null."""
        found: dict[str, Any] = no_nan(asdict(self))
        return found


def stored_comparison(version: Version) -> Comparison | None:
    """What a version was compared with when it was published; None where it does not say."""
    found: Any = version.scores.get("heldout")
    try:
        numbers: dict[str, Any] = {name: math.nan if value is None else value for name, value in found.items()}
        return Comparison(**numbers)
    except (AttributeError, TypeError):
        return None


def version_side(version: Version, reference: str) -> Side:
    """What a version knows.

    Raises:
        StoreError: it cannot be used here.
    """
    return Side(usable_settings(version, reference), version.past, list(version.lineage["datasets"]))


def find_best(layout: Layout, name: str) -> Best:
    """The last promoted version of a name that is whole and can be used here."""
    faults: list[str] = []
    for number in dict.fromkeys(line.version for line in reversed(standing_promotions(layout, name))):
        try:
            side = version_side(read_version(layout, name, number), f"{name}@{number}")
            return Best(number, side, tuple(faults))
        except StoreError as error:
            faults.append(str(error))
    return Best(faults=tuple(faults))


def compare(layout: Layout, plan: ReplayPlan, runs: Replayed, ours: Side, best: Best) -> Comparison:
    """Judge both."""
    mine = judge_unseen(layout, ours, runs, plan.seed, plan.heldout)
    found = Comparison(mine.score, mine.groups, len(mine.losses), len(ours.groups))
    if best.side is None:
        return found
    theirs = judge_unseen(layout, best.side, runs, plan.seed, plan.heldout)
    error = ratio_error(theirs.losses - mine.losses, mine.weights)
    return replace(found, best=best.number, best_score=theirs.score, best_learned=len(best.side.groups), error=error)


def decide(found: Comparison, margin: float, best: Best) -> tuple[bool, str]:
    """Whether a predictor is promoted, and why.

    Equal scores mean that neither knows anything of prompts it never saw; then the one that has learned from more goes.
    """
    promoted, reason = _decide(found, margin, bool(best.faults))
    return promoted, "; ".join([reason, *best.faults])


def _decide(found: Comparison, margin: float, faulty: bool) -> tuple[bool, str]:
    if not found.best:
        return True, "no version that was promoted can be used" if faulty else "it is the first"
    compared = f"held-out {SCORE} {found.score:.4f} against {found.best_score:.4f} of version {found.best}"
    if not math.isfinite(found.score) or not math.isfinite(found.best_score):
        return False, f"{compared}: no held-out prompt was rolled out"
    on = f"{counted(found.groups, 'group')} of {counted(found.prompts, 'prompt')} held out"
    if found.score == found.best_score and found.learned > found.best_learned:
        more = f"it has learned from {found.learned:,} groups, and the other from {found.best_learned:,}"
        return True, f"{compared}, the same ({on}), and {more}"
    gain = found.best_score - found.score
    if gain > margin and not gain > ERRORS * found.error:
        return False, f"{compared}, which may be chance: the standard error is {found.error:.4f} ({on})"
    return (
        gain > margin,
        f"{compared}, {'' if gain > margin else 'not '}better by more than the margin {margin:g} ({on})",
    )
