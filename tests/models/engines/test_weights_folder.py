import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from models.engines.weights_folder import WeightsFolder
from models.errors import EngineError
from models.policy.loading import Policy
from tests.models.engines.vllm_setup import tiny_policy

_HOLDING = """
import sys
from models.engines.weights_folder import WeightsFolder
folder = WeightsFolder(sys.argv[1])
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def policy() -> Policy:
    return tiny_policy()


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_others_can_read_weights_whatever_the_umask(tmp_path: Path, policy: Policy, umask: int) -> None:
    before = os.umask(umask)
    try:
        ours = WeightsFolder(str(tmp_path))
        with ours.holding(policy) as folder:
            assert stat.S_IMODE(ours.path.stat().st_mode) == stat.S_IMODE(folder.stat().st_mode) == 0o755
            assert modes(folder) == {0o644}
            assert (folder / "model.safetensors").is_file()
    finally:
        os.umask(before)
    assert not folder.exists()
    ours.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLDING, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    theirs = Path(other.stdout.readline().strip())
    ours = WeightsFolder(str(tmp_path))
    assert theirs.is_dir()
    other.kill()
    other.wait()
    later = WeightsFolder(str(tmp_path))
    assert set(tmp_path.iterdir()) == {ours.path, later.path}


def test_a_disk_without_room_is_one_line(tmp_path: Path, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = WeightsFolder(str(tmp_path))
    os.chmod(tmp_path, 0o755)

    def full(*_: object, **__: object) -> None:
        from safetensors import SafetensorError

        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(policy.model, "save_pretrained", full)
    message = r"cannot write weights into .* No space left on device .*engine\.weights_folder"
    with pytest.raises(EngineError, match=message), ours.holding(policy):
        pass
    assert {path.name for path in ours.path.iterdir()} == {"in-use"}
