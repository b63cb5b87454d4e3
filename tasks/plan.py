"""What a user asks for: a run's plan. Light to import, so that configurations can be checked without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.settings import TrainSettings


@dataclass(frozen=True)
class RunPlan:
    """What a user asks for, resolved."""

    run: str
    store: Path
    steps: int
    """Steps to add, unless an earlier target is unreached."""
    settings: TrainSettings
    config: Mapping[str, Any]
    """The configuration as the run file keeps it."""
    identity: Mapping[str, Any]
    """The part of the configuration that must not change when the run is continued, flat."""
    fork_from: str = ""
    """`RUN` or `RUN@STEP` whose checkpoint the run begins with."""


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
