"""Cool-down and cap: prompts that were acquired lately, or often enough, are not considered.

No step starves. When fewer prompts are left than a step wants, those that rest
come back, longest-rested first, and after them those at the cap.
"""

from dataclasses import dataclass

import numpy as np

from models.records import Ints
from models.settings import AcquisitionSettings


@dataclass
class Visits:
    """When and how often each prompt of a pool was acquired, up to a step."""

    last: Ints
    """[pool] step of the latest acquisition; 0 for none."""
    count: Ints
    """[pool] acquisitions."""
    through: int = 0
    """The last step that is counted."""

    @classmethod
    def none(cls, pool_size: int) -> "Visits":
        """Before step 1."""
        return cls(np.zeros(pool_size, np.int64), np.zeros(pool_size, np.int64))

    def add(self, rows: Ints) -> None:
        """Count one more step, which acquired these rows."""
        self.through += 1
        self.last[rows] = self.through
        self.count[rows] += 1


def rested(visits: Visits, wanted: int, settings: AcquisitionSettings) -> Ints:
    """Rows that the step after `visits` may consider, ascending: at least `wanted` of them, or all.

    Equally long rested rows come back in order of row.
    """
    step = visits.through + 1
    resting = (visits.last > 0) & (step - visits.last <= settings.cooldown)
    capped = (visits.count >= settings.cap) if settings.cap else np.zeros(len(resting), np.bool_)
    free = np.flatnonzero(~resting & ~capped)
    if len(free) >= wanted:
        return free
    others = np.flatnonzero(resting | capped)
    back = others[np.lexsort((visits.last[others], capped[others]))][: wanted - len(free)]
    return np.sort(np.concatenate([free, back]))


def candidates_wanted(settings: AcquisitionSettings, rounds: int) -> int:
    """Candidates that a step of so many rounds should have at least: those asked for, or twice what it may acquire."""
    return settings.candidates or 2 * settings.batch_size * rounds
