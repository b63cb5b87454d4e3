"""Paths stay below the root, and names that look like paths name nothing."""

from pathlib import Path

import pytest

from storage.errors import StoreError
from storage.layout import Layout, check_name

LAYOUT = Layout(Path("/stores/one"))


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "../up", "a/b", "/etc", "a\\b", "C:", "~", ".hidden", "-x", "_x", "A", "a b", "a\n", "a\x00",
        "é", "a" * 65, "run_id=a", "a*", "a'b",
    ],
)  # fmt: skip
def test_a_name_that_is_no_portable_file_name_is_refused(name: str) -> None:
    for path in (LAYOUT.run_file, LAYOUT.lock_file, LAYOUT.checkpoints):
        with pytest.raises(StoreError) as refused:
            path(name)
        assert str(refused.value) == (
            f"run name {name!r} is not allowed: use up to 64 of a-z, 0-9, '.', '_' and '-', "
            "beginning with a letter or digit"
        )
    for dataset_path in (LAYOUT.dataset, lambda name: LAYOUT.embeddings("encoder", name)):
        with pytest.raises(StoreError, match=r"^dataset name"):
            dataset_path(name)
    with pytest.raises(StoreError, match=r"^run name"):
        LAYOUT.part("rollouts", name, 1)


@pytest.mark.parametrize("name", ["a", "0", "countdown-pool", "run.2_b", "a..b", "a" * 64])
def test_other_names_are_allowed(name: str) -> None:
    assert check_name("run", name) == name


def test_paths_are_those_that_the_store_promises() -> None:
    root = Path("/stores/one")
    assert LAYOUT.store_file() == root / "store.json"
    assert LAYOUT.part("rollouts", "a", 12, 3) == root / "history/rollouts/run_id=a/step=00000012/part-3.parquet"
    assert LAYOUT.commit("a", 12) == root / "history/steps/run_id=a/step=00000012/part-0.parquet"
    assert LAYOUT.dataset("pool") == root / "prompts/pool/part-0.parquet"
    assert LAYOUT.embeddings("wordllama", "pool") == root / "embeddings/wordllama/pool.parquet"
    assert LAYOUT.checkpoint("a", 12) == root / "checkpoints/a/step=00000012"
    assert LAYOUT.run_file("a") == root / "runs/a.json"
    assert LAYOUT.lock_file("a") == root / "runs/a.lock"


def test_folders_of_steps_sort_as_their_numbers() -> None:
    folders = [LAYOUT.parts("rollouts", "a", step) for step in (2, 10, 99_999_999)]
    assert folders == sorted(folders)
