"""Environment variables that a run from the command line starts with, unless they are set already."""

import os
from pathlib import Path

from flows.config import ConfigError


def apply_defaults() -> None:
    """Set them; call before Prefect and torch are imported.

    Foreroll keeps a Prefect home of its own, because a newer Prefect migrates
    the database of an older one beyond what that can read. Idle OpenMP threads
    sleep instead of spinning, because Prefect's server needs a core too: on two
    cores spinning makes single operations take seconds.

    Raises:
        ConfigError: Prefect's home cannot be created.
    """
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    defaults = {
        "PREFECT_HOME": str(data / "foreroll" / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
        "OMP_WAIT_POLICY": "passive",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    home = Path(os.environ["PREFECT_HOME"]).expanduser()
    try:
        home.mkdir(parents=True, exist_ok=True)  # Prefect itself makes the last folder only
    except OSError as error:
        raise ConfigError(
            f"cannot create {home} ({error.strerror}): set PREFECT_HOME to a folder of your own"
        ) from None
