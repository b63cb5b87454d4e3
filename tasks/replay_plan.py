"""What a user asks a replay for. Light to import, so that configurations can be checked without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.settings import PredictorSettings


@dataclass(frozen=True)
class ReplayPlan:
    """What a user asks for, resolved."""

    store: Path
    predictors: Mapping[str, PredictorSettings]
    """What is replayed, by the name it has in the leaderboard."""
    runs: str = "*"
    """Names or globs of the runs, with commas between them."""
    where: str = "true"
    """SQL condition on the columns of the views `runs` and `steps`."""
    rules: Sequence[str] = ()
    """Acquisition rules whose counterfactual values are sought, beside that of each run's own."""
    seed: int = 0
    """Of the bootstrap, and of which prompts are held out."""
    publish: str = ""
    """Name under which the best is published; empty publishes nothing."""
    margin: float = 0.0
    """NLL by which the best must beat the published one on prompts that neither has learned from."""
    heldout: float = 0.1
    """Share of the prompts on which they are compared."""
