"""Settings of Prefect that a run from the command line starts with, unless the environment says otherwise."""

import os
from pathlib import Path


def apply_prefect_defaults() -> None:
    """Set environment variables; call before Prefect is imported.

    Foreroll keeps a Prefect home of its own, because a newer Prefect migrates
    the database of an older one beyond what that can read.
    """
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    defaults = {
        "PREFECT_HOME": str(data / "foreroll" / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
