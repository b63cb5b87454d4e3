"""Everything a store refuses, as one clear line: what, where, and how to mend it."""

from pathlib import Path


class StoreError(Exception):
    """A store that cannot do what was asked; its message is meant for the user."""


class StoreVersionError(StoreError):
    """The store was written by a newer Foreroll."""

    def __init__(self, path: Path, found: int, supported: int) -> None:
        super().__init__(
            f"{path} has format version {found}, and this Foreroll reads up to version {supported}: "
            "install a newer Foreroll, or use another --store"
        )
        self.found = found
        self.supported = supported


class RunLockedError(StoreError):
    """Another process advances the run."""

    def __init__(self, run: str, holder: str) -> None:
        super().__init__(f"run {run} is held by {holder}: wait for it, stop it, or choose another --run")
        self.run = run
        self.holder = holder


class MismatchError(StoreError):
    """Replaying the history gave something else than what it holds."""
