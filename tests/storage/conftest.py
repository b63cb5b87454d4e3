"""Stores for the tests of storage: real files in temporary folders."""

import shutil
from pathlib import Path

import pytest

from storage.history import History
from storage.layout import Layout
from storage.store import open_store
from tests.storage.small_history import make_small_store


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """An empty store."""
    return open_store(tmp_path / "store", create=True)


@pytest.fixture
def history(layout: Layout) -> History:
    """The history of a run that has none yet."""
    return History(layout, "first")


@pytest.fixture(scope="session")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Two runs of three committed steps, to be read only."""
    layout = open_store(tmp_path_factory.mktemp("small") / "store", create=True)
    make_small_store(layout)
    return layout


@pytest.fixture
def store_copy(small_store: Layout, tmp_path: Path) -> Layout:
    """The same, to be damaged."""
    shutil.copytree(small_store.root, tmp_path / "copy")
    return Layout(tmp_path / "copy")
