"""Dynamic sampling (DAPO, arXiv 2503.14476, section 3.2), made to degrade.

Groups that all solve or all fail carry no gradient. While they leave the batch
short, another round is generated; at the cap the step trains on what it has.
No group is used twice, and no step is given up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from models.settings import DynamicSamplingSettings


@dataclass(frozen=True)
class Outcome:
    """The outcome of one group."""

    successes: int
    valid: int
    """Rollouts with a verdict."""

    @property
    def informative(self) -> bool:
        """0 < successes < valid, on the binary outcome and never on a shaped reward."""
        return 0 < self.successes < self.valid


def reject_reasons(outcomes: Sequence[Outcome], *, filtering: bool, room: int) -> list[str | None]:
    """Why each group is not trained on; None for those that are.

    Args:
        outcomes: groups of one round, in order of rank.
        filtering: whether dynamic sampling is on; off, every group with two valid rollouts is trained on.
        room: informative groups that the batch still lacks; further ones are surplus.
    """
    reasons: list[str | None] = []
    for outcome in outcomes:
        reason = _reject_reason(outcome) if filtering else _too_few(outcome)
        if filtering and reason is None:
            reason = None if room > 0 else "surplus"
            room -= 1
        reasons.append(reason)
    return reasons


def wants_another_round(
    settings: DynamicSamplingSettings, *, informative: int, batch_size: int, rounds: int, remaining: int
) -> bool:
    """Whether a step goes on sampling.

    Args:
        informative: informative groups of the rounds so far.
        remaining: candidates that no round has chosen.
    """
    return settings.enabled and informative < batch_size and rounds < settings.max_rounds and remaining > 0


def _too_few(outcome: Outcome) -> str | None:
    return "too_few_valid" if outcome.valid < 2 else None


def _reject_reason(outcome: Outcome) -> str | None:
    if outcome.informative:
        return None
    if outcome.valid < 2:
        return "too_few_valid"
    return "all_wrong" if outcome.successes == 0 else "all_correct"
