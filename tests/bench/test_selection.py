import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def selection(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    spec = importlib.util.spec_from_file_location("selection", BENCH / "selection.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop("bench_pages", None)
    return module


def test_warm_rows_never_come_from_either_end_at_any_temperature(selection: ModuleType) -> None:
    models = ["a", "a", "b", "c", "b", "d"]
    assert selection.warm_rows(models, ("a", "b")) == [3, 5]


def test_a_warm_pool_holds_the_other_models_groups_alone(selection: ModuleType) -> None:
    world = object.__new__(selection.World)
    world.models, world.texts, world.embeddings = ["a", "a", "b", "c"], ("x", "y"), None
    world.solved = np.array([[1, 2], [3, 4], [5, 6], [7, 8]])
    past = world.pool(("a", "b"), True).past
    assert past.successes.tolist() == [7, 8]
    assert world.pool(("a", "b"), False).past is None
