"""The folder through which weights reach servers: readable to other users, and gone with its process."""

import fcntl
import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from models.errors import EngineError
from models.policy.loading import Policy, save_policy

_LOCK = "in-use"


class WeightsFolder:
    """A folder of this process. The lock in it ends with the process, however that ends."""

    def __init__(self, parent: str) -> None:
        """Make it, and remove those that killed processes of this host left beside it.

        Args:
            parent: folder to make it in; empty means the system's for temporary files.

        Raises:
            EngineError: it cannot be made.
        """
        prefix = f"foreroll-weights-{socket.gethostname()}-"
        above = Path(parent or tempfile.gettempdir())
        _remove_dead(above, prefix)
        try:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=above))
            self._lock = _hold_lock(self.path)
            self.path.chmod(0o755)
        except OSError as error:
            raise EngineError(f"cannot make a folder for weights ({error}): see engine.weights_folder") from error

    @contextmanager
    def holding(self, policy: Policy) -> Iterator[Path]:
        """A folder that has the policy's weights for the length of the block.

        Raises:
            EngineError: they cannot be written.
        """
        folder = self.path / f"policy-{uuid.uuid4().hex}"
        try:
            try:
                folder.mkdir()
                save_policy(policy, folder)
                folder.chmod(0o755)
                for file in folder.iterdir():
                    file.chmod(0o644)
            except OSError as error:
                raise EngineError(f"cannot write weights into {folder}: {error}: see engine.weights_folder") from error
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _hold_lock(folder: Path) -> int:
    """An open lock file, locked before it has the name that others look for."""
    fresh = folder / f"{_LOCK}.new"
    lock = os.open(fresh, os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    fresh.rename(folder / _LOCK)
    return lock


def _remove_dead(above: Path, prefix: str) -> None:
    """Remove the folders of processes that are gone; those of other users are left alone."""
    for folder in above.glob(f"{prefix}*"):
        with suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
